"""Message selectors, read and evaluated at once, and slowly: the truth for tests of the dialect.

It takes selectors that are known to be well-formed. Each rule of the grammar is a method that gives
the value of what it has read: None is NULL and unknown. Integers that are Java's stand for its
`long`, floats for its `double`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

WORDS = {"and", "or", "not", "between", "like", "in", "is", "null", "escape", "true", "false"}
TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')"
    r"|(?P<number>0[xX][0-9a-fA-F]+[lL]?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[lLfFdD]?)"
    r"|(?P<word>(?!\d)[\w$€]+)"
    r"|(?P<sign><>|<=|>=|[-+*/()=<>,])"
    r"|(?P<end>$))"
)


def selected(selector: str, event: Mapping[str, Any]) -> bool | None:
    """What a selector comes to."""
    reader = Reader(selector, event)
    return True if reader.kind == "end" else condition(reader.disjunction())


class Reader:
    def __init__(self, selector: str, event: Mapping[str, Any]) -> None:
        self.selector = selector
        self.event = event
        self.at = 0
        self.following()

    def following(self) -> None:
        found = TOKEN.match(self.selector, self.at)
        assert found, self.selector[self.at :]
        self.at = found.end()
        self.kind = str(found.lastgroup)
        self.text = found[self.kind]

    def comes(self, *texts: str) -> str | None:
        text = self.text.lower()
        if self.kind not in ("word", "sign") or text not in texts:
            return None
        self.following()
        return text

    def literal(self) -> str:
        text = self.text[1:-1].replace("''", "'")
        self.following()
        return text

    def disjunction(self) -> Any:
        values = [self.conjunction()]
        while self.comes("or"):
            values.append(self.conjunction())
        if len(values) == 1:
            return values[0]
        truths = [condition(value) for value in values]
        return True if True in truths else None if None in truths else False

    def conjunction(self) -> Any:
        values = [self.negation()]
        while self.comes("and"):
            values.append(self.negation())
        if len(values) == 1:
            return values[0]
        truths = [condition(value) for value in values]
        return False if False in truths else None if None in truths else True

    def negation(self) -> Any:
        if self.comes("not"):
            return opposite(condition(self.negation()))
        return self.comparison()

    def comparison(self) -> Any:
        left = self.sum()
        negated = self.comes("not")
        word = self.comes("=", "<>", "<", "<=", ">", ">=", "between", "in", "like", "is")
        if word == "between":
            low = self.sum()
            self.comes("and")
            high = self.sum()
            pairs = [("<", low), (">", high)] if negated else [(">=", low), ("<=", high)]
            truths = [compare(sign, left, bound) for sign, bound in pairs]
            decisive = bool(negated)
            return decisive if decisive in truths else None if None in truths else not decisive
        if word == "is":
            present = self.comes("not")
            self.comes("null")
            return (left is not None) if present else (left is None)
        if word in ("in", "like"):
            result = self.is_in(left) if word == "in" else self.is_like(left)
            return opposite(result) if negated else result
        return left if word is None else compare(word, left, self.sum())

    def is_in(self, left: Any) -> bool | None:
        self.comes("(")
        truths = [compare("=", left, self.literal())]
        while self.comes(","):
            truths.append(compare("=", left, self.literal()))
        self.comes(")")
        return None if left is None else True in truths

    def is_like(self, left: Any) -> bool | None:
        pattern = self.literal()
        escape = self.literal() if self.comes("escape") else None
        if left is None:
            return None
        return isinstance(left, str) and resembles(left, pattern, escape)

    def sum(self) -> Any:
        value = self.product()
        while sign := self.comes("+", "-"):
            value = calculate(sign, value, self.product())
        return value

    def product(self) -> Any:
        value = self.signed()
        while sign := self.comes("*", "/"):
            value = calculate(sign, value, self.signed())
        return value

    def signed(self) -> Any:
        if sign := self.comes("+", "-"):
            return calculate(sign, 0 if is_exact(value := self.signed()) else -0.0, value)
        if self.comes("("):
            value = self.disjunction()
            self.comes(")")
            return value
        if self.kind == "string":
            return self.literal()
        text, kind = self.text, self.kind
        self.following()
        if kind == "number":
            return number(text)
        if text.lower() in WORDS:
            return text.lower() == "true"
        value = self.event.get(text)
        return value if isinstance(value, (str, bool, int, float)) else None


def number(text: str) -> int | float:
    if text[:2].lower() == "0x":
        return ctypes.c_int64(int(text.rstrip("lL"), 16)).value
    if re.fullmatch("[0-9]+[lL]?", text):
        digits = text.rstrip("lL")
        # One more than the largest is written after a minus only, and is its own opposite.
        return ctypes.c_int64(int(digits, 8 if digits[0] == "0" else 10)).value
    value = float(text.rstrip("fFdD"))
    return ctypes.c_float(value).value if text[-1] in "fF" else value


def condition(value: Any) -> bool | None:
    return None if value is None else value is True


def opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def is_exact(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    kinds = [
        "number" if is_exact(one) or isinstance(one, float) else type(one).__name__
        for one in (left, right)
    ]
    if kinds[0] != kinds[1] or (kinds[0] != "number" and sign not in ("=", "<>")):
        return False
    if kinds[0] == "number" and is_exact(left) != is_exact(right):
        left, right = double(left), double(right)
    less, equal = left < right, left == right
    return {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": right < left,
        ">=": right < left or equal,
    }[sign]


def double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def calculate(sign: str, left: Any, right: Any) -> int | float | None:
    if any(not is_exact(one) and not isinstance(one, float) for one in (left, right)):
        return None
    if sign == "/":
        return None if right == 0 else double(left) / double(right)
    if all(is_exact(one) and -(2**63) <= one < 2**63 for one in (left, right)):
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
        return ctypes.c_int64(result).value
    left, right = double(left), double(right)
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def resembles(text: str, pattern: str, escape: str | None) -> bool:
    """Whether a text matches a pattern of LIKE, by trying all ways."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape and rest[:1] in ("_", "%", escape):
        return text[:1] == rest[:1] and resembles(text[1:], rest[1:], escape)
    if first == "%":
        return any(resembles(text[start:], rest, escape) for start in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and resembles(text[1:], rest, escape)
