"""The generators of `boxmatch.workloads` as DataFrames, made where they are used.

Row i is the same as that of the plain generator, whatever the partitioning: a task gets numbers of
slices and makes their rows, so nothing but those numbers goes through the driver, and a task holds
one block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from boxmatch.arrays import AnyArray, Int64Array
from boxmatch.errors import SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.spark.entry import Batches, task
from boxmatch.workloads.boolean import BooleanWorkload
from boxmatch.workloads.equality import EqualityWorkload
from boxmatch.workloads.market import MarketWorkload
from boxmatch.workloads.ranges import RangeWorkload
from boxmatch.workloads.regions import RegionWorkload, UpdateKind
from boxmatch.workloads.streams import BLOCK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from boxmatch.model.boxes import Boxes

EventWorkload = RangeWorkload | BooleanWorkload | EqualityWorkload | MarketWorkload
Workload = EventWorkload | RegionWorkload

Form = Literal["columns", "filters", "odd"]
"""How subscriptions come: bounds, filter text for the same rows, or the market's odd texts."""

Moves = dict[str, Any]
"""Which updates of publications: `kind`, `first` and `last`."""

_CELLS: Final = 2**21  # values in a record batch, at most; Spark holds a few of them at a time

_SQL_TYPES: Final = {
    "int64": "bigint",
    "double": "double",
    "string": "string",
    "bool": "boolean",
    "timestamp[us, tz=UTC]": "timestamp",
}


def events(
    spark: SparkSession,
    workload: EventWorkload,
    count: int,
    *,
    start: int = 0,
    partitions: int | None = None,
) -> DataFrame:
    """Events `start:start + count`: `event_id`, which is the row number, and a column an attribute.

    An attribute that an event lacks is null. With an `event_file` every worker must see that file.
    """
    _check_workload(workload, EventWorkload)
    _check_rows(start, count)
    return _rows(spark, workload, "events", start, start + count, partitions)


def subscriptions(
    spark: SparkSession,
    workload: Workload,
    count: int | None = None,
    *,
    start: int = 0,
    form: Form = "columns",
    partitions: int | None = None,
) -> DataFrame:
    """Subscriptions `start:start + count`: `subscription_id`, the row number, and what they want.

    As `columns` that is `NAME_low` and `NAME_high` for bounds, both included, and `NAME` for an
    equality, null for none; as `filters` it is the same as text, in the column `filter`. `odd` are
    the texts of `MarketWorkload.odd_texts`. Without a count they are as many as the workload says;
    a `MarketWorkload` does not say.
    """
    _check_workload(workload, Workload)
    if form not in get_args(Form):
        raise SparkError(f"form must be one of {', '.join(get_args(Form))}, not {form!r}")
    if form == "odd" and not isinstance(workload, MarketWorkload):
        raise SparkError(f"odd texts exist for MarketWorkload only, not {_kind(workload)}")
    if count is None:
        if isinstance(workload, MarketWorkload):
            raise SparkError("a MarketWorkload does not say how many alerts there are: give count")
        count = workload.subscriptions - start
    _check_rows(start, count)
    return _rows(spark, workload, form, start, start + count, partitions)


def publications(
    spark: SparkSession,
    workload: RegionWorkload,
    count: int | None = None,
    *,
    start: int = 0,
    partitions: int | None = None,
) -> DataFrame:
    """Publications `start:start + count` before any update, as `transitions` takes them.

    Columns are `publication_id`, the row number, `sequence`, which is 0, and the dimensions; a
    dimension that a publication leaves free is null.
    """
    return updates(spark, workload, count, start=start, last=0, partitions=partitions)


def updates(
    spark: SparkSession,
    workload: RegionWorkload,
    count: int | None = None,
    *,
    start: int = 0,
    kind: UpdateKind = "random",
    first: int = 0,
    last: int,
    partitions: int | None = None,
) -> DataFrame:
    """Updates `first` to `last` of publications `start:start + count`, with these columns too.

    Number 0 in `sequence` is the publication itself. Those that follow give all its values anew, to
    any value (`random`) or by one up or down (`incremental`); row by row they are the values of
    `RegionWorkload.updates`.
    """
    _check_workload(workload, RegionWorkload)
    if kind not in get_args(UpdateKind):
        raise SparkError(f"kind must be one of {', '.join(get_args(UpdateKind))}, not {kind!r}")
    if not 0 <= first <= last:
        raise SparkError(f"updates {first} to {last} are not a range")
    count = workload.publications - start if count is None else count
    _check_rows(start, count)
    moves = {"kind": kind, "first": first, "last": last}
    return _rows(spark, workload, "updates", start, start + count, partitions, moves)


