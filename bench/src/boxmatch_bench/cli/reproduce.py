"""`boxmatch bench reproduce`: run the papers' experiments again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples, filter_by_prefix
from boxmatch.cli.terminal import AsJson, output, print_json, progress
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import exit_on_failure, show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from boxmatch_bench.reproduce.experiment import Experiment
    from boxmatch_bench.reproduce.runner import Watcher
    from boxmatch_bench.results import Results
    from boxmatch_bench.settings import Bed

_RESULTS = "results.jsonl"
_REPORT = "report.html"
_PADA_REPORT = "pada.html"
PADA = ("pada", "pada-rates", "pada-fluctuation", "pada-overload")
"""They are not among `all`: they load the whole machine for a quarter of an hour."""
_PADA_LISTED = (
    ("pada-rates", "Rates", "What skipping gains in the engine alone, by rate and size of batch"),
    ("pada-fluctuation", "Figure 5", "The adjuster in a broker, under a load that fluctuates"),
    ("pada-overload", "Overload", "Twice what exact matching carries for a minute, then nothing"),
)
"""Name, figure and title of each."""


def experiment_names(incomplete: str) -> list[str]:
    """Papers, and their experiments."""
    from boxmatch_bench.reproduce.catalogue import PAPERS

    single = [one.name for paper in PAPERS.values() for one in paper.experiments]
    return filter_by_prefix([*PAPERS, "all", *single, *PADA], incomplete)


@examples(
    "boxmatch bench reproduce --list",
    "boxmatch bench reproduce hem --scale 0.1",
    "boxmatch bench reproduce all --out reproduction   # about an hour",
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="rapidmatch, rein, ada-rein, hem, subject-spaces, or all; pada, which is not "
            "part of all; or single experiments by name.",
            autocompletion=experiment_names,
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(help="Scale of the numbers of subscriptions and publications."),
    ] = 1.0,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Event file for HEM's experiments; its columns limit the number of attributes.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workloads.")] = 1,
    load: Annotated[
        float | None,
        typer.Option(
            help="Average load of pada-fluctuation, as a share of the exact capacity; "
            "0.95 by default."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for results and reports.")
    ] = Path("reproduction"),
    restart: Annotated[
        bool, typer.Option("--restart", help="Measure everything again instead of resuming.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rerun the experiments of the papers.

    Compares our figures with the published ones. Writes results.jsonl and report.html, which needs
    no network. An interrupted run resumes where it stopped. Experiments on disk
    (subject-spaces-durable, pada) write to the same folder and clean up. pada runs a broker
    under load and writes pada.html.
    """
    console = output(wide=180)
    if show_list:
        _list(console, as_json=as_json)
        return
    from boxmatch_bench.reproduce.catalogue import PAPERS, choose
    from boxmatch_bench.reproduce.html import require_plotting
    from boxmatch_bench.reproduce.runner import Options, run
    from boxmatch_bench.results import Results
    from boxmatch_bench.settings import Bed

    if not names:
        raise typer.BadParameter(f"name a paper ({', '.join(PAPERS)}), pada or all")
    on_broker = [name for name in names if name in PADA]
    try:
        require_plotting()
        experiments = choose(name for name in names if name not in on_broker)
        options = Options(scale=scale, seed=seed, event_file=events)
        bed = Bed().at(scale, seed, load)
        results = Results(out / _RESULTS, restart=restart)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if experiments:
        with _showing() as bar:
            origin = run(experiments, options, results, bar)
        of_run = {**options.identity, "commit": origin["commit"]}
        # With --json the tables are kept back; the report is written in any case.
        with _quiet(console, as_json):
            _write(console, experiments, results, of_run, out / _REPORT)
        _print_rows(results, of_run, as_json)
    if on_broker:
        with _showing() as bar:
            of_run = _measure_pada(on_broker, bed, scale, results, bar)
        with _quiet(console, as_json):
            _write_pada(console, bed, results, of_run, out / _PADA_REPORT)
        _print_rows(results, of_run, as_json)


@contextmanager
def _quiet(console: Console, wanted: bool) -> Iterator[None]:
    console.quiet = wanted
    yield
    console.quiet = False


def _print_rows(results: Results, run: dict[str, Any], wanted: bool) -> None:
    if wanted:
        for row in results.of_run(run):
            print_json(row)


def _list(console: Console, *, as_json: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from boxmatch_bench.reproduce.catalogue import PAPERS

    columns = ("paper", "experiment", "figure", "title")
    rows = [
        (name, experiment.name, experiment.figure, experiment.title)
        for name, paper in PAPERS.items()
        for experiment in paper.experiments
    ]
    rows += [("pada", *listed) for listed in _PADA_LISTED]
    if as_json:
        for row in rows:
            print_json(dict(zip(columns, row, strict=True)))
        return
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
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


@contextmanager
def _showing() -> Iterator[_Bar]:
    """A progress bar; what goes wrong under it ends the program with a sentence."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with exit_on_failure(), progress(*columns) as bar:
            yield _Bar(bar)
    except KeyboardInterrupt:
        typer.echo("boxmatch: stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None


def _write(
    console: Console,
    experiments: list[Experiment],
    results: Results,
    run: dict[str, Any],
    path: Path,
) -> None:
    from boxmatch_bench.reproduce.findings import spaces_aims, tile_not_fastest
    from boxmatch_bench.reproduce.html import report
    from boxmatch_bench.reproduce.tables import NOT_COMPARABLE, Grid, tables

    rows = results.of_run(run)
    grids = [Grid(e, [r for r in rows if r["experiment"] == e.name]) for e in experiments]
    for grid in grids:
        experiment = grid.experiment
        console.rule(f"{experiment.paper}, {experiment.figure}", align="left")
        console.print(f"[b]{experiment.title}[/b]\n{experiment.found}")
        show(console, tables(grid))
    if not all(grid.comparable for grid in grids):
        console.print(NOT_COMPARABLE)
    slower, won = tile_not_fastest(grids)
    if won or slower.rows:
        console.rule("tile", align="left")
        console.print(
            f"tile is the fastest exact index in {won} comparisons of {won + len(slower.rows)}"
        )
    if slower.rows:
        show(console, [slower])
    aims = spaces_aims(grids)
    if aims:
        console.rule("spaces", align="left")
        for aim in aims:
            console.print(aim)
    path.write_text(report(rows, run), encoding="utf-8")
    console.print(f"{len(rows)} rows in {results.path}, report in {path}")


def _measure_pada(
    names: list[str], bed: Bed, scale: float, results: Results, watcher: Watcher
) -> dict[str, Any]:
    """Run the experiments that need a broker."""
    with requires("broker", "a broker"):
        from boxmatch_bench.pada import runner
    experiments = [one for name in names for one in runner.NAMES[name]]
    return runner.run(experiments, bed, scale, results, watcher)


def _write_pada(
    console: Console, bed: Bed, results: Results, run: dict[str, Any], path: Path
) -> None:
    """Tables on the console, and the report."""
    from boxmatch_bench.pada.report import report, tables, verdicts
    from boxmatch_bench.pada.runner import EXPERIMENTS

    rows = [
        row
        for row in results.of_run(run)
        if row["experiment"] in EXPERIMENTS and row["workload"] == bed.parameters
    ]
    show(console, tables(rows))
    for verdict in verdicts(rows):
        console.print(verdict)
    path.write_text(report(rows, run), encoding="utf-8")
    console.print(f"{len(rows)} rows in {results.path}, report in {path}")
