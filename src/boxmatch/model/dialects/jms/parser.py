"""Message selectors from text to conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from boxmatch.errors import FilterError, FilterSyntaxError, FilterTooLargeError
from boxmatch.model.dialects.jms.syntax import (
    ORDERS,
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Operator,
    Property,
    Signed,
    Truth,
    Wild,
)
from boxmatch.model.dialects.jms.tokens import MOST, Token, as_long, tokens_of

TOO_DEEP: Final = "the selector is nested too deeply"

_MOST_NESTED: Final = 100
"""Parentheses in one another. Each takes some of the interpreter's stack, here and later."""

_HEADERS: Final = (
    "JMSDeliveryMode",
    "JMSPriority",
    "JMSMessageID",
    "JMSTimestamp",
    "JMSCorrelationID",
    "JMSType",
)
_NEGATABLE: Final = ("IN", "LIKE", "BETWEEN")
_COMPARING: Final = ("=", "<>", "<", "<=", ">", ">=", "IS", *_NEGATABLE)


class Parsed(NamedTuple):
    """A selector."""

    condition: Condition
    names: tuple[str, ...]
    """The properties that it looks at."""


def parse(text: str) -> Parsed | None:
    """What a selector says; None if it is empty.

    Raises `FilterError` with the place in the text.
    """
    parser = _Parser(text)
    if parser.token.kind == "end":
        return None
    node = parser.expression()
    parser.finish()
    return Parsed(parser.as_condition(node), tuple(parser.names))


class _Node(NamedTuple):
    """What was read, and where it begins."""

    content: Condition | Operand
    position: int


