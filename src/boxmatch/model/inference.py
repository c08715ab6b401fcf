"""Schemas from data, and to and from Arrow's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from boxmatch.errors import EventError, SchemaError
from boxmatch.model.decimals import MAX_KEYED, MAX_PRECISION
from boxmatch.model.keys import is_absent
from boxmatch.model.schema import Attribute, AttributeType, Schema
from boxmatch.model.tables import as_table

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow has no place for an enum's values or for domains: they go into the field's metadata.
_METADATA: Final = b"boxmatch"

_LISTS: Final = (list, tuple, np.ndarray)


def infer_attributes(source: Any) -> list[Attribute]:
    """The attributes that fit a table or a list of dicts."""
    import pyarrow as pa

    if isinstance(source, pa.Schema):
        return attributes_from_arrow(source)
    try:
        table = as_table(source)
    except EventError as error:
        raise SchemaError(f"cannot infer a schema: {error}") from None
    if table is None:
        if isinstance(source, (str, bytes, Mapping, np.ndarray)) or not isinstance(
            source, Iterable
        ):
            raise SchemaError(
                f"cannot infer a schema from a {type(source).__name__}; "
                "pass a table or a list of dicts"
            )
        return _from_dicts(source)
    attributes = []
    for place, name in enumerate(table.names):
        if not isinstance(name, str):
            raise SchemaError(f"column {name!r}: an attribute's name must be a string")
        column = table.column(place)
        if isinstance(column, list):
            attributes += _from_values(name, column)
        else:
            attributes += _from_chunks(name, column)
    return attributes


def attributes_from_arrow(schema: pa.Schema) -> list[Attribute]:
    """The attributes of an Arrow schema's fields: of a struct one for each field in it."""
    attributes = []
    for field in schema:
        stored = _stored_attribute(field)
        attributes += _attributes_of(field) if stored is None else [stored]
    return attributes


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table of such events."""
    import pyarrow as pa

    specs = json.loads(schema.to_json())
    return pa.schema(
        [
            pa.field(
                attribute.name,
                _arrow_type(attribute),
                metadata={_METADATA: json.dumps(specs[attribute.name], ensure_ascii=False)},
            )
            for attribute in schema
        ]
    )


def _arrow_type(attribute: Attribute) -> Any:
    import pyarrow as pa

    kind: Any
    match attribute.type:
        case "int":
            kind = pa.int64()
        case "float":
            kind = pa.float64()
        case "string":
            kind = pa.string()
        case "bool":
            kind = pa.bool_()
        case "timestamp":
            kind = pa.timestamp("us", tz="UTC")
        case "enum":
            kind = pa.dictionary(pa.int32(), pa.string(), ordered=True)
        case "decimal":
            kind = pa.decimal128(attribute.precision, attribute.scale)
        case "struct":
            kind = pa.struct([(field.name, _arrow_type(field)) for field in attribute.fields])
        case "json":
            raise SchemaError(f"attribute {attribute.name!r}: a json has no type in Arrow")
    return pa.list_(kind) if attribute.repeated else kind


def _stored_attribute(field: pa.Field[Any]) -> Attribute | None:
    """The attribute that `arrow_schema` noted down in a field, if it still fits the type."""
    text = (field.metadata or {}).get(_METADATA)
    if text is None:
        return None
    schema = Schema.from_json(json.dumps({field.name: None})[:-5] + text.decode() + "}")
    attribute = schema.attributes[0]
    return attribute if _fits(attribute, field.type) else None


def _fits(attribute: Attribute, kind: Any) -> bool:
    """Whether an attribute can be read from a column of this type."""
    import pyarrow.types as t

    from boxmatch.model.columns import readable
    from boxmatch.model.repeated import is_list

    if attribute.repeated:
        if not is_list(kind):
            return t.is_null(kind)
        kind = kind.value_type
    if attribute.type != "struct":
        return readable(attribute.type, kind)
    return t.is_struct(kind) and all(
        _fits(field, kind.field(field.name).type)
        for field in attribute.fields
        if kind.get_field_index(field.name) >= 0
    )


def _attributes_of(field: pa.Field[Any]) -> list[Attribute]:
    """The attributes that a field's type suggests."""
    import pyarrow as pa
    import pyarrow.types as t

    from boxmatch.model.repeated import is_list

    kind: Any = field.type
    if t.is_struct(kind):
        inner = [pa.field(f"{field.name}.{one.name}", one.type) for one in kind]
        return [attribute for one in inner for attribute in _attributes_of(one)]
    if not is_list(kind):
        return [_attribute_of(field)]
    if t.is_struct(kind.value_type):
        fields = [one for inside in kind.value_type for one in _attributes_of(inside)]
        return [_list_of_structs(field.name, fields)]
    return [_list_of(field.name, _attributes_of(pa.field(field.name, kind.value_type)))]


