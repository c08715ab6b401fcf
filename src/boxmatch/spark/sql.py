"""Matching in SQL: functions that `register` makes known to a session, and `match_function`.

The functions take the path of an index as an argument, so one registration serves all indexes.
Spark must know the types of a result before it calls a function: they are arguments of `register`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from boxmatch.errors import SparkError
from boxmatch.spark.columns import INTEGERS, is_case_sensitive
from boxmatch.spark.entry import scalar, task
from boxmatch.spark.matching import id_kind
from boxmatch.spark.plans import How, skipping_of
from boxmatch.spark.session import require_spark
from boxmatch.spark.versions import IdType, IndexVersion, read_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql._typing import UserDefinedFunctionLike

    Array = pa.Array[Any]

_EVENT_ID = "event_id"
_ID_INSIDE = "__boxmatch_id"  # another name than any attribute has
_FOUND = {"pairs": "subscription_id", "arrays": "subscription_ids", "counts": "matches"}

_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_ID_TYPES: dict[str, IdType] = {"bigint": "long", "string": "string"}

_IN_A_PIPELINE = "SESSION_MUTATION_IN_DECLARATIVE_PIPELINE.REGISTER_UDF"


def register(
    spark: SparkSession, *, event_id: str = "bigint", subscription_id: str = "string"
) -> None:
    """Register functions that match events in SQL, for this session.

    Table functions: `boxmatch_pairs` (`event_id`, `subscription_id`), `boxmatch_arrays`
    (`event_id`, `subscription_ids`) and `boxmatch_counts` (`event_id`, `matches`). They take the
    events, the path of an index and, by name, `version` (a number; else each task uses the version
    that is newest when it starts), `event_id` (the column of the events' ids) and `event` (that of
    the events, if they are JSON texts):
    `SELECT * FROM boxmatch_pairs(TABLE(ticks), '/indexes/alerts', event_id => 'tick')`. Partitions
    of the events are matched in parallel.

    `wanted_by('/indexes/alerts', struct(price, volume))` returns the array of ids for one event,
    which may be a JSON text, too. In a declarative pipeline Spark accepts table functions only, and
    it is left out.

    The arguments are the SQL types of ids: any for events, `"bigint"` or `"string"` for
    subscriptions. A query uses the types of the last registration before it.
    """
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import arrow_udtf

    id_sql = _sql_type(subscription_id)
    if id_sql not in _ID_TYPES:
        raise SparkError(f"ids of subscriptions are bigint or string, not {subscription_id!r}")
    kinds = {"pairs": id_sql, "arrays": f"array<{id_sql}>", "counts": "bigint"}
    make: Any = arrow_udtf  # typed for classes that are written out
    for how in get_args(How):
        handler = _table_function(
            how,
            event_type=_sql_type(event_id),
            id_type=_ID_TYPES[id_sql],
            case_sensitive=is_case_sensitive(spark),
        )
        result = f"{_EVENT_ID} {event_id}, {_FOUND[how]} {kinds[how]}"
        spark.udtf.register(f"boxmatch_{how}", make(handler, returnType=result))
    try:
        spark.udf.register("wanted_by", _wanted_by_function(spark, id_sql))
    except PySparkException as error:
        if error.getCondition() != _IN_A_PIPELINE:
            raise


def match_function(
    index: IndexVersion | str | os.PathLike[str], *, max_false_positive_rate: float | None = None
) -> UserDefinedFunctionLike:
    """A column function from events, structs of attributes or JSON texts, to the arrays of ids that
    want them.

    For method chains: `events.select("event_id", match_function(path)(f.struct("price")))`. It
    keeps to the version of the index that there is now, and always replicates it. `register` makes
    a like function for SQL. For the rate see `match`.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ArrayType

    if not isinstance(index, IndexVersion):
        index = read_version(index)
    skipping = skipping_of(index, max_false_positive_rate)
    spark = SparkSession.getActiveSession()
    work = scalar(
        "boxmatch.spark.worker:wanted_by",
        f"boxmatch_v{index.version}",
        **_searched(index),
        skipped=None if skipping is None else list(skipping.attributes),
        case_sensitive=spark is not None and is_case_sensitive(spark),
    )
    work.__annotations__ = {"given": pa.Array, "return": pa.Array}  # what kind of function it is
    make: Any = arrow_udf  # typed for functions that are written out
    made: UserDefinedFunctionLike = make(work, ArrayType(id_kind(index), False))
    return made


def _wanted_by_function(spark: SparkSession, id_sql: str) -> Any:
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    work = task(
        "boxmatch.spark.sql:wanted_by",
        "wanted_by",
        id_type=_ID_TYPES[id_sql],
        case_sensitive=is_case_sensitive(spark),
    )
    work.__annotations__ = {
        "batches": Iterator[tuple[pa.Array, pa.Array]],  # type: ignore[type-arg]
        "return": Iterator[pa.Array],  # type: ignore[type-arg]  # compared with this very type
    }
    make: Any = arrow_udf
    return make(work, f"array<{id_sql}>")


