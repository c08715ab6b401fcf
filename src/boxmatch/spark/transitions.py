"""`transitions`: publications that move, and the subscriptions that they enter and leave.

A publication is a key with a region that lasts from update to update. A stream keeps the region in
Spark's state; a batch goes through the updates of each key from their first to their last. What an
update means is decided in one place for both, `boxmatch.spark.follower`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.build import IndexSettings, next_version
from boxmatch.spark.columns import (
    INTEGERS,
    Columns,
    End,
    check_types,
    column,
    ends_of,
    require_columns,
    require_frame,
)
from boxmatch.spark.entry import scalar, task
from boxmatch.spark.matching import require_schema
from boxmatch.spark.regions import check_ends, check_regions
from boxmatch.spark.segments import open_shards
from boxmatch.spark.store import scratch_folder
from boxmatch.spark.versions import (
    VERSIONS,
    IdType,
    IndexVersion,
    read_version,
    rejected,
    version_numbers,
)
from boxmatch.spark.zones import instants, is_local

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

KIND = "kind"

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def transitions(
    updates: DataFrame,
    subscriptions: DataFrame | IndexVersion | str | os.PathLike[str],
    *,
    schema: SchemaSpec | None = None,
    key: str = "publication_id",
    order: str = "sequence",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    removed: str | None = None,
    ttl: float | None = None,
    leave: bool = True,
    path: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    buckets: int = 64,
) -> DataFrame:
    """What changes for whom: rows of `key`, `subscription_id`, `kind`, `order`.

    An update has the publication's `key`, its place in `order` (an integer or a timestamp, larger
    for later ones of the same key) and dimensions: `NAME` for a value, or `NAME_low` and
    `NAME_high` for a range. What is null or NaN stays as it was; dimensions that no update has
    mentioned may have any value. Where the boolean column `removed` is true, the publication is no
    more, and a later update begins it anew. With `ttl` it also ends that many seconds after its
    last update.

    `kind` is `enter`, `leave` (unless switched off) or `deleted`; `order` is that of the update
    which was the cause, for an expiry the last one. Updates may come in any order within a
    micro-batch. One that is not later than the last that was seen is dropped, also after a removal;
    what has expired is forgotten altogether. A null key or order ends the job, as does a value that
    makes no sense, with a message that names it.

    Subscriptions are a table as for `build_index` or the path of one in Parquet, of which an index
    is built now, at `path`, or in a temporary folder where driver and workers share this machine;
    a row that is no subscription is an error. Or they are a version of an index, or the path of an
    index: a batch takes its newest version. A stream follows it: once there is a new version, every
    stored publication is compared with it, before the updates of the same micro-batch. A
    subscription that is new gets `enter` for what it matches and one that has changed `enter` and
    `leave`, with the `order` of the publication's last update; one that is gone gets nothing. If a
    stream that does not follow an index is started again with other subscriptions, publications
    meet them at their next update.

    A stream needs RocksDB as its state store, and is written in append mode. With `ttl` it runs a
    micro-batch at every trigger, so `availableNow` does not end. Its state is divided into
    `buckets`, which are as many as tasks can run at once; the number stays as long as a checkpoint
    is used. A batch gives the rows that a stream would to which no update came late; it has no
    `ttl`.
    """
    require_frame(updates, "updates")
    if len({key, order, subscription_id, KIND}) < 4:
        raise SparkError(
            f"key, order and subscription_id must differ from each other and from {KIND!r}"
        )
    spark = updates.sparkSession
    if ttl is not None and not ttl > 0:
        raise SparkError(f"ttl is a number of seconds above 0, not {ttl!r}")
    if buckets < 1:
        raise SparkError(f"buckets must be at least 1, not {buckets!r}")
    if updates.isStreaming:
        _check_state_store(spark)
    elif ttl is not None:
        raise SparkError("ttl is for streams: in batch no time passes between updates")
    follows = False
    if isinstance(subscriptions, (str, os.PathLike)):
        if version_numbers(subscriptions):
            follows = updates.isStreaming
            subscriptions = read_version(subscriptions)
        else:
            subscriptions = spark.read.parquet(os.fspath(subscriptions))
    if isinstance(subscriptions, IndexVersion):
        index = subscriptions
        require_schema(index, None if schema is None else Schema(schema))
        ends = _check_updates(updates, index.schema, key, order, removed)
    else:
        if schema is None:
            raise SparkError("the schema is not given; only an index has one of its own")
        known = Schema(schema)
        ends = _check_updates(updates, known, key, order, removed)
        settings = IndexSettings(known, shards, subscription_id, filter)
        index = _build(subscriptions, settings, path)
    changes = _follow(
        _select_updates(updates, key, order, removed, ends, index.time_zone),
        {
            "path": index.path,
            "shards": index.segment_names,
            "id_type": index.id_type,
            "schema": index.schema.to_json(),
            "ends": [[dimension, end] for dimension, end in ends.values()],
            "leave": bool(leave),
        },
        index.id_type,
        ttl,
        buckets,
        follows,
    )
    return _name_columns(changes, updates, key, order, subscription_id)


def _build(
    subscriptions: DataFrame, settings: IndexSettings, path: str | os.PathLike[str] | None
) -> IndexVersion:
    """An index of the subscriptions, all of which must be good."""
    require_frame(subscriptions, "subscriptions")
    if subscriptions.isStreaming:
        raise SparkError("the subscriptions are a stream; transitions takes a table or an index")
    _, columns = settings.check(subscriptions)
    bounds = ends_of(columns, settings.schema)
    check_ends(bounds, "subscriptions")
    spark = subscriptions.sparkSession
    index = next_version(subscriptions, path or scratch_folder(spark, "the index"), settings)
    if index.rejected:
        first = rejected(spark, index.path, index.version).head(1)[0]
        name = "" if first["subscription_id"] is None else f" {first['subscription_id']!r}"
        raise SparkError(f"subscription{name}: {first['reason']}")
    for shard in open_shards(index.path, index.segment_names):
        check_regions(shard, ranges=bool(bounds))
    return index


def _check_updates(
    updates: DataFrame, schema: Schema, key: str, order: str, removed: str | None
) -> dict[str, tuple[str, End]]:
    """The columns that say what changes: of which dimension, and which end."""
    own = [key, order] if removed is None else [key, order, removed]
    require_columns(updates, own, "updates")
    Columns(updates, "updates").check_schema(schema)
    kinds = {name: kind.lower() for name, kind in updates.dtypes}
    if kinds[key] not in (*INTEGERS, "string"):
        raise SparkError(
            f"column {key!r} of the updates is {kinds[key]}; a key is a string or an integer: "
            "cast it"
        )
    if kinds[order] not in (*INTEGERS, "timestamp"):
        raise SparkError(
            f"column {order!r} of the updates is {kinds[order]}; an order is an integer or a "
            "timestamp: cast it"
        )
    if removed is not None and kinds[removed] != "boolean":
        raise SparkError(f"column {removed!r} of the updates is {kinds[removed]}, not boolean")
    sensitive = Columns(updates, "updates").case_sensitive
    others = (name for name in updates.columns if name not in own)
    ends = ends_of(others, schema, case_sensitive=sensitive)
    check_ends(ends, "updates")
    if not ends:
        raise SparkError(
            "the updates have no column of a dimension (NAME, or NAME_low and NAME_high; there are "
            f"{', '.join(schema.names)}); they have: {', '.join(updates.columns)}"
        )
    dimensions = {name: schema[dimension] for name, (dimension, _) in ends.items()}
    check_types(updates, dimensions, "updates")
    return ends


def _check_state_store(spark: SparkSession) -> None:
    provider = spark.conf.get(_PROVIDER, "")
    if "rocksdb" not in str(provider).lower():
        raise SparkError(
            "transitions of a stream need RocksDB as the state store: "
            f'spark.conf.set("{_PROVIDER}", "{_ROCKSDB}") before, and when the query is started'
        )


def _select_updates(
    updates: DataFrame,
    key: str,
    order: str,
    removed: str | None,
    ends: Mapping[str, tuple[str, End]],
    time_zone: str,
) -> DataFrame:
    """The updates as workers take them. Local times are of this zone."""
    from pyspark.sql import functions as f

    kinds = dict(updates.dtypes)

    def require_value(name: str) -> Column:
        nothing = f.raise_error(f.lit(f"an update has no {name}: it is null"))
        return f.when(column(name).isNull(), nothing).otherwise(column(name))

    def given(name: str) -> Column:
        local = time_zone != "UTC" and is_local(updates.schema[name].dataType)
        return instants(column(name), time_zone) if local else column(name)

    turn = require_value(order)
    return updates.select(
        require_value(key).cast("string" if kinds[key] == "string" else "long").alias("key"),
        (f.unix_micros(turn) if kinds[order] == "timestamp" else turn.cast("long")).alias("order"),
        (f.lit(False) if removed is None else f.coalesce(column(removed), f.lit(False))).alias(
            "removed"
        ),
        *(given(name).alias(f"c{place}") for place, name in enumerate(ends)),
    )


def _follow(
    sent: DataFrame,
    arguments: Mapping[str, Any],
    id_type: IdType,
    ttl: float | None,
    buckets: int,
    follows: bool,
) -> DataFrame:
    """A row for each update and kind, with all subscriptions concerned."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    ids = LongType() if id_type == "long" else StringType()
    result = StructType(
        [
            sent.schema["key"],
            StructField("ids", ArrayType(ids, False)),
            StructField("kind", StringType()),
            StructField("order", LongType()),
        ]
    )
    if not sent.isStreaming:
        # In the order of `sorted_updates`, which has nulls last.
        turn = [f.col(name).asc_nulls_last() for name in sent.columns]
        in_turn = sent.repartition("key").sortWithinPartitions(*turn)
        name = "boxmatch.spark.follower:follow_all"
        return in_turn.mapInArrow(task(name, "boxmatch_transitions", **arguments), result)
    work = scalar(
        "boxmatch.spark.keeper:Keeper",
        ttl=ttl,
        buckets=buckets,
        follows=follows,
        **arguments,
    )
    mixed = f.xxhash64("key")
    bucket = f.pmod(mixed, f.lit(buckets)).cast("int")
    packs = sent.select(bucket.alias("bucket"), *sent.columns, mixed.alias("hash")).mapInArrow(
        task("boxmatch.spark.keeper:pack", "boxmatch_pack"),
        "bucket int, pack binary, version string",
    )
    if follows:
        packs = packs.unionByName(_new_versions(sent.sparkSession, arguments["path"], buckets))
    told = packs.groupBy("bucket").transformWithState(
        _processor(work),
        StructType([StructField("pack", BinaryType())]),
        "Append",
        "None" if ttl is None else "ProcessingTime",
    )
    return told.mapInArrow(task("boxmatch.spark.keeper:unpack", "boxmatch_transitions"), result)


