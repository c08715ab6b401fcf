"""`boxmatch pipeline`: from raw events and subscriptions to notifications, on Spark."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import Command, command_group, examples
from boxmatch.cli.terminal import AsJson, output, print_json, progress, show_spinner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from boxmatch.spark.pipeline import PipelineResult, StageRecord

_SAMPLE = Path("boxmatch-sample")
_BUSIEST = 5
_WIDTH = 70
"""Letters of a filter that the terminal shows."""

pipeline = command_group(
    "Run a pipeline from files to notifications and a report.",
    "boxmatch pipeline run              # a generated sample",
    "boxmatch pipeline sample market",
    "boxmatch pipeline run --config market/pipeline.toml",
)


@pipeline.command(cls=Command)
@examples(
    "boxmatch pipeline run",
    "boxmatch pipeline run --config market/pipeline.toml --master 'local[4]'",
    "boxmatch pipeline run --config market/pipeline.toml --restart --json",
)
def run(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings; runs a sample by default."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Run all stages again instead of resuming.")
    ] = False,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Read, clean, derive, match, notify, and write a report.

    A failed run resumes where it stopped. Without --config, a sample is generated in
    ./boxmatch-sample and run.
    """
    from boxmatch.spark.pipeline import Pipeline, write_sample

    if config is None:
        with show_spinner("generating ticks and alerts"):
            config = write_sample(_SAMPLE)
        text = f"No --config given: running the sample in {_SAMPLE} with {config}"
        typer.echo(text, err=True)
    chosen = Pipeline(config)
    chosen.check()
    folder = chosen.config.output.path
    log = Path(os.devnull) if "://" in folder else Path(folder, "spark.log")
    with _show_stages() as stages, _log_to(log):
        session = _session(master, log, stages)
        result = chosen.run(session, restart=restart, progress=stages.stage)
    if as_json:
        print_json(result.summary)
    else:
        _show(output(prose=True), result)


@pipeline.command(cls=Command)
@examples("boxmatch pipeline sample", "boxmatch pipeline sample market")
def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")] = _SAMPLE,
    as_json: AsJson = False,
) -> None:
    """Generate sample data and settings.

    Writes the ticks of a synthetic market, alerts, and a file of settings.
    """
    from boxmatch.spark.pipeline import write_sample

    with show_spinner("generating ticks and alerts"):
        config = write_sample(folder)
    if as_json:
        print_json({"config": str(config)})
        return
    typer.echo(f"The sample is in {folder}; run it with: boxmatch pipeline run --config {config}")


class _Stages:
    """Shows stages as they come and go."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def begin(self, name: str) -> None:
        self._tasks[name] = self._progress.add_task(name, total=1, text="")

    def end(self, name: str, text: str) -> None:
        self._progress.update(self._tasks[name], completed=1, text=text)

    def stage(self, name: str, record: StageRecord | None) -> None:
        if record is None:
            self.begin(name)
            return
        text = "" if record.rows is None else f"{record.rows:,} rows"
        if record.resumed:
            text += f", done before (in {record.seconds:.1f} s)"
        self.end(name, text)


@contextmanager
def _show_stages() -> Iterator[_Stages]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description:<11}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with progress(*columns, record=True) as bars:
        yield _Stages(bars)


def _session(master: str, log: Path, stages: _Stages) -> SparkSession:
    """A session whose chatter goes to a log beside the output."""
    from boxmatch.errors import SparkError
    from boxmatch.spark import local_session
    from boxmatch.spark.pipeline.failures import cause_of

    stages.begin("start Spark")
    try:
        with _stderr_to(log):
            session = local_session(master)
    except SparkError:
        raise
    except Exception as error:
        # Whatever it is that the launcher or the JVM raised: the log has the rest.
        raise SparkError(f"Spark did not start: {cause_of(error)}; its log is {log}") from error
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # They write the error that is about to be raised as JSON, stack trace and all.
        PySparkLogger.getLogger(name).disabled = True
    stages.end("start Spark", "")
    return session


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Lend a file as standard error: the Java process that is started keeps it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


@contextmanager
def _log_to(log: Path) -> Iterator[None]:
    """Lend a file to what is logged here: Py4J logs stack traces when Ctrl-C interrupts it."""
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _show(console: Console, result: PipelineResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    summary = result.summary
    events, found = summary["events"], summary["matches"]
    put_aside = sum(events["quarantined"].values())
    seconds = sum(stage["seconds"] for stage in summary["stages"])
    console.print(
        f"\n{events['read']:,} events from {_number(events['files'], 'file')}: "
        f"{events['good']:,} valid, "
        f"{put_aside:,} quarantined{_reasons(events['quarantined'])}."
    )
    usable = summary["subscriptions"]
    console.print(
        f"{usable['usable']:,} subscriptions, {usable['rejected']:,} more rejected; "
        f"{found['dead']['number']:,} matched nothing, {found['too_broad']['number']:,} more than "
        f"{found['too_broad']['share']:.3g} of the events."
    )
    console.print(
        f"{found['pairs']:,} matches, {found['pairs'] / max(1, events['good']):,.2f} per "
        f"event, on {_number(len(found['by_date']), 'date')}; {seconds:.1f} s in all stages.\n"
    )
    table = Table(title="Busiest subscriptions", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("id")
    table.add_column("matches", justify="right")
    table.add_column("share of events", justify="right")
    table.add_column("filter")
    for row in found["top"][:_BUSIEST]:
        filter = row["filter"] or ""
        table.add_row(
            str(row["subscription_id"]),
            f"{row['matches']:,}",
            f"{row['share']:.2%}",
            filter if len(filter) <= _WIDTH else filter[: _WIDTH - 1] + "…",
        )
    console.print(table)
    # Not wrapped, so that a path can be copied.
    console.print(f"Notifications: {result.output}/notifications", soft_wrap=True)
    console.print(f"Report:        {result.report}", soft_wrap=True)


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _reasons(counts: Mapping[str, Any]) -> str:
    shown = [f"{number:,} {reason}" for reason, number in list(counts.items())[:3]]
    return f" ({', '.join(shown)}{', …' if len(counts) > len(shown) else ''})" if shown else ""
