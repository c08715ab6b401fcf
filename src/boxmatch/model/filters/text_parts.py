"""LIKE and RLIKE as tests of axes: prefixes, suffixes, needles, regular expressions.

| pattern | on which axis                                              |
| ------- | ---------------------------------------------------------- |
| `abc`   | the text's own: equality                                   |
| `abc%`  | the text's own: a range                                    |
| `%abc`  | that of the reversed text: a range                         |
| `a%b`   | both of these, and that of the length                      |
| `%abc%` | that of needles: which of those that filters name occur    |
| others  | that of regular expressions: which of them match           |
"""

from __future__ import annotations

import re

from boxmatch.errors import AttributeValueError, FilterError
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import STRING, ExpressionError, Lambda, Literal
from boxmatch.model.expressions.patterns import compile_regex, like_to_regex, split_like
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Constant,
    HasPart,
    Holds,
    Like,
    Matches,
    Not,
    Or,
    Value,
)
from boxmatch.model.filters.scope import Scope
from boxmatch.model.keys import check_string


def split_text_tests(
    scope: Scope, condition: Condition, text: str | None, *, lists: bool
) -> Condition:
    """The condition with every LIKE and RLIKE as tests of axes, which are added to the scope."""
    match condition:
        case Not(operand):
            return Not(split_text_tests(scope, operand, text, lists=lists))
        case And(operands) | Or(operands):
            parts = (split_text_tests(scope, one, text, lists=lists) for one in operands)
            return type(condition)(tuple(parts))
        case Like(value=value) | Matches(value=value) if value.kind == "null":
            return Constant(None)
        case Like() | Matches():
            try:
                if isinstance(condition, Like):
                    return _like(scope, condition, lists)
                return _any_regex(scope, condition.attribute, str(condition.value.content), lists)
            except (AttributeValueError, ExpressionError) as error:
                raise FilterError(str(error), text, condition.value.position) from None
        case _:
            return condition


def _like(scope: Scope, like: Like, lists: bool) -> Condition:
    position = like.attribute
    attribute = scope.attributes[position]
    pattern, escape = str(like.value.content), like.escape
    if like.around is not None:
        before, after = like.around
        pattern = before + re.sub(r"([\\%_])", r"\\\1", pattern) + after
    if like.fold:
        pattern = pattern.lower()
    parts = split_like(pattern, escape)
    check_string(attribute, pattern)
    if attribute.type == "enum":
        whole = compile_regex(like_to_regex(pattern, escape))
        cased = str.lower if like.fold else str
        fits = (value for value in attribute.values if whole.search(cased(value)))
        return Among(position, tuple(Value("text", value) for value in fits))
    if like.fold and attribute.repeated:
        return _any_element(scope, position, "like", pattern, escape, fold=True)
    if parts.is_exact:
        return Compare(position, "=", Value("text", parts.prefix, like.value.position))
    simple = not parts.has_underscore and not parts.middle
    if simple and not parts.suffix:
        return HasPart(position, "prefix", parts.prefix)
    if attribute.repeated:
        return _any_element(scope, position, "like", pattern, escape)
    node = scope.node(position)
    if simple:
        reversed_axis = scope.position(call("reverse", node))
        suffix = HasPart(reversed_axis, "prefix", parts.suffix[::-1])
        if not parts.prefix:
            return suffix
        least = Value("number", str(len(parts.prefix) + len(parts.suffix)))
        length = Compare(scope.position(call("length", node)), ">=", least)
        return And((HasPart(position, "prefix", parts.prefix), suffix, length))
    if not parts.has_underscore and len(parts.middle) == 1 and not parts.prefix + parts.suffix:
        needle = Literal(parts.middle[0], STRING)
        if not lists:
            return Holds(call("contains", node, needle))
        return HasPart(scope.position(node, "needles"), "needle", parts.middle[0])
    found = _any_regex(scope, position, like_to_regex(pattern, escape), lists)
    if parts.prefix:
        return And((HasPart(position, "prefix", parts.prefix), found))
    return found


def _any_regex(scope: Scope, position: int, pattern: str, lists: bool) -> Condition:
    attribute = scope.attributes[position]
    compiled = compile_regex(pattern)
    if attribute.type == "enum":
        fits = (value for value in attribute.values if compiled.search(value))
        return Among(position, tuple(Value("text", value) for value in fits))
    if attribute.repeated:
        return _any_element(scope, position, "rlike", pattern)
    node = scope.node(position)
    if not lists:
        return Holds(call("rlike", node, Literal(pattern, STRING)))
    return HasPart(scope.position(node, "regexes"), "regex", pattern)


def _any_element(
    scope: Scope, position: int, test: str, *texts: str, fold: bool = False
) -> Condition:
    """Whether a test is true of one element of a list."""
    column = scope.node(position)
    element = scope.element(column.type)
    subject = call("lower", element) if fold else element
    body = call(test, subject, *(Literal(text, STRING) for text in texts))
    return Holds(call("exists", column, Lambda(element, body)))
