"""One setting on Spark from beginning to end, each part in its own process, results compared."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, get_args

from boxmatch.errors import BoxmatchError
from boxmatch.spark import build_index, local_session, match
from boxmatch.spark.workloads import events, subscriptions
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.settings import SparkSetting
from boxmatch_bench.spark import engine
from boxmatch_bench.spark.engine import Digest, Files, size_of
from boxmatch_bench.spark.memory import watched
from boxmatch_bench.timing import Figures, Stage, took

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
T = TypeVar("T")

_LINES: Final = 20

STAGES: Final = 5
"""How often `measure` reports a stage."""
_SLICE = 500  # the first, cold job takes every 500th event


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """A session that is stopped at the end."""
    conf = {"spark.driver.memory": options.driver_memory}
    spark = local_session(options.master, name="boxmatch bench", conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


def prepare(
    setting: SparkSetting, options: SparkOptions, files: Files
) -> tuple[Figures, Figures | None]:
    """Write events, subscriptions and an index of these; then join in SQL, if that is wanted.

    Both in one session, since starting one takes longer than a small join. Matching has its own,
    so that no worker has anything left from here.
    """
    with spark_session(options) as spark:
        prepared = _prepared(spark, setting, options, files)
        joined = _joined(spark, setting, options, files) if options.sql_sample else None
    return prepared, joined


def _prepared(
    spark: SparkSession, setting: SparkSetting, options: SparkOptions, files: Files
) -> Figures:
    workload = setting.workload
    events(spark, workload, 1).count()  # starts workers
    made = events(spark, workload, setting.events, partitions=options.cores)
    events_seconds = _written(made, files.events)
    made = subscriptions(spark, workload, partitions=options.cores)
    subscriptions_seconds = _written(made, files.subscriptions)
    began = perf_counter()
    index = build_index(
        spark.read.parquet(str(files.subscriptions)),
        files.index,
        schema=workload.schema,
        shards=options.shards,
    )
    build_seconds = perf_counter() - began
    return {
        "events_seconds": events_seconds,
        "events_bytes": size_of(files.events),
        "subscriptions_seconds": subscriptions_seconds,
        "subscriptions_bytes": size_of(files.subscriptions),
        "build_seconds": build_seconds,
        "build_per_second": workload.subscriptions / build_seconds,
        "index_bytes": index.nbytes,
        "shards": len(index.shards),
    }


def match_on_spark(setting: SparkSetting, options: SparkOptions, files: Files) -> Figures:
    """Read events, match them, write the pairs; first cold and small, then watched, then timed."""
    out = files.pairs("spark")

    def run(condition: str = "TRUE") -> float:
        began = perf_counter()
        arriving = spark.read.parquet(str(files.events)).where(condition)
        found = match(arriving, str(files.index), how="pairs", plan=options.plan)
        found.write.mode("overwrite").parquet(str(out))
        return perf_counter() - began

    began = perf_counter()
    with spark_session(options) as spark:
        session_seconds, version = perf_counter() - began, spark.version
        cold = run(f"event_id % {_SLICE} = 0")
        with watched(str(files.index)) as peak:
            watched_seconds = run()
        runs = [run() for _ in range(options.repeats)]
    digest = Digest.of(out)
    return {
        "version": version,
        "seconds": min(runs),
        "runs": runs,
        "watched_seconds": watched_seconds,
        "session_seconds": session_seconds,
        "cold_seconds": cold,
        "microseconds": 1e6 * min(runs) / setting.events,
        "pairs": digest.pairs,
        "checksum": digest.checksum,
        "pairs_bytes": size_of(out),
        "memory": peak.figures,
    }


def _joined(
    spark: SparkSession, setting: SparkSetting, options: SparkOptions, files: Files
) -> Figures:
    """The range join as one writes it, of some events with the subscriptions in Spark's memory.

    The events are few enough for Spark to send them to all tasks. A job has costs of its own,
    which events in large numbers would hide: the time of the same join with one event is taken
    off, which is in favour of the join.
    """
    workload = setting.workload
    taken = min(options.sql_subscriptions, workload.subscriptions)
    sample = min(options.sql_sample, setting.events)
    standing = spark.read.parquet(str(files.subscriptions)).where(f"subscription_id < {taken}")
    # Those taken may all be in one file, and the join shall have all cores.
    standing = standing.repartition(2 * options.cores).cache()
    standing.count()
    out = files.pairs("sql")
    one, some = (_join(spark, setting, files, standing, count) for count in (1, sample))
    _written(one, out)  # compiles
    one_seconds = _written(one, out)
    seconds = _written(some, out)
    own = (seconds - one_seconds) / (sample - 1) if sample > 1 else seconds
    each = own if own > 0 else seconds / sample
    return {
        "events": sample,
        "subscriptions": taken,
        "scaled": workload.subscriptions / taken,
        "operator": _operator(some),
        "seconds": seconds,
        "one_event_seconds": one_seconds,
        "microseconds": 1e6 * each * workload.subscriptions / taken,
    }


def _join(
    spark: SparkSession, setting: SparkSetting, files: Files, standing: DataFrame, count: int
) -> DataFrame:
    from pyspark.sql.functions import expr

    condition = " AND ".join(
        f"(s.{name}_low IS NULL OR s.{name}_low <= e.{name}) AND "
        f"(s.{name}_high IS NULL OR e.{name} <= s.{name}_high)"
        for name in setting.workload.names
    )
    # A file of its own, so that Spark knows how small it is.
    path = files.folder / f"sample-{count}"
    _written(events(spark, setting.workload, count, partitions=1), path)
    arriving = spark.read.parquet(str(path)).alias("e")
    joined = arriving.join(standing.alias("s"), expr(condition))
    return joined.select("event_id", "subscription_id")


def _written(frame: DataFrame, path: Any) -> float:
    return took(frame.write.mode("overwrite").parquet, str(path))


def _operator(frame: DataFrame) -> str | None:
    """The operator that Spark chose for the join."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain()
    found = re.search(r"\w*NestedLoopJoin|CartesianProduct|\w*Join", shown.getvalue())
    return found.group() if found else None


