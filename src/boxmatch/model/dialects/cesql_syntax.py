"""CloudEvents SQL as text: its words, its precedence, and how it is read as a tree.

Names of attributes and functions and all keywords are in any case. From the tightest operators to
the loosest: NOT and the sign, then LIKE and IN, then `* / %`, then `+ -`, then comparisons, then
AND, OR and XOR. So `NOT a = b` is `(NOT a) = b`.

AND, OR and XOR have the same precedence. The specification groups them from the left, its grammar
and the SDKs from the right, and SQL by operator; so a text that mixes them without parentheses is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, NoReturn

from boxmatch.errors import FilterSyntaxError, FilterTooLargeError, UnsupportedFilterError
from boxmatch.model.dialects.cesql_tree import (
    LARGEST,
    SMALLEST,
    Attribute,
    Binary,
    Call,
    Constant,
    Exists,
    In,
    Like,
    Logic,
    Negate,
    Node,
    Not,
    children,
)

TOO_DEEP: Final = "the filter is nested too deeply"
MOST_NESTED: Final = 64

# --- words ------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""(?P<word>[A-Za-z0-9_]+)
      | (?P<string>'[^'\\]*+(?:\\.[^'\\]*+)*+' | "[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<symbol><=|>=|<>|!=|[=<>+\-*/%(),])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_KEYWORDS: Final = frozenset(
    ("AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"),
)

_Kind = Literal["keyword", "number", "name", "string", "symbol", "end"]


class _Token(NamedTuple):
    kind: _Kind
    text: str
    """Of a keyword, in upper case."""
    start: int
    end: int


def _tokens(text: str) -> Iterator[_Token]:
    at = _after_space(text, 0)
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise FilterSyntaxError(_not_a_token(text[at]), text, at)
        yield _Token(*_classified(found), at, found.end())
        if found["string"] and text.startswith(text[at], found.end()):
            reason = rf"a {text[at]} in a string is written \{text[at]}"
            raise FilterSyntaxError(reason, text, found.end())
        at = _after_space(text, found.end())
    yield _Token("end", "", at, at)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _not_a_token(character: str) -> str:
    if character in "'\"":
        return "a string that does not end"
    return f"unexpected {character!r}"


def _classified(found: re.Match[str]) -> tuple[_Kind, str]:
    text = found[0]
    if found["string"]:
        return "string", text
    if found["symbol"]:
        return "symbol", "!=" if text == "<>" else text
    if text.isdigit():
        return "number", text
    if text.upper() in _KEYWORDS:
        return "keyword", text.upper()
    return "name", text


# --- the parser -------------------------------------------------------------------------------

_LEVELS: Final = {
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}


def parse(text: str) -> Node:
    """The tree of an expression; its depth is limited.

    Raises `FilterError` with the place. That a function is unknown shows only at evaluation.
    """
    root = _Parser(text).whole()
    if _depth(root) > MOST_NESTED:
        raise FilterTooLargeError(TOO_DEEP, text, 0)
    return root


def _depth(root: Node) -> int:
    deepest = 0
    todo = [(root, 1)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        todo.extend((child, depth + 1) for child in children(node))
    return deepest


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._nested = 0

    def whole(self) -> Node:
        root = self._expression()
        if self._next.kind != "end":
            self._refuse("an operator or the end")
        return root

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _took(self, kind: _Kind, *texts: str) -> _Token | None:
        token = self._next
        return self._take() if token.kind == kind and token.text in texts else None

    def _expect(self, symbol: str) -> None:
        if not self._took("symbol", symbol):
            self._refuse(repr(symbol))

    def _refuse(self, wanted: str) -> NoReturn:
        token = self._next
        found = self._text[token.start : token.end] or "the end"
        shown = found if token.kind in ("end", "string") else repr(found)
        raise FilterSyntaxError(f"{wanted} expected, not {shown}", self._text, token.start)

    # --- from the loosest operators to the tightest ---

    def _expression(self) -> Node:
        self._enter()
        first = self._binary(1)
        logic = self._took("keyword", "AND", "OR", "XOR")
        if logic:
            first = Logic(logic.text, tuple(self._operands(first, logic)))
        self._nested -= 1
        return first

    def _operands(self, first: Node, logic: _Token) -> Iterator[Node]:
        yield first
        yield self._binary(1)
        while other := self._took("keyword", "AND", "OR", "XOR"):
            if other.text != logic.text:
                reason = (
                    f"{logic.text} and {other.text} have the same precedence in CloudEvents SQL, "
                    "and implementations group them differently: parentheses are needed"
                )
                raise UnsupportedFilterError(reason, self._text, other.start)
            yield self._binary(1)

    def _binary(self, level: int) -> Node:
        left = self._tested()
        while self._next.kind == "symbol" and _LEVELS.get(self._next.text, 0) >= level:
            operator = self._take().text
            left = Binary(operator, left, self._binary(_LEVELS[operator] + 1))
        return left

    def _tested(self) -> Node:
        """LIKE and IN, which follow their operand."""
        operand = self._signed()
        while True:
            start = self._next.start
            negated = self._is_negated() and self._take() is not None
            if self._took("keyword", "LIKE"):
                operand = Like(operand, self._pattern())
            elif self._took("keyword", "IN"):
                operand = In(operand, self._list())
            else:
                return operand
            operand = Not(operand, start) if negated else operand

    def _is_negated(self) -> bool:
        if (self._next.kind, self._next.text) != ("keyword", "NOT"):
            return False
        following = self._tokens[self._at + 1]
        return following.kind == "keyword" and following.text in ("LIKE", "IN")

    def _pattern(self) -> str:
        if self._next.kind != "string":
            self._refuse("a string literal")
        return _unquoted(self._take().text)

    def _signed(self) -> Node:
        """NOT and signs, which precede their operand."""
        token = self._next
        if self._took("keyword", "NOT"):
            return Not(self._operand(), token.start)
        if not self._took("symbol", "-", "+"):
            return self._simple()
        if self._next.kind == "number" and self._next.start == token.end:
            return self._integer(token.text)
        if token.text == "+":
            self._refuse("an integer literal")
        return Negate(self._operand())

    def _operand(self) -> Node:
        self._enter()
        operand = self._signed()
        self._nested -= 1
        return operand

    def _enter(self) -> None:
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise FilterTooLargeError(TOO_DEEP, self._text, self._next.start)

    def _simple(self) -> Node:
        token = self._next
        match token.kind, token.text:
            case "number", _:
                return self._integer("")
            case "string", quoted:
                self._take()
                return Constant(_unquoted(quoted))
            case "keyword", "TRUE" | "FALSE":
                return Constant(self._take().text == "TRUE")
            case "keyword", "EXISTS":
                self._take()
                return Exists(self._name(), token.start)
            case "symbol", "(":
                self._take()
                inner = self._expression()
                self._expect(")")
                return inner
            case "name", _:
                following = self._tokens[self._at + 1]
                if (following.kind, following.text) == ("symbol", "("):
                    return self._call()
                return Attribute(self._name(), token.start)
            case _:
                self._refuse("a value")

    def _integer(self, sign: str) -> Constant:
        token = self._take()
        start = token.start - len(sign)
        digits = token.text.lstrip("0") or "0"
        value = int(sign + digits) if len(digits) <= 10 else LARGEST + 1
        if not SMALLEST <= value <= LARGEST:
            raise FilterSyntaxError("an integer has at most 32 bits", self._text, start)
        return Constant(value)

    def _name(self) -> str:
        token = self._next
        if token.kind not in ("name", "number") or "_" in token.text:
            self._refuse("the name of an attribute (letters and digits)")
        return self._take().text.lower()

    def _call(self) -> Call:
        token = self._next
        if not token.text.replace("_", "a").isalpha() or token.text.startswith("_"):
            self._refuse("the name of a function (letters and underscores)")
        self._take()
        if self._tokens[self._at + 1][:2] == ("symbol", ")"):
            self._at += 2
            return Call(token.text.upper(), (), token.start)
        return Call(token.text.upper(), self._list(), token.start)

    def _list(self) -> tuple[Node, ...]:
        self._expect("(")
        items = [self._expression()]
        while self._took("symbol", ","):
            items.append(self._expression())
        self._expect(")")
        return tuple(items)


def _unquoted(literal: str) -> str:
    """The text in quotes. Only the quotes are escaped: other backslashes are what they are."""
    quote = literal[0]
    return re.sub(
        r"\\(.)",
        lambda found: quote if found[1] == quote else found[0],
        literal[1:-1],
        flags=re.DOTALL,
    )
