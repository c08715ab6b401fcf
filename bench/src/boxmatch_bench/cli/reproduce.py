"""`boxmatch bench reproduce`: run the papers' experiments again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples, filter_by_prefix
from boxmatch.cli.options import refused_parameters
from boxmatch.cli.terminal import AsJson, output, print_json
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import bar, exit_on_failure, show
from boxmatch_bench.options import PADA

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from boxmatch_bench.reproduce.experiment import Experiment
    from boxmatch_bench.tables import Row


def experiment_names(incomplete: str) -> list[str]:
    """Papers, and their experiments."""
    from boxmatch_bench.reproduce.catalogue import PAPERS

    single = [one.name for paper in PAPERS.values() for one in paper.experiments]
    return filter_by_prefix([*PAPERS, "all", *single, "pada", *PADA], incomplete)


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
            help="rapidmatch, rein, ada-rein, hem, subject-spaces, or all; pada and "
            "subject-spaces-spark, which are not part of all; or single experiments by name.",
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
            "0.7, 0.8, 0.9 and 0.95 by default."
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Repetitions of pada-fluctuation; 10 by default.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Measure all sizes of the papers, up to 10,000,000 subscriptions; this takes "
            "hours, and tens of gigabytes of memory.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Workloads that are measured at the same time, each on a core, as far as there "
            "is memory; 1 by default, with --full as many as there are cores.",
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
    from boxmatch.kernels.threads import cores
    from boxmatch_bench.reproduce.catalogue import PAPERS, choose
    from boxmatch_bench.reproduce.report import require_plotting
    from boxmatch_bench.reproduce.runner import Options, run
    from boxmatch_bench.results import Results
    from boxmatch_bench.settings import Bed

    if not names:
        raise typer.BadParameter(f"name a paper ({', '.join(PAPERS)}), pada or all")
    on_broker = [name for name in names if name == "pada" or name in PADA]
    with refused_parameters():
        require_plotting()
        experiments = choose(name for name in names if name not in on_broker)
        at_once = jobs or (cores() if full else 1)
        options = Options(scale=scale, seed=seed, event_file=events, full=full, jobs=at_once)
        bed = Bed().at(scale, seed, load, repeats)
        results = Results(out / "results.jsonl", restart=restart)

    # With --json the tables are kept back; the report is written in any case.
    console.quiet = as_json

    def write(rows: list[Row], page: str, path: Path) -> None:
        path.write_text(page, encoding="utf-8")
        console.print(f"{len(rows)} rows in {results.path}, report in {path}")
        for row in rows if as_json else ():
            print_json(row)

    if experiments:
        with _watcher() as watcher:
            origin = run(experiments, options, results, watcher)
        of_run = {**options.identity, "commit": origin["commit"]}
        rows = results.of_run(of_run)
        write(rows, _present(console, experiments, rows, of_run), out / "report.html")
    if on_broker:
        with requires("broker", "a broker"):
            from boxmatch_bench.pada import runner
        chosen = PADA if "pada" in on_broker else on_broker
        with _watcher() as watcher:
            of_run = runner.run(chosen, bed, scale, results, watcher)
        every = [row for row in results.of_run(of_run) if row["experiment"] in PADA]
        rows = [row for row in every if row["workload"] == bed.parameters]
        write(rows, _present_pada(console, rows, of_run), out / "pada.html")


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
    rows += [("pada", name, *listed) for name, listed in PADA.items()]
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
        self._left = ""

    def start(self, measurements: int, done: int) -> None:
        self._progress.update(self._task, total=measurements, completed=done)

    def doing(self, what: str) -> None:
        self._progress.update(self._task, description=f"{what}{self._left}")

    def finished(self, left: float | None = None) -> None:
        self._progress.advance(self._task)
        if left is not None:
            self._left = f", about {_minutes(left)} left"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


@contextmanager
def _watcher() -> Iterator[_Bar]:
    """A progress bar; a failure or Ctrl-C below it ends the program with a message."""
    try:
        with exit_on_failure(), bar() as shown:
            yield _Bar(shown)
    except KeyboardInterrupt:
        typer.echo("boxmatch: stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None


def _present(
    console: Console, experiments: list[Experiment], rows: list[Row], run: dict[str, Any]
) -> str:
    """Tables on the console, and the report."""
    from boxmatch_bench.reproduce.catalogue import PAPERS
    from boxmatch_bench.reproduce.claims import counted, judge
    from boxmatch_bench.reproduce.contest import tile_not_fastest
    from boxmatch_bench.reproduce.report import report
    from boxmatch_bench.reproduce.tables import NOT_COMPARABLE, grids_of, tables

    by_name = grids_of(PAPERS, rows)
    grids = [by_name[experiment.name] for experiment in experiments]
    for grid in grids:
        experiment = grid.experiment
        console.rule(f"{experiment.paper}, {experiment.figure}", align="left")
        console.print(f"[b]{experiment.title}[/b]")
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
    verdicts = [judge(claim, grid) for grid in grids for claim in grid.experiment.claims]
    if verdicts:
        console.rule("claims of the papers", align="left")
        console.print(counted(verdicts))
    return report(rows, run)


def _present_pada(console: Console, rows: list[Row], run: dict[str, Any]) -> str:
    """Tables on the console, and the report."""
    from boxmatch_bench.pada.report import report, tables, verdicts

    show(console, tables(rows))
    for verdict in verdicts(rows):
        console.print(verdict)
    return report(rows, run)
