"""Clean and derive: rows that can be matched, the others with a reason, and further attributes.

Nothing that a row holds makes a job fail. A row with several faults is quarantined for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.keys import LARGEST_WHOLE
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.columns import (
    Columns,
    Field,
    column,
    element_fields,
    quote,
    require_columns,
    with_names,
)
from boxmatch.spark.pipeline.failures import translate_errors
from boxmatch.spark.pipeline.read import MALFORMED
from boxmatch.spark.subscription_tables import DIALECT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON: Final = "_reason"
ROW: Final = "_row"
MALFORMED_ROW: Final = "malformed row"

SPARK_TYPES: Final[Mapping[str, str]] = {
    "int": "bigint", "float": "double", "string": "string", "bool": "boolean",
    "timestamp": "timestamp", "enum": "string",
}  # fmt: skip
"""What a column of each attribute type is once it is clean; a decimal is one of Spark as well."""

_WHOLE: Final = {"tinyint", "smallint", "int", "bigint"}
_FRACTIONS: Final = {"float", "double", "decimal"}
_TIMES: Final = {"date", "timestamp", "timestamp_ntz"}
_CASTS: Final = {
    "int": {"string", *_WHOLE, *_FRACTIONS},
    "float": {"string", *_WHOLE, *_FRACTIONS},
    "string": {"string", "boolean", *_WHOLE, *_FRACTIONS, *_TIMES},
    "bool": {"string", "boolean"},
    "timestamp": {"string", *_TIMES},
    "enum": {"string"},
    "decimal": {"string", *_WHOLE, *_FRACTIONS},
}

_ATTRIBUTE_TYPES: Final[Mapping[str, str]] = {
    "tinyint": "int", "smallint": "int", "int": "int", "bigint": "int",
    "float": "float", "double": "float",
    "string": "string", "varchar": "string", "char": "string",
    "boolean": "bool",
    "date": "timestamp", "timestamp": "timestamp", "timestamp_ntz": "timestamp",
}  # fmt: skip

Fault = tuple["Column", str]
"""Where a row is at fault, and the reason to give."""


@dataclass(frozen=True)
class Cleaned:
    """Rows that have been looked at. Unpacks to those that are fine, and those that are not."""

    judged: DataFrame
    """All rows, each with what is wrong with it: to be written, and then read, only once."""
    id: str

    @property
    def good(self) -> DataFrame:
        """The rows that are fine."""
        from pyspark.sql import functions as f

        return self.judged.where(f.col(REASON).isNull()).drop(REASON, ROW)

    @property
    def quarantined(self) -> DataFrame:
        """The id as text, `reason`, and the `row` as JSON, or the line that was no row at all."""
        from pyspark.sql import functions as f

        return self.judged.where(f.col(REASON).isNotNull()).select(
            column(self.id).cast("string").alias(self.id),
            f.col(REASON).alias("reason"),
            f.col(ROW).alias("row"),
        )

    def __iter__(self) -> Iterator[DataFrame]:
        return iter((self.good, self.quarantined))


def clean(
    events: DataFrame,
    schema: Schema,
    *,
    event_id: str = "event_id",
    event_time: str | None = None,
    duplicates: Sequence[str] | None = None,
) -> Cleaned:
    """Events with the types of their attributes; bad ones and duplicates are put aside.

    A row is quarantined if it was no row at all, has no id or (where `event_time` is given) no
    time, has a value that is not of its attribute's type or outside its domain, or shares the
    columns `duplicates` (the id if left out) with another one. Of those that share them the one
    with the earliest time stays, then the one whose columns, from the first on, are smaller: the
    same one whatever order rows come in. Columns that are no attributes stay as they are.
    """
    key = [event_id] if duplicates is None else list(duplicates)
    types = {attribute.name: attribute for attribute in schema}
    if event_time is not None:
        types.setdefault(event_time, Attribute(event_time, "timestamp"))
    needed = [event_id, *types, *(name for name in key if name != event_id)]
    events = with_names(events, needed, "events")
    columns = Columns(events, "events")
    inside = {name for name in types if name not in events.columns and columns.find(name)}
    _check_columns(events, (name for name in needed if name not in inside), "events")
    faults = [*_malformed(events), _missing(event_id)]
    if event_time is not None:
        faults.append(_missing(event_time))
    typed: dict[str, Column] = {}
    for attribute in types.values():
        (field,) = columns.require([attribute.name])
        value, found = _cast(events, field, attribute)
        top, *path = field.path
        typed[top] = _with_field(typed.get(top, column(top)), path, value) if path else value
        faults += found
    earliest = [] if event_time is None else [event_time]
    return Cleaned(_judge(events, typed, faults, key, earliest), event_id)


def clean_subscriptions(
    subscriptions: DataFrame, *, subscription_id: str = "subscription_id", filter: str = "filter"
) -> Cleaned:
    """Subscriptions with an id of their own; whether their filters compile is seen later.

    Of several with the same id, filter and dialect one stays. With different filters nobody can
    tell which is meant, so none does.
    """
    known = [subscription_id, filter, DIALECT]
    subscriptions = with_names(subscriptions, known, "subscriptions")
    _check_columns(subscriptions, [subscription_id], "subscriptions")
    faults = [*_malformed(subscriptions), _missing(subscription_id)]
    says: Sequence[str] = subscriptions.columns
    if filter in subscriptions.columns:
        faults.append(_missing(filter))
        says = [name for name in (filter, DIALECT) if name in subscriptions.columns]
    judged = _judge(subscriptions, {}, faults, [subscription_id], [], agree_on=says)
    return Cleaned(judged, subscription_id)


def _judge(
    rows: DataFrame,
    typed: dict[str, Column],
    faults: Iterable[Fault],
    key: list[str],
    first: list[str],
    agree_on: Sequence[str] = (),
) -> DataFrame:
    """Rows with what is wrong with them. Of those that share a key the `first` one is right, or
    none if they do not `agree_on` these columns.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    names = [name for name in rows.columns if name != MALFORMED]
    own = f.to_json(f.struct(*map(column, names)))
    text = f.coalesce(f.col(MALFORMED), own) if MALFORMED in rows.columns else own
    reason = f.coalesce(*(f.when(bad, f.lit(why)) for bad, why in faults))
    judged = rows.select(
        *(typed.get(name, column(name)).alias(name) for name in names),
        reason.alias(REASON),
        f.when(reason.isNotNull(), text).alias(ROW),
    )
    if not key:
        return judged
    order = [_sort_key(judged, name) for name in (*first, *names)]
    # Bad rows are parted from good ones, and from each other: no bad row can push a good one out,
    # and many rows without an id do not end up in one place.
    apart = f.when(f.col(REASON).isNotNull(), f.xxhash64(ROW))
    alike = Window.partitionBy(*map(column, key), f.col(REASON).isNull(), apart)
    again = f.row_number().over(alike.orderBy(*order)) > 1
    shared = f"duplicate {' and '.join(key)}"
    fault = f.when(again, f.lit(shared))
    if agree_on:
        content = f.to_json(f.struct(*(column(name) for name in agree_on if name != MALFORMED)))
        differ = f.min(content).over(alike) != f.max(content).over(alike)
        fault = f.when(differ, f.lit(f"{shared}, with different content")).otherwise(fault)
    fault = f.when(f.col(REASON).isNull(), fault)
    return judged.withColumns(
        {
            REASON: f.coalesce(f.col(REASON), fault),
            ROW: f.coalesce(f.col(ROW), f.when(fault.isNotNull(), own)),
        }
    )