class _Parser:
    """Reads the tokens of one selector, from the left, and looks one ahead.

    Conditions and operands are in parentheses alike, so `expression` reads both, and whoever wants
    one of them says so with `as_condition` or `as_operand`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self.token = self._last = next(self._tokens)
        self.names: dict[str, None] = {}
        self._depth = 0

    # --- levels of precedence ---

    def expression(self) -> _Node:
        """Conditions joined by AND, and these by OR; or one condition or operand."""
        position = self.token.position
        alternatives: list[Condition] = []
        while True:
            first = self._negated()
            together = [first]
            while self._accept("AND"):
                together.append(self._negated())
            last = not self._accept("OR")
            if last and not alternatives and len(together) == 1:
                return first
            parts = tuple(map(self.as_condition, together))
            alternatives.append(parts[0] if len(parts) == 1 else AllOf(parts))
            if last:
                break
        if len(alternatives) == 1:
            return _Node(alternatives[0], position)
        return _Node(AnyOf(tuple(alternatives)), position)

    def _negated(self) -> _Node:
        """A comparison, or an operand alone, after any number of NOTs."""
        position = self.token.position
        negations = 0
        while self._accept("NOT"):
            negations += 1
        node = self._comparison()
        if not negations:
            return node
        condition = self.as_condition(node)
        return _Node(Not(condition) if negations % 2 else condition, position)

    def _comparison(self) -> _Node:
        left = self._sum()
        negation = self._accept("NOT")
        operator = self._accept(*(_NEGATABLE if negation else _COMPARING))
        if operator is None:
            if negation:
                raise self._unexpected("IN, LIKE or BETWEEN after NOT")
            return left
        condition = self._compared(left, operator, negated=negation is not None)
        if self.token.text in _COMPARING:
            raise FilterSyntaxError(
                "comparisons cannot be chained: join them by AND", self._text, self.token.position
            )
        return _Node(condition, left.position)

    def _compared(self, left: _Node, operator: Token, *, negated: bool) -> Condition:
        match operator.text:
            case "BETWEEN":
                return self._between(left, negated)
            case "IS":
                return self._is_null(left)
            case "IN":
                condition: Condition = self._in(left)
            case "LIKE":
                condition = self._like(left)
            case _:
                return self._compare(left, cast(Operator, operator.text), self._sum())
        return Not(condition) if negated else condition

    def _sum(self) -> _Node:
        """Products that are added or subtracted; one operand, or what is in parentheses, alone."""
        terms: list[tuple[str, _Node]] = []
        operator = ""
        while True:
            factors = [("", self._signed())]
            while found := self._accept("*", "/"):
                factors.append((found.text, self._signed()))
            terms.append((operator, self._arithmetic(factors)))
            found = self._accept("+", "-")
            if found is None:
                return self._arithmetic(terms)
            operator = found.text

    def _signed(self) -> _Node:
        """A literal, a property, or an expression in parentheses, after any number of signs."""
        position = self.token.position
        signs: list[str] = []
        while sign := self._accept("+", "-"):
            signs.append(sign.text)
        inner = self.token.position
        if self._accept("("):
            content = self._in_parentheses()
        else:
            content = self._single(after_minus=signs[-1:] == ["-"])
        if not signs:
            return _Node(content, position)
        number = self._as_number(_Node(content, inner))
        return _Node(_with_sign(number, negative=signs.count("-") % 2 == 1), position)

    def _in_parentheses(self) -> Condition | Operand:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise FilterTooLargeError(TOO_DEEP, self._text, self._last.position)
        node = self.expression()
        self._depth -= 1
        self._expect(")")
        return node.content

    def _single(self, *, after_minus: bool) -> Operand:
        token = self.token
        if token.kind == "name":
            self._next()
            return Property(self._name(token))
        if token.kind in ("string", "number"):
            self._next()
            if token.value == MOST + 1 and type(token.value) is int and not after_minus:
                raise FilterError(f"exact numbers go up to {MOST}", self._text, token.position)
            return Constant(token.value)
        if found := self._accept("TRUE", "FALSE"):
            return Constant(found.text == "TRUE")
        if self._accept("NULL"):
            raise FilterError(
                "nothing compares with NULL: IS NULL and IS NOT NULL test for it",
                self._text,
                token.position,
            )
        raise self._unexpected("a property or a literal")

    def _name(self, token: Token) -> str:
        name = str(token.value)
        if self.token.text == "(":
            raise FilterSyntaxError("selectors have no functions", self._text, token.position)
        if (
            name.startswith("JMS")
            and not name.startswith(("JMSX", "JMS_"))
            and name not in _HEADERS
        ):
            raise FilterError(
                f"{name} cannot be selected by; the headers that can are {', '.join(_HEADERS)}",
                self._text,
                token.position,
            )
        self.names.setdefault(name)
        return name

    # --- comparisons ---

    def _compare(self, left: _Node, operator: Operator, right: _Node) -> Condition:
        if operator in ORDERS:
            return Comparison(operator, self._in_order(left), self._in_order(right))
        return Comparison(operator, self.as_operand(left), self.as_operand(right))

    def _between(self, left: _Node, negated: bool) -> Condition:
        """As the specification expands it: what is no number is neither inside nor outside."""
        value = self._in_order(left)
        low = self._in_order(self._sum())
        self._expect("AND")
        high = self._in_order(self._sum())
        if negated:
            return AnyOf((Comparison("<", value, low), Comparison(">", value, high)))
        return AllOf((Comparison(">=", value, low), Comparison("<=", value, high)))

    def _is_null(self, left: _Node) -> Condition:
        negated = self._accept("NOT")
        self._expect("NULL")
        condition = IsNull(self._property(left, "IS NULL"))
        return Not(condition) if negated else condition

    def _in(self, left: _Node) -> In:
        name = self._property(left, "IN")
        self._expect("(")
        strings = [self._string()]
        while self._accept(","):
            strings.append(self._string())
        self._expect(")")
        return In(name, frozenset(strings))

    def _like(self, left: _Node) -> Like:
        name = self._property(left, "LIKE")
        pattern = self._string()
        escape = None
        if self._accept("ESCAPE"):
            escape_position = self.token.position
            escape = self._string()
            if len(escape) != 1:
                raise FilterError("ESCAPE takes a single character", self._text, escape_position)
        return Like(name, tuple(_pieces(pattern, escape)))

    # --- what is expected ---

    def as_condition(self, node: _Node) -> Condition:
        content = node.content
        if isinstance(content, Property) or (
            isinstance(content, Constant) and isinstance(content.value, bool)
        ):
            return Truth(content)
        if isinstance(content, Operand):
            raise FilterError("this is a value and no condition", self._text, node.position)
        return content

    def as_operand(self, node: _Node) -> Operand:
        if isinstance(node.content, Operand):
            return node.content
        raise FilterError(
            "this is a condition, where a value is expected", self._text, node.position
        )

    def _in_order(self, node: _Node) -> Operand:
        return self._no_text_or_bool(node, "{} are compared by = and <> only")

    def _as_number(self, node: _Node) -> Operand:
        return self._no_text_or_bool(node, "{} cannot be calculated with")

    def _no_text_or_bool(self, node: _Node, reason: str) -> Operand:
        operand = self.as_operand(node)
        if isinstance(operand, Constant) and isinstance(operand.value, (str, bool)):
            kind = "strings" if isinstance(operand.value, str) else "TRUE and FALSE"
            raise FilterError(reason.format(kind), self._text, node.position)
        return operand

    def _arithmetic(self, parts: list[tuple[str, _Node]]) -> _Node:
        first = parts[0][1]
        if len(parts) == 1:
            return first
        rest = tuple((operator, self._as_number(node)) for operator, node in parts[1:])
        return _Node(Arithmetic(self._as_number(first), rest), first.position)

    def _property(self, node: _Node, operator: str) -> str:
        if isinstance(node.content, Property):
            return node.content.name
        raise FilterError(f"{operator} is about a property", self._text, node.position)

    def _string(self) -> str:
        token = self.token
        if token.kind != "string":
            raise self._unexpected("a string")
        self._next()
        return str(token.value)

    def finish(self) -> None:
        """Raise if there is more text."""
        if self.token.kind != "end":
            raise self._unexpected("AND, OR or an operator")

    # --- tokens ---

    def _next(self) -> Token:
        self._last = self.token
        if self.token.kind != "end":
            self.token = next(self._tokens)
        return self._last

    def _accept(self, *texts: str) -> Token | None:
        """The next token, which is read, if it is one of these keywords and signs."""
        if self.token.kind in ("keyword", "sign") and self.token.text in texts:
            return self._next()
        return None

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(text)

    def _unexpected(self, expected: str) -> FilterSyntaxError:
        token = self.token
        found = f"not {token.text}" if token.text else "and the selector ends"
        return FilterSyntaxError(f"expected {expected}, {found}", self._text, token.position)


def _pieces(pattern: str, escape: str | None) -> Iterator[str | Wild]:
    """Texts and wildcards. An escape character is one before `_`, `%` and itself only."""
    text = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == escape and pattern[position : position + 1] in ("_", "%", escape):
            text += pattern[position]
            position += 1
        elif character in "_%":
            if text:
                yield text
            yield Wild(character)
            text = ""
        else:
            text += character
    if text:
        yield text


def _with_sign(operand: Operand, *, negative: bool) -> Operand:
    if not isinstance(operand, Constant):
        return Signed(operand, negative)
    value = operand.value
    if isinstance(value, int):
        return Constant(as_long(-value if negative else value))
    return Constant(-float(value) if negative else value)
