"""`boxmatch bench spark`: Spark against the engine alone and against a join in Spark SQL."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.options import refused_parameters, with_options
from boxmatch.cli.terminal import output
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import (
    JsonPath,
    Row,
    bar,
    folder_or_temporary,
    measure_parts,
    present,
    show,
)
from boxmatch_bench.options import SparkOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench spark --subscriptions 100000 --events 100000",
    "boxmatch bench spark --sweep subscriptions --json spark.jsonl",
    "boxmatch bench spark --adapt --repeats 2   # a stream with an adjuster",
    "boxmatch bench spark --transitions --json spark.jsonl",
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
    transitions: Annotated[
        bool,
        typer.Option(
            "--transitions",
            help="Measure transitions instead: updates of publications, 20,000 subscriptions by "
            "default.",
        ),
    ] = False,
    updates: Annotated[
        int | None,
        typer.Option(min=10, help="Updates for --transitions; 300,000 by default."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    options: SparkOptions,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Folder for temporary files."),
    ] = None,
    json_path: JsonPath = None,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Measure a stream under a fluctuating load instead, with and without the "
            "adjuster; 50,000 subscriptions by default.",
        ),
    ] = False,
    load: Annotated[
        float | None,
        typer.Option(help="With --adapt: average load, as a share of the exact capacity; 1.0."),
    ] = None,
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

    With --transitions, compares boxmatch.spark.transitions with Spaces alone, which must tell the
    same transitions. The papers' figures on Spark: boxmatch bench reproduce subject-spaces-spark.
    """
    if load is not None and not adapt:
        raise typer.BadParameter("--load is for --adapt")
    if estimate:
        _estimate(json_path)
        return
    if adapt:
        if sweep or events is not None:
            raise typer.BadParameter("--adapt measures one setting, and finds its own events")
        _adapt(subscriptions, seed, 1.0 if load is None else load, options, scratch, json_path)
        return
    if transitions:
        with refused_parameters():
            _check_transitions(sweep, events, options)
        _transitions(subscriptions, updates, seed, options, scratch, json_path)
        return
    if updates is not None:
        raise typer.BadParameter("--updates is for --transitions")
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


def _adapt(
    subscriptions: int | None,
    seed: int,
    load: float,
    options: SparkOptions,
    scratch: Path | None,
    json_path: Path | None,
) -> None:
    from boxmatch_bench.settings import Overload
    from boxmatch_bench.tables import adapt_tables

    with refused_parameters():
        setting = Overload(load=load)
        count = subscriptions or setting.workload.subscriptions
        workload = replace(setting.workload, seed=seed, subscriptions=count)
        setting = replace(setting, workload=workload)
    with requires("spark", "matching on Spark"):
        import pyspark  # noqa: F401 - to see now whether it is there
    from boxmatch_bench.spark.overload import measure_overload

    def say(_: Console, rows: list[Row]) -> str:
        return f"{options.master}, {setting.index}; no match was missing"

    with folder_or_temporary(scratch) as folder, bar(counted=False) as shown:
        task = shown.add_task("", total=None)
        rows = measure_overload(
            setting, options, folder, lambda name: shown.update(task, description=name)
        )
    present(rows, json_path, adapt_tables, say)


def _check_transitions(sweep: list[str] | None, events: int | None, options: SparkOptions) -> None:
    """Raise `ValueError` for options that would be ignored."""
    if sweep or events is not None:
        raise ValueError("--transitions has no sweeps and no events: give --updates")
    used = {name: getattr(options, name) for name in ("master", "driver_memory", "repeats")}
    if options != SparkOptions(**used):
        raise ValueError("--transitions takes --master, --driver-memory and --repeats only")


def _transitions(
    subscriptions: int | None,
    updates: int | None,
    seed: int,
    options: SparkOptions,
    scratch: Path | None,
    json_path: Path | None,
) -> None:
    from boxmatch_bench.settings import choose_movement
    from boxmatch_bench.tables import transitions_tables

    with refused_parameters():
        movement = choose_movement(subscriptions, updates, seed)
    with requires("spark", "transitions on Spark"):
        import pyspark  # noqa: F401 - to see now, and not after a minute, whether it is there
    from boxmatch_bench.spark.transitions import STAGES, measure

    label = f"{movement.workload.subscriptions:,} × {movement.rows:,}"
    with folder_or_temporary(scratch) as folder:
        parts = [(label, partial(measure, movement, options, folder))]
        present(
            measure_parts(parts, STAGES),
            json_path,
            transitions_tables,
            lambda _, rows: (
                f"{options.master}, best of {options.repeats}; all "
                f"{rows[0]['transitions']:,} transitions equal those of spaces alone"
            ),
        )


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