def _with_field(struct: Column, path: Sequence[str], value: Column) -> Column:
    """A struct with another value of a field, or a field of a field."""
    return struct.withField(".".join(map(quote, path)), value)


def _cast(events: DataFrame, field: Field, attribute: Attribute) -> tuple[Column, list[Fault]]:
    """The column with its attribute's type, and what may be wrong with it."""
    if attribute.repeated:
        return _cast_lists(events, field, attribute)
    return _cast_values(field, attribute, field.column)


def _cast_lists(
    events: DataFrame, field: Field, attribute: Attribute
) -> tuple[Column, list[Fault]]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    raw, element = field.column, field.element
    is_struct = attribute.type == "struct"
    if element is None or is_struct != isinstance(element, StructType):
        raise _no_cast(field, attribute)
    if not is_struct:
        one = replace(attribute, name=f"an element of {attribute.name}", repeated=False)
        cast = partial(_cast_values, Field(field.path, element), one)
        return f.transform(raw, lambda value: cast(value)[0]), _faults_inside(raw, cast)
    faults: list[Fault] = []
    changes = []
    for one, inner in element_fields(events, field, attribute, "events"):
        named = replace(one, name=f"{attribute.name}.{one.name}")
        cast = partial(_cast_field, inner, named)
        faults += _faults_inside(raw, cast)
        changes.append((inner.path, cast))

    def rebuilt(struct: Column) -> Column:
        result = struct
        for path, cast in changes:
            result = _with_field(result, path, cast(struct)[0])
        return result

    return f.transform(raw, rebuilt), faults


