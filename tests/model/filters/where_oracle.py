"""Whole filters in plain Python: expressions, texts, lists and nested values, by SQL's logic.

Shares nothing with the compiler. A filter is made together with the function that says whether it
is true, false or (None) unknown of an event, so there is no tree between the two that both could
misread. Constants and the values of events come from the same few, so that they meet.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import boxmatch as bm

Event = dict[str, Any]
"""By the attributes' names, nested ones too; None for what is missing."""
Truth = bool | None

CITIES = ("low", "mid", "high")
CODES = ("a", "ab", "b")
ATTRIBUTES: dict[str, Any] = {
    "n": "int",
    "m": "int",
    "x": "float",
    "s": "string",
    "order.city": "string",
    "b": "bool",
    "e": list(CITIES),
    "d": "decimal(5, 2)",
    "w": "decimal(20, 2)",
    "t": "timestamp",
    "tags": "list of string",
    "sizes": "list of int",
    "order.codes": {"type": "list of enum", "values": list(CODES)},
    "costs": "list of decimal(20, 2)",
    "times": "list of timestamp",
    "flags": "list of bool",
    "rates": "list of float",
    "items": {"type": "list of struct", "fields": {"price": "int", "kind": "string"}},
}
KINDS = {
    **{"n": "int", "m": "int", "x": "float", "s": "string", "order.city": "string", "b": "bool"},
    **{"e": "enum", "d": "decimal", "w": "decimal", "t": "timestamp", "tags": "string"},
    **{"sizes": "int", "order.codes": "code", "costs": "decimal", "times": "timestamp"},
    **{"flags": "bool", "rates": "float"},
}
LISTS = ("tags", "sizes", "order.codes", "costs", "times", "flags", "rates")

_EXACT = Context(prec=90)
_DAY = datetime(2024, 2, 28, tzinfo=UTC)
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (-3, -1, 0, 1, 2, 3, 4, 2**53 + 1),
    "float": (-1.5, -0.0, 0.0, 0.5, 1.0, 2.5, 1e300, math.inf),
    "string": (
        *("", "a", "b", "ab", "ba", "aa", "aba", "abc", "A", "AB", "a%b", "a_b", "\\", "%"),
        *("a\nb", "ß", "İ", "ΑΣ", "é", "😀a", "\U0010ffff", "it's"),
    ),
    "bool": (False, True),
    "enum": CITIES,
    "code": CODES,
    "decimal": tuple(
        map(Decimal, ("-1.50", "0.00", "0.01", "1.00", "1.01", "2.50", "3.00", "999.99"))
    ),
    "timestamp": tuple(
        _DAY + shift
        for shift in (
            *(timedelta(0), timedelta(microseconds=-1), timedelta(hours=9), timedelta(days=1)),
            *(timedelta(days=2, hours=23, minutes=30), timedelta(days=-400)),
        )
    ),
}
PATTERNS = (
    *("a", "a%", "%a", "%a%", "a%b", "a%b%", "%a%b", "a%b%c", "%a%b%", "_", "a_", "_a", "%_", ""),
    *("%", "%%", "a%a", "ab%ba", "A%", "%B", "a\\%b", "a\\_%", "%\\\\%", "ß%", "%Σ", "%σ%", "İ%"),
    *("_%_", "a%_b", "%ab%", "%'%"),
)
ESCAPED = (("a!%b", "!"), ("%a!_%", "!"), ("!!%", "!"), ("b%%", "b"), ("a\\%", "!"))
REGEXES = ("a", "^a", "b$", "^ab?$", "a.b", "[^a]", "(?i)ab", "a|é", "^$", "b{2}", "(ab)+c?")

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


