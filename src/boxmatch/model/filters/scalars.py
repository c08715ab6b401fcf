"""Parts of SQL that have a value, from sqlglot's trees to expressions of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from boxmatch.errors import (
    AttributeValueError,
    FilterError,
    FilterTooLargeError,
)
from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.expressions.coercion import NUMBERS
from boxmatch.model.expressions.functions import FUNCTIONS, call
from boxmatch.model.expressions.lengths import check_length
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    MONTHS,
    NULL,
    STRING,
    TIMESTAMP,
    Column,
    ExpressionError,
    Lambda,
    Literal,
    Node,
    Type,
    Variable,
)
from boxmatch.model.filters.constructs import (
    CALLS,
    CAST_TYPES,
    CHAINS,
    CLOCK,
    IGNORING_CASE,
    MONTH_UNITS,
    OTHER_NAMES,
    TIMESTAMPS,
    UNITS,
)
from boxmatch.model.filters.document_axes import document_at
from boxmatch.model.filters.parsing import TOO_DEEP, construct_name
from boxmatch.model.filters.scope import Scope, type_of
from boxmatch.model.filters.source import FilterSource, article, chain_of, unwrap
from boxmatch.model.keys import check_string
from boxmatch.model.schema import Attribute

_MOST_LAMBDAS: Final = 2
_MOST_PARTS: Final = 10_000
_MOST_NESTED: Final = 100
"""Calls inside calls: evaluating and rendering them takes several frames of Python's stack each."""
_TEXT: Final = Attribute("constant", "string")
_DOCUMENT_TYPES: Final = (FLOAT, STRING, BOOL, TIMESTAMP)
"""What values of documents can be read as."""
_NEEDS_TYPE: Final = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "case", "coalesce", "greatest", "least")
) | {"nullif", "if", "array", "array_contains", "arrays_overlap", "concat"}
"""Functions of operands of any one type."""