def measure(
    setting: SparkSetting, options: SparkOptions, scratch: Path, stage: Stage = lambda _: None
) -> Figures:
    """Measure one setting, in a folder of its own below `scratch`, which is removed at the end.

    Raises `MismatchError` when an answer is wrong, and leaves the folder for a look.
    """
    name = f"{setting.preset}-{setting.workload.subscriptions}-{setting.events}"
    files = Files(scratch.resolve() / name)
    shutil.rmtree(files.folder, ignore_errors=True)
    files.folder.mkdir(parents=True)
    stage("writing events, building the index, joining in SQL")
    prepared, joined = run_apart(files.log, prepare, setting, options, files)
    stage("matching on Spark")
    spark = run_apart(files.log, match_on_spark, setting, options, files)
    alone: Figures = {}
    for kind in get_args(engine.Kind):
        stage(f"matching without Spark ({kind})")
        alone[kind] = run_apart(files.log, engine.engine_alone, setting, options, files, kind)
        _same(f"Spark differs from the engine alone ({kind})", spark, alone[kind])
    stage("checking against scan")
    checked = run_apart(files.log, engine.check, setting, options, files)
    if joined is not None:
        engine.check_join(setting, files, joined["events"], joined["subscriptions"])
    shutil.rmtree(files.folder)
    faster = min(alone, key=lambda kind: float(alone[kind]["seconds"]))
    memory = spark.pop("memory")
    return {
        "bench": "spark",
        "preset": setting.preset,
        "workload": type(setting.workload).__name__,
        "parameters": asdict(setting.workload),
        "events": setting.events,
        "options": {**asdict(options), "cores": options.cores},
        "prepare": prepared,
        "spark": spark,
        "engine": {**alone, "faster": faster},
        "overhead": spark["seconds"] / alone[faster]["seconds"],
        "overhead_of_matching": spark["seconds"] / alone[faster]["match_seconds"],
        "sql": joined,
        "sql_slower": joined and joined["microseconds"] / spark["microseconds"],
        "memory": memory,
        "checked_events": checked,
    }


def _same(complaint: str, ours: Figures, theirs: Figures) -> None:
    got, wanted = (Digest(one["pairs"], one["checksum"]) for one in (ours, theirs))
    if got != wanted:
        raise MismatchError(f"{complaint}: {got} for {wanted}")


def run_apart(log: Path, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that ran in a new process; what it printed is added to `log`."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, mp_context=context, initializer=_print_to, initargs=(str(log),)
    ) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except (MismatchError, BoxmatchError):
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            printed = log.read_text(errors="replace").splitlines()[-_LINES:]
            message = f"{function.__name__} failed: {type(error).__name__}: {first}"
            raise FailedError("\n".join([message, *printed])) from error


def _print_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)
