"""Parts of SQL that have a value, from sqlglot's trees to expressions of ours."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from boxmatch.errors import (
    AttributeValueError,
    FilterError,
    FilterSyntaxError,
    FilterTooLargeError,
    UnknownAttributeError,
    UnsupportedFilterError,
)
from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.expressions.functions import FUNCTIONS, call
from boxmatch.model.expressions.lengths import check_length
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    INTERVAL,
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
from boxmatch.model.filters.conditions import Value
from boxmatch.model.filters.literals import key_of_value
from boxmatch.model.filters.parsing import TOO_DEEP, Places, construct_name
from boxmatch.model.filters.scope import Scope, type_of
from boxmatch.model.keys import check_string
from boxmatch.model.schema import Attribute

_NUMBER: Final = re.compile(r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?")
_TIMESTAMPS: Final = {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME"}
_LEVELS: Final = ("catalog", "db", "table", "this")
_MOST_LAMBDAS: Final = 2
_MOST_PARTS: Final = 10_000
_MOST_NESTED: Final = 100
"""Calls inside calls: evaluating and rendering them takes several frames of Python's stack each."""
_MOMENT: Final = Attribute("constant", "timestamp")
_TEXT: Final = Attribute("constant", "string")

# By sqlglot's name of a construct: our function, and where its arguments are.
_CALLS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    **{
        key: (name, ("this", "expression"))
        for key, name in {
            "add": "+",
            "sub": "-",
            "mul": "*",
            "div": "/",
            "intdiv": "div",
            "mod": "%",
            "eq": "=",
            "neq": "<>",
            "lt": "<",
            "lte": "<=",
            "gt": ">",
            "gte": ">=",
            "and": "and",
            "or": "or",
            "nullsafeeq": "<=>",
            "nullif": "nullif",
            "pow": "power",
            "dpipe": "concat",
            "left": "left",
            "right": "right",
            "startswith": "starts_with",
            "endswith": "ends_with",
            "contains": "contains",
            "arraycontains": "array_contains",
            "arrayoverlaps": "arrays_overlap",
        }.items()
    },
    **{
        key: (name, ("this",))
        for key, name in {
            "neg": "neg",
            "not": "not",
            "abs": "abs",
            "sign": "sign",
            "sqrt": "sqrt",
            "floor": "floor",
            "ceil": "ceil",
            "lower": "lower",
            "upper": "upper",
            "length": "length",
            "reverse": "reverse",
            "arraysize": "cardinality",
        }.items()
    },
    "round": ("round", ("this", "decimals")),
    "substring": ("substring", ("this", "start", "length")),
    "replace": ("replace", ("this", "expression", "replacement")),
    "strposition": ("position", ("substr", "this")),
    "if": ("if", ("this", "true", "false")),
    "greatest": ("greatest", ("this", "expressions")),
    "least": ("least", ("this", "expressions")),
    "coalesce": ("coalesce", ("this", "expressions")),
    "concat": ("concat", ("expressions",)),
    "array": ("array", ("expressions",)),
}
_CHAINS: Final = frozenset(("and", "or", "dpipe"))
"""Operators that take any number of operands, however they are nested."""
_CLOCK: Final = (
    *("year", "quarter", "month", "day", "dayofweek", "dayofyear"),
    *("week", "hour", "minute", "second"),
)
_OTHER_NAMES: Final = {
    "any_match": "exists",
    "all_match": "forall",
    "array_size": "cardinality",
    "character_length": "length",
    "day_of_month": "day",
    "day_of_week": "dayofweek",
    "day_of_year": "dayofyear",
    "dayofmonth": "day",
    "size": "cardinality",
    "try_add": "+",
    "try_subtract": "-",
    "try_multiply": "*",
    "try_divide": "/",
    "try_mod": "%",
    "week_of_year": "week",
    "weekofyear": "week",
}
"""Names that sqlglot does not know, and what they are here."""

_BEYOND_EVENTS: Final = frozenset(
    (
        *("select", "subquery", "window"),
        *("currentdate", "currenttime", "currenttimestamp", "localtime", "localtimestamp", "now"),
        *("rand", "random", "randn", "uuid", "sum", "avg", "min", "max", "count"),
    )
)
"""Constructs whose value is not that of one event."""

