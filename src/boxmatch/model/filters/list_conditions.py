"""Conditions on lists: ANY and ALL, EXISTS, and what arrays have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeGuard

import numpy as np
from sqlglot import exp

from boxmatch.model.expressions.nodes import (
    JSON,
    Call,
    Column,
    Lambda,
    Literal,
    Node,
    Variable,
    walk,
)
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Constant,
    Element,
    Holds,
    Not,
    Operator,
    Value,
)
from boxmatch.model.filters.document_axes import elements_axis, text_axis
from boxmatch.model.filters.scalars import ScalarTranslator
from boxmatch.model.filters.source import article, chain_of, unwrap

OPERATORS: Final[dict[str, Operator]] = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
MIRRORED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
OPPOSITE: Final[dict[Operator, Operator]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


class ListTranslator(ScalarTranslator):
    """Turns tests of a list's elements into conditions."""

    def _truth(self, found: Node, node: exp.Expr) -> Condition:
        """The condition that an expression is true."""
        if found.type.name not in ("bool", "null", "json"):
            self.wrong(
                f"this is {article(str(found.type))} and not a condition; compare it with a value",
                node,
            )
        if isinstance(found, Literal):
            return Constant(found.value)
        if found.type == JSON:
            return Compare(text_axis(self.scope, found), "=", Value("truth", True))
        if any(isinstance(one, Lambda) for one in walk(found)):
            return self._element_of(found, self.position(node)) or Holds(found)
        # What differs by a NOT shares an axis.
        wanted = True
        while isinstance(found, Call) and found.function in ("not", "<="):
            wanted = not wanted
            if found.function == "not":
                [found] = found.arguments
            else:
                found = self.call(node, "<", *found.arguments[::-1])
        return Compare(self.scope.position(found), "=", Value("truth", wanted))

    def _elements(
        self, node: exp.Expr, elements: tuple[str, exp.Expr], operator: Operator, other: exp.Expr
    ) -> Condition:
        """`ANY(list) < …` or `ALL(list) < …`, of which the latter is NOT ANY of the opposite."""
        which, listed = elements
        if which == "all" and self.document(listed) is not None:
            self.refuse("ALL of what a document has", node)
        if which == "all":
            return Not(self._elements(node, ("any", listed), OPPOSITE[operator], other))
        value = self.constant(other, node)
        attribute = self._list_attribute(listed, node)
        if value is not None:
            return Compare(attribute, operator, value)
        return self._holds_for(
            node, elements, lambda element: self.call(node, operator, element, self.scalar(other))
        )

    def _holds_for(
        self, node: exp.Expr, elements: tuple[str, exp.Expr], test: Callable[[Node], Node]
    ) -> Condition:
        """A test that is true of one element, or of all."""
        which, listed = elements
        if self.document(listed) is not None:
            self.refuse(f"{which.upper()} of what a document has, but for ANY of constants,", node)
        column = self.scope.node(self._list_attribute(listed, node))
        variable = self.scope.element(column.type)
        name = "exists" if which == "any" else "forall"
        return self._truth(self.call(node, name, column, Lambda(variable, test(variable))), node)

    def _list_attribute(self, node: exp.Expr, parent: exp.Expr) -> int:
        node = unwrap(node)
        if node.key in ("select", "subquery"):
            self.unsupported(node)
        document = self.document(node)
        if document is not None:
            return elements_axis(self.scope, document)
        if node.key not in ("column", "dot"):
            self.refuse("ANY or ALL of anything but a list attribute", parent)
        attribute = self.attribute(node)
        found = self.scope.attributes[attribute]
        if not found.repeated or found.type == "struct":
            kind = found.type_name
            hint = "; write EXISTS(…, i -> …)" if found.type == "struct" else ""
            self.wrong(
                f"attribute {found.name!r} is {article(kind)}, not a list of values{hint}",
                node,
            )
        return attribute

    def _when_exists(self, node: exp.Expr) -> Condition:
        """`EXISTS(list, x -> …)`, which is on the list's axis if it compares `x` with constants."""
        function = node.expression
        listed = unwrap(node.this)
        if self.document(listed) is not None:
            self.refuse("EXISTS of what a document has (write ANY(…))", node)
        if (
            listed.key == "column"
            and function is not None
            and function.key == "lambda"
            and len(function.expressions) == 1
            and self._variable_path(listed) is None
        ):
            attribute = self.attribute(listed)
            found = self.scope.attributes[attribute]
            if found.repeated and found.type != "struct":
                name = function.expressions[0].name.casefold()
                element = self._element(function.this, name, attribute)
                if element is not None:
                    return element
        return self._truth(self.scalar(node), node)

    def _element(self, node: exp.Expr, name: str, attribute: int) -> Element | None:
        """Comparisons of a list's element, called `name`, that AND joins; None for others."""
        found: list[Compare] = []
        present = False
        for one in chain_of(node) if unwrap(node).key == "and" else [unwrap(node)]:
            if one.key == "not" and _is_null_test(unwrap(one.this), name):
                present = True
                continue
            if one.key not in OPERATORS:
                return None
            left, right = unwrap(one.this), unwrap(one.expression)
            operator = OPERATORS[one.key]
            if not _is_name(left, name):
                left, operator, right = right, MIRRORED[operator], left
            value = self.constant(right, one)
            if not _is_name(left, name) or value is None or value.kind == "null":
                return None
            found.append(Compare(attribute, operator, value))
        return Element(attribute, tuple(found), present)

    def _element_of(self, node: Node, position: int) -> Element | None:
        """The same, of an expression, which has fewer ways to say it than a text has."""
        if not isinstance(node, Call) or node.function != "exists":
            return None
        column, function = node.arguments
        if not isinstance(column, Column) or not isinstance(function, Lambda):
            return None
        attribute = self.scope.schema.index[column.name]
        kind = self.scope.attributes[attribute].type
        if kind in ("struct", "enum"):  # an enum has an order of its own
            return None
        body, found, present = function.body, [], False
        joined = isinstance(body, Call) and body.function == "and"
        for one in body.arguments if joined and isinstance(body, Call) else (body,):
            match one:
                case Call("not", (Call("is_null", (Variable(),), _),), _):
                    present = True
                    continue
                case Call("not", (Call("=", (Variable(), Literal() as literal), _),), _):
                    operator: Operator = "<>"
                case Call("=" | "<" | "<=" as operator, (Variable(), Literal() as literal), _):
                    pass
                case Call("<" | "<=" as mirrored, (Literal() as literal, Variable()), _):
                    operator = MIRRORED[mirrored]
                case _:
                    return None
            if literal.value is None:
                return None
            found.append(Compare(attribute, operator, value_of(literal, position)))
        return Element(attribute, tuple(found), present)

    def _when_arraycontains(self, node: exp.Expr) -> Condition:
        self.check_arguments(node, ("this", "expression"))
        value = self.constant(node.expression, node)
        if value is not None and value.kind == "null":
            return Constant(None)
        return self._elements(node, ("any", node.this), "=", node.expression)

    def _when_arrayoverlaps(self, node: exp.Expr) -> Condition:
        return self._overlaps(node, node.this, node.expression)

    def _when_arraycontainsall(self, node: exp.Expr) -> Condition:
        return self._contains_all(node, unwrap(node.this), unwrap(node.expression))

    def _when_arraycontainedby(self, node: exp.Expr) -> Condition:
        return self._contains_all(node, unwrap(node.expression), unwrap(node.this))

    def _contains_all(self, node: exp.Expr, outer: exp.Expr, inner: exp.Expr) -> Condition:
        if inner.key == "array" and inner.expressions:
            each = (self._elements(node, ("any", outer), "=", one) for one in inner.expressions)
            return And(tuple(each))
        if outer.key == "array" and outer.expressions:
            return self._all_among(node, inner, outer.expressions)
        self.refuse("@> or <@ without a list such as ARRAY['a', 'b']", node)

    def _all_among(self, node: exp.Expr, listed: exp.Expr, wanted: list[exp.Expr]) -> Condition:
        """Every element of a list is one of these values."""
        return self._holds_for(
            node,
            ("all", listed),
            lambda element: self.call(node, "in", element, *map(self.scalar, wanted)),
        )

    def _overlaps(self, node: exp.Expr, *sides: exp.Expr) -> Condition:
        if len(sides) != 2:
            self.unsupported(node)
        for listed, wanted in (sides, sides[::-1]):
            if unwrap(wanted).key == "array" and unwrap(listed).key in ("column", "dot"):
                values = [self.constant(one, node) for one in unwrap(wanted).expressions]
                constants = tuple(value for value in values if value is not None)
                if constants and len(constants) == len(values):
                    return Among(self._list_attribute(listed, node), constants)
        return self._truth(self.call(node, "arrays_overlap", *map(self.scalar, sides)), node)

    def _elements_between(
        self, node: exp.Expr, elements: tuple[str, exp.Expr], low: exp.Expr, high: exp.Expr
    ) -> Condition:
        """One element between two values, which no two comparisons can say."""
        which, listed = elements
        attribute = self._list_attribute(listed, node)
        first, last = self.constant(low, node), self.constant(high, node)
        if which == "any" and _is_known(first) and _is_known(last):
            above, below = Compare(attribute, ">=", first), Compare(attribute, "<=", last)
            return Element(attribute, (above, below))

        def between(element: Node) -> Node:
            above = self.call(node, ">=", element, self.scalar(low))
            return self.call(node, "and", above, self.call(node, "<=", element, self.scalar(high)))

        return self._holds_for(node, elements, between)

    def _refuse_list(self, attribute: int, node: exp.Expr) -> None:
        found = self.scope.attributes[attribute]
        if found.repeated:
            self.wrong(
                f"attribute {found.name!r} is {article(found.type_name)}: "
                f"compare ANY({found.name}) or ALL({found.name})",
                node,
            )


