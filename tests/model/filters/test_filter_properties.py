"""Random filters against plain Python, through every path of the compiler."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from filter_oracle import (
    boxes_holding,
    check_form,
    constants,
    events,
    schemas,
    to_sql,
    trees,
    truth,
    values_held,
)
from filter_oracle import values as values_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxmatch.errors import BoxmatchError
from boxmatch.model.filters import compile_filter, render
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.scope import Scope
from boxmatch.model.filters.shapes import ShapeCache
from boxmatch.model.filters.sql import parse_text
from boxmatch.model.interval import Interval, as_mapping
from boxmatch.model.schema import Schema
from boxmatch.model.text_ranges import prefix_end
from property_examples import examples

MANY = settings(
    deadline=None,
    max_examples=examples(400),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

FOREIGN = [
    *("1", "2.0", "1.5", "1e3", "1e999", "99999999999999999999", "'low'", "'a%'", "'%a'", "''"),
    *("'2024-01-01'", "'it''s'", "'\\'", "NULL", "TRUE", "DATE '2024-01-01'", "DATE 'x'"),
]


def in_full(schema: Schema, text: str) -> Any:
    scope = Scope(schema)
    return compile_condition(scope, parse_text(scope, text), 1024, text)


@MANY
@given(st.data())
def test_boxes_hold_exactly_the_events_for_which_the_filter_is_true(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    tree = data.draw(trees(schema))
    text = to_sql(schema, tree, random.Random(data.draw(st.integers(0, 1000))))
    compiled = compile_filter(schema, text)
    check_form(schema, compiled)
    for event in data.draw(st.lists(events(schema, tree), min_size=1, max_size=12)):
        holding = boxes_holding(schema, compiled, event)
        assert (holding > 0) == (truth(schema, tree, event) is True), (text, event)
        if compiled.disjoint:
            assert holding <= 1


@MANY
@given(st.data())
def test_rendered_boxes_compile_to_the_same_boxes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    text = to_sql(schema, data.draw(trees(schema)), random.Random(0))
    compiled = compile_filter(schema, text)
    again = render(schema, compiled.boxes)
    assert compile_filter(schema, again) == compiled, again
    assert render(schema, compile_filter(schema, again).boxes) == again


@MANY
@given(st.data())
def test_templates_give_what_the_full_path_gives(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    tree = data.draw(trees(schema))
    text = to_sql(schema, tree, random.Random(data.draw(st.integers(0, 1000))))
    full = in_full(schema, text)
    found = ShapeCache().find(schema, text)
    if found is not None:
        template, written = found
        assert template.compile(written, 1024, lists=True) == full
    assert compile_filter(schema, text) == full


@settings(MANY, max_examples=examples(300))
@given(st.data())
def test_templates_with_foreign_constants_fail_as_the_full_path_does(data: st.DataObject) -> None:
    """Constants of any kind in any place: the same boxes, or the same error at the same place."""
    schema = data.draw(schemas())
    written = st.sampled_from(FOREIGN)
    names = ['"' + name.replace('"', '""') + '"' for name in schema.names]
    name = st.sampled_from(names)
    parts = data.draw(
        st.lists(
            st.one_of(
                st.builds(
                    "{} {} {}{}".format,
                    name,
                    st.sampled_from(["=", "<", ">=", "<>", "LIKE"]),
                    st.sampled_from(["", "", "", "-"]),
                    written,
                ),
                st.builds("{} BETWEEN {} AND {}".format, name, written, written),
                st.builds("{} IN ({}, {})".format, name, written, written),
            ),
            min_size=1,
            max_size=3,
        )
    )
    text = " AND ".join(parts)

    def outcome(compile: Any) -> Any:
        try:
            return compile(schema, text)
        except BoxmatchError as error:
            return type(error), str(error)

    assert outcome(compile_filter) == outcome(in_full)


@st.composite
def range_forms(draw: st.DrawFn, low: Any, high: Any, low_open: bool, high_open: bool) -> Any:
    """A range as a tuple, which is closed, or in a form that says which ends are open."""
    mapping = {"low": low, "high": high, "low_open": low_open, "high_open": high_open}
    # A bound of False says something; only a flag that is False can be left out.
    can_go = [name for name, value in mapping.items() if value is None]
    can_go += [name for name in ("low_open", "high_open") if not mapping[name]]
    gone = draw(st.sets(st.sampled_from(can_go))) if can_go else set()
    short = {name: value for name, value in mapping.items() if name not in gone}
    if not short.keys() & {"low", "high"}:
        short["low"] = low
    return draw(
        st.sampled_from([(low, high), mapping, short, Interval(low, high, low_open, high_open)])
    )


@MANY
@given(st.data())
def test_ranges_survive_json(data: st.DataObject) -> None:
    """A tuple becomes a list of values there; the mapping means the same range afterwards."""
    schema = Schema({"n": "int", "x": "float", "s": "string", "b": "bool"})
    tuples = {}
    for attribute in schema:
        values = st.none() | values_of(attribute).filter(
            lambda value: not isinstance(value, float) or math.isfinite(value)
        )
        tuples[attribute.name] = data.draw(st.tuples(values, values))
    mappings = {name: as_mapping(name, given) for name, given in tuples.items()}
    assert compile_filter(schema, json.loads(json.dumps(mappings))) == compile_filter(
        schema, tuples
    )


@MANY
@given(st.data())
def test_dicts_mean_what_they_say(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    wanted: dict[str, Any] = {}
    operands = []
    for attribute in schema:
        values = constants(attribute)
        match data.draw(st.sampled_from(["none", "value", "range", "list", "skip"])):
            case "none":
                wanted[attribute.name] = None
                operands.append(("isnull", attribute.name))
            case "value":
                value = data.draw(values_held(attribute))
                wanted[attribute.name] = value
                operands.append(("compare", attribute.name, "=", value))
            case "range":
                low, high = data.draw(st.tuples(st.none() | values, st.none() | values))
                open_ends = data.draw(st.tuples(st.booleans(), st.booleans()))
                wanted[attribute.name] = given = data.draw(range_forms(low, high, *open_ends))
                closed = isinstance(given, tuple)
                operands.append(("not", ("isnull", attribute.name)))
                if low is not None:
                    above = ">" if open_ends[0] and not closed else ">="
                    operands.append(("compare", attribute.name, above, low))
                if high is not None:
                    below = "<" if open_ends[1] and not closed else "<="
                    operands.append(("compare", attribute.name, below, high))
            case "list":
                listed = data.draw(st.lists(values_held(attribute) | st.none(), max_size=4))
                kind = data.draw(st.sampled_from([list, set]))
                wanted[attribute.name] = kind(listed)
                some = ("in", attribute.name, [value for value in listed if value is not None])
                operands.append(
                    ("or", [some, ("isnull", attribute.name)]) if None in listed else some
                )
    tree = ("and", operands)
    compiled = compile_filter(schema, wanted)
    check_form(schema, compiled)
    assert compile_filter(schema, render(schema, compiled.boxes)) == compiled
    for event in data.draw(st.lists(events(schema, tree), min_size=1, max_size=8)):
        holding = boxes_holding(schema, compiled, event)
        assert holding == (truth(schema, tree, event) is True)


@settings(MANY, max_examples=examples(60))
@given(st.data())
def test_unions_of_many_boxes_stay_exact(data: st.DataObject) -> None:
    """Enough boxes for the array paths, on small grids where they touch, nest and overlap."""
    schema = Schema({"x": "int", "y": "int", "z": "int"})
    side = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda s: (s[0], s[0] + s[1]))
    boxes = data.draw(st.lists(st.tuples(side, side), min_size=10, max_size=60))
    tree = (
        "or",
        [("and", [("between", "x", *x), ("between", "y", *y)]) for x, y in boxes],
    )
    compiled = compile_filter(schema, to_sql(schema, tree, random.Random(0)))
    check_form(schema, compiled)
    for x in range(-1, 15):
        for y in range(-1, 15):
            event = {"x": x, "y": y}
            wanted = any(a <= x <= b and c <= y <= d for (a, b), (c, d) in boxes)
            holding = boxes_holding(schema, compiled, event)
            assert (holding > 0) == wanted
            if compiled.disjoint:
                assert holding <= 1
    assert compile_filter(schema, render(schema, compiled.boxes)) == compiled


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("ab\0", "ab\1"),
        ("\ud7ff", "\ue000"),
        ("\uffff", "\U00010000"),
        ("a\U0010ffff", "b"),
        ("a\U0010ffff\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("", None),
    ],
)
def test_a_prefix_ends_before_the_next_character(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end


@pytest.mark.parametrize("count", [3, 40])
def test_what_would_split_too_much_is_left_to_overlap(count: int) -> None:
    schema = Schema({f"a{i}": "int" for i in range(count)})
    compiled = compile_filter(schema, " OR ".join(f"a{i} BETWEEN 1 AND 5" for i in range(count)))
    assert len(compiled.boxes) <= 2 * count
    assert not compiled.disjoint
    assert len(compiled.boxes) == count
    assert compile_filter(schema, render(schema, compiled.boxes)) == compiled
