"""`transitions`: publications that move, and the subscriptions that they enter and leave.

A publication is a key with a region that lasts from update to update. A stream keeps the region in
Spark's state; a batch goes through the updates of each key from their first to their last. What an
update means is decided in one place for both, `boxmatch.spark.publications.follower`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spaces.spaces import Spaces
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
from boxmatch.spark.plans import require_schema
from boxmatch.spark.publications.keeper import processor
from boxmatch.spark.publications.regions import check_ends, check_regions, file_of
from boxmatch.spark.publications.space_follower import Space
from boxmatch.spark.segments import open_shards
from boxmatch.spark.store import Folder, scratch_folder
from boxmatch.spark.subscription_tables import DIALECT, require_sql
from boxmatch.spark.versions import (
    VERSIONS,
    IdType,
    IndexVersion,
    read_version,
    rejected,
    version_numbers,
)
from boxmatch.spark.zones import instants, is_local, session_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KIND = "kind"

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def transitions(
    updates: DataFrame,
    subscriptions: DataFrame | IndexVersion | str | os.PathLike[str],
    *,
    schema: SchemaSpec | None = None,
    spaces: Mapping[str, SchemaSpec] | None = None,
    key: str = "publication_id",
    order: str = "sequence",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    region: str = "region",
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

    With `spaces` instead of a schema there are several, as for `boxmatch.Spaces`, and publications
    and subscriptions may have several regions. Rows of a table of subscriptions with the same id
    are regions of one, named in column `region`, with `NAME`, `NAME_low` and `NAME_high` of any
    dimension; column `filter` says which of them must have a partner (in one row, or the same in
    all). Updates may have both columns too: a row changes the region that it names, rows of one
    key and order are one update, and an empty filter takes the filter away. `removed` with the
    name of a region removes that. Such subscriptions are collected on the driver, and stay.

    A stream needs RocksDB as its state store, and is written in append mode. With `ttl` it runs a
    micro-batch at every trigger, so `availableNow` does not end. Its state is divided into
    `buckets`, which are as many as tasks can run at once; the number stays as long as a checkpoint
    is used. A batch gives the rows that a stream would to which no update came late; it has no
    `ttl`.
    """
    require_frame(updates, "updates")
    _check_options(updates, ttl, buckets)
    if len({key, order, subscription_id, KIND}) < 4:
        raise SparkError(
            f"key, order and subscription_id must differ from each other and from {KIND!r}"
        )
    spark = updates.sparkSession
    version = None if isinstance(subscriptions, IndexVersion) else _newest(subscriptions)
    follows = updates.isStreaming and version is not None
    given: Any = version or subscriptions
    if isinstance(given, (str, os.PathLike)):
        given = spark.read.parquet(os.fspath(given))
    names = _Names(key, order, removed, region, filter)
    if spaces is not None:
        if schema is not None or shards is not None or isinstance(given, IndexVersion):
            raise SparkError("spaces are for a table of subscriptions, without schema and shards")
        job = _in_spaces(updates, given, Spaces(spaces).schemas, names, subscription_id, path)
    else:
        if not isinstance(given, IndexVersion):
            if schema is None:
                raise SparkError("the schema is not given; only an index has one of its own")
            _check_updates(updates, Schema(schema), names)
            settings = IndexSettings(Schema(schema), shards, subscription_id, filter)
            given = _build(given, settings, path)
        require_schema(given, None if schema is None else Schema(schema))
        job = _with_index(updates, given, names)
    job.arguments["leave"] = bool(leave)
    changes = _follow(job, ttl, buckets, follows)
    return _name_columns(changes, updates, key, order, subscription_id)


class _Names(NamedTuple):
    """What columns of the updates are called."""

    key: str
    order: str
    removed: str | None
    region: str
    filter: str


class _Job(NamedTuple):
    """What is sent to workers, and what they do with it."""

    sent: DataFrame
    id_type: IdType
    function: str
    """For a batch."""
    arguments: dict[str, Any]


def _newest(subscriptions: object) -> IndexVersion | None:
    """The newest version, if it is the path of an index."""
    if isinstance(subscriptions, (str, os.PathLike)) and version_numbers(subscriptions):
        return read_version(subscriptions)
    return None


def _check_options(updates: DataFrame, ttl: float | None, buckets: int) -> None:
    if ttl is not None and not ttl > 0:
        raise SparkError(f"ttl is a number of seconds above 0, not {ttl!r}")
    if buckets < 1:
        raise SparkError(f"buckets must be at least 1, not {buckets!r}")
    if updates.isStreaming:
        _check_state_store(updates.sparkSession)
    elif ttl is not None:
        raise SparkError("ttl is for streams: in batch no time passes between updates")


def _with_index(updates: DataFrame, index: IndexVersion, names: _Names) -> _Job:
    ends = _check_updates(updates, index.schema, names)
    arguments = {
        "path": index.path,
        "shards": index.segment_names,
        "id_type": index.id_type,
        "schema": index.schema.to_json(),
        "ends": [[dimension, end] for dimension, end in ends.values()],
    }
    sent = _select_updates(updates, names, ends, (), index.time_zone)
    return _Job(sent, index.id_type, "boxmatch.spark.publications.follower:follow_all", arguments)


