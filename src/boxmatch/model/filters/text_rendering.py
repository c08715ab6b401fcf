"""Ranges of texts of values in documents, back to conditions that people can read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from boxmatch.model.documents import TEXTS_OF_KIND, value_of_text
from boxmatch.model.expressions.documents import Form
from boxmatch.model.filters.compiled import Bound
from boxmatch.model.filters.literals import INFINITE
from boxmatch.model.text_ranges import (
    TextRange,
    TextRanges,
    common,
    of_kind,
    others,
    point,
    starting,
)

_FORMS: Final[dict[Form, str]] = {
    "": "{}",
    "folded": "LOWER({})",
    "reversed": "REVERSE({})",
    "reversed folded": "REVERSE(LOWER({}))",
    "address": "ADDRESS({})",
}


def range_of(low: Bound, high: Bound) -> TextRange:
    """The texts between two bounds of a box."""
    first = low[0] + "\0" * low[1] if isinstance(low, tuple) else ""
    if not isinstance(high, tuple):
        return first, None
    return first, high[0] + "\0" * (high[1] + 1)


def render_texts(name: str, form: Form, ranges: TextRanges, *, absent: bool) -> list[str]:
    """Conditions one of which is true of texts in some ranges, and of no text if it is `absent`."""
    subject = _FORMS[form].format(name)
    if absent:
        gaps = others(ranges)
        if all(_is_point(one) for one in gaps):
            parts = (f"NOT {subject} <=> {_constant(low)}" for low, _ in gaps)
            return [" AND ".join(parts)]
        return [f"{subject} IS NULL", *render_texts(name, form, ranges, absent=False)]
    points: list[str] = []
    found: list[str] = []
    for kind in TEXTS_OF_KIND:
        for one in common(ranges, of_kind(kind)):
            if _is_point(one):
                points.append(_constant(one[0]))
            else:
                found.append(_range(name, subject, form, kind, one))
    if len(points) == 1:
        found.insert(0, f"{subject} = {points[0]}")
    elif points:
        found.insert(0, f"{subject} IN ({', '.join(points)})")
    return found


def _range(name: str, subject: str, form: Form, kind: str, one: TextRange) -> str:
    low, high = one
    if kind == "string":
        if starting(low) == (one,) and low[:1] != "\0":
            pattern = low[::-1] if "reversed" in form else low
            pattern = (
                "%" * ("reversed" in form) + _escaped(pattern) + "%" * ("reversed" not in form)
            )
            word = "ILIKE" if "folded" in form else "LIKE"
            return f"{name} {word} {_quoted(pattern)}"
        if one == TEXTS_OF_KIND["string"]:
            return f"{subject} >= ''"
    first, end = TEXTS_OF_KIND[kind]
    if one == (first, end):
        if kind == "bool":
            return f"{subject} IN (FALSE, TRUE)"
        return f"({subject} <= 0 OR {subject} > 0)"
    tests = []
    if low != first:
        text = low.removesuffix("\0")
        tests.append(f"{subject} {'>' if text != low else '>='} {_constant(text)}")
    if high is not None and high != end:
        text = high.removesuffix("\0")
        tests.append(f"{subject} {'<=' if text != high else '<'} {_constant(text)}")
    if len(tests) == 2 and all("= " in test for test in tests):
        low_text, high_text = _constant(low), _constant(str(high).removesuffix("\0"))
        return f"{subject} BETWEEN {low_text} AND {high_text}"
    return " AND ".join(tests)


def _is_point(one: TextRange) -> bool:
    return point(one[0]) == (one,)


def _constant(text: str) -> str:
    value: Any = value_of_text(text)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            return INFINITE if value > 0 else f"-{INFINITE}"
        if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        return repr(value).replace("e+", "e")
    return f"{value:f}" if isinstance(value, Decimal) and value.adjusted() < 40 else str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    for one in "\\%_":
        text = text.replace(one, "\\" + one)
    return text
