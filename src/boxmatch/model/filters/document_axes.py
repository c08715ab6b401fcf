"""What filters compare inside of documents: names in them, and constants as ranges of texts.

A comparison with a number is about numbers: of a value of another kind it is unknown, as it is of
what is missing. So `NOT price > 20` is true of numbers up to 20 alone.
"""

from __future__ import annotations

from boxmatch.errors import FilterError
from boxmatch.model.documents import FALSE_TEXT, ROOT, TEXTS_OF_KIND, TRUE_TEXT, Path, text_of
from boxmatch.model.expressions.documents import path_of, text_at, texts_at, value_at
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import JSON, Call, Column, Node
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Constant,
    Element,
    InTexts,
    IsNull,
    IsTruth,
    Leaf,
    Not,
    Or,
    Value,
)
from boxmatch.model.filters.literals import INFINITE, decimal_of_text
from boxmatch.model.filters.scope import Scope
from boxmatch.model.schema import Schema
from boxmatch.model.text_ranges import ANY_VALUE, common, compared, of_kind, point, united

# --- names -------------------------------------------------------------------------------------


def document_at(schema: Schema, name: str) -> Node | None:
    """What a name leads to inside of a document; None if it is that of an attribute with a type,
    or there is no document.
    """
    attribute = schema.index.get(name)
    if attribute is not None:
        known = schema.attributes[attribute]
        return Column(name, JSON) if known.type == "json" else None
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        parent = ".".join(parts[:end])
        if parent in schema.index and schema[parent].type == "json":
            return value_at(Column(parent, JSON), tuple(parts[end:]))
    if ROOT in schema.index:
        return value_at(Column(ROOT, JSON), tuple(parts))
    return None


def text_axis(scope: Scope, document: Node) -> int:
    """The axis of the text of what a name leads to."""
    return scope.position(text_at(*_split(document)))


def elements_axis(scope: Scope, document: Node) -> int:
    """The axis of the texts of its elements."""
    return scope.position(texts_at(*_split(document)), "elements")


def null_test(scope: Scope, document: Node) -> Condition:
    """Whether there is no value, or null."""
    return Compare(scope.position(call("is_null", document)), "=", Value("truth", True))


def _split(node: Node) -> tuple[Node, Path]:
    """The document and the path that a node is about."""
    if isinstance(node, Call):
        return node.arguments[0], path_of(node.arguments[1])
    return node, ()


def named(node: Node) -> Node:
    """What a name leads to, of the axis of its texts."""
    return value_at(*_split(node))


# --- constants ---------------------------------------------------------------------------------


def with_text_ranges(scope: Scope, condition: Condition, text: str | None) -> Condition:
    """The condition with comparisons on axes of texts as ranges of texts."""
    match condition:
        case Not(operand):
            return Not(with_text_ranges(scope, operand, text))
        case And(operands) | Or(operands):
            parts = tuple(with_text_ranges(scope, one, text) for one in operands)
            return type(condition)(parts)
        case Compare() | Among() | Element() | IsNull() | IsTruth():
            if scope.is_of_texts(condition.attribute):
                return _in_texts(scope, condition, text)
    return condition


def _in_texts(scope: Scope, leaf: Leaf, text: str | None) -> Condition:
    position = leaf.attribute
    match leaf:
        case IsNull():
            return null_test(scope, named(scope.node(position)))
        case IsTruth(_, truth):
            return InTexts(position, point(TRUE_TEXT if truth else FALSE_TEXT), None)
        case Compare(_, _, value) if value.kind == "null":
            return Constant(None)
        case Compare(_, operator, value):
            kind, constant = text_of_constant(value, text)
            return InTexts(position, compared(operator, constant, kind), of_kind(kind))
        case Among(_, values):
            found = [text_of_constant(value, text) for value in values if value.kind != "null"]
            ranges = united(one for _, constant in found for one in point(constant))
            unknown = len(found) < len(values)  # it might equal the NULL
            kinds = united(one for kind, _ in found for one in of_kind(kind))
            return InTexts(position, ranges, ranges if unknown else kinds)
        case Element(_, comparisons):
            shared = ANY_VALUE
            for one in comparisons:
                kind, constant = text_of_constant(one.value, text)
                shared = common(shared, compared(one.operator, constant, kind))
            return InTexts(position, shared, shared)
    raise TypeError(f"{leaf} is no comparison with constants")


def same_as(scope: Scope, document: Node, value: Value, text: str | None) -> Condition:
    """Whether what a name leads to equals a constant; never unknown."""
    if value.kind == "null":
        return null_test(scope, document)
    _, constant = text_of_constant(value, text)
    return InTexts(text_axis(scope, document), point(constant), None)


def text_of_constant(value: Value, text: str | None) -> tuple[str, str]:
    """The kind of a constant, and its text. `text` is the filter's, for error messages."""
    content = value.content
    if value.kind in ("timestamp", "date"):
        raise FilterError(
            "what a document has at a name cannot be compared with both timestamps and others",
            text,
            value.position,
        )
    if value.kind == "number":
        content = inf_of(str(content)) or decimal_of_text(str(content))
    try:
        found = text_of(content)
        if isinstance(content, str):
            content.encode()
    except ValueError as error:
        raise FilterError(str(error), text, value.position) from None
    if found is None:
        reason = f"{content!r:.80} cannot be compared with what a document has"
        raise FilterError(reason, text, value.position)
    return kind_of_text(found), found


def inf_of(number: str) -> float | None:
    """Infinity, if that is how a number is written."""
    return float(number) if number.removeprefix("-") == INFINITE else None


def kind_of_text(text: str) -> str:
    """The kind of the values that have a text."""
    kinds = TEXTS_OF_KIND.items()
    return next((kind for kind, (first, _) in kinds if text.startswith(first)), "string")