def _cast_field(field: Field, attribute: Attribute, struct: Column) -> tuple[Column, list[Fault]]:
    """The same for a field of a struct that is in a list."""
    value = struct
    for name in field.path:
        value = value.getField(name)
    return _cast_values(field, attribute, value)


def _faults_inside(
    lists: Column, cast: Callable[[Column], tuple[Column, list[Fault]]]
) -> list[Fault]:
    """Where an element of a list is at fault, for each of the faults that one may have."""
    from pyspark.sql import functions as f

    def somewhere(place: int) -> Column:
        return f.exists(lists, lambda value: cast(value)[1][place][0])

    _, found = cast(lists)
    return [(somewhere(place), why) for place, (_, why) in enumerate(found)]


def _no_cast(field: Field, attribute: Attribute) -> SparkError:
    return SparkError(
        f"column {field.name!r} is of Spark type {field.type.simpleString()}, which does not "
        f"become an attribute of type {attribute.type_name}; derive a column from it instead"
    )


def _cast_values(field: Field, attribute: Attribute, raw: Column) -> tuple[Column, list[Fault]]:
    from pyspark.sql import functions as f

    name, wanted = attribute.name, attribute.type
    kind = field.type.simpleString()
    plain = kind.partition("(")[0]
    if plain.startswith(("varchar", "char")):
        plain = "string"
    if plain not in _CASTS.get(wanted, ()):
        raise _no_cast(field, attribute)
    if wanted == "decimal":
        value, rounded = _as_decimal(raw, kind, attribute)
        wrong = raw.isNotNull() & rounded
    else:
        value = raw.try_cast(SPARK_TYPES[wanted])
        wrong = raw.isNotNull() & value.isNull()
    if wanted == "int" and plain in _FRACTIONS:
        wrong |= value != raw  # 1.5 would become 1
    article = "an" if wanted == "int" else "a"
    faults = [(wrong, f"{name} is not {article} {attribute.type_name}")] if wanted != "enum" else []
    if wanted == "enum":
        faults.append((~value.isin(*attribute.values), f"{name} is not one of its values"))
    if wanted == "float" and plain in ("bigint", "decimal"):
        faults.append((_many_digits(raw, plain), f"{name} has more digits than a float holds"))
    outside = None
    if attribute.domain is not None:
        low, high = attribute.domain
        outside = (value < f.lit(low)) | (value > f.lit(high))
        if wanted == "float":
            outside &= ~f.isnan(value)  # which stands for no value at all
    elif wanted == "int":
        outside = value == f.lit(int(ABSENT))  # the one number that has no place in an index
    if outside is not None:
        faults.append((outside, f"{name} is outside its domain"))
    return value, faults