# --- logic -----------------------------------------------------------------------------------


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def all_of(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return False if False in found else None if None in found else True


def any_of(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return True if True in found else None if None in found else False


def compared(one: Any, sign: str, other: Any) -> Truth:
    if one is None or other is None:
        return None
    if one in CITIES and other in CITIES and isinstance(one, str):
        one, other = CITIES.index(one), CITIES.index(other)
    return OPERATORS[sign](one, other)


def like(text: str | None, pattern: str, escape: str = "\\", fold: bool = False) -> Truth:
    if text is None:
        return None
    if fold:
        text, pattern = text.lower(), pattern.lower()
    regex, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            regex += re.escape(next(characters))
        else:
            regex += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return re.fullmatch(regex, text, re.DOTALL) is not None


# --- filters ---------------------------------------------------------------------------------


class Filter(NamedTuple):
    """A condition: its text, how tightly that binds, and what it says of an event."""

    sql: str
    level: int
    truth: Callable[[Event], Truth]


class Subject(NamedTuple):
    """What has a value: its text, its kind, and its value."""

    sql: str
    kind: str
    value: Callable[[Event], Any]
    is_list: bool = False


_OR, _AND, _NOT, _ATOM = range(4)
_NOTHING: list[Truth] = []


class Maker:
    """Makes random filters over some of the attributes."""

    def __init__(self, random: Random, names: Iterable[str]) -> None:
        self.random = random
        self.names = list(names)
        self.variables: list[Subject] = []

    def filter(self, depth: int) -> Filter:
        random = self.random
        if depth == 0 or random.random() < 0.15:
            return self.leaf()
        match random.randrange(5):
            case 0:
                inner = self.filter(depth - 1)
                text = f"{self.word('not')} {self.nested(inner, _NOT + 1)}"
                return Filter(text, _NOT, lambda event: negated(inner.truth(event)))
            case 1 | 2:
                return self.joined("and", _AND, all_of, depth)
            case _:
                return self.joined("or", _OR, any_of, depth)

    def joined(
        self, word: str, level: int, join: Callable[[Iterable[Truth]], Truth], depth: int
    ) -> Filter:
        parts = [self.filter(depth - 1) for _ in range(self.random.choice((2, 2, 3)))]
        between = f"{self.space()}{self.word(word)} "
        text = between.join(self.nested(part, level + 1) for part in parts)
        return Filter(text, level, lambda event: join(part.truth(event) for part in parts))

    def nested(self, part: Filter, least: int) -> str:
        if part.level < least or self.random.random() < 0.1:
            return f"({part.sql})"
        return part.sql

    def word(self, word: str) -> str:
        return self.random.choice((word.upper(), word.upper(), word))

    def space(self) -> str:
        return self.random.choice((" ", " ", " ", "\n", " /* it's */ ", " -- x\n"))

    # Leaves

    def leaf(self) -> Filter:
        random = self.random
        makers = [self.comparison, self.comparison, self.membership, self.other]
        if any(name in LISTS for name in self.names) and not self.variables:
            makers += [self.of_elements] * 3
        if "items" in self.names and not self.variables:
            makers.append(self.of_items)
        if self.text_kinds():
            makers += [self.text, self.text]
        return random.choice(makers)()

    def comparison(self) -> Filter:
        random = self.random
        subject = self.subject()
        sign = random.choice(tuple(OPERATORS))
        if random.random() < 0.2 and subject.kind not in ("enum", "code"):
            other = self.subject(subject.kind)
            return Filter(
                f"{subject.sql} {sign} {other.sql}",
                _ATOM,
                lambda event: compared(subject.value(event), sign, other.value(event)),
            )
        text, constant = self.constant(subject.kind)
        sql = f"{subject.sql} {sign} {text}"
        if random.random() < 0.2:
            sql = f"{text} {_MIRRORED[sign]} {subject.sql}"
        return Filter(sql, _ATOM, lambda event: compared(subject.value(event), sign, constant))

    def membership(self) -> Filter:
        random = self.random
        subject = self.subject()
        negate = random.random() < 0.3
        word = self.word("not ") if negate else ""
        if random.random() < 0.5:
            listed = [self.constant(subject.kind) for _ in range(random.randint(1, 3))]

            def among(event: Event) -> Truth:
                value = subject.value(event)
                found = any_of(compared(value, "=", one) for _, one in listed)
                return negated(found) if negate else found

            texts = ", ".join(text for text, _ in listed)
            return Filter(f"{subject.sql} {word}{self.word('in')} ({texts})", _ATOM, among)
        low, high = self.constant(subject.kind), self.constant(subject.kind)

        def between(event: Event) -> Truth:
            value = subject.value(event)
            found = all_of((compared(value, ">=", low[1]), compared(value, "<=", high[1])))
            return negated(found) if negate else found

        text = f"{subject.sql} {word}{self.word('between')} {low[0]} {self.word('and')} {high[0]}"
        return Filter(text, _ATOM, between)

    def other(self) -> Filter:
        """IS NULL, IS DISTINCT FROM, IS TRUE and constants."""
        random = self.random
        subject = self.subject()
        match random.randrange(6):
            case 0 | 1:
                if random.random() < 0.5:
                    return Filter(
                        f"{subject.sql} IS NOT NULL",
                        _ATOM,
                        lambda event: subject.value(event) is not None,
                    )
                return Filter(
                    f"{subject.sql} IS NULL", _ATOM, lambda event: subject.value(event) is None
                )
            case 2 | 3:
                text, constant = self.constant(subject.kind)

                def differs(event: Event) -> bool:
                    value = subject.value(event)
                    if value is None or constant is None:
                        return (value is None) != (constant is None)
                    return compared(value, "<>", constant) is True

                if random.random() < 0.5:
                    return Filter(f"{subject.sql} IS DISTINCT FROM {text}", _ATOM, differs)
                return Filter(
                    f"{subject.sql} IS NOT DISTINCT FROM {text}",
                    _ATOM,
                    lambda event: not differs(event),
                )
            case 4:
                flag = self.subject("bool")
                truth = random.random() < 0.5
                form = random.choice(("IS TRUE", "IS FALSE", "IS NOT TRUE"))

                def is_truth(event: Event) -> bool:
                    value = flag.value(event)
                    return {
                        "IS TRUE": value is True,
                        "IS FALSE": value is False,
                        "IS NOT TRUE": value is not True,
                    }[form]

                return Filter(f"{flag.sql} {form}", _ATOM, is_truth)
            case _:
                truth = random.choice((True, False, None))
                text = "NULL" if truth is None else self.word(str(truth))
                return Filter(text, _ATOM, lambda event: truth)

    def text_kinds(self) -> list[str]:
        there = {one.kind for one in (*self.variables, *self.subjects())}
        return sorted(there & {"string", "enum", "code"})

    def text(self) -> Filter:
        random = self.random
        subject = self.subject(random.choice(self.text_kinds()))
        match random.randrange(7):
            case 0 | 1:
                pattern = random.choice(PATTERNS)
                fold = random.random() < 0.4
                word = self.word("ilike" if fold else "like")
                if random.random() < 0.25:
                    return Filter(
                        f"{subject.sql} NOT {word} {_quoted(pattern)}",
                        _ATOM,
                        lambda event: negated(like(subject.value(event), pattern, fold=fold)),
                    )
                return Filter(
                    f"{subject.sql} {word} {_quoted(pattern)}",
                    _ATOM,
                    lambda event: like(subject.value(event), pattern, fold=fold),
                )
            case 2:
                pattern, escape = random.choice(ESCAPED)
                return Filter(
                    f"{subject.sql} LIKE {_quoted(pattern)} ESCAPE '{escape}'",
                    _ATOM,
                    lambda event: like(subject.value(event), pattern, escape),
                )
            case 3:
                regex = random.choice(REGEXES)

                def found(event: Event) -> Truth:
                    value = subject.value(event)
                    return None if value is None else bool(re.search(regex, value))

                # Python's $ is also before a newline at the end, of which there is none.
                form = random.choice(("{} RLIKE {}", "REGEXP_LIKE({}, {})"))
                return Filter(form.format(subject.sql, _quoted(regex)), _ATOM, found)
            case 4:
                one, other = random.choice(PATTERNS), random.choice(PATTERNS)
                if self.variables:  # inside a lambda there is no LIKE ANY
                    return self.comparison()
                return Filter(
                    f"{subject.sql} LIKE ANY ({_quoted(one)}, {_quoted(other)})",
                    _ATOM,
                    lambda event: any_of(
                        like(subject.value(event), pattern) for pattern in (one, other)
                    ),
                )
            case _:
                part = random.choice(VALUES["string"])
                name, test = random.choice(
                    (
                        ("CONTAINS", str.__contains__),
                        ("STARTS_WITH", str.startswith),
                        ("ENDS_WITH", str.endswith),
                    )
                )

                def has(event: Event) -> Truth:
                    value = subject.value(event)
                    return None if value is None else bool(test(value, part))

                return Filter(f"{name}({subject.sql}, {_quoted(part)})", _ATOM, has)

    # Lists

    def of_elements(self) -> Filter:
        random = self.random
        name = random.choice([name for name in self.names if name in LISTS])
        sql, kind = self.name(name), KINDS[name]
        sign = random.choice(tuple(OPERATORS))
        text, constant = self.constant(kind)

        def over(
            test: Callable[[Any], Truth], join: Callable[[Iterable[Truth]], Truth] = any_of
        ) -> Callable[[Event], Truth]:
            return lambda event: None if event[name] is None else join(map(test, event[name]))

        match random.randrange(11):
            case 0 | 1:
                form = f"ANY({sql}) {sign} {text}"
                if random.random() < 0.5:
                    form = f"{text} {_MIRRORED[sign]} ANY({sql})"
                return Filter(form, _ATOM, over(lambda one: compared(one, sign, constant)))
            case 2:
                return Filter(
                    f"ALL({sql}) {sign} {text}",
                    _ATOM,
                    over(lambda one: compared(one, sign, constant), all_of),
                )
            case 3:
                if constant is None:
                    return Filter(f"ARRAY_CONTAINS({sql}, NULL)", _ATOM, lambda event: None)
                return Filter(
                    f"ARRAY_CONTAINS({sql}, {text})",
                    _ATOM,
                    over(lambda one: compared(one, "=", constant)),
                )
            case 4:
                high_text, high = self.constant(kind)
                which, join = random.choice((("ANY", any_of), ("ALL", all_of)))
                return Filter(
                    f"{which}({sql}) BETWEEN {text} AND {high_text}",
                    _ATOM,
                    over(
                        lambda one: all_of(
                            (compared(one, ">=", constant), compared(one, "<=", high))
                        ),
                        join,
                    ),
                )
            case 5:
                listed = [(text, constant), self.constant(kind)]
                texts = ", ".join(one for one, _ in listed)
                which, join = random.choice((("ANY", any_of), ("ALL", all_of)))
                return Filter(
                    f"{which}({sql}) IN ({texts})",
                    _ATOM,
                    over(lambda one: any_of(compared(one, "=", c) for _, c in listed), join),
                )
            case 6:
                if random.random() < 0.5:
                    return Filter(f"{sql} IS NULL", _ATOM, lambda event: event[name] is None)
                return Filter(f"{sql} IS NOT NULL", _ATOM, lambda event: event[name] is not None)
            case 7 if kind in ("string", "code"):
                pattern = random.choice(PATTERNS)
                return Filter(
                    f"ANY({sql}) LIKE {_quoted(pattern)}",
                    _ATOM,
                    over(lambda one: like(one, pattern)),
                )
            case 8 if kind in ("int", "string") and self.subjects(kind):
                other = self.subject(kind)

                def against(event: Event) -> Truth:
                    if event[name] is None:
                        return None
                    return any_of(compared(one, sign, other.value(event)) for one in event[name])

                return Filter(f"ANY({sql}) {sign} {other.sql}", _ATOM, against)
            case 9 if constant is not None:
                listed = [(text, constant), self.constant(kind)]
                constants = [one for _, one in listed]

                def overlaps(event: Event) -> Truth:
                    if event[name] is None:
                        return None
                    return any_of(compared(one, "=", c) for one in event[name] for c in constants)

                texts = ", ".join(one for one, _ in listed)
                return Filter(f"ARRAYS_OVERLAP({sql}, ARRAY({texts}))", _ATOM, overlaps)
        function, join = random.choice((("EXISTS", any_of), ("EXISTS", any_of), ("FORALL", all_of)))
        variable = random.choice(("v", "n", "element"))
        return self.with_lambda(name, function, join, [Subject(variable, kind, lambda e: e["?"])])

    def of_items(self) -> Filter:
        function, join = self.random.choice((("EXISTS", any_of), ("FORALL", all_of)))
        fields = [
            Subject("i.price", "int", lambda event: event["?"] and event["?"]["price"]),
            Subject("i.kind", "string", lambda event: event["?"] and event["?"]["kind"]),
        ]
        return self.with_lambda("items", function, join, fields)

    def with_lambda(
        self,
        name: str,
        function: str,
        join: Callable[[Iterable[Truth]], Truth],
        variables: list[Subject],
    ) -> Filter:
        self.variables = variables
        body = self.filter(self.random.choice((0, 1, 1, 2)))
        self.variables = []

        def holds(event: Event) -> Truth:
            if event[name] is None:
                return None
            return join(body.truth({**event, "?": one}) for one in event[name])

        parameter = variables[0].sql.split(".")[0]
        return Filter(f"{function}({self.name(name)}, {parameter} -> {body.sql})", _ATOM, holds)

    # Values

    def subject(self, kind: str | None = None) -> Subject:
        there = [one for one in self.variables if kind in (None, one.kind)]
        if not there or self.random.random() < 0.2:
            there += self.subjects(kind)
        if not there:
            return self.constant_subject(kind or "int")
        return self.random.choice(there)

    def constant_subject(self, kind: str) -> Subject:
        text, constant = self.constant(kind)
        while constant is None:
            text, constant = self.constant(kind)
        return Subject(text, kind, lambda event: constant)

    def subjects(self, kind: str | None = None) -> list[Subject]:
        """What is not a variable, or hidden by one."""
        hidden = {one.sql for one in self.variables}
        there = [
            self.column(name)
            for name in self.names
            if name in KINDS and name not in LISTS and name not in hidden
        ]
        there += self.expressions(there)
        return [one for one in there if kind in (None, one.kind)]

    def column(self, name: str) -> Subject:
        return Subject(self.name(name), KINDS[name], lambda event: event[name])

    def expressions(self, columns: list[Subject]) -> list[Subject]:
        """Some expressions of each kind over the columns."""
        by_kind: dict[str, list[Subject]] = {}
        for column in columns:
            by_kind.setdefault(column.kind, []).append(column)
        found: list[Subject] = []

        def add(
            sql: str,
            kind: str,
            function: Callable[..., Any],
            *arguments: Subject,
            strict: bool = True,
        ) -> None:
            def value(event: Event) -> Any:
                values = [one.value(event) for one in arguments]
                return None if strict and None in values else function(*values)

            found.append(Subject(sql, kind, value))

        for one in by_kind.get("int", ()):
            a = one.sql
            add(f"({a} + 1)", "int", lambda v: v + 1, one)
            add(f"(1 + {a})", "int", lambda v: v + 1, one)
            add(f"ABS({a})", "int", abs, one)
            add(f"({a} % 3)", "int", lambda v: v % 3 if v >= 0 else -(-v % 3), one)
            add(f"COALESCE({a}, 1)", "int", lambda v: 1 if v is None else v, one, strict=False)
            add(f"NULLIF({a}, 1)", "int", lambda v: None if v == 1 else v, one)
            add(f"({a} / 2)", "float", lambda v: float(v) / 2, one)
            add(f"({a} > 1)", "bool", lambda v: v > 1, one)
            for other in by_kind["int"]:
                add(f"({a} - {other.sql})", "int", lambda v, u: v - u, one, other)
                add(f"GREATEST({a}, {other.sql})", "int", _greatest, one, other, strict=False)
        for one in by_kind.get("float", ()):
            add(f"({one.sql} * 2)", "float", lambda v: v * 2, one)
            add(f"ROUND({one.sql}, 0)", "float", _rounded, one)
        for one in by_kind.get("string", ()):
            a = one.sql
            add(f"LOWER({a})", "string", str.lower, one)
            add(f"UPPER({a})", "string", str.upper, one)
            add(f"REVERSE({a})", "string", lambda v: v[::-1], one)
            add(f"LENGTH({a})", "int", len, one)
            add(f"SUBSTRING({a}, 2)", "string", lambda v: v[1:], one)
            add(f"LEFT({a}, 1)", "string", lambda v: v[:1], one)
            add(
                f"COALESCE({a}, 'a')",
                "string",
                lambda v: "a" if v is None else v,
                one,
                strict=False,
            )
            for other in by_kind["string"]:
                add(f"({a} || {other.sql})", "string", lambda v, u: v + u, one, other)
        for one in by_kind.get("decimal", ()):
            a = one.sql
            add(f"ABS({a})", "decimal", abs, one)
            add(f"({a} * 2)", "decimal", lambda v: _EXACT.multiply(v, 2), one)
            for other in by_kind["decimal"]:
                add(f"({a} + {other.sql})", "decimal", _EXACT.add, one, other)
        for one in by_kind.get("timestamp", ()):
            a = one.sql
            add(f"HOUR({a})", "int", lambda v: v.hour, one)
            add(f"EXTRACT(DAY FROM {a})", "int", lambda v: v.day, one)
            add(f"DATE_TRUNC('DAY', {a})", "timestamp", _midnight, one)
            add(f"({a} + INTERVAL '1' DAY)", "timestamp", lambda v: v + timedelta(days=1), one)
        for one in by_kind.get("bool", ()):
            for kind in ("int", "string", "decimal", "timestamp"):
                for other in by_kind.get(kind, ()):
                    text, constant = self.constant(kind)
                    if constant is not None:
                        add(
                            f"CASE WHEN {one.sql} THEN {other.sql} ELSE {text} END",
                            kind,
                            lambda v, u, c=constant: u if v else c,
                            one,
                            other,
                            strict=False,
                        )
        found += [
            Subject(f"CARDINALITY({self.name(name)})", "int", _length_of(name))
            for name in self.names
            if name in LISTS
        ]
        if "sizes" in self.names:
            first = Subject("sizes[0]", "int", lambda event: (event["sizes"] or [None])[0])
            last = Subject(
                "ELEMENT_AT(sizes, -1)", "int", lambda event: (event["sizes"] or [None])[-1]
            )
            found += [first, last]
        return found

    def name(self, name: str) -> str:
        if self.random.random() < 0.1:
            return ".".join(f'"{part}"' for part in name.split("."))
        return name

    def constant(self, kind: str) -> tuple[str, Any]:
        """The text of a constant, and its value."""
        if self.random.random() < 0.06:
            return "NULL", None
        value = self.random.choice(VALUES[kind])
        match kind:
            case "string" | "enum" | "code":
                return _quoted(value), value
            case "bool":
                return self.word(str(value)), value
            case "timestamp":
                written = value.replace(tzinfo=None).isoformat(sep=" ")
                return f"TIMESTAMP '{written}'", value
            case "float" if math.isinf(value):
                return "1e999", value
        return str(value), value


def _greatest(*values: Any) -> Any:
    return max((one for one in values if one is not None), default=None)


def _rounded(value: float) -> float:
    """To the nearest whole number, and half away from zero."""
    if math.isinf(value) or abs(value) > 1e15:
        return value
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _length_of(name: str) -> Callable[[Event], int | None]:
    return lambda event: None if event[name] is None else len(event[name])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- events ----------------------------------------------------------------------------------


def schema_of(names: Iterable[str]) -> bm.Schema:
    return bm.Schema({name: ATTRIBUTES[name] for name in names})


def make_event(random: Random, names: Iterable[str]) -> Event:
    """An event with values of the same kind as the constants, some of them missing."""

    def one(kind: str) -> Any:
        return None if random.random() < 0.15 else random.choice(VALUES[kind])

    event: Event = {}
    for name in names:
        if name == "items":
            items = [
                None if random.random() < 0.1 else {"price": one("int"), "kind": one("string")}
                for _ in range(random.choice((0, 1, 2)))
            ]
            event[name] = None if random.random() < 0.15 else items
        elif name in LISTS:
            elements = [one(KINDS[name]) for _ in range(random.choice((0, 1, 1, 2, 3)))]
            event[name] = None if random.random() < 0.15 else elements
        else:
            event[name] = one(KINDS[name])
    return event


def nested(event: Event, random: Random) -> Event:
    """The event as people send it: without what is missing, and with dicts inside dicts."""
    plain: Event = {}
    for name, value in event.items():
        if value is None and random.random() < 0.5:
            continue
        *parents, last = name.split(".")
        place = plain
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return plain


_ARROW = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "code": pa.string(),
    "bool": pa.bool_(),
    "decimal": pa.decimal128(20, 2),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_table(events: list[Event], names: Iterable[str]) -> pa.Table:
    """The events as columns, structs of those that are nested."""
    columns: dict[str, pa.Array] = {}
    inner: dict[str, pa.Array] = {}
    for name in names:
        if name == "items":
            item = pa.struct({"price": pa.int64(), "kind": pa.string()})
            kind: pa.DataType = pa.list_(item)
        else:
            kind = _ARROW[KINDS[name]]
            kind = pa.list_(kind) if name in LISTS else kind
        values = pa.array([event[name] for event in events], kind)
        if name.startswith("order."):
            inner[name.removeprefix("order.")] = values
        else:
            columns[name] = values
    if inner:
        columns["order"] = pa.StructArray.from_arrays([*inner.values()], [*inner])
    return pa.table(columns)