def _table_function(how: How, **arguments: Any) -> type:
    """A class that Spark pickles by value, so that a worker without the package can say so."""
    call = scalar("boxmatch.spark.sql:search", how=how, **arguments)

    class Matching:
        def __init__(self) -> None:
            self.opened: dict[Any, Any] = {}

        def eval(
            self, events: Any, index: Any, version: Any = None, event_id: Any = None,
            event: Any = None,
        ) -> Any:  # fmt: skip
            return call((self.opened, events, index, version, event_id, event))

    return Matching


def search(
    given: tuple[dict[Any, IndexVersion], Any, Array, Array | None, Array | None, Array | None],
    *,
    how: How,
    event_type: str,
    id_type: IdType,
    case_sensitive: bool,
) -> Iterator[pa.RecordBatch]:
    """What a table function does with a batch of events; the other arguments repeat in each row.

    The dict holds the versions that the task has chosen so far.
    """
    import pyarrow as pa

    from boxmatch.spark.fields import attribute_columns, find_fields
    from boxmatch.spark.worker import match

    opened, events, index, version, event_id, event = given
    if not isinstance(events, pa.RecordBatch):
        raise SparkError("the first argument is a table: write TABLE(name) or TABLE(SELECT …)")
    if events.num_rows == 0:
        return iter(())
    chosen = _version(opened, _constant(index, "index"), _constant(version, "version"), id_type)
    name = _constant(event_id, "event_id") or _EVENT_ID
    (ids,) = find_fields(events, [name], case_sensitive)
    _check_id_type(name, ids.type, event_type)
    text = _constant(event, "event")
    if text is None:
        columns = attribute_columns(events, chosen.schema, case_sensitive, chosen.time_zone)
        names = list(chosen.schema.names)
    else:
        columns, names = list(find_fields(events, [text], case_sensitive)), [text]
        _require_texts(text, columns[0].type)
    batch = pa.RecordBatch.from_arrays([ids, *columns], [_ID_INSIDE, *names])
    matches = match(
        iter([batch]),
        how=how,
        path=chosen.path,
        shards=chosen.segment_names,
        id_type=id_type,
        attributes={name: name for name in names},
        event=text,
        event_id=_ID_INSIDE,
        keep=(),
        found=_FOUND[how],
        shard_column=None,
    )
    return (m.rename_columns([_EVENT_ID, _FOUND[how]]) for m in matches)


def wanted_by(
    batches: Iterator[tuple[Array, Any]], *, id_type: IdType, case_sensitive: bool
) -> Iterator[Array]:
    """For paths of indexes and events as structs, the ids of the subscriptions that want them."""
    from boxmatch.spark.worker import wanted_by

    opened: dict[Any, IndexVersion] = {}
    for index, events in batches:
        chosen = _version(opened, _constant(index, "index"), None, id_type)
        yield wanted_by(events, **_searched(chosen), case_sensitive=case_sensitive)


def _searched(index: IndexVersion) -> dict[str, Any]:
    """What a worker has to know of an index to search it."""
    return {
        "path": index.path,
        "shards": index.segment_names,
        "id_type": index.id_type,
        "schema": index.schema.to_json(),
        "time_zone": index.time_zone,
    }


def _version(
    opened: dict[Any, IndexVersion], path: Any, number: Any, id_type: IdType
) -> IndexVersion:
    """The version that a task uses, from its first batch to its last."""
    if (path, number) not in opened:
        if not isinstance(path, str):
            raise SparkError(f"the index is given by its path, as text, not by {path!r}")
        opened[path, number] = read_version(path, number)
    index = opened[path, number]
    if index.id_type != id_type:
        own = next(name for name, kind in _ID_TYPES.items() if kind == index.id_type)
        raise SparkError(
            f"the ids of the index at {index.path} are of type {own}: call "
            f"boxmatch.spark.register with subscription_id={own!r}"
        )
    return index


def _constant(argument: Array | None, name: str) -> Any:
    if argument is None:
        return None
    values = argument.unique().to_pylist()
    if len(values) > 1:
        raise SparkError(
            f"{name} must be the same for all events, not {values[0]!r}, {values[1]!r}"
        )
    return values[0] if values else None


def _check_id_type(name: str, kind: pa.DataType, wanted: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    found = from_arrow_type(kind).simpleString()
    if found != wanted and not (found in INTEGERS and wanted in INTEGERS):
        raise SparkError(
            f"column {name!r} of the events is {found}, not {wanted}: call "
            f"boxmatch.spark.register with event_id={found!r}, or cast the column"
        )


def _require_texts(name: str, kind: pa.DataType) -> None:
    from boxmatch.spark.fields import is_json

    if not is_json(kind):
        raise SparkError(
            f"column {name!r} of the events is of type {kind}, not JSON text: to_json({name}) "
            "makes one of a struct, a map or a variant"
        )


def _sql_type(text: object) -> str:
    """A type as Spark's `simpleString` writes it."""
    if not isinstance(text, str) or not text.strip():
        raise SparkError(f"the type of ids is given as in SQL, such as 'bigint', not by {text!r}")
    plain = text.strip().lower().replace(" ", "")
    return _ALIASES.get(plain, plain)
