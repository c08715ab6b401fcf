"""What an event may say: named attributes with a type, in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from boxmatch.errors import AttributeValueError, SchemaError
from boxmatch.model.decimals import MAX_KEYED, MAX_PRECISION, decimal_of, parse_spec, type_name
from boxmatch.model.documents import ROOT
from boxmatch.model.keys import is_absent, key_of, unscaled_of, value_of

if TYPE_CHECKING:
    import pyarrow as pa

AttributeType = Literal[
    "int", "float", "string", "bool", "timestamp", "enum", "decimal", "struct", "json"
]
TYPES: Final[tuple[AttributeType, ...]] = get_args(AttributeType)
MAX_ATTRIBUTES: Final = 65_535

_WITH_DOMAIN: Final = ("int", "float", "timestamp", "decimal")
_KNOWN_TYPES: Final = (
    ", ".join("decimal(p, s)" if one == "decimal" else one for one in TYPES)
    + ', and "list of" these'
)
_LIST_OF: Final = "list of "
_WANTED: Final = (
    "a schema is made from a mapping of names to types, such as "
    '{"symbol": "string", "price": "float"}, or from a list of Attribute'
)


@dataclass(frozen=True)
class Attribute:
    """One attribute: a name, a type, and what narrows it.

    `values` lists what an enum may be, in the order in which its values compare. `domain` is the
    closed range of an int, float, decimal or timestamp that events must keep to; filters may go
    beyond. Timestamps in a domain are kept as datetimes in UTC. A decimal has `precision` digits,
    `scale` of them after the point; `Attribute(name, "decimal(10, 2)")` sets both.

    A `repeated` attribute is a list, and everything else is about its elements:
    `Attribute(name, "list of string")` is repeated and of type string. The elements of a list of
    struct have `fields`, with dots in the names of those that are nested deeper. There is no struct
    outside a list: in a schema it stands for an attribute per field.

    A `json` is a value of any structure. Filters name what is inside, and what they compare it with
    gives it a type. The attribute `$` of this type is the whole event.
    """

    name: str
    type: AttributeType
    values: tuple[str, ...] = ()
    domain: tuple[Any, Any] | None = None
    precision: int = 0
    scale: int = 0
    repeated: bool = False
    fields: tuple[Attribute, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        if str(self.type).startswith(_LIST_OF):
            object.__setattr__(self, "repeated", True)
            object.__setattr__(self, "type", self.type[len(_LIST_OF) :].strip())
            if self.type.startswith(_LIST_OF):
                raise SchemaError(f"attribute {self.name!r}: a list of lists is not possible")
        digits = parse_spec(str(self.type))
        if digits is not None:
            for field, value in zip(
                ("type", "precision", "scale"), ("decimal", *digits), strict=True
            ):
                object.__setattr__(self, field, value)
        if self.type not in TYPES:
            raise SchemaError(
                f"attribute {self.name!r}: unknown type {self.type!r}; "
                f"known types are {_KNOWN_TYPES}"
            )
        if self.type == "json" and self.repeated:
            raise SchemaError(f"attribute {self.name!r}: a json may be a list already")
        if self.name == ROOT and self.type != "json":
            raise SchemaError(f"attribute {ROOT!r} is the whole event, and so of type json")
        self._check_digits()
        object.__setattr__(self, "fields", self._check_fields())
        object.__setattr__(self, "values", self._check_values())
        object.__setattr__(self, "domain", self._check_domain())

    @property
    def type_name(self) -> str:
        """The type as schemas write it: that of a decimal has its digits."""
        name = type_name(self.precision, self.scale) if self.type == "decimal" else self.type
        return _LIST_OF + name if self.repeated else name

    @cached_property
    def labelled(self) -> bool:
        """Whether the keys are labels on a `StringAxis`: of strings, and of decimals that are too
        long for an int64.
        """
        return self.type == "string" or self.precision > MAX_KEYED

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """An enum's values with their positions, which are their keys."""
        return {value: position for position, value in enumerate(self.values)}

    @cached_property
    def domain_keys(self) -> tuple[int, int] | None:
        """The keys of the two ends of the domain, if there is one and the attribute has keys."""
        if self.domain is None or self.labelled:
            return None
        return key_of(self, self.domain[0]), key_of(self, self.domain[1])

    def _check_digits(self) -> None:
        if self.type != "decimal":
            if (self.precision, self.scale) != (0, 0):
                raise SchemaError(f"attribute {self.name!r}: only a decimal has digits")
            return
        if (self.precision, self.scale) == (0, 0):
            raise SchemaError(
                f"attribute {self.name!r}: write a decimal with its digits, and how many of them "
                "are after the point: decimal(10, 2)"
            )
        if not 1 <= self.precision <= MAX_PRECISION or not 0 <= self.scale <= self.precision:
            raise SchemaError(
                f"attribute {self.name!r}: {self.type_name} is not possible; a decimal has 1 to "
                f"{MAX_PRECISION} digits, all, some or none of them after the point"
            )

    def _check_fields(self) -> tuple[Attribute, ...]:
        fields = tuple(self.fields)
        if self.type != "struct":
            if fields:
                raise SchemaError(f"attribute {self.name!r}: only a struct has fields")
            return ()
        if not self.repeated:
            raise SchemaError(
                f"attribute {self.name!r}: a struct that is not in a list is an attribute for each "
                f"of its fields, named {self.name + '.FIELD'!r}"
            )
        if not fields:
            raise SchemaError(f"attribute {self.name!r}: a struct needs at least one field")
        names = set()
        for field in fields:
            if not isinstance(field, Attribute):
                raise SchemaError(f"attribute {self.name!r}: field {field!r} is not an Attribute")
            if field.repeated:
                raise SchemaError(
                    f"attribute {self.name!r}: field {field.name!r} is a list, which the elements "
                    "of a list cannot have"
                )
            if field.name in names:
                raise SchemaError(f"attribute {self.name!r}: field {field.name!r} appears twice")
            names.add(field.name)
        return fields

    def _check_values(self) -> tuple[str, ...]:
        if self.type != "enum":
            if self.values:
                raise SchemaError(f"attribute {self.name!r}: only an enum has values")
            return ()
        given: object = self.values
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise SchemaError(f"attribute {self.name!r}: the values of an enum must be a list")
        values: tuple[object, ...] = tuple(given)
        if not values:
            raise SchemaError(f"attribute {self.name!r}: an enum needs at least one value")
        texts: dict[str, None] = {}
        for value in values:
            if not isinstance(value, str) or not _is_utf8(value):
                raise SchemaError(f"attribute {self.name!r}: enum value {value!r} is not a string")
            if value in texts:
                raise SchemaError(f"attribute {self.name!r}: enum value {value!r} appears twice")
            texts[str.__str__(value)] = None
        return tuple(texts)

    def _check_domain(self) -> tuple[Any, Any] | None:
        domain: object = self.domain
        if domain is None:
            return None
        if self.type not in _WITH_DOMAIN:
            raise SchemaError(f"attribute {self.name!r}: {self.type} attributes have no domain")
        if not isinstance(domain, (tuple, list)) or len(domain) != 2:
            raise SchemaError(
                f"attribute {self.name!r}: a domain is a pair of low and high, not {domain!r}"
            )
        low, high = (self._domain_end(end) for end in domain)
        if low > high:
            raise SchemaError(
                f"attribute {self.name!r}: domain starts at {domain[0]!r}, "
                f"after its end {domain[1]!r}"
            )
        if self.type == "decimal":
            return decimal_of(low, self.scale), decimal_of(high, self.scale)
        return value_of(self, low), value_of(self, high)

    def _domain_end(self, end: object) -> int:
        """The key of an end, or the unscaled number of a decimal."""
        if self.type == "float" and end in ("inf", "-inf"):
            end = float(str(end))  # JSON has no number for infinity
        if is_absent(end):
            raise SchemaError(f"attribute {self.name!r}: both ends of a domain must be given")
        try:
            return unscaled_of(self, end) if self.type == "decimal" else key_of(self, end)
        except AttributeValueError as error:
            raise SchemaError(f"attribute {self.name!r}: domain: {end!r} {error.reason}") from None