def of_elements(node: exp.Expr) -> tuple[str, exp.Expr] | None:
    """`ANY(…)` or `ALL(…)`: which of the two, and of what."""
    if node.key in ("any", "all"):
        return node.key, node.this
    if node.key == "anonymous" and len(node.expressions) == 1:
        which = {"all": "all", "any": "any", "some": "any"}.get(str(node.name).lower())
        return None if which is None else (which, node.expressions[0])
    return None


def _is_known(value: Value | None) -> TypeGuard[Value]:
    """Whether this is a constant, and not NULL."""
    return value is not None and value.kind != "null"


def _is_name(node: exp.Expr, name: str) -> bool:
    """Whether this is the name of a lambda's parameter, and nothing but that."""
    return node.key in ("identifier", "column") and str(node.name).casefold() == name


def _is_null_test(node: exp.Expr, name: str) -> bool:
    return (
        node.key == "is"
        and not node.args.get("negate")
        and unwrap(node.expression).key == "null"
        and _is_name(unwrap(node.this), name)
    )


def value_of(literal: Literal, position: int) -> Value:
    """A constant that was worked out, as if it had been written."""
    content = literal.value
    if content is None:
        return Value("null", None, position)
    if literal.type.name == "timestamp":
        content = np.datetime64(content, "us")
    return Value("object", content, position)