def _as_decimal(raw: Column, kind: str, attribute: Attribute) -> tuple[Column, Column]:
    """The column as a decimal, and where a cast would round: nothing is rounded on the way."""
    from pyspark.sql import functions as f

    precision, scale = attribute.precision, attribute.scale
    if kind.partition("(")[0] == "decimal":
        value = raw.try_cast(attribute.type_name)
        return value, ~f.coalesce(value.try_cast(kind) == raw, f.lit(False))
    # A float is the decimal that it is written as.
    text = f.trim(raw.cast("string"))
    value = text.try_cast(attribute.type_name)
    all_places = text.try_cast(f"decimal({MAX_PRECISION}, {MAX_PRECISION - precision + scale})")
    written = f.length(f.regexp_extract(text, r"\.([0-9]*?)0*$", 1))
    return value, ~f.coalesce((value == all_places) & (written <= scale), f.lit(False))


def _many_digits(number: Column, kind: str) -> Column:
    """Where a number has more than the 15 significant digits that any float holds."""
    from pyspark.sql import functions as f

    digits = f.regexp_replace(number.cast("string"), "E.*|[-.]", "")
    many = f.length(f.btrim(digits, f.lit("0"))) > 15
    return many & (f.abs(number) > LARGEST_WHOLE) if kind == "bigint" else many


def _malformed(rows: DataFrame) -> list[Fault]:
    from pyspark.sql import functions as f

    if MALFORMED not in rows.columns:
        return []
    return [(f.col(MALFORMED).isNotNull(), MALFORMED_ROW)]


def _missing(name: str) -> Fault:
    return column(name).isNull(), f"{name} is null"


def _sort_key(rows: DataFrame, name: str) -> Column:
    """Something to sort by; not everything that Spark can hold can be sorted."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import AtomicType, VariantType

    kind = rows.schema[name].dataType
    atomic = isinstance(kind, AtomicType) and not isinstance(kind, VariantType)
    return column(name) if atomic else f.to_json(f.struct(column(name)))


def _check_columns(rows: DataFrame, needed: Iterable[str], what: str) -> None:
    require_columns(rows.drop(MALFORMED), dict.fromkeys(needed), what)
    reserved = {REASON, ROW} & set(rows.columns)
    if reserved:
        raise SparkError(f"the {what} have a column {min(reserved)!r}, which is kept for cleaning")


def derive(events: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    """Add a column for each expression, in order; one may use those before it.

    Everything is checked before any row is read: an expression that Spark does not understand, or
    whose type no attribute has, is a `SparkError` that names it.
    """
    from pyspark.sql import functions as f

    for name, expression in expressions.items():
        if name in events.columns:
            raise SparkError(f"derive: the events have a column {name!r} already")
        with translate_errors(f"derive: {name} = {expression!r}"):
            derived = events.withColumn(name, f.expr(expression))
            kind = derived.schema[name].dataType.simpleString()
        wanted = _attribute_type(kind)
        if wanted is None:
            raise SparkError(
                f"derive: {name} = {expression!r} is of Spark type {kind}, which no attribute has"
            )
        events = derived.withColumn(name, column(name).cast(SPARK_TYPES.get(wanted, wanted)))
    return events


def _attribute_type(kind: str) -> str | None:
    """The type of the attribute that a column of a Spark type becomes."""
    return kind if kind.startswith("decimal(") else _ATTRIBUTE_TYPES.get(kind.partition("(")[0])


def extend_schema(schema: Schema, events: DataFrame, names: Iterable[str]) -> Schema:
    """The schema with the derived columns as attributes."""
    kinds = {name: _attribute_type(events.schema[name].dataType.simpleString()) for name in names}
    added = Schema({name: kind for name, kind in kinds.items() if kind}) if kinds else ()
    return Schema([*schema.attributes, *added])
