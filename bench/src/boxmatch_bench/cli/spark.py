"""`boxmatch bench spark`: Spark against the engine alone and against a join in Spark SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output, progress
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import (
    JsonLines,
    JsonPath,
    collect,
    folder_or_temporary,
    show,
    show_origin,
)

if TYPE_CHECKING:
    from boxmatch_bench.settings import SparkOptions, SparkSetting


@examples(
    "boxmatch bench spark --subscriptions 100000 --events 100000",
    "boxmatch bench spark --sweep subscriptions --json spark.jsonl",
    "boxmatch bench spark --estimate --json spark.jsonl   # for a cluster",
)
def bench_spark(
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
    master: Annotated[
        str, typer.Option(help="Spark master; the engine alone uses as many threads.")
    ] = "local[2]",
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's JVM.")] = "2g",
    shards: Annotated[
        int | None, typer.Option(help="Shards of the index; chosen by build_index by default.")
    ] = None,
    plan: Annotated[str, typer.Option(help="replicated, sharded or auto.")] = "replicated",
    repeats: Annotated[int, typer.Option(help="Repeats; times are the best.")] = 3,
    batch: Annotated[int, typer.Option(help="Events per batch of the engine alone.")] = 16_384,
    sql_sample: Annotated[
        int, typer.Option(help="Events for the join in Spark SQL; 0 to skip.")
    ] = 100,
    sql_subscriptions: Annotated[
        int,
        typer.Option(help="Maximum subscriptions for that join; beyond, its time is scaled."),
    ] = 1_000_000,
    check: Annotated[int, typer.Option(help="Events to compare with scan, id by id.")] = 20,
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
    from boxmatch_bench.settings import SparkOptions, choose_sweeps

    if estimate:
        _estimate(json_path)
        return
    try:
        settings = choose_sweeps(sweep or [], subscriptions, events, seed)
        options = SparkOptions(
            master=master,
            driver_memory=driver_memory,
            plan=plan,  # type: ignore[arg-type]  # checked there
            shards=shards,
            repeats=repeats,
            batch=batch,
            sql_sample=sql_sample,
            sql_subscriptions=sql_subscriptions,
            check=check,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with requires("spark", "matching on Spark"):
        import pyspark  # noqa: F401 - to see now, and not after a minute, whether it is there
    lines = JsonLines(json_path)
    with folder_or_temporary(scratch) as folder:
        _run(settings, options, folder, lines)


def _run(
    settings: list[SparkSetting], options: SparkOptions, scratch: Path, lines: JsonLines
) -> None:
    from boxmatch_bench.provenance import provenance
    from boxmatch_bench.tables import spark_tables

    origin = provenance()
    results = collect(_measure(settings, options, scratch), lines, origin)
    if lines.printed:
        return
    console = output()
    show(console, spark_tables(results))
    text = (
        f"{options.master}, {results[0]['options']['plan']} plan, best of {options.repeats}; "
        f"pairs equal those of the engine alone, and {results[0]['checked_events']} events of each "
        "setting those of scan"
    )
    show_origin(console, text, origin)


def _measure(
    settings: list[SparkSetting], options: SparkOptions, scratch: Path
) -> Iterator[dict[str, Any]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from boxmatch_bench.answers import within
    from boxmatch_bench.spark.measure import STAGES, measure

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with progress(*columns) as bar:
        task = bar.add_task("", total=STAGES * len(settings))
        done = 0

        def stage(name: str) -> None:
            nonlocal done
            bar.update(task, description=f"{label}: {name}", completed=done)
            done += 1

        for setting in settings:
            label = f"{setting.workload.subscriptions:,} × {setting.events:,}"
            with within(label):
                yield measure(setting, options, scratch, stage)


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
