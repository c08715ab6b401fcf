"""Filters evaluated the obvious way: three-valued logic over plain Python values.

Shares nothing with the compiler: its own trees, its own comparisons, its own writing of SQL.
A tree is a tuple; an event is a dict of name to value, with absent attributes left out.

    ("true",) ("false",) ("null",)
    ("compare", name, operator, value)      value None is NULL
    ("between", name, low, high)
    ("in", name, [value, ...])
    ("like", name, prefix, is_prefix)
    ("isnull", name)  ("istrue", name)  ("isfalse", name)  ("bare", name)
    ("not", tree)  ("and", [tree, ...])  ("or", [tree, ...])
"""

from __future__ import annotations

import math
import operator
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import label_text, unscaled_of_label
from boxmatch.model.filters import Box, CompiledFilter
from boxmatch.model.keys import key_of
from boxmatch.model.schema import Attribute, Schema

Tree = tuple[Any, ...]
Truth = bool | None

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


# --- truth -----------------------------------------------------------------------------------


def truth(schema: Schema, tree: Tree, event: dict[str, Any]) -> Truth:
    kind = tree[0]
    if kind in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[kind]
    if kind == "not":
        inner = truth(schema, tree[1], event)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        found = [truth(schema, operand, event) for operand in tree[1]]
        decisive = kind == "or"
        if decisive in found:
            return decisive
        return None if None in found else not decisive
    attribute = schema[tree[1]]
    value = event.get(tree[1])
    if kind == "isnull":
        return value is None
    if kind == "istrue":
        return value is True
    if kind == "isfalse":
        return value is False
    if kind == "bare":
        return value
    if kind == "compare":
        return compared(attribute, value, tree[2], tree[3])
    if kind == "between":
        low = compared(attribute, value, ">=", tree[2])
        high = compared(attribute, value, "<=", tree[3])
        if low is False or high is False:
            return False
        return None if low is None or high is None else True
    if kind == "in":
        found = [compared(attribute, value, "=", each) for each in tree[2]]
        if True in found:
            return True
        return None if None in found else False
    if kind == "like":
        if value is None:
            return None
        return value.startswith(tree[2]) if tree[3] else value == tree[2]
    raise ValueError(kind)


def compared(attribute: Attribute, value: Any, sign: str, constant: Any) -> Truth:
    if value is None or constant is None:
        return None
    if attribute.type == "enum":
        value, constant = attribute.values.index(value), attribute.values.index(constant)
    if attribute.type in ("int", "float", "decimal"):
        value, constant = number(value), number(constant)
    return OPERATORS[sign](value, constant)


