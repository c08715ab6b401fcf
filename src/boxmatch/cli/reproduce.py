"""`boxmatch bench reproduce`: run the papers' experiments again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from boxmatch.bench.reproduce.experiment import Experiment
    from boxmatch.bench.reproduce.plan import Options
    from boxmatch.bench.reproduce.results import Results

_RESULTS = "results.jsonl"
_REPORT = "report.html"


class BenchGroup(TyperGroup):
    """Runs `run` unless the first word is a command of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="rapidmatch, rein, ada-rein, hem, subject-spaces, or all; or single experiments "
            "by name.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(help="Share of the experiments' numbers of subscriptions and publications."),
    ] = 1.0,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Event file for HEM's experiments, up to as many attributes as it has columns.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workloads.")] = 1,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where results and report go.")
    ] = Path("reproduction"),
    restart: Annotated[
        bool, typer.Option("--restart", help="Measure everything again, instead of going on.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Show the experiments.")] = False,
) -> None:
    """Run the papers' experiments again and set our figures beside theirs.

    Writes results.jsonl and report.html, one file that needs no network. A run that is cut short
    goes on where it stopped. What is measured on disk (subject-spaces-durable) is written beside
    the results, and removed.
    """
    from rich.console import Console

    # Into a file or a pipe there is no width to respect.
    console = Console(width=None if sys.stdout.isatty() else 180)
    if show_list:
        _list(console)
        return
    from boxmatch.bench.reproduce.catalogue import PAPERS, choose
    from boxmatch.bench.reproduce.html import PlottingError, require_plotting
    from boxmatch.bench.reproduce.plan import Options
    from boxmatch.bench.reproduce.results import Results

    if not names:
        raise typer.BadParameter(f"name a paper ({', '.join(PAPERS)}) or all")
    try:
        require_plotting()
        experiments = choose(names)
        options = Options(scale=scale, seed=seed, event_file=events)
        results = Results(out / _RESULTS, restart=restart)
    except (ValueError, PlottingError) as error:
        raise typer.BadParameter(str(error)) from None
    run = _run(experiments, options, results)
    _write(console, experiments, results, run, out / _REPORT)


def _list(console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from boxmatch.bench.reproduce.catalogue import PAPERS

    table = Table("paper", "experiment", "figure", "title", box=SIMPLE_HEAD, pad_edge=False)
    for name, paper in PAPERS.items():
        for experiment in paper.experiments:
            table.add_row(name, experiment.name, experiment.figure, experiment.title)
    console.print(table)


class _Bar:
    """Shows a run on a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def start(self, measurements: int, done: int) -> None:
        self._progress.update(self._task, total=measurements, completed=done)

    def doing(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def finished(self) -> None:
        self._progress.advance(self._task)


def _run(experiments: list[Experiment], options: Options, results: Results) -> dict[str, Any]:
    """Measure; return what the rows of this run have in common."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from boxmatch.bench.measure import MismatchError
    from boxmatch.bench.reproduce.runner import run

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            origin = run(experiments, options, results, _Bar(progress))
    except MismatchError as error:
        typer.echo(f"boxmatch: wrong answer in {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("boxmatch: stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None
    return {**options.identity, "commit": origin["commit"]}


def _write(
    console: Console,
    experiments: list[Experiment],
    results: Results,
    run: dict[str, Any],
    path: Path,
) -> None:
    from boxmatch.bench.reproduce.findings import spaces_aims, tile_not_fastest
    from boxmatch.bench.reproduce.grid import NOT_COMPARABLE, Grid
    from boxmatch.bench.reproduce.html import report
    from boxmatch.bench.reproduce.tables import console_table, tables

    rows = results.of_run(run)
    grids = [Grid(e, [r for r in rows if r["experiment"] == e.name]) for e in experiments]
    for grid in grids:
        experiment = grid.experiment
        console.rule(f"{experiment.paper}, {experiment.figure}", align="left")
        console.print(f"[b]{experiment.title}[/b]\n{experiment.found}")
        for table in tables(grid):
            console.print(console_table(table))
    if not all(grid.comparable for grid in grids):
        console.print(NOT_COMPARABLE)
    slower, won = tile_not_fastest(grids)
    if won or slower.rows:
        console.rule("tile", align="left")
        console.print(
            f"tile is the fastest exact index in {won} comparisons of {won + len(slower.rows)}"
        )
    if slower.rows:
        console.print(console_table(slower))
    aims = spaces_aims(grids)
    if aims:
        console.rule("spaces", align="left")
        for aim in aims:
            console.print(aim)
    path.write_text(report(rows, run), encoding="utf-8")
    console.print(f"{len(rows)} rows in {results.path}, report in {path}")