def _new_versions(spark: SparkSession, path: str, buckets: int) -> DataFrame:
    """A row for each bucket and new version of the index.

    So Spark's checkpoint says which micro-batch has seen which version.
    """
    from pyspark.sql import functions as f

    # A version that is deleted before it was read has been followed by others.
    options = {"pathGlobFilter": "*.json", "wholetext": "true", "ignoreMissingFiles": "true"}
    files = spark.readStream.schema("value string").options(**options)
    every = f.explode(f.sequence(f.lit(0), f.lit(buckets - 1)))
    return files.text(f"{path}/{VERSIONS}").select(
        every.alias("bucket"),
        f.lit(None).cast("binary").alias("pack"),
        f.col("value").alias("version"),
    )


def _name_columns(
    changes: DataFrame, updates: DataFrame, key: str, order: str, subscription_id: str
) -> DataFrame:
    """A row for each subscription concerned, with the names and types of the updates."""
    from pyspark.sql import functions as f

    kinds = dict(updates.dtypes)
    turn = f.col("order")
    return changes.select(
        f.col("key").cast(kinds[key]).alias(key),
        f.explode("ids").alias(subscription_id),
        f.col("kind").alias(KIND),
        (
            f.timestamp_micros(turn) if kinds[order] == "timestamp" else turn.cast(kinds[order])
        ).alias(order),
    )


def _processor(work: Any) -> StatefulProcessor:
    """What Spark runs. Of a class that is pickled by value: see `boxmatch.spark.entry`."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Transitions(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.keeper = work(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            given = [(row["pack"], row["version"]) for row in rows]
            packs = [pack for pack, _ in given if pack is not None]
            versions = [version for _, version in given if version is not None]
            return (Row(pack=one) for one in self.keeper.take(packs, versions, timerValues))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            expiry = expiredTimerInfo.getExpiryTimeInMs()
            return (Row(pack=one) for one in self.keeper.expire(expiry))

        def close(self) -> None:
            pass

    return Transitions()
