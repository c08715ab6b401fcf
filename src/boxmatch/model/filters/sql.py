"""SQL text to conditions. sqlglot parses; what has no meaning here is refused with its place.

Names are matched exactly, or, unless quoted, without regard to case if that leaves one attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo
from typing import Final, TypeGuard

import numpy as np
from sqlglot import exp

from boxmatch.errors import FilterError, FilterSyntaxError, FilterTooLargeError
from boxmatch.model.expressions.nodes import (
    BOOL,
    NULL,
    STRING,
    TIMESTAMP,
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
    IsNull,
    IsTruth,
    Like,
    Matches,
    Not,
    Operator,
    Or,
    Value,
)
from boxmatch.model.filters.parsing import TOO_DEEP, construct_name, is_reserved, parse
from boxmatch.model.filters.scalars import ScalarTranslator, article, chain_of, unwrap
from boxmatch.model.filters.scope import Scope
from boxmatch.model.schema import Schema

MOST_CHARACTERS: Final = 1_000_000

_OPERATORS: Final[dict[str, Operator]] = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
_MIRRORED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_OPPOSITE: Final[dict[Operator, Operator]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_PREDICATES: Final = frozenset(
    (
        *("between", "in", "is", "like", "ilike", "escape", "regexplike", "regexpilike"),
        *("nullsafeeq", "nullsafeneq", "startswith", "endswith", "contains"),
        *("exists", "arraycontains", "arrayoverlaps", "arraycontainsall", "arraycontainedby"),
    )
)


def parse_text(scope: Scope, text: str, zone: tzinfo | None = None) -> Condition:
    """Parse the text of a WHERE clause. Timestamps that name no zone are in `zone`, or in UTC.

    The axes of its expressions are added to the scope.
    """
    _check_text(text)
    try:
        node, tokens = parse(text)
    except FilterSyntaxError as error:
        raise _add_hint(scope.schema, error) from None
    try:
        return _Translator(scope, text, tokens, zone).condition(node)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, 0) from None
    except FilterTooLargeError as error:
        raise FilterTooLargeError(error.reason, text, error.position or 0) from None


def parse_expression(scope: Scope, text: str, zone: tzinfo | None = None) -> int:
    """The axis of an expression, which is added to the scope."""
    _check_text(text)
    node, tokens = parse(text)
    try:
        found = _Translator(scope, text, tokens, zone).scalar(node)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, 0) from None
    if isinstance(found, Literal) or found.type.name in ("list", "struct", "null"):
        raise FilterError("this expression has no value that could be compared", text, 0)
    return scope.position(found)


def _check_text(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise FilterTooLargeError(
            f"a filter has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            reason = "a lone surrogate is not a character"
            raise FilterSyntaxError(reason, text, error.start) from None


def _add_hint(schema: Schema, error: FilterSyntaxError) -> FilterSyntaxError:
    """The error, with a word on the name that most likely led to it."""
    for name in schema.names:
        bare = rf"(?<![\w\"'.]){re.escape(name)}(?![\w\"'(.])"
        if is_reserved(name) and re.search(bare, error.text or "", re.IGNORECASE):
            reason = f'{error.reason}; {name} is a word of SQL, as a name it is written "{name}"'
            return FilterSyntaxError(reason, error.text, error.position)
    return error


class _Translator(ScalarTranslator):
    """Turns one parsed filter into a condition."""

    def condition(self, node: exp.Expr) -> Condition:
        node = unwrap(node)
        kind = node.key
        if kind in ("and", "or"):
            operands = tuple(self.condition(operand) for operand in chain_of(node))
            return And(operands) if kind == "and" else Or(operands)
        if kind == "not":
            return Not(self.condition(node.this))
        if kind in _OPERATORS:
            return self._comparison(node, _OPERATORS[kind], node.this, node.expression)
        if kind in _PREDICATES:
            found: Condition = getattr(self, f"_when_{kind}")(node)
            return Not(found) if node.args.get("negate") else found
        if kind == "boolean":
            return Constant(bool(node.this))
        if kind == "null":
            return Constant(None)
        if kind == "column":
            attribute = self.attribute(node)
            self._needs_bool(attribute, node, "is not a condition; compare it with a value")
            return Compare(attribute, "=", Value("truth", True))
        if kind == "literal":
            self.unsupported(node)
        if kind == "anonymous" and str(node.name).lower() == "arrays_overlap":
            return self._overlaps(node, *node.expressions)
        return self._truth(self.scalar(node), node)

    def _truth(self, found: Node, node: exp.Expr) -> Condition:
        """The condition that an expression is true."""
        if found.type.name not in ("bool", "null"):
            raise FilterError(
                f"this is {article(str(found.type))} and not a condition; compare it with a value",
                self.text,
                self.position(node),
            )
        if isinstance(found, Literal):
            return Constant(found.value)
        if any(isinstance(one, Lambda) for one in walk(found)):
            return self._element_of(found, self.position(node)) or Holds(found)
        return Compare(self.scope.position(found), "=", Value("truth", True))

    # Comparisons

    def _comparison(
        self, node: exp.Expr, operator: Operator, left: exp.Expr, right: exp.Expr
    ) -> Condition:
        left, right = unwrap(left), unwrap(right)
        for one, other, sign in (
            (left, right, operator),
            (right, left, _MIRRORED[operator]),
        ):
            elements = _of_elements(one)
            if elements is not None:
                return self._elements(node, elements, sign, other)
        if "collate" in (left.key, right.key):
            return self._ignoring_case(node, operator, left, right)
        for one, other, sign in ((left, right, operator), (right, left, _MIRRORED[operator])):
            value = self.constant(other, node)
            if value is not None and self.constant(one, node) is None:
                return self._with_constant(one, sign, value, node)
        if left.key == right.key == "column":
            self.attribute(right, is_value=True)  # rather a text without quotes than a name
        return self._between_nodes(node, operator, self.scalar(left), self.scalar(right))

    def _with_constant(
        self, subject: exp.Expr, operator: Operator, value: Value, node: exp.Expr
    ) -> Condition:
        if subject.key == "column":
            attribute = self.attribute(subject)
            self._refuse_list(attribute, subject)
            return Compare(attribute, operator, value)
        return self._on_axis(self.scalar(subject), operator, value, node)

    def _on_axis(
        self, subject: Node, operator: Operator, value: Value, node: exp.Expr
    ) -> Condition:
        if isinstance(subject, Literal) or subject.type.name in ("interval", "months"):
            return self._between_nodes(node, operator, subject, self._literal_of(value, node))
        if subject.type.name in ("list", "struct"):
            self.refuse(f"comparing {article(str(subject.type))} with a constant", node)
        return Compare(self.scope.position(subject), operator, value)

    def _literal_of(self, value: Value, node: exp.Expr) -> Node:
        """A constant as an expression."""
        if value.kind == "number":
            text = str(value.content)
            return self._number(exp.Literal.number(text.lstrip("-")), "-" * text.startswith("-"))
        if value.kind in ("timestamp", "date"):
            return Literal(self.moment(value), TIMESTAMP)
        types = {"text": STRING, "truth": BOOL, "null": NULL}
        return Literal(value.content, types[value.kind])

    def _between_nodes(
        self, node: exp.Expr, operator: Operator, left: Node, right: Node
    ) -> Condition:
        """A comparison of two expressions, one of which may have turned out to be constant."""
        if isinstance(left, Literal) and not isinstance(right, Literal):
            left, operator, right = right, _MIRRORED[operator], left
        if isinstance(right, Literal) and not isinstance(left, Literal):
            value = _value_of(right, self.position(node))
            if left.type.name in ("interval", "months"):
                if right.type == left.type:
                    return Compare(self.scope.position(left), operator, value)
            elif left.type.name not in ("list", "struct") and right.type.name != "interval":
                return self._on_axis(left, operator, value, node)
        return self._truth(self.call(node, operator, left, right), node)

    def _ignoring_case(
        self, node: exp.Expr, operator: Operator, left: exp.Expr, right: exp.Expr
    ) -> Condition:
        """A comparison one side of which names a collation that ignores case."""
        sides = [
            self.scalar(one) if one.key == "collate" else self.call(node, "lower", self.scalar(one))
            for one in (left, right)
        ]
        return self._between_nodes(node, operator, *sides)

    # Lists

    def _elements(
        self, node: exp.Expr, elements: tuple[str, exp.Expr], operator: Operator, other: exp.Expr
    ) -> Condition:
        """`ANY(list) < …` or `ALL(list) < …`, of which the latter is NOT ANY of the opposite."""
        which, listed = elements
        if which == "all":
            return Not(self._elements(node, ("any", listed), _OPPOSITE[operator], other))
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
        column = self.scope.node(self._list_attribute(listed, node))
        variable = self.scope.element(column.type)
        name = "exists" if which == "any" else "forall"
        return self._truth(self.call(node, name, column, Lambda(variable, test(variable))), node)

    def _list_attribute(self, node: exp.Expr, parent: exp.Expr) -> int:
        node = unwrap(node)
        if node.key in ("select", "subquery"):
            self.unsupported(node)
        if node.key not in ("column", "dot"):
            self.refuse("ANY or ALL of anything but a list attribute", parent)
        attribute = self.attribute(node)
        found = self.scope.attributes[attribute]
        if not found.repeated or found.type == "struct":
            kind = found.type_name
            hint = "; write EXISTS(…, i -> …)" if found.type == "struct" else ""
            raise FilterError(
                f"attribute {found.name!r} is {article(kind)}, not a list of values{hint}",
                self.text,
                self.position(node),
            )
        return attribute

    def _when_exists(self, node: exp.Expr) -> Condition:
        """`EXISTS(list, x -> …)`, which is on the list's axis if it compares `x` with constants."""
        function = node.expression
        listed = unwrap(node.this)
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
            if one.key not in _OPERATORS:
                return None
            left, right = unwrap(one.this), unwrap(one.expression)
            operator = _OPERATORS[one.key]
            if not _is_name(left, name):
                left, operator, right = right, _MIRRORED[operator], left
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
                    operator = _MIRRORED[mirrored]
                case _:
                    return None
            if literal.value is None:
                return None
            found.append(Compare(attribute, operator, _value_of(literal, position)))
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

    # Predicates

    def _when_between(self, node: exp.Expr) -> Condition:
        if node.args.get("symmetric"):
            self.refuse("BETWEEN SYMMETRIC", node)
        low, high = node.args["low"], node.args["high"]
        elements = _of_elements(unwrap(node.this))
        if elements is not None:
            return self._elements_between(node, elements, low, high)
        return And(
            (
                self._comparison(node, ">=", node.this, low),
                self._comparison(node, "<=", node.this, high),
            )
        )

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

    def _when_in(self, node: exp.Expr) -> Condition:
        if node.args.get("query"):
            self.unsupported(node.args["query"])
        if not node.expressions:
            self.refuse("IN without a list", node)
        elements = _of_elements(unwrap(node.this))
        if elements is not None and elements[0] == "all":
            return self._all_among(node, elements[1], node.expressions)
        constants: list[Value] = []
        others: list[Condition] = []
        for one in node.expressions:
            value = self.constant(one, node)
            if value is None:
                others.append(self._comparison(node, "=", node.this, one))
            else:
                constants.append(value)
        if constants:
            subject = self._subject(node) if elements is None else None
            if elements is not None:
                others.insert(0, Among(self._list_attribute(elements[1], node), tuple(constants)))
            elif isinstance(subject, int):
                others.insert(0, Among(subject, tuple(constants)))
            else:
                others = [self._comparison(node, "=", node.this, one) for one in node.expressions]
        return others[0] if len(others) == 1 else Or(tuple(others))

    def _when_is(self, node: exp.Expr) -> Condition:
        truth = unwrap(node.expression)
        inner = unwrap(node.this)
        if truth.key not in ("null", "boolean"):
            self.refuse("IS with anything but NULL, TRUE or FALSE", node)
        subject = self._subject(node)
        if not isinstance(subject, int):
            return self._truth(self._is_of(node, subject, truth), node)
        if truth.key == "null":
            if self.scope.attributes[subject].repeated:
                size = self.call(node, "cardinality", self.scope.node(subject))
                return IsNull(self.scope.position(size))
            return IsNull(subject)
        if inner.key == "column":
            self._refuse_list(subject, inner)
        self._needs_bool(subject, node, "is neither TRUE nor FALSE")
        return IsTruth(subject, bool(truth.this))

    def _is_of(self, node: exp.Expr, subject: Node, truth: exp.Expr) -> Node:
        name = "is_null" if truth.key == "null" else "is_true" if truth.this else "is_false"
        return self.call(node, name, subject)

    def _when_nullsafeeq(self, node: exp.Expr) -> Condition:
        left, right = unwrap(node.this), unwrap(node.expression)
        for one, other in ((left, right), (right, left)):
            value = self.constant(other, node)
            if value is None or self.constant(one, node) is not None:
                continue
            subject = self._subject_of(one, node)
            if isinstance(subject, int) and not self.scope.attributes[subject].repeated:
                if value.kind == "null":
                    return IsNull(subject)
                return And((Compare(subject, "=", value), Not(IsNull(subject))))
        return self._truth(self.call(node, "<=>", self.scalar(left), self.scalar(right)), node)

    def _when_nullsafeneq(self, node: exp.Expr) -> Condition:
        return Not(self._when_nullsafeeq(node))

    # Text

    def _when_like(self, node: exp.Expr, *, escape: str = "\\", fold: bool = False) -> Condition:
        pattern = unwrap(node.expression)
        if pattern.key in ("any", "all"):
            listed = unwrap(pattern.this)
            each = listed.expressions if listed.key == "tuple" else [listed]
            found = tuple(self._likeness(node, one, escape, fold) for one in each)
            return Or(found) if pattern.key == "any" else And(found)
        return self._likeness(node, pattern, escape, fold)

    def _when_ilike(self, node: exp.Expr, *, escape: str = "\\") -> Condition:
        return self._when_like(node, escape=escape, fold=True)

    def _when_escape(self, node: exp.Expr) -> Condition:
        inner, mark = node.this, self.constant(node.expression, node)
        if inner.key not in ("like", "ilike"):
            self.unsupported(node)
        if mark is None or mark.kind != "text" or len(str(mark.content)) != 1:
            raise FilterError("ESCAPE needs one character", self.text, self.position(node))
        when = self._when_like if inner.key == "like" else self._when_ilike
        found = when(inner, escape=str(mark.content))
        return Not(found) if inner.args.get("negate") else found

    def _likeness(self, node: exp.Expr, pattern: exp.Expr, escape: str, fold: bool) -> Condition:
        value = self.constant(pattern, node)
        elements = _of_elements(unwrap(node.this))
        if value is not None and value.kind not in ("text", "null"):
            raise FilterError("LIKE needs a quoted pattern", self.text, value.position)
        if elements is not None:
            if value is not None and elements[0] == "any":
                listed = self._text_list(elements[1], "ILIKE" if fold else "LIKE", node)
                return Like(listed, value, escape, fold)
            return self._holds_for(
                node,
                elements,
                lambda element: self._like_call(node, element, pattern, escape, fold),
            )
        if value is not None:
            subject = self._text_axis(node, "ILIKE" if fold else "LIKE", fold)
            if subject is not None:
                return Like(subject, value, escape, fold)
        found = self._like_call(node, self.scalar(node.this), pattern, escape, fold)
        return self._truth(found, node)

    def _like_call(
        self, node: exp.Expr, text: Node, pattern: exp.Expr, escape: str, fold: bool
    ) -> Node:
        wanted = self.scalar(pattern)
        if fold:
            text, wanted = (self.call(node, "lower", one) for one in (text, wanted))
        return self.call(node, "like", text, wanted, Literal(escape, STRING))

    def _text_list(self, listed: exp.Expr, what: str, node: exp.Expr) -> int:
        """The axis of a list of texts."""
        attribute = self._list_attribute(listed, node)
        self._needs_text(attribute, what, node)
        return attribute

    def _text_axis(self, node: exp.Expr, what: str, fold: bool = False) -> int | None:
        """The axis of the text that a predicate is about; None if that is a constant."""
        inner = unwrap(node.this)
        if inner.key == "column" and not fold:
            attribute = self.attribute(inner)
            self._refuse_list(attribute, inner)
            self._needs_text(attribute, what, node)
            return attribute
        found = self.scalar(inner)
        if isinstance(found, Literal):
            return None
        if found.type.name != "string":
            name = found.name if isinstance(found, Column) else "this"
            raise FilterError(
                f"{what} needs a string or enum attribute; {name!r} is {article(str(found.type))}",
                self.text,
                self.position(node),
            )
        return self.scope.position(self.call(node, "lower", found) if fold else found)

    def _needs_text(self, attribute: int, what: str, node: exp.Expr) -> None:
        found = self.scope.attributes[attribute]
        if found.type not in ("string", "enum"):
            raise FilterError(
                f"{what} needs a string or enum attribute; "
                f"{found.name!r} is {article(found.type_name)}",
                self.text,
                self.position(node),
            )

    def _when_regexplike(self, node: exp.Expr) -> Condition:
        value = self.constant(node.expression, node)
        if node.args.get("flag") is not None:
            self.refuse("REGEXP_LIKE with flags (write them into the pattern: (?i))", node)
        if value is None or value.kind not in ("text", "null"):
            raise FilterError("RLIKE needs a quoted pattern", self.text, self.position(node))
        elements = _of_elements(unwrap(node.this))
        if elements is not None:
            if elements[0] == "any":
                return Matches(self._text_list(elements[1], "RLIKE", node), value)
            wanted = self.scalar(node.expression)
            return self._holds_for(
                node, elements, lambda element: self.call(node, "rlike", element, wanted)
            )
        subject = self._text_axis(node, "RLIKE")
        if subject is None:
            return self._truth(self.scalar(node), node)
        return Matches(subject, value)

    def _when_regexpilike(self, node: exp.Expr) -> Condition:
        self.refuse("~* (write ~ and begin the pattern with (?i))", node)

    def _part(self, node: exp.Expr, before: str, after: str) -> Condition:
        self.check_arguments(node, ("this", "expression"))
        value = self.constant(node.expression, node)
        if value is None or value.kind not in ("text", "null"):
            return self._truth(self.scalar(node), node)
        subject = self._text_axis(node, construct_name(node))
        if subject is None:
            return self._truth(self.scalar(node), node)
        return Like(subject, value, around=(before, after))

    def _when_startswith(self, node: exp.Expr) -> Condition:
        return self._part(node, "", "%")

    def _when_endswith(self, node: exp.Expr) -> Condition:
        return self._part(node, "%", "")

    def _when_contains(self, node: exp.Expr) -> Condition:
        return self._part(node, "%", "%")

    # Subjects

    def _subject(self, node: exp.Expr) -> int | Node:
        """The axis that a predicate such as IN is about; or a constant, of which there is none."""
        return self._subject_of(unwrap(node.this), node)

    def _subject_of(self, subject: exp.Expr, node: exp.Expr) -> int | Node:
        if subject.key == "column":
            return self.attribute(subject)
        found = self.scalar(subject)
        if isinstance(found, Literal) or found.type.name in ("list", "struct"):
            return found
        if any(isinstance(one, Lambda) for one in walk(found)):
            return found
        return self.scope.position(found)

    def _needs_bool(self, attribute: int, node: exp.Expr, otherwise: str) -> None:
        found = self.scope.attributes[attribute]
        if found.type != "bool" or found.repeated:
            raise FilterError(
                f"attribute {found.name!r} is {article(found.type_name)}: it {otherwise}",
                self.text,
                self.position(node),
            )

    def _refuse_list(self, attribute: int, node: exp.Expr) -> None:
        found = self.scope.attributes[attribute]
        if found.repeated:
            raise FilterError(
                f"attribute {found.name!r} is {article(found.type_name)}: "
                f"compare ANY({found.name}) or ALL({found.name})",
                self.text,
                self.position(node),
            )


def _of_elements(node: exp.Expr) -> tuple[str, exp.Expr] | None:
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


def _value_of(literal: Literal, position: int) -> Value:
    """A constant that was worked out, as if it had been written."""
    content = literal.value
    if content is None:
        return Value("null", None, position)
    if literal.type.name == "timestamp":
        content = np.datetime64(content, "us")
    return Value("object", content, position)