def _list_of(name: str, elements: list[Attribute]) -> Attribute:
    (element,) = elements
    if element.repeated:
        raise SchemaError(f"column {name!r}: no attribute type fits a list of lists; drop it")
    return replace(element, repeated=True)


def _list_of_structs(name: str, fields: list[Attribute]) -> Attribute:
    return Attribute(name, "struct", repeated=True, fields=tuple(fields))


def _attribute_of(field: pa.Field[Any]) -> Attribute:
    """The attribute that the type of a field of single values suggests."""
    import pyarrow.types as t

    from boxmatch.model.columns import readable

    kind: Any = field.type
    if t.is_null(kind):
        raise SchemaError(
            f"column {field.name!r} has no values and no type; drop it, or write the schema by hand"
        )
    while t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        kind = kind.value_type
    if t.is_decimal(kind):
        # Arrow's scales may be negative, or larger than the precision.
        scale = max(kind.scale, 0)
        return _decimal(field.name, max(kind.precision - kind.scale, 0), scale, str(field.type))
    if t.is_integer(kind):
        return Attribute(field.name, "int")
    candidates: tuple[AttributeType, ...] = ("float", "string", "bool", "timestamp")
    for candidate in candidates:
        if readable(candidate, kind):
            return Attribute(field.name, candidate)
    raise SchemaError(
        f"column {field.name!r}: no attribute type fits Arrow type {field.type}; drop the column"
    )


def _decimal(name: str, whole_digits: int, scale: int, found: str) -> Attribute:
    precision = max(whole_digits + scale, 1)
    if precision > MAX_PRECISION:
        raise SchemaError(
            f"column {name!r}: no decimal has the {precision} digits of {found}; {MAX_PRECISION} "
            "is the most: cast it, or write the schema by hand"
        )
    return Attribute(name, "decimal", precision=precision, scale=scale)


def _from_chunks(name: str, chunks: tuple[Any, ...]) -> list[Attribute]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    from boxmatch.model.columns import is_text
    from boxmatch.model.repeated import is_list

    kind: Any = chunks[0].type if chunks else pa.null()
    if t.is_struct(kind):
        return [
            attribute
            for place, field in enumerate(kind)
            for attribute in _from_chunks(
                f"{name}.{field.name}", tuple(pc.struct_field(chunk, [place]) for chunk in chunks)
            )
        ]
    if is_list(kind):
        elements = tuple(chunk.flatten() for chunk in chunks)
        if not t.is_struct(kind.value_type):
            return [_list_of(name, _from_chunks(name, elements))]
        fields = []
        for place, field in enumerate(kind.value_type):
            column = tuple(pc.struct_field(chunk, [place]) for chunk in elements)
            fields += _from_chunks(field.name, column)
        return [_list_of_structs(name, fields)]
    if t.is_dictionary(kind) and kind.ordered and is_text(kind.value_type):
        # Ordered categories are an enum, if all chunks agree on them.
        lists = {tuple(chunk.dictionary.to_pylist()) for chunk in chunks}
        if len(lists) == 1:
            return [Attribute(name, "enum", lists.pop())]
    return [_attribute_of(pa.field(name, kind))]


