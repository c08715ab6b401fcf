"""What DataFrames must look like, checked on the driver before any job starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from boxmatch.errors import SchemaError, SparkError
from boxmatch.model.documents import ROOT
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.session import require_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Keep = Literal["all"] | Sequence[str]

End = Literal["", "low", "high"]
"""What a column gives: one end of a range, or a value, which is both."""

INTEGERS = ("tinyint", "smallint", "int", "bigint")


def quote(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """A top-level column, even if its name has a dot."""
    from pyspark.sql import functions as f

    return f.col(quote(name))


def require_frame(given: object, what: str) -> None:
    """Raise an error unless it is a DataFrame of Spark."""
    require_spark()
    from pyspark.sql import DataFrame

    if not isinstance(given, DataFrame):
        kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
        raise SparkError(
            f"the {what} are not a Spark DataFrame but of type {kind}: "
            "spark.createDataFrame makes one"
        )


@dataclass(frozen=True)
class Field:
    """A column of a DataFrame, or a field of a struct in it."""

    path: tuple[str, ...]
    """The column, and the fields inside it that lead to this one."""
    type: DataType

    @property
    def name(self) -> str:
        """What filters and schemas call it."""
        return ".".join(self.path)

    @property
    def column(self) -> Column:
        from pyspark.sql import functions as f

        return f.col(".".join(map(quote, self.path)))

    @property
    def is_leaf(self) -> bool:
        """Whether there are no fields inside it."""
        return self.type.typeName() != "struct"

    @property
    def element(self) -> DataType | None:
        """The type of a list's elements; None if it is no list."""
        from pyspark.sql.types import ArrayType

        return self.type.elementType if isinstance(self.type, ArrayType) else None

    def arrow_type(self) -> pa.DataType | None:
        """The type that it has on its way to workers; None if Spark cannot send it there."""
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import to_arrow_type

        try:
            return to_arrow_type(self.type, timezone="UTC")
        except PySparkException:
            return None


class Columns:
    """The columns of a DataFrame and the fields of its structs, found by name as Spark does.

    Upper and lower case are the same unless `spark.sql.caseSensitive` is set. With `inside`, a
    column with lists of structs, it is about the fields of these.
    """

    def __init__(
        self, frame: DataFrame, what: str, *, nested: bool = True, inside: Field | None = None
    ) -> None:
        self.what = what
        kind: Any = frame.schema if inside is None else inside.element
        self.top = [Field((field.name,), field.dataType) for field in kind]
        known = [one for field in self.top for one in _inside(field)] if nested else self.top
        self.fields = [field for field in known if field.is_leaf] if nested else self.top
        self.case_sensitive = is_case_sensitive(frame.sparkSession)
        self._found: dict[str, list[Field]] = {}
        for field in dict.fromkeys([*self.top, *known]):
            self._found.setdefault(self.fold(field.name), []).append(field)

    def fold(self, name: str) -> str:
        """The same for all names that Spark does not tell apart."""
        return name if self.case_sensitive else name.lower()

    def find(self, name: str) -> Field | None:
        """The column or field of this name; an error if there are several."""
        found = self._found.get(self.fold(name), [])
        if len(found) > 1:
            raise SparkError(
                f"the {self.what} have more than one column {name!r} "
                f"({', '.join(_written(field) for field in found)}): rename all but one"
            )
        return found[0] if found else None

    def check_schema(self, schema: Schema) -> None:
        """Raise an error if the schema has names that Spark does not tell apart."""
        seen: dict[str, str] = {}
        for name in schema.names:
            other = seen.setdefault(self.fold(name), name)
            if other != name:
                raise SparkError(
                    f"the schema has attributes {other!r} and {name!r}, which Spark does not tell "
                    "apart: rename one, or set spark.sql.caseSensitive"
                )

    def require(self, names: Iterable[str], because: str = "") -> list[Field]:
        """The columns of these names; an error names those that are missing."""
        found = {name: self.find(name) for name in names}
        missing = [name for name, field in found.items() if field is None]
        if missing:
            known = ", ".join(field.name for field in self.top)
            raise SparkError(
                f"the {self.what} have no column {', '.join(map(repr, missing))}"
                + (because.format(known) if because else f" (they have: {known})")
            )
        return [field for field in found.values() if field is not None]


