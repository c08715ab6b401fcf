"""Conditions that no box can express, as expressions to be evaluated where the boxes hold."""

from __future__ import annotations

from typing import Any

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import decimal_of, unscaled_of_label
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import BOOL, STRING, Lambda, Literal, Node, Variable
from boxmatch.model.filters.axes import LocalAxes
from boxmatch.model.filters.compiled import PRESENT, Bound, IntervalSet, KeyInterval
from boxmatch.model.filters.conditions import HasPart
from boxmatch.model.keys import key_range, value_of
from boxmatch.model.schema import Attribute


def has_part(node: Node, leaf: HasPart) -> Node:
    """Whether a text has a part."""
    name = "contains" if leaf.part == "needle" else "rlike"
    return call(name, node, Literal(leaf.text, STRING))


def any_in_keys(
    axes: LocalAxes, position: int, keys: IntervalSet, *, known: bool, present: bool
) -> Node:
    """Whether a list has an element with one of these keys.

    If not all of what it was compared with is `known`, it is unknown rather than false. If elements
    must be `present`, one that is NULL is no such element, rather than perhaps one.
    """
    column = axes.scope.node(position)
    variable = axes.scope.element(column.type)
    body = in_keys(axes, position, variable, keys)
    if present:
        body = call("is_true", body)
    elif not known:
        body = call("or", body, call("cast", Literal(None, BOOL), type=BOOL))
    elif keys == ():
        # False of an element that is present, and unknown of one that is not.
        body = call("and", call("is_null", variable), call("=", variable, variable))
    return call("exists", column, Lambda(variable, body))


def in_keys(axes: LocalAxes, position: int, node: Node, keys: IntervalSet) -> Node:
    """Whether the key of a value is in a set.

    If not, that is false, or for NULL, of an element too, unknown unless the set has `ABSENT`.
    """
    if keys == PRESENT and not isinstance(node, Variable):
        return call("not", call("is_null", node))  # of what is tested only for being true
    tests = [_in_interval(axes, position, node, interval) for interval in keys]
    if len(tests) < 2:
        return tests[0] if tests else Literal(False, BOOL)
    return call("or", *tests)


def _in_interval(axes: LocalAxes, position: int, node: Node, interval: KeyInterval) -> Node:
    low, high = interval
    if low == ABSENT:
        absent = call("is_null", node)
        if high == ABSENT:
            return absent
        return call("or", absent, _in_interval(axes, position, node, (FIRST, high)))
    if interval == PRESENT[0]:
        # Not IS NOT NULL, which is known also of NULL.
        return call("=", node, node)
    attribute = axes.scope.attributes[position]
    if attribute.type == "enum":
        first, last = key_range(attribute)
        values = attribute.values[max(first, low) : min(last, high) + 1]
        return call("in", node, *(Literal(value, STRING) for value in values))
    above, below = axes.outward(position, interval)
    # One key of the filter's axis may stand for all texts between two that it mentions.
    if below == ("", 0) or (above == below and not (isinstance(above, tuple) and above[1])):
        return call("=", node, _literal(attribute, node, below))
    tests = []
    if low != FIRST:
        tests.append(_comparison(attribute, node, above, -1))
    if high != LAST:
        tests.append(_comparison(attribute, node, below, +1))
    return tests[0] if len(tests) == 1 else call("and", *tests)


def _comparison(attribute: Attribute, node: Node, bound: Bound, outside: int) -> Node:
    """A comparison with one end: `< 30` rather than `<= 29.999999999999996`."""
    operator = ">" if outside < 0 else "<"
    if isinstance(bound, tuple):
        if not bound[1]:
            operator += "="
    elif attribute.type == "float":
        first, last = key_range(attribute)
        beyond = min(max(bound + outside, first), last)
        if len(repr(value_of(attribute, beyond))) < len(repr(value_of(attribute, bound))):
            bound = beyond
        else:
            operator += "="
    else:
        operator += "="
    return call(operator, node, _literal(attribute, node, bound))


def _literal(attribute: Attribute, node: Node, bound: Bound) -> Literal:
    """The value that a bound stands for, as a constant of the expression's type."""
    value: Any
    if isinstance(bound, tuple):
        text = bound[0]
        value = text
        if attribute.type == "decimal":
            value = decimal_of(unscaled_of_label(text), attribute.scale)
    elif attribute.type == "string":
        value = ""  # the first string of all
    elif attribute.type == "timestamp":
        value = bound
    elif attribute.type == "decimal" and attribute.labelled:
        first, last = key_range(attribute)
        value = decimal_of(first if bound == FIRST else last, attribute.scale)
    else:
        value = value_of(attribute, bound)
    return Literal(value, node.type)
