"""`boxmatch bench spark`: Spark against the engine alone and against a join in Spark SQL."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output, progress
from boxmatch.extras import requires
from boxmatch_bench.cli.json_lines import JsonLines, JsonPath

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.settings import SparkOptions, SparkSetting


@examples(
    "boxmatch bench spark --subscriptions 100000 --events 100000",
    "boxmatch bench spark --sweep subscriptions --json spark.jsonl",
    "boxmatch bench spark --estimate --json spark.jsonl   # of a cluster",
)
def bench_spark(
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure several numbers of subscriptions (100,000 to 10,000,000) or events "
            "(100,000 to 3,000,000); repeatable.",
        ),
    ] = None,
    subscriptions: Annotated[
        int | None, typer.Option(min=1, help="Subscriptions; 1,000,000 if left out.")
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=1, help="Events; 1,000,000 if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    master: Annotated[
        str, typer.Option(help="Spark's master; the engine alone gets as many threads.")
    ] = "local[2]",
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's JVM.")] = "2g",
    shards: Annotated[
        int | None, typer.Option(help="Shards of the index; left to build_index if left out.")
    ] = None,
    plan: Annotated[str, typer.Option(help="replicated, sharded or auto.")] = "replicated",
    repeats: Annotated[int, typer.Option(help="Times are the best of so many.")] = 3,
    batch: Annotated[int, typer.Option(help="Events in a batch of the engine alone.")] = 16_384,
    sql_sample: Annotated[
        int, typer.Option(help="Events for the join in Spark SQL; 0 leaves it out.")
    ] = 100,
    sql_subscriptions: Annotated[
        int,
        typer.Option(help="Subscriptions for that join at the most; for more it is scaled up."),
    ] = 1_000_000,
    check: Annotated[int, typer.Option(help="Events to compare with scan, id by id.")] = 20,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Where events, index and matches go meanwhile."
        ),
    ] = None,
    json_path: JsonPath = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Measure nothing: derive from the lines in --json what a cluster would need.",
        ),
    ] = False,
) -> None:
    """Measure matching on Spark: a million events, a million filters.

    Compared with the engine alone and with a join in Spark SQL. Every answer is checked: Spark's
    pairs against the engine's by count and checksum, and some events against scan.
    """
    from boxmatch_bench.settings import SparkOptions, choose_sweeps

    console = output()
    if estimate:
        _estimate(console, json_path)
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
    if scratch is not None:
        _run(console, settings, options, scratch, lines)
        return
    with tempfile.TemporaryDirectory(prefix="boxmatch-bench-") as folder:
        _run(console, settings, options, Path(folder), lines)


def _run(
    console: Console,
    settings: list[SparkSetting],
    options: SparkOptions,
    scratch: Path,
    lines: JsonLines,
) -> None:
    from boxmatch_bench.provenance import provenance, shown_commit
    from boxmatch_bench.tables import console_table, spark_tables

    origin = provenance()
    results = _measure(settings, options, scratch, lines, origin)
    if lines.printed:
        return
    for table in spark_tables(results):
        console.print(console_table(table))
    machine = origin["machine"]
    console.print(
        f"[dim]{options.master}, {results[0]['options']['plan']} plan, best of {options.repeats}; "
        f"pairs equal those of the engine alone, and {results[0]['checked_events']} events of each "
        f"setting those of scan; {machine['cpu']}, {machine['cores']} cores, "
        f"Python {origin['python']}, commit {shown_commit(origin)}[/dim]"
    )


def _measure(
    settings: list[SparkSetting],
    options: SparkOptions,
    scratch: Path,
    lines: JsonLines,
    origin: dict[str, Any],
) -> list[dict[str, Any]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from boxmatch_bench.checking import FailedError, MismatchError
    from boxmatch_bench.spark.measure import STAGES, measure

    results: list[dict[str, Any]] = []
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
            try:
                result = measure(setting, options, scratch, stage)
            except (MismatchError, FailedError) as error:
                bar.stop()
                kind = "wrong answer" if isinstance(error, MismatchError) else "no answer"
                typer.echo(f"boxmatch: {kind} in {label}: {error}", err=True)
                raise typer.Exit(1) from None
            result |= origin
            results.append(result)
            lines.add(result)
    return results


def _estimate(console: Console, json_path: Path | None) -> None:
    from boxmatch_bench.spark.estimate import estimate_tables
    from boxmatch_bench.tables import console_table

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
    for table in estimate_tables(rows):
        console.print(console_table(table))
