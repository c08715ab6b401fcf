"""Workloads as DataFrames: the rows of the plain generators, however they are partitioned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from boxmatch import Matcher, SparkError
from boxmatch.spark import workloads
from boxmatch.spark.workloads import (
    EventWorkload,
    event_stream,
    events,
    publications,
    subscriptions,
    updates,
)
from boxmatch.workloads import (
    BooleanWorkload,
    EqualityWorkload,
    MarketWorkload,
    RangeWorkload,
    RegionWorkload,
    write_sample_events,
)
from boxmatch.workloads.streams import BLOCK

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from boxmatch.workloads.regions import UpdateKind

RANGES = RangeWorkload(subscriptions=20, attributes=6, predicates=3, event_size=4)
PROPERTIES = BooleanWorkload(subscriptions=20, properties=5, zero=0.2, one=0.2)
EQUALITIES = EqualityWorkload(subscriptions=20, accounts=30)
MARKET = MarketWorkload(symbols=40)
REGIONS = RegionWorkload(
    publications=BLOCK + 5, subscriptions=20, dimensions=6, publication_constraints=4, width=0.2
)

Record = dict[str, Any]


def _name(value: object) -> str:
    return type(value).__name__


def _records(frame: DataFrame, key: str) -> list[Record]:
    """Rows by id, without what is null."""
    found = frame.toArrow().sort_by(key).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def _plain_events(workload: EventWorkload, start: int, stop: int) -> list[Record]:
    if isinstance(workload, MarketWorkload):
        made = workload.tick_dicts(start, stop)
    else:
        made = list(workload.event_dicts(start, stop))
    return [{"event_id": start + i, **event} for i, event in enumerate(made)]


@pytest.mark.portable
@pytest.mark.parametrize(
    "workload", [RANGES, PROPERTIES, EQUALITIES, MARKET], ids=lambda made: type(made).__name__
)
def test_events_are_those_of_the_plain_generator(
    spark: SparkSession, workload: EventWorkload
) -> None:
    start, count = BLOCK - 20, 50  # on both sides of a boundary between blocks
    frame = events(spark, workload, count, start=start, partitions=3)
    assert frame.columns == ["event_id", *workload.schema.names]
    assert _records(frame, "event_id") == _plain_events(workload, start, start + count)


@pytest.mark.parametrize("partitions", [None, 1, 2, 7])
def test_partitions_do_not_change_rows(spark: SparkSession, partitions: int | None) -> None:
    count = 2 * BLOCK + 5
    frame = events(spark, RANGES, count, partitions=partitions)
    table = frame.toArrow().sort_by("event_id")
    assert np.array_equal(table["event_id"], np.arange(count))
    values = np.stack([table[name].to_numpy() for name in RANGES.names], axis=1)
    assert np.array_equal(values, RANGES.events(0, count), equal_nan=True)


def test_subscriptions_as_columns(spark: SparkSession) -> None:
    frame = subscriptions(spark, RANGES)
    wanted = [
        {"subscription_id": row}
        | {f"{name}_low": low for name, (low, _) in filter_.items()}
        | {f"{name}_high": high for name, (_, high) in filter_.items()}
        for row, filter_ in enumerate(RANGES.filters(0, RANGES.subscriptions))
    ]
    assert _records(frame, "subscription_id") == wanted
    assert frame.columns[:3] == ["subscription_id", "a0_low", "a0_high"]


@pytest.mark.parametrize("workload", [PROPERTIES, EQUALITIES], ids=_name)
def test_equalities_as_columns(
    spark: SparkSession, workload: BooleanWorkload | EqualityWorkload
) -> None:
    found = _records(subscriptions(spark, workload, start=3), "subscription_id")
    plain = enumerate(workload.filters(3, workload.subscriptions), 3)
    assert found == [{"subscription_id": row, **filter_} for row, filter_ in plain]


@pytest.mark.portable
@pytest.mark.parametrize("kind", ["random", "incremental"])
def test_publications_and_their_updates(spark: SparkSession, kind: UpdateKind) -> None:
    """On both sides of a boundary between blocks, whatever the partitions."""
    start, count, last = BLOCK - 3, 8, 3
    boxes = REGIONS.publication_boxes(start, start + count)
    dimension = boxes.attribute.reshape(count, -1)
    moved = REGIONS.updates(start, start + count, kind=kind, count=last)
    path = [boxes.low.reshape(count, -1), *moved]
    plain = [
        {"publication_id": start + row, "sequence": sequence}
        | {f"d{d}": int(value) for d, value in zip(dimension[row], values[row], strict=True)}
        for sequence, values in enumerate(path)
        for row in range(count)
    ]

    def found(frame: DataFrame) -> list[Record]:
        ordered = frame.orderBy("sequence", "publication_id").toArrow().to_pylist()
        return [{k: v for k, v in row.items() if v is not None} for row in ordered]

    begun = publications(spark, REGIONS, count, start=start)
    assert begun.columns == ["publication_id", "sequence", *REGIONS.names]
    for partitions in (1, 3):
        every = updates(
            spark, REGIONS, count, start=start, kind=kind, last=last, partitions=partitions
        )
        assert found(every) == plain
    late = updates(spark, REGIONS, count, start=start, kind=kind, first=2, last=last)
    assert found(begun.union(late)) == [row for row in plain if row["sequence"] != 1]
    assert publications(spark, REGIONS).count() == REGIONS.publications


def test_regions_of_subscriptions(spark: SparkSession) -> None:
    found = _records(subscriptions(spark, REGIONS), "subscription_id")
    filters = REGIONS.filters(0, REGIONS.subscriptions)
    assert found == [
        {"subscription_id": row}
        | {f"{name}_low": low for name, (low, _) in filter_.items()}
        | {f"{name}_high": high for name, (_, high) in filter_.items()}
        for row, filter_ in enumerate(filters)
    ]


@pytest.mark.parametrize("form", ["columns", "filters", "odd"])
def test_alerts_of_the_market(spark: SparkSession, form: workloads.Form) -> None:
    plain = {"columns": MARKET.alerts, "filters": MARKET.alert_texts, "odd": MARKET.odd_texts}
    frame = subscriptions(spark, MARKET, 300, form=form, partitions=2)
    assert frame.toArrow().sort_by("subscription_id").rename_columns(
        plain[form](0, 1).column_names
    ) == plain[form](0, 300)


@pytest.mark.parametrize(
    "workload", [RANGES, PROPERTIES, EQUALITIES, REGIONS], ids=lambda made: type(made).__name__
)
def test_texts_mean_the_same_as_columns(
    spark: SparkSession,
    workload: RangeWorkload | BooleanWorkload | EqualityWorkload | RegionWorkload,
) -> None:
    """What `filter_of` generates is one text for one meaning."""
    count = 200
    read, plain = (Matcher(workload.schema, index="scan", keep_texts=False) for _ in range(2))
    table = subscriptions(spark, workload, count, form="filters").toArrow()
    read.subscribe_many(table.rename_columns(["id", "filter"]))
    for row, filter_ in enumerate(workload.filters(0, count)):
        plain.subscribe(row, filter_)
    assert len(read) == count
    assert [read.filter_of(row) for row in range(count)] == [
        plain.filter_of(row) for row in range(count)
    ]


def test_events_of_a_file_may_lack_values(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    write_sample_events(path)
    workload = RangeWorkload.of_file(path, subscriptions=5)
    found = _records(events(spark, workload, 400), "event_id")
    assert found == _plain_events(workload, 0, 400)
    assert any(len(event) <= workload.attributes for event in found)


def test_timestamps_do_not_depend_on_the_time_zone_of_the_session(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        seconds = events(spark, MARKET, 3).selectExpr("unix_micros(at) AS at").toArrow()["at"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert seconds.to_pylist() == MARKET.ticks(0, 3)["at"].cast("int64").to_pylist()


def test_a_wide_block_comes_in_several_batches() -> None:
    wide = BooleanWorkload(properties=200)
    batches = list(workloads._batches(wide, "events", 5, BLOCK + 10))
    assert sum(batch.num_rows for batch in batches) == BLOCK + 5
    assert max(batch.num_rows * batch.num_columns for batch in batches) <= workloads._CELLS
    assert len(batches) > 2


def test_many_events_cost_nothing_until_they_are_used(spark: SparkSession) -> None:
    """Only the numbers of slices go through the driver, and few of those are looked at here."""
    start = 100_000_000 - 10
    frame = events(spark, MARKET, 10**9, partitions=10_000)
    assert len(frame.take(1)) == 1
    assert _records(events(spark, MARKET, 10, start=start), "event_id") == _plain_events(
        MARKET, start, start + 10
    )


def test_no_rows(spark: SparkSession) -> None:
    assert events(spark, MARKET, 0, start=7).count() == 0
    assert subscriptions(spark, RANGES, 0, form="filters").count() == 0


def test_a_stream_goes_on_where_the_last_batch_ended(spark: SparkSession, tmp_path: Path) -> None:
    stream = event_stream(spark, RANGES, 60, partitions=2)
    assert stream.isStreaming
    out = str(tmp_path / "out")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(out)
    )
    try:
        while len(query.recentProgress) < 3 and query.isActive:
            query.awaitTermination(1)
    finally:
        query.stop()
    found = _records(spark.read.parquet(out), "event_id")
    assert len(found) >= 120
    assert len(found) % 60 == 0
    assert found == _plain_events(RANGES, 0, len(found))


def test_what_cannot_be_made_is_refused() -> None:
    spark: Any = None  # refused before any session is asked
    regions: Any = RegionWorkload()
    form: Any = "rows"
    with pytest.raises(SparkError, match="not of RegionWorkload"):
        events(spark, regions, 1)
    ranges: Any = RANGES
    with pytest.raises(SparkError, match="such DataFrames of RegionWorkload, not of Range"):
        updates(spark, ranges, 1, last=1)
    with pytest.raises(SparkError, match="updates 3 to 2 are not a range"):
        updates(spark, regions, first=3, last=2)
    with pytest.raises(SparkError, match="kind must be one of random, incremental, not 'rows'"):
        updates(spark, regions, kind=form, last=1)
    with pytest.raises(SparkError, match="are not a range"):
        events(spark, RANGES, -1)
    with pytest.raises(SparkError, match="partitions must be at least 1"):
        events(spark, RANGES, 1, partitions=0)
    with pytest.raises(SparkError, match="give count"):
        subscriptions(spark, MARKET)
    with pytest.raises(SparkError, match="columns, filters, odd, not 'rows'"):
        subscriptions(spark, RANGES, form=form)
    with pytest.raises(SparkError, match="MarketWorkload only"):
        subscriptions(spark, RANGES, form="odd")
    with pytest.raises(SparkError, match="multiple of partitions"):
        event_stream(spark, RANGES, 7, partitions=2)
