"""`boxmatch bench reproduce pada`: the experiments that need a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from boxmatch.extras import requires

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.reproduce.runner import Watcher
    from boxmatch_bench.results import Results
    from boxmatch_bench.settings import Bed

NAMES = ("pada", "pada-rates", "pada-fluctuation", "pada-overload")
"""They are not among `all`: they load the whole machine for a quarter of an hour."""
LISTED = (
    ("pada-rates", "Rates", "What skipping gains in the engine alone, by rate and size of batch"),
    ("pada-fluctuation", "Figure 5", "The adjuster in a broker, under a load that fluctuates"),
    ("pada-overload", "Overload", "Twice what exact matching carries for a minute, then nothing"),
)
"""Name, figure and title of each."""
_REPORT = "pada.html"


def bed_of(scale: float, seed: int, load: float | None) -> Bed:
    """The test bed; `ValueError` if it makes no sense."""
    from boxmatch_bench.settings import Bed

    return Bed().at(scale, seed, load)


def measure(
    names: list[str], bed: Bed, scale: float, results: Results, watcher: Watcher
) -> dict[str, Any]:
    """Run what is named; what goes wrong ends the program with a sentence."""
    with requires("broker", "a broker"):
        from boxmatch_bench.pada import runner
    from boxmatch_bench.checking import FailedError

    experiments = [one for name in names for one in runner.NAMES[name]]
    try:
        return runner.run(experiments, bed, scale, results, watcher)
    except FailedError as error:
        typer.echo(f"boxmatch: no answer: {error}", err=True)
        raise typer.Exit(1) from None


def write(console: Console, bed: Bed, results: Results, run: dict[str, Any], folder: Path) -> None:
    """Tables on the console, and the report."""
    from boxmatch_bench.pada.report import report
    from boxmatch_bench.pada.runner import EXPERIMENTS
    from boxmatch_bench.pada.tables import tables, verdicts
    from boxmatch_bench.tables import console_table

    rows = [
        row
        for row in results.of_run(run)
        if row["experiment"] in EXPERIMENTS and row["workload"] == bed.parameters
    ]
    for table in tables(rows):
        console.print(console_table(table))
    for verdict in verdicts(rows):
        console.print(verdict)
    path = folder / _REPORT
    path.write_text(report(rows, run), encoding="utf-8")
    console.print(f"{len(rows)} rows in {results.path}, report in {path}")
