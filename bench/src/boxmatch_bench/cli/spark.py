"""`boxmatch bench spark`: Spark against the engine alone and against a join in Spark SQL."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import (
    JsonPath,
    Row,
    folder_or_temporary,
    measure_parts,
    present,
    refused_parameters,
    show,
    with_options,
)
from boxmatch_bench.options import SparkOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench spark --subscriptions 100000 --events 100000",
    "boxmatch bench spark --sweep subscriptions --json spark.jsonl",
    "boxmatch bench spark --estimate --json spark.jsonl   # for a cluster",
)
@with_options
def bench_spark(
    *,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Vary subscriptions (100,000 to 10,000,000) or events (100,000 to 3,000,000); "
            "repeatable.",
        ),
    ] = None,
    subscriptions: Annotated[
        int | None, typer.Option(min=1, help="Subscriptions; 1,000,000 by default.")
    ] = None,
    events: Annotated[int | None, typer.Option(min=1, help="Events; 1,000,000 by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    options: SparkOptions,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Folder for temporary files."),
    ] = None,
    json_path: JsonPath = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Estimate a cluster from the lines in --json, without measuring.",
        ),
    ] = False,
) -> None:
    """Benchmark matching on Spark: a million events and subscriptions.

    Compares Spark with the engine alone and with a join in Spark SQL. Spark's pairs are checked
    against the engine's by count and checksum, and some events against scan.
    """
    if estimate:
        _estimate(json_path)
        return
    from boxmatch_bench.settings import choose_sweeps
    from boxmatch_bench.tables import spark_tables

    with refused_parameters():
        settings = choose_sweeps(sweep or [], subscriptions, events, seed)
    with requires("spark", "matching on Spark"):
        import pyspark  # noqa: F401 - to see now, and not after a minute, whether it is there
    from boxmatch_bench.spark.measure import STAGES, measure

    def say(_: Console, rows: list[Row]) -> str:
        return (
            f"{options.master}, {options.plan} plan, best of {options.repeats}; pairs equal those "
            f"of the engine alone, and {rows[0]['checked_events']} events of each setting those "
            "of scan"
        )

    with folder_or_temporary(scratch) as folder:
        parts = [
            (
                f"{setting.workload.subscriptions:,} × {setting.events:,}",
                partial(measure, setting, options, folder),
            )
            for setting in settings
        ]
        present(measure_parts(parts, STAGES * len(parts)), json_path, spark_tables, say)


def _estimate(json_path: Path | None) -> None:
    from boxmatch_bench.spark.estimate import estimate_tables

    if json_path is None or not json_path.exists():
        raise typer.BadParameter("--estimate needs --json with the lines of an earlier run")
    try:
        lines = json_path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        raise typer.BadParameter(f"{json_path} does not hold JSON lines: {error}") from None
    rows = [row for row in rows if isinstance(row, dict) and row.get("bench") == "spark"]
    if not rows:
        raise typer.BadParameter(f"{json_path} has no lines of boxmatch bench spark")
    show(output(), estimate_tables(rows))