_NAMED: Final = sorted(
    name
    for name in FUNCTIONS - {"and", "or", "not", "in", "is_null", "is_true", "is_false", "field"}
    if name.isidentifier()
)
"""Functions that are called by their names."""

_UNITS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_IGNORING_CASE: Final = ("NOCASE", "UTF8_LCASE")
_CAST_TYPES: Final = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), INT),
    **dict.fromkeys(("FLOAT", "DOUBLE"), FLOAT),
    **dict.fromkeys(("CHAR", "VARCHAR", "NVARCHAR", "TEXT"), STRING),
    **dict.fromkeys(_TIMESTAMPS, TIMESTAMP),
    "BOOLEAN": BOOL,
}


class ScalarTranslator:
    """Turns parts of one parsed filter into expressions, over the axes of its scope."""

    def __init__(self, scope: Scope, text: str, tokens: list[Token], zone: tzinfo | None) -> None:
        self.scope = scope
        self.text = text
        self.zone = zone
        self.position = Places(tokens).of
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
        if kind in _CALLS:
            name, places = _CALLS[kind]
            self.check_arguments(node, places)
            if kind in _CHAINS:
                return self.call(node, name, *map(self.scalar, chain_of(node)))
            return self.call(node, name, *self._arguments(node, places))
        found: Callable[[exp.Expr], Node] | None = getattr(self, f"_{kind}", None)
        if found is None:
            self.unsupported(node)
        return found(node)

    def call(self, at: exp.Expr, function: str, *arguments: Node, type: Type | None = None) -> Node:
        """A call of a function, whose errors point at a part of the text."""
        if self.zone is not None and function in ("+", "-"):
            self._check_moved(at, arguments)
        try:
            check_length(function, arguments)
            return call(function, *arguments, type=type)
        except ExpressionError as error:
            raise FilterError(str(error), self.text, self.position(at)) from None

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
            return self._number(node, "")
        try:
            return Literal(check_string(_TEXT, node.this), STRING)
        except AttributeValueError as error:
            reason = f"{error.value!r} {error.reason}"
            raise FilterError(reason, self.text, self.position(node)) from None

    def _number(self, node: exp.Expr, sign: str) -> Literal:
        text = node.this
        if not _NUMBER.fullmatch(text):
            at = node.meta.get("start", 0)
            raise FilterSyntaxError(f"{text} is not a number", self.text, at)
        if "e" in text.lower():
            return Literal(float(sign + text), FLOAT)
        try:
            number = Decimal(sign + text)
        except InvalidOperation:
            number = Decimal("NaN")
        if "." not in text and -(2**63) < number < 2**63:
            return Literal(int(number), INT)
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int) or len(digits) > 38 or -exponent > 38:
            floating = float(sign + text)
            if isinf(floating):
                at = self.position(node)
                raise FilterError(f"{text[:20]}… is too large a number", self.text, at)
            return Literal(floating, FLOAT)
        scale = -exponent
        return Literal(number, Type("decimal", max(len(digits), scale, 1), scale))

    def _boolean(self, node: exp.Expr) -> Node:
        return Literal(bool(node.this), BOOL)

    def _null(self, node: exp.Expr) -> Node:
        return Literal(None, NULL)

    def _column(self, node: exp.Expr) -> Node:
        variable = self._variable_path(node)
        if variable is not None:
            return variable
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
        if inner.is_string and (name in _TIMESTAMPS or name == "DATE"):
            return Literal(self.moment(self.cast_constant(node)), TIMESTAMP)
        value = self.scalar(inner)
        if name == "DATE":
            moment = self._converted(node, value, TIMESTAMP)
            return self._clock_call(node, "date_trunc", Literal("DAY", STRING), moment)
        if name == "DECIMAL":
            written = [str(part.this.this) for part in kind.expressions]
            if len(written) > 2 or not all(map(str.isdecimal, written)):
                raise FilterError(
                    "write a decimal with its digits: DECIMAL(10, 2)",
                    self.text,
                    self.position(node),
                )
            digits = [int(one) for one in written]
            precision, scale = (*digits, 0)[:2] if digits else (10, 0)
            if not 1 <= precision <= MAX_PRECISION or scale > precision:
                raise FilterError(
                    f"DECIMAL({precision}, {scale}) is not possible; a decimal has 1 to "
                    f"{MAX_PRECISION} digits, all, some or none of them after the point",
                    self.text,
                    self.position(node),
                )
            return self._converted(node, value, Type("decimal", precision, scale))
        if name not in _CAST_TYPES:
            self.refuse(f"CAST to {name}", node)
        return self._converted(node, value, _CAST_TYPES[name])

    _trycast = _cast

    def _converted(self, node: exp.Expr, value: Node, type: Type) -> Node:
        kinds = {value.type.name, type.name}
        if self.zone is not None and kinds == {"string", "timestamp"}:
            self.refuse("CAST between text and timestamps in a time zone other than UTC", node)
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
        steps = number * _UNITS.get(unit, 0) if unit in _UNITS else number * _MONTHS.get(unit, 0)
        if unit not in _UNITS and unit not in _MONTHS:
            self.refuse(f"an INTERVAL of {unit or 'no unit'}", node)
        if steps != steps.to_integral_value() or abs(steps) >= 2**63:
            raise FilterError(
                "an INTERVAL is a whole number of microseconds, or of months",
                self.text,
                self.position(node),
            )
        return Literal(int(steps), INTERVAL if unit in _UNITS else MONTHS)

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
            fixed = isinstance(one, Literal) and abs(one.value or 0) < _UNITS["DAY"]
            if one.type.name == "months" or (one.type.name == "interval" and not fixed):
                what = "an INTERVAL of a day or more, and a timestamp,"
                self.refuse(f"{what} in a time zone other than UTC", node)

    def _extract(self, node: exp.Expr) -> Node:
        unit = str(node.this.this).lower()
        unit = {"dow": "dayofweek", "doy": "dayofyear"}.get(unit, unit)
        if unit not in _CLOCK:
            self.refuse(f"EXTRACT of {unit.upper()}", node)
        return self._clock_call(node, unit, self.scalar(node.expression))

    # Text

    def _trim(self, node: exp.Expr) -> Node:
        side = str(node.args.get("position") or "BOTH").upper()
        name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
        return self.call(node, name, *self._arguments(node, ("this", "expression")))

    def _collate(self, node: exp.Expr) -> Node:
        name = str(node.expression.name).upper()
        if name not in _IGNORING_CASE:
            self.refuse(f"COLLATE {name} (known are {' and '.join(_IGNORING_CASE)})", node)
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
            raise FilterError(
                f"{name.upper()} needs a list, not {article(str(listed.type))}",
                self.text,
                self.position(node),
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
        first, *fields = self._parts(node)
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
        name = _OTHER_NAMES.get(name, name)
        given = list(node.expressions)
        if name in ("exists", "forall") and len(given) == 2:
            return self._over_elements(node, name, *given)
        if name == "all":
            self.refuse("ALL of anything but a comparison with a list attribute", node)
        if name not in FUNCTIONS or not name.isidentifier():
            self.unsupported(node)
        arguments = [self.scalar(one) for one in given]
        if name in _CLOCK and len(given) == 1:
            return self._clock_call(node, name, *arguments)
        if name == "date_trunc" and len(given) == 2:
            return self._clock_call(node, name, *arguments)
        return self.call(node, name, *arguments)

    # Constants

    def constant(self, node: exp.Expr, parent: exp.Expr) -> Value | None:
        """A constant, as it was written; None for anything else."""
        sign, inner = "", unwrap(node)
        while inner.key == "neg":
            sign, inner = "" if sign else "-", unwrap(inner.this)
        if inner.key == "literal":
            position = inner.meta.get("start")
            if position is None:
                position = self.position(parent)
            if not inner.is_string:
                if not _NUMBER.fullmatch(inner.this):
                    raise FilterSyntaxError(f"{inner.this} is not a number", self.text, position)
                return Value("number", sign + inner.this, position)
            if not sign:
                return Value("text", inner.this, position, self.zone)
        if not sign:
            if inner.key == "boolean":
                return Value("truth", bool(inner.this), self.position(inner))
            if inner.key == "null":
                return Value("null", None, self.position(inner))
            if inner.key == "cast" and unwrap(inner.this).is_string:
                name = str(getattr(inner.args["to"].this, "value", inner.args["to"].this))
                if name in _TIMESTAMPS or name == "DATE":
                    return self.cast_constant(inner)
        return None

    def cast_constant(self, cast: exp.Expr) -> Value:
        """The constant that is written with its type, as in `DATE '2026-01-05'`."""
        literal = unwrap(cast.this)
        kind = cast.args["to"].this
        name = str(getattr(kind, "value", kind))
        position = literal.meta.get("start")
        return Value("date" if name == "DATE" else "timestamp", literal.this, position, self.zone)

    def moment(self, value: Value) -> int:
        """The microseconds of a constant timestamp."""
        try:
            return key_of_value(_MOMENT, value)
        except AttributeValueError as error:
            reason = f"{error.value!r} {error.reason}"
            raise FilterError(reason, self.text, value.position) from None

    # Names

    def attribute(self, column: exp.Expr, *, is_value: bool = False) -> int:
        """The position of the attribute that a column names."""
        parts = self._parts(column)
        name = ".".join(parts)
        schema = self.scope.schema
        position = schema.index.get(name)
        if position is not None:
            return position
        quoted = any(one.args.get("quoted") for one in column.find_all(exp.Identifier))
        folded = name.casefold()
        alike = [i for i, other in enumerate(schema.names) if other.casefold() == folded]
        if len(alike) == 1 and not quoted:
            return alike[0]
        raise UnknownAttributeError(
            self._unknown(name, [schema.names[i] for i in alike], quoted, is_value),
            self.text,
            self.position(column),
        )

    def _unknown(self, name: str, alike: list[str], quoted: bool, is_value: bool) -> str:
        names = self.scope.schema.names
        reason = f"there is no attribute {name!r}"
        for place, one in enumerate(names):
            if name.startswith(f"{one}.") and self.scope.schema.attributes[place].repeated:
                field = name.removeprefix(f"{one}.")
                return f"{reason}; {one!r} is a list: EXISTS({one}, i -> i.{field} …)"
        close = alike or difflib.get_close_matches(name, names, n=3)
        if close:
            reason += f"; did you mean {' or '.join(map(repr, close))}?"
        elif quoted:
            reason += "; double quotes hold a name, single quotes hold text"
        elif is_value:
            reason += f"; text goes into single quotes: {name!r}"
        return reason

    def _parts(self, column: exp.Expr) -> list[str]:
        """The names, joined by dots, that a column is written with."""
        if column.key == "identifier":
            return [column.name]
        if column.key == "dot":
            return [*self._parts(column.this), *self._parts(column.expression)]
        if column.key != "column":
            self.unsupported(column)
        parts = [column.args[level] for level in _LEVELS if column.args.get(level)]
        if any(part.key != "identifier" for part in parts):
            self.unsupported(column.this)
        return [part.name for part in parts]

    # Refusals

    def unsupported(self, node: exp.Expr) -> NoReturn:
        name = construct_name(node)
        word = name.split("(")[0].removeprefix("the function ").casefold()
        called = str(node.name).lower() if isinstance(node, exp.Anonymous) else node.key
        if any(word == known.casefold() for known in self.scope.schema.names):
            name += " (to name the attribute, put it in double quotes)"
        elif called in _BEYOND_EVENTS:
            raise UnsupportedFilterError(
                f"{name} is not supported: a filter depends on the event alone",
                self.text,
                self.position(node),
            )
        elif name.startswith("the function "):
            close = difflib.get_close_matches(word, _NAMED, n=2)
            if close:
                name += f" (did you mean {' or '.join(one.upper() for one in close)}?)"
        self.refuse(name, node)

    def refuse(self, what: str, node: exp.Expr) -> NoReturn:
        raise UnsupportedFilterError(f"{what} is not supported", self.text, self.position(node))


def unwrap(node: exp.Expr) -> exp.Expr:
    """What is inside parentheses."""
    while node.key == "paren":
        node = node.this
    return node


def chain_of(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of the same operator, from left to right.

    Without recursion: a chain of thousands is a tree as deep.
    """
    operands: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = unwrap(pending.pop())
        if current.key == node.key:
            pending.extend((current.expression, current.this))
        else:
            operands.append(current)
    return operands


def article(kind: str) -> str:
    """A noun with its article."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