def number(value: Any) -> Decimal:
    """A number as it is written; nothing is rounded."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


# --- boxes -----------------------------------------------------------------------------------


def in_box(schema: Schema, box: Box, event: dict[str, Any]) -> bool:
    for position, low, high in box:
        attribute = schema.attributes[position]
        value = event.get(attribute.name)
        if value is None:
            if low != ABSENT:
                return False
        elif attribute.labelled:
            if attribute.type == "decimal":
                value = label_text(int(value.scaleb(attribute.scale, _EXACT)))
            if isinstance(low, tuple):
                assert low[1] in (0, 1)
                if value < low[0] or (low[1] == 1 and value == low[0]):
                    return False
            if isinstance(high, tuple):
                assert high[1] in (0, -1)
                if value > high[0] or (high[1] == -1 and value == high[0]):
                    return False
            elif high == ABSENT:
                return False
        elif not low <= key_of(attribute, value) <= high:  # type: ignore[operator]
            return False
    return True


def boxes_holding(schema: Schema, compiled: CompiledFilter, event: dict[str, Any]) -> int:
    return sum(in_box(schema, box, event) for box in compiled.boxes)


def check_form(schema: Schema, compiled: CompiledFilter) -> None:
    """What every compiled filter promises about its boxes."""
    assert len(set(compiled.boxes)) == len(compiled.boxes)
    assert compiled.never == (not compiled.boxes)
    for one in compiled.boxes:
        assert not any(other is not one and _lies_in(one, other) for other in compiled.boxes)
    for box in compiled.boxes:
        positions = [position for position, _, _ in box]
        assert positions == sorted(set(positions))
        for position, low, high in box:
            assert (low, high) != (ABSENT, LAST)
            for bound in (low, high):
                attribute = schema.attributes[position]
                if attribute.labelled:
                    assert isinstance(bound, tuple) or bound in (ABSENT, FIRST, LAST)
                    assert not isinstance(bound, tuple) or bound[0].encode() is not None
                    if isinstance(bound, tuple) and attribute.type == "decimal":
                        assert bound[1] == 0
                        limit = 10**attribute.precision
                        assert -limit < unscaled_of_label(bound[0]) < limit
                    if isinstance(low, tuple) and isinstance(high, tuple):
                        assert low <= high
                else:
                    assert isinstance(bound, int)
                    assert ABSENT <= bound <= LAST


def _lies_in(inner: Box, outer: Box) -> bool:
    held = {position: (low, high) for position, low, high in inner}
    return all(
        position in held
        and _place(low) <= _place(held[position][0])
        and _place(held[position][1]) <= _place(high)
        for position, low, high in outer
    )


def _place(bound: Any) -> tuple[Any, ...]:
    """Texts between FIRST and LAST, whatever they are."""
    return (0, *bound) if isinstance(bound, tuple) else ((bound > FIRST) - (bound <= FIRST), bound)


# --- text ------------------------------------------------------------------------------------


def to_sql(schema: Schema, tree: Tree, rng: random.Random) -> str:
    """The tree as SQL, written in one of many ways."""
    kind = tree[0]
    if kind in ("true", "false", "null"):
        return _word(kind, rng)
    if kind == "not":
        return f"{_word('not', rng)} {_nested(schema, tree[1], rng, 'not')}"
    if kind in ("and", "or"):
        parts = [_nested(schema, operand, rng, kind) for operand in tree[1]]
        return f"{_space(rng)}{_word(kind, rng)} ".join(parts)
    attribute = schema[tree[1]]
    name = _name(attribute.name, rng)
    if kind == "isnull":
        return f"{name} {_word('is null', rng)}"
    if kind in ("istrue", "isfalse"):
        return f"{name} {_word('is ' + kind[2:], rng)}"
    if kind == "bare":
        return name
    if kind == "compare":
        sign, constant = tree[2], to_constant(attribute, tree[3], rng)
        gap = rng.choice(["", " ", "  "])
        if rng.random() < 0.3:
            return f"{constant}{gap}{_sign(MIRRORED[sign], rng)}{gap}{name}"
        return f"{name}{gap}{_sign(sign, rng)}{gap}{constant}"
    if kind == "between":
        low, high = (to_constant(attribute, end, rng) for end in tree[2:])
        return f"{name} {_word('between', rng)} {low} {_word('and', rng)} {high}"
    if kind == "in":
        listed = ", ".join(to_constant(attribute, value, rng) for value in tree[2])
        return f"{name} {_word('in', rng)} ({listed})"
    pattern = tree[2].replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if tree[3]:
        pattern += rng.choice(["%", "%", "%%"])
    return f"{name} {_word('like', rng)} {_text(pattern)}"


def _nested(schema: Schema, tree: Tree, rng: random.Random, outer: str) -> str:
    inner = to_sql(schema, tree, rng)
    binds = {"or": 1, "and": 2, "not": 3}
    if binds.get(tree[0], 4) <= binds[outer] or rng.random() < 0.2:
        return f"({inner})"
    return inner


def _word(word: str, rng: random.Random) -> str:
    return rng.choice([word.upper(), word.upper(), word, word.title()])


def _space(rng: random.Random) -> str:
    return rng.choice([" ", " ", " ", "\n", "\t", "  ", " /* it's 5 */ ", " -- 'x\n"])


def _sign(sign: str, rng: random.Random) -> str:
    return "!=" if sign == "<>" and rng.random() < 0.5 else sign


def _name(name: str, rng: random.Random) -> str:
    if name.isidentifier() and name != "select" and rng.random() < 0.8:
        return name
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def to_constant(attribute: Attribute, value: Any, rng: random.Random) -> str:
    if value is None:
        return "NULL"
    if attribute.type == "bool":
        return _word(str(value), rng)
    if attribute.type in ("string", "enum"):
        return _text(value)
    if attribute.type == "timestamp":
        zone = rng.choice([UTC, timezone(timedelta(hours=5, minutes=30))])
        try:
            written = value.astimezone(zone).isoformat(sep=rng.choice("T "))
        except OverflowError:
            written = value.isoformat()
        prefix = rng.choice(["", "TIMESTAMP ", "timestamp "])
        if zone is UTC and rng.random() < 0.5:
            written = written.removesuffix("+00:00")
            if written.endswith("00:00:00") and rng.random() < 0.5:
                return "DATE " + _text(written[:10])
        return prefix + _text(written)
    if isinstance(value, Decimal):
        return rng.choice([str(value), f"{value:f}"]) if value else "0"
    if attribute.type == "int":
        return rng.choice(
            [str(value), str(value), f"{value}.0", f"- {-value}" if value < 0 else ""]
        ) or str(value)
    if value in (math.inf, -math.inf):
        return "1e999" if value > 0 else "-1e999"
    return rng.choice([repr(value), f"{Decimal(repr(value)):f}"])


# --- strategies ------------------------------------------------------------------------------

NAMES = ["a", "B", "x1", "two words", "odd\"name'", "select", "price", "é"]
INTS = [-(2**63) + 1, -5, -1, 0, 1, 2, 3, 5, 2**53, 2**53 + 1, 2**63 - 1]
FLOATS = [-math.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 0.1, 1.0, 2.5, 1e22, 2.0**53, math.inf]
TEXTS = [
    *("", "a", "a\0", "ab", "abc", "b", "B", "it's", "a''b", "%", "a%b", "_", "\\", 'say "x"'),
    *(
        "5",
        "-- c",
        "/*",
        "é",
        "e\u0301",
        "\ud7ff",
        "\ue000",
        "\uffff",
        "😀",
        "\U0010ffff",
        "a\U0010ffff",
    ),
]
BETWEEN = list(
    map(
        Decimal,
        [
            *("0.5", "-2.5", "0.3000000000000000001", "0.29999999999999999", "9007199254740993"),
            *("1e30", "-1e30", "1e400", "-1e400", "1e-400", "99.95", "99999999999999999999.5"),
            *("9223372036854775807.5", "-9223372036854775808", "1.0000000000000000000000000000001"),
        ],
    )
)
"""Constants that few values equal, or none."""
DECIMALS = ["decimal(3, 1)", "decimal(18, 18)", "decimal(18)", "decimal(20, 2)", "decimal(38, 0)"]
_EXACT = Context(prec=400, traps=[])
ENUM = ("low", "mid", "it's", "high", "a%b")
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    datetime(2024, 3, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def constants(attribute: Attribute) -> st.SearchStrategy[Any]:
    """What a filter may compare an attribute with."""
    if attribute.type in ("int", "float", "decimal"):
        return values(attribute) | values(attribute) | st.sampled_from(BETWEEN)
    return values(attribute)


def values_held(attribute: Attribute) -> st.SearchStrategy[Any]:
    """What a filter may ask an attribute to equal."""
    return values(attribute) if attribute.type == "float" else constants(attribute)


def values(attribute: Attribute) -> st.SearchStrategy[Any]:
    """What an event may have."""
    match attribute.type:
        case "int":
            return st.sampled_from(INTS) | st.integers(-6, 6)
        case "float":
            return st.sampled_from(FLOATS) | st.floats(-3, 3).map(lambda x: x + 0.0)
        case "string":
            return st.sampled_from(TEXTS) | st.text("ab%_\\'", max_size=3)
        case "bool":
            return st.booleans()
        case "enum":
            return st.sampled_from(attribute.values)
        case "decimal":
            end = 10**attribute.precision - 1
            unscaled = st.sampled_from([-end, -end + 1, -1, 0, 1, end - 1, end])
            unscaled |= st.integers(-6, 6) | st.integers(-end, end)
            return unscaled.map(lambda n: Decimal(n).scaleb(-attribute.scale, _EXACT))
        case _:
            return st.sampled_from(TIMES)


def near(attribute: Attribute, value: Any) -> list[Any]:
    """Values at, just below and just above a constant."""
    match attribute.type:
        case "int" | "decimal":
            if not -(10**39) < value < 10**39:
                return []
            # In int64, or in the unscaled numbers of a decimal.
            last = 10**attribute.precision - 1 if attribute.precision else 2**63 - 1
            floor = math.floor(number(value).scaleb(attribute.scale, _EXACT))
            around = [n for n in range(floor - 1, floor + 3) if -last <= n <= last]
            if attribute.type == "int":
                return around
            return [Decimal(n).scaleb(-attribute.scale, _EXACT) for n in around]
        case "float":
            value = float(value)
            return [math.nextafter(value, -math.inf), value, math.nextafter(value, math.inf)]
        case "string":
            below = [value[:-1], value[:-1] + chr(max(ord(value[-1]) - 1, 0))] if value else []
            around = [*below, value, value + "\0", value + "a", value + "\U0010ffff"]
            return [v for v in around if not any("\ud800" <= c <= "\udfff" for c in v)]
        case "timestamp":
            step = timedelta(microseconds=1)
            below = [value - step] if value > TIMES[0] else []
            return [*below, value, *([value + step] if value < TIMES[-1] else [])]
        case _:
            return [value]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    kinds = st.sampled_from(["int", "float", "string", "bool", "timestamp", "enum", *DECIMALS])
    return Schema(
        [
            Attribute(name, kind, ENUM[: draw(st.integers(1, 5))] if kind == "enum" else ())
            for name in names
            for kind in [draw(kinds)]
        ]
    )


@st.composite
def leaf_trees(draw: st.DrawFn, schema: Schema) -> Tree:
    attribute = draw(st.sampled_from(schema.attributes))
    name, values = attribute.name, constants(attribute)
    held = values_held(attribute)
    kinds = ["compare", "compare", "compare", "between", "in", "isnull", "constant"]
    if attribute.type == "bool":
        kinds += ["istrue", "isfalse", "bare", "bare"]
    if attribute.type in ("string", "enum"):
        kinds += ["like", "like"]
    kind = draw(st.sampled_from(kinds))
    or_null = st.integers(0, 9).flatmap(lambda i: st.none() if i == 0 else values)
    held_or_null = st.integers(0, 9).flatmap(lambda i: st.none() if i == 0 else held)
    match kind:
        case "compare":
            sign = draw(st.sampled_from(list(OPERATORS)))
            return kind, name, sign, draw(held_or_null if sign in ("=", "<>") else or_null)
        case "between":
            return kind, name, draw(or_null), draw(or_null)
        case "in":
            return kind, name, draw(st.lists(held_or_null, min_size=1, max_size=4))
        case "like":
            return kind, name, draw(values), draw(st.booleans())
        case "constant":
            return (draw(st.sampled_from(["true", "false", "null"])),)
        case _:
            return kind, name


def trees(schema: Schema) -> st.SearchStrategy[Tree]:
    return st.recursive(
        leaf_trees(schema),
        lambda inner: st.one_of(
            inner.map(lambda t: ("not", t)),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)),
        ),
        max_leaves=8,
    )


def mentioned(tree: Tree) -> list[tuple[str, Any]]:
    """Names with the constants that a tree compares them with."""
    match tree[0]:
        case "not":
            return mentioned(tree[1])
        case "and" | "or":
            return [pair for operand in tree[1] for pair in mentioned(operand)]
        case "compare":
            return [(tree[1], tree[3])]
        case "between":
            return [(tree[1], tree[2]), (tree[1], tree[3])]
        case "in":
            return [(tree[1], value) for value in tree[2]]
        case "like":
            return [(tree[1], tree[2])]
        case _:
            return []


def events(schema: Schema, tree: Tree) -> st.SearchStrategy[dict[str, Any]]:
    """Events whose values lie at and around the constants of a tree, or are absent."""
    choices: dict[str, list[Any]] = {attribute.name: [None] for attribute in schema}
    for attribute in schema:
        if attribute.type == "bool":
            choices[attribute.name] += [False, True]
        if attribute.type == "enum":
            choices[attribute.name] += attribute.values
    for name, value in mentioned(tree):
        if value is not None:
            choices[name] += near(schema[name], value)
    return st.fixed_dictionaries(
        {name: st.sampled_from(some) | values(schema[name]) for name, some in choices.items()}
    ).map(lambda event: {name: value for name, value in event.items() if value is not None})