AttributeSpec = str | Collection[str] | Mapping[str, Any] | Attribute
"""How `Schema` takes an attribute: a type's name, an enum's values, a mapping with `type` and
`values`, `domain` or `fields`, or an `Attribute`. A struct stands for an attribute per field.

An enum's values are a list or a tuple. It is `Collection` that type checkers find for a dict with
lists among other values.
"""


class Schema:
    """The attributes that filters may name, in order. Immutable, hashable, picklable.

    >>> Schema({"symbol": "string", "side": ["buy", "sell"],
    ...         "price": {"type": "float", "domain": [0, 1e6]}}).names
    ('symbol', 'side', 'price')

    Without attributes given, it is open: `Schema({"$": "json"})`, for events of any structure.

    The order matters where values come without names, as in n × d arrays.

    A name with dots is that of a nested value, unless an event has the very name.

    >>> Schema({"order": {"type": "struct", "fields": {"id": "int", "tags": "list of string"}}})
    Schema({'order.id': 'int', 'order.tags': 'list of string'})
    """

    # No dataclass: `dataclasses.asdict` of what holds a schema would take it apart.
    __slots__ = ("attributes", "index", "names")

    attributes: tuple[Attribute, ...]
    names: tuple[str, ...]
    index: Mapping[str, int]

    def __init__(
        self, attributes: Mapping[str, AttributeSpec] | Iterable[Attribute] | None = None
    ) -> None:
        given: object = {ROOT: "json"} if attributes is None else attributes
        items: tuple[object, ...]
        if isinstance(given, Mapping):
            items = tuple(one for name, spec in given.items() for one in _attributes(name, spec))
        elif isinstance(given, str) or not isinstance(given, Iterable):
            raise SchemaError(f"{_WANTED}, not {given!r}")
        else:
            items = tuple(given)
        if not items:
            raise SchemaError("a schema needs at least one attribute")
        if len(items) > MAX_ATTRIBUTES:
            raise SchemaError(
                f"a schema has at most {MAX_ATTRIBUTES:,} attributes, not {len(items):,}"
            )
        index: dict[str, int] = {}
        for position, attribute in enumerate(items):
            if not isinstance(attribute, Attribute):
                raise SchemaError(f"{_WANTED}; {attribute!r} is no Attribute")
            if attribute.name in index:
                raise SchemaError(f"attribute {attribute.name!r} appears twice")
            index[attribute.name] = position
        object.__setattr__(self, "attributes", items)
        object.__setattr__(self, "names", tuple(index))
        object.__setattr__(self, "index", MappingProxyType(index))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Schema cannot be changed (setting {name!r})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Schema cannot be changed (deleting {name!r})")

    def __reduce__(self) -> tuple[type[Schema], tuple[tuple[Attribute, ...]]]:
        return Schema, (self.attributes,)

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index[name]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash(self.attributes)

    def __repr__(self) -> str:
        inner = ", ".join(f"{a.name!r}: {_spec(a)!r}" for a in self.attributes)
        return f"Schema({{{inner}}})"

    @classmethod
    def infer(cls, table: Any) -> Schema:
        """The schema that fits a table or a list of dicts.

        Takes what a batch of events may be: Arrow, pandas, polars, anything with
        `__arrow_c_stream__`, or dicts. Ordered categories become an enum. A column without any
        value has no type to infer, which is an error.
        """
        from boxmatch.model.inference import infer_attributes

        return cls(infer_attributes(table))

    def to_json(self) -> str:
        """Readable JSON, one attribute a line, in the form that the constructor takes."""
        lines = (
            f"  {json.dumps(a.name, ensure_ascii=False)}: "
            f"{json.dumps(_spec(a, as_json=True), ensure_ascii=False)}"
            for a in self.attributes
        )
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """The schema that `to_json` wrote, or one written by hand in the same form."""
        try:
            specs = json.loads(text, object_pairs_hook=_unique_names)
        except SchemaError:
            raise
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise SchemaError(f"not a schema in JSON: {error}") from None
        if not isinstance(specs, dict):
            raise SchemaError(
                "not a schema in JSON: expected an object from attribute names to types, "
                f"not {text.strip()[:40]!r}"
            )
        return cls(specs)

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of a table of such events; enums and domains travel as metadata."""
        from boxmatch.model.inference import arrow_schema

        return arrow_schema(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """The schema of an Arrow schema: exactly the one that `to_arrow` was called on, else the
        one that the column types suggest.
        """
        from boxmatch.model.inference import attributes_from_arrow

        return cls(attributes_from_arrow(schema))


SchemaSpec = Schema | Mapping[str, AttributeSpec]
"""What `Schema(…)` makes a schema of; of one that is a schema already it makes the same."""


def _attributes(name: str, spec: AttributeSpec) -> Iterator[Attribute]:
    """The attribute that is written so, or those that a struct stands for."""
    if not isinstance(spec, Mapping) or spec.get("type") != "struct":
        yield _attribute(name, spec)
        return
    _check_name(name)
    for field, one in _fields_of(name, spec):
        yield from _attributes(f"{name}.{field}", one)


def _attribute(name: str, spec: AttributeSpec) -> Attribute:
    if isinstance(spec, Attribute):
        if spec.name != name:
            raise SchemaError(f"attribute {name!r} is given as one named {spec.name!r}")
        return spec
    if isinstance(spec, str):
        if spec == "enum":
            raise SchemaError(f"attribute {name!r}: write an enum as the list of its values")
        if spec in ("struct", _LIST_OF + "struct", _LIST_OF + "enum"):
            more = "values" if spec.endswith("enum") else "fields"
            raise SchemaError(
                f'attribute {name!r}: write it with its {more}: {{"type": "{spec}", "{more}": …}}'
            )
        return Attribute(name, spec)  # type: ignore[arg-type]  # checked by Attribute
    if isinstance(spec, (list, tuple)):
        return Attribute(name, "enum", tuple(spec))
    if not isinstance(spec, Mapping):
        raise SchemaError(
            f"attribute {name!r}: {spec!r} is neither a type ({_KNOWN_TYPES}) "
            "nor a list of enum values"
        )
    _check_spec_keys(name, spec, "type", "values", "domain", "fields")
    if "type" not in spec and "values" not in spec:
        raise SchemaError(f"attribute {name!r}: no type given")
    fields: tuple[Attribute, ...] = ()
    if "fields" in spec:
        if spec.get("type") != _LIST_OF + "struct":
            raise SchemaError(f"attribute {name!r}: only a struct has fields")
        fields = tuple(
            one for field, given in _fields_of(name, spec) for one in _attributes(field, given)
        )
    return Attribute(
        name, spec.get("type", "enum"), spec.get("values", ()), spec.get("domain"), fields=fields
    )


def _fields_of(name: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, AttributeSpec]]:
    """The fields of a struct as they are written."""
    _check_spec_keys(name, spec, "type", "fields")
    fields = spec.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise SchemaError(
            f"attribute {name!r}: the fields of a struct are a mapping from names to types"
        )
    for field, one in fields.items():
        _check_name(field)
        yield field, one


def _check_spec_keys(name: str, spec: Mapping[str, Any], *known: str) -> None:
    unknown = [key for key in spec if key not in known]
    if unknown:
        raise SchemaError(
            f"attribute {name!r}: unknown key {unknown[0]!r}; known are {', '.join(known)}"
        )


def _spec(attribute: Attribute, *, as_json: bool = False) -> AttributeSpec:
    """The shortest form from which `_attribute` makes this attribute again."""
    if attribute.type == "struct":
        fields = {field.name: _spec(field, as_json=as_json) for field in attribute.fields}
        return {"type": attribute.type_name, "fields": fields}
    if attribute.type == "enum":
        values = list(attribute.values)
        return {"type": attribute.type_name, "values": values} if attribute.repeated else values
    if attribute.domain is None:
        return attribute.type_name
    ends = [_json_end(end) if as_json else end for end in attribute.domain]
    return {"type": attribute.type_name, "domain": ends}


def _json_end(end: Any) -> Any:
    if isinstance(end, (int, float)):
        return str(end) if end in (float("inf"), float("-inf")) else end
    return end.isoformat() if isinstance(end, datetime) else str(end)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, value in pairs:
        if name in names:
            raise SchemaError(f"not a schema in JSON: {name!r} appears twice")
        names[name] = value
    return names


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise SchemaError(f"an attribute's name must be a string, not {name!r}")
    if not name:
        raise SchemaError("an attribute's name must not be empty")
    if not _is_utf8(name):
        raise SchemaError(f"attribute name {name!r} has a lone surrogate")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