class Transport:
    """Columns on their way to workers, under names that any Spark function takes.

    `mapInArrow` cannot have a dot in the name of a column. A column that is asked for twice is sent
    once.
    """

    def __init__(self) -> None:
        self._columns: dict[str, Column] = {}
        self._names: dict[object, str] = {}

    def add(self, name: str, column: Column, source: object) -> str:
        """The name inside of a column; the same for the same source."""
        if source in self._names:
            return self._names[source]
        taken = {inside.lower() for inside in self._columns}
        inside = name
        if "." in name or "`" in name or name.lower() in taken:
            inside = f"__boxmatch_{len(self._columns)}"
        # Every call of a column's method is a round trip to Java, some milliseconds in all.
        named = isinstance(source, Field) and source.path[-1] == inside
        self._columns[inside] = column if named else column.alias(inside)
        self._names[source] = inside
        return inside

    def select(self, frame: DataFrame) -> DataFrame:
        """The columns that were added, and no others."""
        return frame.select(*self._columns.values())


def _inside(field: Field) -> Iterator[Field]:
    """A field and, of a struct, those inside it."""
    from pyspark.sql.types import StructType

    yield field
    if isinstance(field.type, StructType):
        for inner in field.type:
            yield from _inside(Field((*field.path, inner.name), inner.dataType))


def _written(field: Field) -> str:
    return ".".join(map(quote, field.path))


def is_case_sensitive(spark: SparkSession) -> bool:
    """Does the session tell names apart that differ in case only?"""
    return spark.conf.get("spark.sql.caseSensitive") == "true"


def require_columns(frame: DataFrame, names: Iterable[str], what: str) -> None:
    """Raise an error that names the columns which the DataFrame lacks, in exactly this case."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise SparkError(
            f"the {what} have no column {', '.join(map(repr, missing))} "
            f"(they have: {', '.join(frame.columns)})"
        )


def with_names(frame: DataFrame, names: Iterable[str], what: str) -> DataFrame:
    """The DataFrame with the columns that Spark finds by these names called exactly so."""
    columns = Columns(frame, what, nested=False)
    found = {name: columns.find(name) for name in names}
    return frame.withColumnsRenamed(
        {field.name: name for name, field in found.items() if field and field.name != name}
    )


def schema_of(events: DataFrame, event_id: str, event: str | None) -> Schema:
    """The schema of events that nobody has given: of JSON texts, an open one."""
    if event is not None:
        return Schema()
    return infer_schema(events, event_id)


def infer_schema(events: DataFrame, event_id: str) -> Schema:
    """An attribute for every column of the events that can be one, but for their id.

    The fields of a struct are attributes too, named as in SQL: `pos.lat`. An array is a list, of
    structs too.
    """
    import pyarrow as pa

    columns = Columns(events, "events")
    attributes: list[Attribute] = []
    for field in columns.fields:
        kind = field.arrow_type()
        if kind is None or columns.fold(field.name) == columns.fold(event_id):
            continue
        if " collate " in field.type.simpleString():
            continue
        try:
            attributes += Schema.from_arrow(pa.schema([pa.field(field.name, kind)])).attributes
        except SchemaError:
            continue  # arrays of arrays, maps and the like are payload
    if not attributes:
        raise SparkError(
            f"no column of the events can be an attribute (they have: {', '.join(events.columns)})"
        )
    return Schema(attributes)


def check_events(
    events: DataFrame, schema: Schema, event_id: str, event: str | None = None
) -> None:
    """Raise an error unless the events have an id and the attributes, with types that fit.

    If there is a column of JSON texts, `event`, it has the attributes.
    """
    columns = Columns(events, "events")
    columns.require([event_id])
    if event is not None:
        (field,) = columns.require([event])
        if field.type.typeName() not in ("string", "binary", "varchar", "char"):
            raise SparkError(
                f"column {event!r} of the events is of type {field.type.simpleString()}, not JSON "
                f"text: to_json({event}) makes one of a struct, a map or a variant"
            )
        return
    columns.check_schema(schema)
    attributes = {attribute.name: attribute for attribute in schema if attribute.name != ROOT}
    columns.require(
        attributes,
        ", which the schema of the subscriptions has (they have: {}); add a column of nulls if no "
        "event has the attribute",
    )
    check_types(events, attributes, "events")
    if ROOT in schema:
        row_column(events)


def row_column(events: DataFrame) -> Column:
    """Each row as a struct: the event, for filters that may name anything.

    Columns of single values of types that no document has are payload.
    """
    from pyspark.sql import functions as f

    shown = []
    columns = Columns(events, "events", nested=False)
    for field in columns.require(field.name for field in columns.top):
        if _is_document(field.type):
            shown.append(field.column)
        elif field.type.typeName() in ("struct", "array", "map"):
            raise SparkError(
                f"column {field.name!r} of the events is of type {field.type.simpleString()}, "
                "parts of which no event can have: drop it, or these parts"
            )
    return f.struct(*shown)


def _is_document(kind: DataType) -> bool:
    """Can values of a type be read as an attribute of type `json`?"""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return all(_is_document(field.dataType) for field in kind)
    if isinstance(kind, t.ArrayType):
        return _is_document(kind.elementType)
    if isinstance(kind, t.MapType):
        return isinstance(kind.keyType, t.StringType) and _is_document(kind.valueType)
    if isinstance(kind, t.StringType):
        return " collate " not in kind.simpleString()
    plain = (
        t.NumericType, t.BooleanType, t.CharType, t.VarcharType, t.DateType, t.TimestampType,
        t.TimestampNTZType, t.NullType,
    )  # fmt: skip
    return isinstance(kind, plain)


def check_types(frame: DataFrame, attributes: Mapping[str, Attribute], what: str) -> None:
    """Raise an error unless columns hold values of the attributes, given by the columns' names."""
    columns = Columns(frame, what)
    for field, attribute in zip(columns.require(attributes), attributes.values(), strict=True):
        shown = field.type.simpleString()
        if not _fits(frame, field, attribute, what):
            document = shown == "variant" and attribute.type == "json"
            advice = f"pass to_json({field.name})" if document else "cast it first"
            raise SparkError(
                f"column {field.name!r} of the {what} is of type {shown}, which is no "
                f"{attribute.type_name}: {advice}"
            )