def _from_dicts(events: Iterable[Any]) -> list[Attribute]:
    columns: dict[str, list[object]] = {}
    for row, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise SchemaError(f"row {row}: an event is a mapping, not {event!r:.80}")
        for name, value in event.items():
            columns.setdefault(name, []).append(value)
    return [one for name, values in columns.items() for one in _from_values(name, values)]


def _from_values(name: str, values: list[object]) -> list[Attribute]:
    """The attribute that fits values, or those that fit what is in mappings."""
    nested = [value for value in values if isinstance(value, Mapping)]
    lists = [value for value in values if isinstance(value, _LISTS)]
    if not nested and not lists:
        return [_from_scalars(name, values)]
    wanted = Mapping if nested else _LISTS
    for value in values:
        if not isinstance(value, wanted) and not is_absent(value):
            raise SchemaError(
                f"attribute {name!r} is a {'mapping' if nested else 'list'} in one place "
                f"({(nested or lists)[0]!r:.40}) and not in another ({value!r:.40})"
            )
    if nested:
        inner = _from_dicts(nested)
        return [replace(one, name=f"{name}.{one.name}") for one in inner]
    elements = [element for some in lists for element in some]
    structs = [element for element in elements if isinstance(element, Mapping)]
    if not structs:
        return [_list_of(name, _from_values(name, elements))]
    if any(not isinstance(one, Mapping) and not is_absent(one) for one in elements):
        raise SchemaError(f"attribute {name!r}: some elements are mappings, and some are not")
    return [_list_of_structs(name, _from_dicts(structs))]


def _from_scalars(name: str, values: list[object]) -> Attribute:
    found: dict[AttributeType, object] = {}
    for value in values:
        kind = _kind_of(name, value)
        if kind is not None:
            found.setdefault(kind, value)
    for wider, narrower in (("decimal", "int"), ("float", "int"), ("float", "decimal")):
        if wider in found:
            found.pop(narrower, None)  # type: ignore[call-overload]  # both are types
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise SchemaError(
            f"attribute {name!r} is of type {one} in one place ({first!r:.40}) "
            f"and {other} in another ({second!r:.40})"
        )
    if not found:
        raise SchemaError(
            f"attribute {name!r} has no value to infer a type from; "
            "drop it, or write the schema by hand"
        )
    if "decimal" in found:
        return _decimal_of_values(name, values)
    return Attribute(name, next(iter(found)))


def _decimal_of_values(name: str, values: list[object]) -> Attribute:
    """As many decimal places as the values need, and all the digits before them that cost nothing:
    other values may be larger.
    """
    whole_digits = scale = 0
    for value in values:
        if is_absent(value) or not isinstance(value, (Decimal, int, np.integer)):
            continue
        number = value if isinstance(value, Decimal) else Decimal(int(value))
        if not number.is_finite():
            raise SchemaError(f"attribute {name!r}: no attribute type fits {value!r}")
        whole_digits = max(whole_digits, number.adjusted() + 1)
        exponent = number.as_tuple().exponent
        scale = max(scale, -exponent if isinstance(exponent, int) else 0)
    needed = _decimal(name, whole_digits, scale, "its values")
    precision = MAX_KEYED if needed.precision <= MAX_KEYED else MAX_PRECISION
    return Attribute(name, "decimal", precision=precision, scale=scale)


def _kind_of(name: str, value: object) -> AttributeType | None:
    if isinstance(value, (float, np.floating)):  # NaN is absent, but says what it is
        return "float"
    if isinstance(value, Decimal):
        return "decimal"
    if is_absent(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return "int"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (date, np.datetime64)):
        return "timestamp"
    raise SchemaError(
        f"attribute {name!r}: no attribute type fits {value!r:.60} of type {type(value).__name__}"
    )