class ScalarTranslator(FilterSource):
    """Turns parts of one parsed filter into expressions, over the axes of its scope."""

    def __init__(self, scope: Scope, text: str, tokens: list[Token], zone: tzinfo | None) -> None:
        super().__init__(scope, text, tokens, zone)
        self._variables: list[tuple[str, Variable]] = []
        self._depth = 0
        self._parts_left = _MOST_PARTS

    # Values

    def scalar(self, node: exp.Expr) -> Node:
        """The expression of a part that has a value."""
        node = unwrap(node)
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise FilterTooLargeError(TOO_DEEP, self.text, self.position(node))
        self._parts_left -= 1
        if self._parts_left < 0:
            reason = f"the expressions of a filter have at most {_MOST_PARTS:,} parts"
            raise FilterTooLargeError(reason, self.text, self.position(node))
        try:
            return self._scalar(node)
        finally:
            self._depth -= 1

    def _scalar(self, node: exp.Expr) -> Node:
        kind = node.key
        if kind in CALLS:
            name, places = CALLS[kind]
            self.check_arguments(node, places)
            if kind in CHAINS:
                return self.call(node, name, *map(self.scalar, chain_of(node)))
            return self.call(node, name, *self._arguments(node, places))
        found: Callable[[exp.Expr], Node] | None = getattr(self, f"_{kind}", None)
        if found is None:
            self.unsupported(node)
        return found(node)

    def call(self, at: exp.Expr, function: str, *arguments: Node, type: Type | None = None) -> Node:
        """A call of a function, whose errors point at a part of the text."""
        if function not in ("is_null", "cast") and any(one.type == JSON for one in arguments):
            return self._call_with_documents(at, function, arguments)
        if self.zone is not None and function in ("+", "-"):
            self._check_moved(at, arguments)
        try:
            check_length(function, arguments)
            return call(function, *arguments, type=type)
        except ExpressionError as error:
            raise FilterError(str(error), self.text, self.position(at)) from None

    def _call_with_documents(
        self, at: exp.Expr, function: str, arguments: tuple[Node, ...]
    ) -> Node:
        """A call in which values of documents have the type that the others have, or that fits."""
        others = [one.type for one in arguments if one.type not in (JSON, NULL)]
        if not others and function in _NEEDS_TYPE:
            self.wrong(
                f"{function.upper()} of values in documents needs to know their type; write "
                "CAST(name AS DOUBLE), or AS STRING, BOOLEAN or TIMESTAMP",
                at,
            )
        likely = [FLOAT if one.name in NUMBERS else one for one in others]
        for type in dict.fromkeys((*likely, FLOAT, STRING, BOOL, TIMESTAMP)):
            if type in _DOCUMENT_TYPES:
                try:
                    typed = [
                        call("cast", one, type=type) if one.type == JSON else one
                        for one in arguments
                    ]
                    return call(function, *typed)
                except ExpressionError:
                    continue
        reason = f"{function.upper()} does not take what a document has; a CAST gives it a type"
        self.wrong(reason, at)

    def check_arguments(self, node: exp.Expr, places: tuple[str, ...]) -> None:
        """Refuse arguments that would not be read."""
        for place, given in node.args.items():
            if place not in places and isinstance(given, exp.Expr):
                count = sum(isinstance(one, exp.Expr) for one in node.args.values())
                self.refuse(f"{construct_name(node)} with {count} arguments", node)

    def _arguments(self, node: exp.Expr, places: tuple[str, ...]) -> Iterator[Node]:
        for place in places:
            given = node.args.get(place)
            if isinstance(given, list):
                yield from map(self.scalar, given)
            elif given is not None:
                yield self.scalar(given)

    def _literal(self, node: exp.Expr) -> Node:
        if not node.is_string:
            return self.number(node)
        try:
            return Literal(check_string(_TEXT, node.this), STRING)
        except AttributeValueError as error:
            reason = f"{error.value!r} {error.reason}"
            raise FilterError(reason, self.text, self.position(node)) from None

    def _boolean(self, node: exp.Expr) -> Node:
        return Literal(bool(node.this), BOOL)

    def _null(self, node: exp.Expr) -> Node:
        return Literal(None, NULL)

    def document(self, node: exp.Expr) -> Node | None:
        """What a name leads to inside of a document; None for any other part."""
        node = inner = unwrap(node)
        while inner.key == "dot":
            inner = inner.this
        if inner.key not in ("column", "identifier") or self._variable_path(node) is not None:
            return None
        name = ".".join(self.parts(node))
        return None if self.known(node, name) is not None else document_at(self.scope.schema, name)

    def _column(self, node: exp.Expr) -> Node:
        variable = self._variable_path(node)
        if variable is not None:
            return variable
        document = self.document(node)
        if document is not None:
            return document
        attribute = self.scope.schema.attributes[self.attribute(node)]
        return Column(attribute.name, type_of(attribute))

    _identifier = _column

    def _dot(self, node: exp.Expr) -> Node:
        names: list[str] = []
        inner = node
        while inner.key == "dot":
            names.insert(0, inner.expression.name)
            inner = inner.this
        if inner.key in ("column", "identifier", "paren"):
            return self._column(node)
        return self.call(node, "field", self.scalar(inner), Literal(".".join(names), STRING))

    def _is(self, node: exp.Expr) -> Node:
        truth = unwrap(node.expression)
        subject = self.scalar(node.this)
        if truth.key == "null":
            found = self.call(node, "is_null", subject)
        elif truth.key == "boolean":
            found = self.call(node, "is_true" if truth.this else "is_false", subject)
        else:
            self.refuse("IS with anything but NULL, TRUE or FALSE", node)
        return self.call(node, "not", found) if node.args.get("negate") else found

    def _nullsafeneq(self, node: exp.Expr) -> Node:
        return self.call(node, "not", self.call(node, "<=>", *self._both(node)))

    def _between(self, node: exp.Expr) -> Node:
        if node.args.get("symmetric"):
            self.refuse("BETWEEN SYMMETRIC", node)
        subject = self.scalar(node.this)
        low, high = (self.scalar(node.args[end]) for end in ("low", "high"))
        above, below = self.call(node, ">=", subject, low), self.call(node, "<=", subject, high)
        return self._negated(node, self.call(node, "and", above, below))

    def _in(self, node: exp.Expr) -> Node:
        if node.args.get("query"):
            self.unsupported(node.args["query"])
        values = [self.scalar(value) for value in node.expressions]
        if not values:
            self.refuse("IN without a list", node)
        return self._negated(node, self.call(node, "in", self.scalar(node.this), *values))

    def _like(self, node: exp.Expr) -> Node:
        return self._negated(node, self.call(node, "like", *self._both(node)))

    def _ilike(self, node: exp.Expr) -> Node:
        folded = (self.call(node, "lower", one) for one in self._both(node))
        return self._negated(node, self.call(node, "like", *folded))

    def _escape(self, node: exp.Expr) -> Node:
        inner = node.this
        if inner.key not in ("like", "ilike"):
            self.unsupported(node)
        text, pattern = self._both(inner)
        if inner.key == "ilike":
            text, pattern = (self.call(node, "lower", one) for one in (text, pattern))
        like = self.call(node, "like", text, pattern, self.scalar(node.expression))
        return self._negated(inner, like)

    def _regexplike(self, node: exp.Expr) -> Node:
        if node.args.get("flag") is not None:
            self.refuse("REGEXP_LIKE with flags (write them into the pattern: (?i))", node)
        text, pattern = self._both(node)
        if pattern.type.name == "null":
            return Literal(None, BOOL)
        return self._negated(node, self.call(node, "rlike", text, pattern))

    def _both(self, node: exp.Expr) -> tuple[Node, Node]:
        return self.scalar(node.this), self.scalar(node.expression)

    def _negated(self, node: exp.Expr, found: Node) -> Node:
        return self.call(node, "not", found) if node.args.get("negate") else found

    def _case(self, node: exp.Expr) -> Node:
        arguments: list[Node] = []
        subject = None if node.this is None else self.scalar(node.this)
        for branch in node.args["ifs"]:
            condition = self.scalar(branch.this)
            if subject is not None:
                condition = self.call(branch, "=", subject, condition)
            arguments += condition, self.scalar(branch.args["true"])
        default = node.args.get("default")
        arguments.append(Literal(None, NULL) if default is None else self.scalar(default))
        return self.call(node, "case", *arguments)

    def _cast(self, node: exp.Expr) -> Node:
        if node.this is None:  # of DATE()
            self.unsupported(node)
        inner = unwrap(node.this)
        kind = node.args["to"]
        name = str(getattr(kind.this, "value", kind.this))
        if inner.is_string and (name in TIMESTAMPS or name == "DATE"):
            return Literal(self.moment(self.cast_constant(node)), TIMESTAMP)
        value = self.scalar(inner)
        if name == "DATE":
            moment = self._converted(node, value, TIMESTAMP)
            return self._clock_call(node, "date_trunc", Literal("DAY", STRING), moment)
        if name == "DECIMAL":
            written = [str(part.this.this) for part in kind.expressions]
            if len(written) > 2 or not all(map(str.isdecimal, written)):
                self.wrong(
                    "write a decimal with its digits: DECIMAL(10, 2)",
                    node,
                )
            digits = [int(one) for one in written]
            precision, scale = (*digits, 0)[:2] if digits else (10, 0)
            if not 1 <= precision <= MAX_PRECISION or scale > precision:
                self.wrong(
                    f"DECIMAL({precision}, {scale}) is not possible; a decimal has 1 to "
                    f"{MAX_PRECISION} digits, all, some or none of them after the point",
                    node,
                )
            return self._converted(node, value, Type("decimal", precision, scale))
        if name not in CAST_TYPES:
            self.refuse(f"CAST to {name}", node)
        return self._converted(node, value, CAST_TYPES[name])

    _trycast = _cast

    def _converted(self, node: exp.Expr, value: Node, type: Type) -> Node:
        kinds = {value.type.name, type.name}
        if self.zone is not None and kinds == {"string", "timestamp"}:
            self.refuse("CAST between text and timestamps in a time zone other than UTC", node)
        if value.type == JSON and type.name in ("int", "decimal"):
            value = self.call(node, "cast", value, type=FLOAT)
        return self.call(node, "cast", value, type=type)

    def _interval(self, node: exp.Expr) -> Node:
        unit = str(node.args["unit"].this).upper() if node.args.get("unit") else ""
        unit = unit.removesuffix("S")
        amount = unwrap(node.this)
        sign = 1
        while amount.key == "neg":
            sign, amount = -sign, unwrap(amount.this)
        try:
            number = sign * Decimal(amount.this)
        except (InvalidOperation, TypeError, ValueError):
            self.refuse("an INTERVAL that is not a number and a unit", node)
        steps = number * UNITS.get(unit, 0) if unit in UNITS else number * MONTH_UNITS.get(unit, 0)
        if unit not in UNITS and unit not in MONTH_UNITS:
            self.refuse(f"an INTERVAL of {unit or 'no unit'}", node)
        if steps != steps.to_integral_value() or abs(steps) >= 2**63:
            self.wrong(
                "an INTERVAL is a whole number of microseconds, or of months",
                node,
            )
        return Literal(int(steps), INTERVAL if unit in UNITS else MONTHS)

    # Times

    def _clock_call(self, node: exp.Expr, name: str, *arguments: Node) -> Node:
        zone = () if self.zone is None else (Literal(str(self.zone), STRING),)
        return self.call(node, name, *arguments, *zone)

    def _check_moved(self, node: exp.Expr, operands: tuple[Node, ...]) -> None:
        """Refuse arithmetic with times that goes by the local clock, as in Spark SQL."""
        kinds = [one.type.name for one in operands]
        if kinds == ["timestamp", "timestamp"]:
            self.refuse("a difference of timestamps in a time zone other than UTC", node)
        for one in operands if "timestamp" in kinds else ():
            fixed = isinstance(one, Literal) and abs(one.value or 0) < UNITS["DAY"]
            if one.type.name == "months" or (one.type.name == "interval" and not fixed):
                what = "an INTERVAL of a day or more, and a timestamp,"
                self.refuse(f"{what} in a time zone other than UTC", node)

    def _extract(self, node: exp.Expr) -> Node:
        unit = str(node.this.this).lower()
        unit = {"dow": "dayofweek", "doy": "dayofyear"}.get(unit, unit)
        if unit not in CLOCK:
            self.refuse(f"EXTRACT of {unit.upper()}", node)
        return self._clock_call(node, unit, self.scalar(node.expression))

    # Text

    def _trim(self, node: exp.Expr) -> Node:
        side = str(node.args.get("position") or "BOTH").upper()
        name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
        return self.call(node, name, *self._arguments(node, ("this", "expression")))

    def _collate(self, node: exp.Expr) -> Node:
        name = str(node.expression.name).upper()
        if name not in IGNORING_CASE:
            self.refuse(f"COLLATE {name} (known are {' and '.join(IGNORING_CASE)})", node)
        return self.call(node, "lower", self.scalar(node.this))

    # Lists

    def _exists(self, node: exp.Expr) -> Node:
        if node.expression is None:
            if node.this.key in ("select", "subquery"):
                self.unsupported(node.this)
            self.refuse("EXISTS without a function such as x -> x > 5", node)
        return self._over_elements(node, "exists", node.this, node.expression)

    def _over_elements(
        self, node: exp.Expr, name: str, values: exp.Expr, function: exp.Expr
    ) -> Node:
        listed = self.scalar(values)
        element = listed.type.element
        if function.key != "lambda" or len(function.expressions) != 1:
            self.refuse(f"{name.upper()} without a function such as x -> x > 5", node)
        if element is None:
            self.wrong(
                f"{name.upper()} needs a list, not {article(str(listed.type))}",
                node,
            )
        if len(self._variables) >= _MOST_LAMBDAS:
            raise FilterTooLargeError(
                f"functions of elements are at most {_MOST_LAMBDAS} deep: each goes through a list "
                "for every element of the one around it",
                self.text,
                self.position(node),
            )
        variable = self.scope.element(listed.type, len(self._variables))
        with self._bound(function.expressions[0].name, variable):
            body = self.scalar(function.this)
        return self.call(node, name, listed, Lambda(variable, body))

    @contextmanager
    def _bound(self, name: str, variable: Variable) -> Iterator[None]:
        self._variables.append((name.casefold(), variable))
        try:
            yield
        finally:
            self._variables.pop()

    def _variable_path(self, node: exp.Expr) -> Node | None:
        """The parameter of a lambda, or a field of it."""
        if not self._variables:
            return None
        first, *fields = self.parts(node)
        for own, variable in reversed(self._variables):
            if own == first.casefold():
                found: Node = variable
                if fields:
                    known = [name for name, _ in variable.type.fields]
                    name = ".".join(fields)
                    alike = [one for one in known if one.casefold() == name.casefold()]
                    field = name if name in known else alike[0] if len(alike) == 1 else name
                    found = self.call(node, "field", found, Literal(field, STRING))
                return found
        return None

    def _any(self, node: exp.Expr) -> Node:
        self.refuse("ANY of anything but a comparison with a list attribute", node)

    def _bracket(self, node: exp.Expr) -> Node:
        if len(node.expressions) != 1:
            self.unsupported(node)
        index = self.scalar(node.expressions[0])
        at = self.call(node, "+", index, Literal(1, INT))
        found = self.call(node, "element_at", self.scalar(node.this), at)
        if isinstance(index, Literal) and isinstance(index.value, int) and index.value >= 0:
            return found
        # From 0 on; of ELEMENT_AT negative positions count from the end.
        inside = self.call(node, ">=", index, Literal(0, INT))
        return self.call(node, "case", inside, found, Literal(None, NULL))

    def _anonymous(self, node: exp.Expr) -> Node:
        name = str(node.name).lower()
        name = OTHER_NAMES.get(name, name)
        given = list(node.expressions)
        if name in ("exists", "forall") and len(given) == 2:
            return self._over_elements(node, name, *given)
        if name == "all":
            self.refuse("ALL of anything but a comparison with a list attribute", node)
        if name not in FUNCTIONS or not name.isidentifier():
            self.unsupported(node)
        arguments = [self.scalar(one) for one in given]
        if name in CLOCK and len(given) == 1:
            return self._clock_call(node, name, *arguments)
        if name == "date_trunc" and len(given) == 2:
            return self._clock_call(node, name, *arguments)
        return self.call(node, name, *arguments)