def event_stream(
    spark: SparkSession, workload: EventWorkload, rows_per_batch: int, *, partitions: int = 1
) -> DataFrame:
    """The same events as a stream: each micro-batch has the next `rows_per_batch` of them.

    A micro-batch is made in `partitions` slices of equal size, which should be multiples of 16,384
    rows when they are large: rows are made in such blocks, and part of one costs as much as all.
    """
    _check_workload(workload, EventWorkload)
    if partitions < 1 or rows_per_batch < 1 or rows_per_batch % partitions:
        raise SparkError(
            f"rows_per_batch must be a multiple of partitions, both at least 1, "
            f"not {rows_per_batch} and {partitions}"
        )
    slices = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", partitions)
        .option("numPartitions", partitions)
        .load()
        .selectExpr("value AS id")
    )
    return _generate(slices, workload, "events", 0, None, rows_per_batch // partitions)


def _kind(workload: object) -> str:
    return type(workload).__name__


def _check_workload(workload: object, kinds: Any) -> None:
    if not isinstance(workload, kinds):
        known = ", ".join(kind.__name__ for kind in get_args(kinds) or (kinds,))
        raise SparkError(f"there are such DataFrames of {known}, not of {_kind(workload)}")


def _check_rows(start: int, count: int) -> None:
    if start < 0 or count < 0:
        raise SparkError(f"rows {start}:{start + count} are not a range")


def _rows(
    spark: SparkSession,
    workload: Workload,
    what: str,
    start: int,
    stop: int,
    partitions: int | None,
    moves: Moves | None = None,
) -> DataFrame:
    if partitions is not None and partitions < 1:
        raise SparkError(f"partitions must be at least 1, not {partitions}")
    blocks = spark.range(start // BLOCK, -(-stop // BLOCK), numPartitions=partitions)
    return _generate(blocks, workload, what, start, stop, BLOCK, moves)


def _generate(
    slices: DataFrame,
    workload: Workload,
    what: str,
    start: int,
    stop: int | None,
    size: int,
    moves: Moves | None = None,
) -> DataFrame:
    """Number i in the column `id` becomes rows i · size to (i + 1) · size, within `start:stop`."""
    schema = ", ".join(
        f"`{field.name}` {_SQL_TYPES[str(field.type)]}"
        for field in next(_tables(workload, what, 0, 0, moves)).schema
    )
    make = task(
        "boxmatch.spark.workloads:make_rows",
        f"{_kind(workload)}_{what}",
        kind=_kind(workload),
        parameters=asdict(workload),
        what=what,
        start=start,
        stop=stop,
        size=size,
        moves=moves,
    )
    return slices.mapInArrow(make, schema)


def make_rows(
    batches: Batches,
    *,
    kind: str,
    parameters: dict[str, Any],
    what: str,
    start: int,
    stop: int | None,
    size: int,
    moves: Moves | None,
) -> Batches:
    """What a worker does for the slices in `batches`."""
    workload = {known.__name__: known for known in get_args(Workload)}[kind](**parameters)
    for batch in batches:
        for number in np.asarray(batch.column(0)).tolist():
            last = (number + 1) * size
            end = last if stop is None else min(last, stop)
            yield from _batches(workload, what, max(number * size, start), end, moves)


def _batches(
    workload: Workload, what: str, start: int, stop: int, moves: Moves | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows `start:stop`, block by block; a wide block in several batches."""
    while start < stop:
        end = min(stop, (start // BLOCK + 1) * BLOCK)
        for table in _tables(workload, what, start, end, moves):
            yield from table.to_batches(max_chunksize=max(1, _CELLS // table.num_columns))
        start = end


def _tables(
    workload: Workload, what: str, start: int, stop: int, moves: Moves | None
) -> Iterator[pa.Table]:
    """The tables of some rows: one, or one for each update."""
    import pyarrow as pa

    numbers = pa.array(np.arange(start, stop, dtype=np.int64))
    if isinstance(workload, RegionWorkload) and moves is not None:
        boxes = workload.publication_boxes(start, stop)
        for sequence, values in _updates(workload, boxes, start, stop, **moves):
            place = {"publication_id": numbers, "sequence": np.full(stop - start, sequence)}
            yield pa.table(place | _predicates(workload.names, boxes, {"": values}))
        return
    name = "event_id" if what == "events" else "subscription_id"
    yield pa.table({name: numbers, **_MAKERS[what](workload, start, stop)}).combine_chunks()


def _updates(
    workload: RegionWorkload,
    boxes: Boxes,
    start: int,
    stop: int,
    *,
    kind: UpdateKind,
    first: int,
    last: int,
) -> Iterator[tuple[int, Int64Array]]:
    """The numbers of updates, and the values of all constraints after each."""
    if first == 0:
        yield 0, boxes.low
    since = max(first, 1)
    each = workload.each_update(start, stop, kind=kind, first=since - 1, count=last - since + 1)
    for number, values in enumerate(each, since):
        yield number, values.reshape(-1)


def _events(workload: EventWorkload, start: int, stop: int) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(workload, RangeWorkload):
        keys = np.ascontiguousarray(workload.event_keys(start, stop).T)
        return {
            name: pa.array(column, mask=column == ABSENT)
            for name, column in zip(workload.names, keys, strict=True)
        }
    if isinstance(workload, BooleanWorkload):
        ones = np.ascontiguousarray(workload.event_keys(start, stop).T == 1)
        return dict(zip(workload.names, map(pa.array, ones), strict=True))
    if isinstance(workload, EqualityWorkload):
        return _columns_of(workload.events(start, stop))
    return _columns_of(workload.ticks(start, stop))


def _subscriptions(workload: Workload, start: int, stop: int) -> dict[str, Any]:
    """Subscriptions as columns."""
    if isinstance(workload, RangeWorkload):
        boxes = workload.boxes(start, stop)
        return _predicates(workload.names, boxes, {"_low": boxes.low, "_high": boxes.high})
    if isinstance(workload, BooleanWorkload):
        boxes = workload.boxes(start, stop)
        return _predicates(workload.names, boxes, {"": boxes.low == 1})
    if isinstance(workload, RegionWorkload):
        boxes = workload.subscription_boxes(start, stop)
        return _predicates(workload.names, boxes, {"_low": boxes.low, "_high": boxes.high})
    if isinstance(workload, EqualityWorkload):
        return _columns_of(workload.table(start, stop))
    return _columns_of(workload.alerts(start, stop))


def _predicates(names: list[str], boxes: Boxes, values: Mapping[str, AnyArray]) -> dict[str, Any]:
    """What predicates ask for, by the ending of its column; null where there is no predicate."""
    import pyarrow as pa

    rows = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
    columns: dict[str, Any] = {}
    for attribute, name in enumerate(names):
        here = np.flatnonzero(boxes.attribute == attribute)
        absent = np.ones(boxes.count, bool)
        absent[rows[here]] = False
        for ending, asked in values.items():
            dense = np.zeros(boxes.count, asked.dtype)
            dense[rows[here]] = asked[here]
            columns[name + ending] = pa.array(dense, mask=absent)
    return columns


def _filters(workload: Workload, start: int, stop: int) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(workload, MarketWorkload):
        return _columns_of(workload.alert_texts(start, stop))
    texts = [
        " AND ".join(_condition(name, wanted) for name, wanted in filter_.items()) or "TRUE"
        for filter_ in workload.filters(start, stop)
    ]
    return {"filter": pa.array(texts, pa.string())}


def _condition(name: str, wanted: bool | str | tuple[int, int]) -> str:
    if isinstance(wanted, tuple):
        return f"{name} BETWEEN {wanted[0]} AND {wanted[1]}"
    # None of the made-up strings has a quote in it.
    return f"{name} = '{wanted}'" if isinstance(wanted, str) else f"{name} = {str(wanted).upper()}"


def _columns_of(table: pa.Table) -> dict[str, Any]:
    return {name: table[name] for name in table.column_names if name != "id"}


_MAKERS: Final[dict[str, Any]] = {
    "events": _events,
    "columns": _subscriptions,
    "filters": _filters,
    "odd": lambda market, start, stop: _columns_of(market.odd_texts(start, stop)),
}
