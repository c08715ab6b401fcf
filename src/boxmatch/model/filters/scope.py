"""The axes that a filter is compiled over: those of the schema, and those of its expressions.

What a filter compares with constants may be any expression. Its value is one more key of the
point, on an axis that only the filters have which compare that expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal, get_args

from boxmatch.errors import FilterTooLargeError
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Node,
    Type,
    Variable,
    columns_of,
    from_json,
    to_json,
)
from boxmatch.model.expressions.rendering import render as render_node
from boxmatch.model.filters.names import quote_name
from boxmatch.model.schema import Attribute, AttributeType, Schema

MOST_AXES: Final = 256
"""Expressions that one filter compares with constants."""

AxisKind = Literal["value", "elements", "needles", "regexes"]

_SIMPLE: Final = {
    "int": INT,
    "float": FLOAT,
    "string": STRING,
    "enum": STRING,
    "bool": BOOL,
    "timestamp": TIMESTAMP,
    "json": JSON,
}
_ATTRIBUTE_TYPES: Final[Mapping[str, AttributeType]] = {
    "int": "int",
    "float": "float",
    "string": "string",
    "bool": "bool",
    "timestamp": "timestamp",
    "decimal": "decimal",
    "interval": "int",
    "months": "int",
    "null": "bool",
}


@dataclass(frozen=True)
class DerivedAxis:
    """An axis of an expression.

    Its keys are the expression's `value`; or, of a list of texts, those of its `elements`; or, of a
    text, those of the axis' own strings that occur in it (`needles`), or that it matches as regular
    expressions (`regexes`). Of these an event has any number.
    """

    kind: AxisKind
    node: Node

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.node))

    @property
    def repeated(self) -> bool:
        return self.kind != "value"

    @property
    def has_finder(self) -> bool:
        """Whether its keys are those of the axis' strings that are found in a text."""
        return self.kind in ("needles", "regexes")

    @property
    def is_of_texts(self) -> bool:
        """Whether its strings are texts of values in documents."""
        return isinstance(self.node, Call) and self.node.function in ("text", "texts")

    @cached_property
    def attribute(self) -> Attribute:
        """What stands for the axis where axes of attributes do: its name is the expression."""
        return _attribute(self.text, self.kind, self.node.type)

    @cached_property
    def text(self) -> str:
        """The expression in SQL."""
        return render_node(self.node, quote_name)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The attributes that it reads."""
        return columns_of(self.node)

    def to_json(self) -> list[str]:
        return [self.kind, to_json(self.node)]

    @classmethod
    def from_json(cls, plain: list[str]) -> DerivedAxis:
        kind, node = plain
        if kind not in get_args(AxisKind):
            raise ValueError(f"no axis is of the kind {kind!r}")
        return cls(kind, from_json(node))  # type: ignore[arg-type]  # just checked


@lru_cache(maxsize=4096)
def _attribute(text: str, kind: AxisKind, type: Type) -> Attribute:
    if kind != "value":
        return Attribute(text, "string", repeated=True)
    name = _ATTRIBUTE_TYPES[type.name]
    return Attribute(text, name, precision=type.precision, scale=type.scale)


def type_of(attribute: Attribute) -> Type:
    """The type of an attribute in expressions."""
    if attribute.type == "struct":
        fields = tuple((field.name, type_of(field)) for field in attribute.fields)
        own = Type("struct", fields=fields)
    elif attribute.type == "decimal":
        own = Type("decimal", attribute.precision, attribute.scale)
    else:
        own = _SIMPLE[attribute.type]
    return Type("list", element=own) if attribute.repeated else own


class Scope:
    """The axes of one filter, by position: the schema's attributes, then its own axes."""

    def __init__(self, schema: Schema, derived: Iterable[DerivedAxis] = ()) -> None:
        self.schema = schema
        self.derived = list(derived)
        self.attributes = [*schema.attributes, *(axis.attribute for axis in self.derived)]
        self._positions = {axis: len(schema) + i for i, axis in enumerate(self.derived)}

    @property
    def names(self) -> list[str]:
        return [attribute.name for attribute in self.attributes]

    def position(self, node: Node, kind: AxisKind = "value") -> int:
        """The position of an expression's axis, which is a new one if need be."""
        if kind == "value" and isinstance(node, Column):
            return self.schema.index[node.name]
        return self.place(DerivedAxis(kind, node))

    def place(self, axis: DerivedAxis) -> int:
        """The same for an axis that is known."""
        found = self._positions.get(axis)
        if found is None:
            if len(self.derived) >= MOST_AXES:
                raise FilterTooLargeError(f"a filter has at most {MOST_AXES} different expressions")
            found = self._positions[axis] = len(self.attributes)
            self.derived.append(axis)
            self.attributes.append(axis.attribute)
        return found

    def element(self, listed: Type, depth: int = 0) -> Variable:
        """What stands for an element of a list, inside `depth` others.

        Its name is the same whatever the filter calls it, and no attribute's.
        """
        name = f"element{depth + 1}" if depth else "element"
        while name in self._roots:
            name += "_"
        return Variable(name, listed.element or listed)

    @cached_property
    def _roots(self) -> frozenset[str]:
        return frozenset(name.split(".")[0].casefold() for name in self.schema.names)

    def sort(self) -> dict[int, int] | None:
        """Put the axes of expressions in one order, wherever the filter names them first.

        Returns the new positions by the old ones; None if nothing moves.
        """
        first = len(self.schema)
        order = sorted(
            range(len(self.derived)), key=lambda i: (self.derived[i].text, self.derived[i].kind)
        )
        if order == list(range(len(order))):
            return None
        self.derived = [self.derived[i] for i in order]
        self.attributes[first:] = [axis.attribute for axis in self.derived]
        self._positions = {axis: first + i for i, axis in enumerate(self.derived)}
        return {first + old: first + new for new, old in enumerate(order)}

    def node(self, position: int) -> Node:
        """What is compared on an axis."""
        if position < len(self.schema):
            attribute = self.schema.attributes[position]
            return Column(attribute.name, type_of(attribute))
        return self.derived[position - len(self.schema)].node

    def is_of_texts(self, position: int) -> bool:
        """Whether an axis is one of texts of values in documents."""
        first = len(self.schema)
        return position >= first and self.derived[position - first].is_of_texts

    def kind(self, position: int) -> AxisKind:
        if position < len(self.schema):
            return "value"
        return self.derived[position - len(self.schema)].kind

    def has_lists(self) -> bool:
        """Whether a point may have more than one key on some axis."""
        return any(attribute.repeated for attribute in self.attributes)