def _in_spaces(
    updates: DataFrame,
    subscriptions: DataFrame,
    spaces: Mapping[str, Schema],
    names: _Names,
    subscription_id: str,
    path: str | os.PathLike[str] | None,
) -> _Job:
    space = Space(spaces)
    columns = Columns(updates, "updates", nested=False)
    found = [columns.find(name) for name in (names.region, names.filter)]
    for field in found:
        if field is not None and field.type.simpleString() != "string":
            kind = field.type.simpleString()
            raise SparkError(f"column {field.name!r} of the updates is {kind}, not text")
    texts = [None if field is None else field.name for field in found]
    ends = _check_updates(
        updates, space.dimensions, names, [name for name in texts if name is not None]
    )
    _require_table(subscriptions)
    zone = session_zone(updates.sparkSession)
    id_type, content = file_of(
        subscriptions, space, subscription_id, names.region, names.filter, zone
    )
    folder = Folder.at(path or scratch_folder(updates.sparkSession, "the table of subscriptions"))
    folder.prepare()
    # Named by what is in it: what a worker has loaded under a name never changes.
    mark = repr(space.to_json()).encode() + content
    file = f"subscriptions-{hashlib.sha256(mark).hexdigest()[:32]}.arrow"
    folder.create(file, content)
    arguments = {
        "path": str(folder),
        "name": file,
        "id_type": id_type,
        "spaces": space.to_json(),
        "ends": [[dimension, end] for dimension, end in ends.values()],
    }
    sent = _select_updates(updates, names, ends, texts, zone)
    return _Job(sent, id_type, "boxmatch.spark.publications.space_follower:follow_all", arguments)


def _require_table(subscriptions: DataFrame) -> None:
    """Raise an error unless it is a table that stays."""
    require_frame(subscriptions, "subscriptions")
    if subscriptions.isStreaming:
        raise SparkError("the subscriptions are a stream; transitions takes a table or an index")


def _build(
    subscriptions: DataFrame, settings: IndexSettings, path: str | os.PathLike[str] | None
) -> IndexVersion:
    """An index of the subscriptions, all of which must be good."""
    _require_table(subscriptions)
    _, columns = settings.check(subscriptions)
    bounds = ends_of(columns, settings.schema)
    check_ends(bounds, "subscriptions")
    if {"filter", DIALECT} <= columns.keys():
        require_sql(subscriptions, settings.subscription_id, columns[DIALECT])
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
    updates: DataFrame, schema: Schema, names: _Names, texts: Iterable[str] = ()
) -> dict[str, tuple[str, End]]:
    """The columns that say what changes: of which dimension, and which end; `texts` are none."""
    key, order, removed = names[:3]
    own = [key, order, *([] if removed is None else [removed]), *texts]
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
    for name, attribute in dimensions.items():
        if attribute.repeated or attribute.type == "json":
            raise SparkError(
                f"column {name!r} of the updates is of dimension {attribute.name!r}, a "
                f"{attribute.type_name}: a publication has one value or range of a dimension"
            )
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
    names: _Names,
    ends: Mapping[str, tuple[str, End]],
    texts: Sequence[str | None],
    time_zone: str,
) -> DataFrame:
    """The updates as workers take them: columns of texts come before those of dimensions.

    Local times are of the given zone.
    """
    from pyspark.sql import functions as f

    key, order, removed = names[:3]

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
        *(
            (f.lit(None).cast("string") if name is None else column(name)).alias(f"t{place}")
            for place, name in enumerate(texts)
        ),
        *(given(name).alias(f"c{place}") for place, name in enumerate(ends)),
    )


def _follow(job: _Job, ttl: float | None, buckets: int, follows: bool) -> DataFrame:
    """A row for each update and kind, with all subscriptions concerned."""
    sent, id_type, function, arguments = job
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
        return in_turn.mapInArrow(task(function, "boxmatch_transitions", **arguments), result)
    work = scalar(
        "boxmatch.spark.publications.keeper:Keeper",
        ttl=ttl,
        buckets=buckets,
        follows=follows,
        **arguments,
    )
    mixed = f.xxhash64("key")
    bucket = f.pmod(mixed, f.lit(buckets)).cast("int")
    packs = sent.select(bucket.alias("bucket"), *sent.columns, mixed.alias("hash")).mapInArrow(
        task("boxmatch.spark.publications.keeper:pack", "boxmatch_pack"),
        "bucket int, pack binary, version string",
    )
    if follows:
        packs = packs.unionByName(_new_versions(sent.sparkSession, arguments["path"], buckets))
    told = packs.groupBy("bucket").transformWithState(
        processor(work),
        StructType([StructField("pack", BinaryType())]),
        "Append",
        "None" if ttl is None else "ProcessingTime",
    )
    return told.mapInArrow(
        task("boxmatch.spark.publications.keeper:unpack", "boxmatch_transitions"), result
    )


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