def _fits(frame: DataFrame, field: Field, attribute: Attribute, what: str) -> bool:
    from pyspark.sql.types import NullType, StructType

    from boxmatch.model.columns import readable

    if isinstance(field.type, NullType):
        return True
    if attribute.type == "json":
        return _is_document(field.type)
    if attribute.repeated:
        element = field.element
        if element is None:
            return False
        if attribute.type != "struct":
            single = replace(attribute, repeated=False)
            return _fits(frame, Field(field.path, element), single, what)
        if isinstance(element, NullType):
            return True
        return isinstance(element, StructType) and all(
            _fits(frame, inner, one, f"elements of {field.name!r}")
            for one, inner in element_fields(frame, field, attribute, what)
        )
    kind, shown = field.arrow_type(), field.type.simpleString()
    if kind is None or not readable(attribute.type, kind):
        return False
    if " collate " in shown:
        raise SparkError(
            f"column {field.name!r} of the {what} is of type {shown}, but filters compare "
            "strings by their bytes: cast it to string, or derive a column from it"
        )
    return True


def element_fields(
    frame: DataFrame, field: Field, attribute: Attribute, what: str
) -> list[tuple[Attribute, Field]]:
    """The fields of a list of structs that the attribute has, and where they are in an element."""
    inside = Columns(frame, f"elements of {field.name!r}", inside=field)
    found = []
    for one in attribute.fields:
        inner = inside.find(one.name)
        if inner is None:
            known = ", ".join(each.name for each in inside.top)
            raise SparkError(
                f"the elements of column {field.name!r} of the {what} have no field {one.name!r}, "
                f"which the schema has (they have: {known})"
            )
        found.append((one, inner))
    return found


def columns_to_keep(events: DataFrame, keep: Keep, event_id: str, found: str) -> list[str]:
    """The columns of the events that the result has too, besides the id."""
    columns = Columns(events, "events")
    own = columns.fold(event_id)
    if isinstance(keep, str):
        if keep != "all":
            raise SparkError(f"keep is a list of columns or 'all', not {keep!r}")
        names = [field.name for field in columns.top if columns.fold(field.name) != own]
    else:
        names = [name for name in dict.fromkeys(keep) if columns.fold(name) != own]
    for name, field in zip(names, columns.require(names), strict=True):
        if field.arrow_type() is None:
            raise SparkError(
                f"column {name!r} of the events is of type {field.type.simpleString()}, which "
                "Spark cannot send to Python: cast it, or leave it out of keep"
            )
    if columns.fold(found) in (own, *map(columns.fold, names)):
        raise SparkError(
            f"the events have a column {found!r}, and so would the result: rename it, or leave it "
            "out of keep"
        )
    return names


def ends_of(
    names: Iterable[str], schema: Schema, *, case_sensitive: bool = True
) -> dict[str, tuple[str, End]]:
    """What columns say: of which dimension, and which end of it or ("") both."""

    def fold(name: str) -> str:
        return name if case_sensitive else name.lower()

    dimensions = {fold(name): name for name in schema.names}
    found: dict[str, tuple[str, End]] = {}
    for name in names:
        stem, _, end = fold(name).rpartition("_")
        if fold(name) in dimensions:
            found[name] = dimensions[fold(name)], ""
        elif stem in dimensions and end in ("low", "high"):
            found[name] = dimensions[stem], "low" if end == "low" else "high"
    return found
