"""A stream on Spark whose load fluctuates as in Ada-REIN's Figure 5, with an adjuster and without.

Events arrive as small files, at times that are fixed beforehand. An event is answered when the
micro-batch that it is in has been matched and has reached the driver.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.arrays import Float64Array, Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch.spark import build_index, match, match_stream
from boxmatch.spark.entry import task
from boxmatch.spark.streaming import RATE_COLUMN
from boxmatch.spark.workloads import subscriptions
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.pada.arrivals import moments, shape
from boxmatch_bench.pada.measure import by_second
from boxmatch_bench.settings import Overload
from boxmatch_bench.spark.measure import run_apart, spark_session
from boxmatch_bench.timing import Figures, Stage, spread_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVERY: Final = 0.25
"""Seconds from one file of events to the next."""
_SLOWER: Final = 5
"""A run may take so many times as long as events arrive."""


def measure_overload(
    setting: Overload, options: SparkOptions, scratch: Path, stage: Stage = lambda _: None
) -> list[Figures]:
    """Rows without the adjuster and with it, in turn, `options.repeats` times."""
    folder = scratch.resolve() / "overload"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stage("matching streams with and without the adjuster")
    rows = run_apart(folder / "log", _measure, setting, options, folder)
    shutil.rmtree(folder)
    return rows


def _measure(setting: Overload, options: SparkOptions, folder: Path) -> list[Figures]:
    pool = folder / "pool.arrow"
    true = _write_pool(setting, pool)
    with spark_session(options) as spark:
        wanted = subscriptions(spark, setting.workload, form="filters", partitions=options.cores)
        wanted.write.parquet(str(folder / "wanted"))
        index = build_index(
            spark.read.parquet(str(folder / "wanted")),
            folder / "index",
            schema=setting.workload.schema,
            index=setting.index,
            shards=options.shards,
        )
        capacity = _capacity(spark, setting, pool, index.path)
        rates = (
            setting.load
            * capacity
            * shape(setting.seconds, setting.fluctuation, setting.workload.seed)
        )
        due = moments(rates, setting.workload.seed)
        head = {
            "bench": "spark-adapt",
            "workload": type(setting.workload).__name__,
            "parameters": asdict(setting.workload),
            "setting": {k: v for k, v in asdict(setting).items() if k != "workload"},
            "options": {**asdict(options), "cores": options.cores},
            "shards": len(index.shards),
            "capacity": capacity,
            "events": len(due),
        }
        rows = []
        for number in range(options.repeats):
            for adjusted in (False, True):
                run = folder / f"run-{number}-{adjusted}"
                adjuster = Adjuster(**(setting.adjustment.request or {})) if adjusted else None
                figures = _stream(spark, setting, pool, index.path, due, true, run, adjuster)
                rows.append({**head, "adaptive": adjusted, **figures})
    return rows


def _write_pool(setting: Overload, path: Path) -> Int64Array:
    """Write the events to choose from; returns how many subscriptions want each of them."""
    workload = setting.workload
    events = workload.events(0, setting.pool)
    table = pa.table(
        {name: pa.array(events[:, i].astype(np.int64)) for i, name in enumerate(workload.names)}
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table.combine_chunks())
    exact = Matcher(workload.schema)
    exact.subscribe_boxes(np.arange(workload.subscriptions), *workload.bounds())
    return exact.count_batch(table)


def take_events(batches: Iterator[pa.RecordBatch], *, pool: str) -> Iterator[pa.RecordBatch]:
    """On a worker: the attributes of events that are known by their number."""
    with pa.memory_map(pool) as source:
        table = pa.ipc.open_file(source).read_all().combine_chunks()
    (events,) = table.to_batches()
    for batch in batches:
        ids = batch.column("event_id")
        chosen = events.take(pa.array(ids.to_numpy() % events.num_rows))
        yield pa.RecordBatch.from_arrays([ids, *chosen.columns], ["event_id", *chosen.schema.names])


def _with_attributes(numbers: DataFrame, setting: Overload, pool: Path) -> DataFrame:
    schema = ", ".join(["event_id long", *(f"{name} long" for name in setting.workload.names)])
    work = task("boxmatch_bench.spark.overload:take_events", "events", pool=str(pool))
    return numbers.mapInArrow(work, schema)


def _capacity(spark: SparkSession, setting: Overload, pool: Path, index: str) -> float:
    """Events a second that one large batch matches exactly; the best of three."""
    best = 0.0
    for count in (64, setting.pool, setting.pool, setting.pool):  # the first one compiles
        numbers = spark.range(count).withColumnRenamed("id", "event_id")
        events = _with_attributes(numbers, setting, pool)
        began = time.perf_counter()
        match(events, index, how="counts").toArrow()
        if count == setting.pool:
            best = max(best, count / (time.perf_counter() - began))
    return best


def _stream(
    spark: SparkSession,
    setting: Overload,
    pool: Path,
    index: str,
    due: Float64Array,
    true: Int64Array,
    folder: Path,
    adjuster: Adjuster | None,
) -> Figures:
    """One run: events that are due at these times, and what comes of them."""
    arriving = folder / "arriving"
    arriving.mkdir(parents=True)
    numbers = spark.readStream.schema("event_id long").parquet(str(arriving))
    batches: list[tuple[float, pa.Table]] = []

    def sink(matches: DataFrame, batch_id: int) -> None:
        found = matches.toArrow()
        batches.append((time.time(), found))

    query = match_stream(
        _with_attributes(numbers, setting, pool),
        index,
        sink=sink,
        checkpoint=folder / "checkpoint",
        how="counts",
        adjuster=adjuster,
    )
    began = time.time()
    feeder = threading.Thread(target=_feed, args=(arriving, due, began))
    feeder.start()
    late = began + _SLOWER * setting.seconds
    try:
        while sum(found.num_rows for _, found in list(batches)) < len(due):
            if query.exception() is not None:
                raise FailedError(f"the stream failed: {query.exception()}")
            if time.time() > late:
                raise FailedError(f"the stream took more than {_SLOWER} times as long as it may")
            time.sleep(_EVERY)
    finally:
        query.stop()
        feeder.join()
    return _figures(setting, began, batches, due, true)


def _feed(folder: Path, due: Float64Array, began: float) -> None:
    """Write the events that have become due to a file, again and again until there are no more."""
    written = 0
    while written < len(due):
        time.sleep(_EVERY)
        upto = int(np.searchsorted(due, time.time() - began, side="right"))
        if upto > written:
            draft = folder / f"_{written}"
            pq.write_table(pa.table({"event_id": np.arange(written, upto)}), draft)
            os.replace(draft, folder / f"{written}.parquet")
            written = upto


def _figures(
    setting: Overload,
    began: float,
    batches: list[tuple[float, pa.Table]],
    due: Float64Array,
    true: Int64Array,
) -> Figures:
    """Latency and false matches. Raises `MismatchError` if a match is missing."""
    found = np.full(len(due), -1)
    rate, answered = np.zeros(len(due)), np.zeros(len(due))
    for ended, table in batches:
        ids = table["event_id"].to_numpy()
        if (found[ids] >= 0).any():
            raise MismatchError("an event was matched twice")
        found[ids] = table["matches"].to_numpy()
        answered[ids] = ended - began
        if RATE_COLUMN in table.column_names:
            rate[ids] = table[RATE_COLUMN].to_numpy()
    wanted = true[np.arange(len(due)) % len(true)]
    false = found - wanted
    if (false < 0).any():
        raise MismatchError(f"{int((false < 0).sum())} events lack matches")
    if false[rate == 0].any():
        raise MismatchError("an exact batch has false matches")
    latency = answered - due
    total = max(1, int(wanted.sum()))
    return {
        "latency_ms": spread_ms(latency),
        "batches": len(batches),
        "true": int(wanted.sum()),
        "false": int(false.sum()),
        "measured_rate": float(false.sum() / total),
        "promised_rate": float((rate * wanted).sum() / total),
        "highest_rate": float(rate.max(initial=0.0)),
        "inexact_events": int((rate > 0).sum()),
        "answered_after": float(answered.max(initial=0.0)),
        "by_second": {
            "arrivals": np.bincount(due.astype(np.int64), minlength=setting.seconds).tolist(),
            "latency_ms": by_second(due, 1e3 * latency, setting.seconds),
            "rate": by_second(due, rate, setting.seconds),
        },
    }
