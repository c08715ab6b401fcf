"""Filters of other systems through a matcher."""

from __future__ import annotations

import json
import random
from typing import Any

import eventbridge_table
import pyarrow as pa
import pytest
import sns_table
from eventbridge_oracle import matches
from hypothesis import HealthCheck, given, settings
from jms_oracle import selected
from test_jms_translation import events as messages
from test_jms_translation import selectors

import boxmatch as bm
from property_examples import examples

Row = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]


def _check_rows(dialect: str, rows: list[Row]) -> None:
    matcher = bm.Matcher()
    for number, (filter, _, _) in enumerate(rows):
        matcher.subscribe(number, filter, dialect=dialect)
    wanted = [
        (event, number, is_wanted)
        for number, (_, yes, no) in enumerate(rows)
        for events, is_wanted in ((yes, True), (no, False))
        for event in events
    ]
    found = matcher.match_batch([event for event, _, _ in wanted])
    for place, (event, number, is_wanted) in enumerate(wanted):
        assert (number in found[place]) == is_wanted, (rows[number][0], event)
        assert (number in matcher.match(event)) == is_wanted, (rows[number][0], event)


def test_event_patterns_match_what_eventbridge_matches() -> None:
    _check_rows("eventbridge", eventbridge_table.MATCHES + eventbridge_table.NAMES)


def test_filter_policies_match_what_sns_matches() -> None:
    _check_rows("sns", sns_table.ATTRIBUTES)
    _check_rows("sns-body", [*sns_table.ATTRIBUTES[:-1], *sns_table.BODIES])


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(selectors, messages)
def test_selectors_match_what_jms_selects(selector: str, event: dict[str, Any]) -> None:
    matcher = bm.Matcher()
    matcher.subscribe(0, selector, dialect="jms")
    wanted = [0] * (selected(selector, event) is True)
    assert matcher.match(event) == wanted
    assert matcher.match_batch([event])[0].tolist() == wanted
    assert matcher.explain(event, 0).matched == bool(wanted)


def test_many_filters_have_one_dialect_or_one_each() -> None:
    matcher = bm.Matcher()
    filters = [{"id": 1, "filter": {"a": ["x"]}}, {"id": 2, "filter": '{"a": [{"prefix": "x"}]}'}]
    assert matcher.subscribe_many(filters, dialect="eventbridge").subscriptions == 2
    table = pa.table(
        {
            "id": [3, 4, 5],
            "filter": ["a = 'x'", '{"a": ["x"]}', "a LIKE 'x%'"],
            "dialect": [None, "sns", "jms"],
        }
    )
    for given_table in (table, table.to_pandas()):
        matcher.subscribe_many(given_table)
        assert sorted(matcher.match({"a": "x"})) == [1, 2, 3, 4, 5]
        assert sorted(matcher.match({"a": "xy"})) == [2, 5]
    assert [matcher.dialect_of(id) for id in range(1, 6)] == [
        *("eventbridge", "eventbridge", None, "sns", "jms")
    ]
    assert json.loads(matcher.filter_of(1)) == {"a": ["x"]}


def test_wrong_filters_are_refused_with_their_row_and_place() -> None:
    matcher = bm.Matcher()
    with pytest.raises(bm.FilterError, match="eventbridge"):
        matcher.subscribe(0, "{}", dialect="evntbridge")
    with pytest.raises(bm.FilterError) as caught:
        matcher.subscribe(0, '{"a": "x"}', dialect="eventbridge")
    assert caught.value.position is not None
    rows = [
        {"id": 1, "filter": '{"a": ["x"]}', "dialect": "eventbridge"},
        {"id": 2, "filter": "{", "dialect": "eventbridge"},
        {"id": 3, "filter": "a = 1", "dialect": "no such"},
        {"id": 4, "filter": {"a": [object()]}, "dialect": "sns"},
    ]
    with pytest.raises(bm.FilterError, match="row 1"):
        matcher.subscribe_many(rows[:2])
    done = matcher.subscribe_many(rows, on_error="skip")
    assert [bad.row for bad in done.rejected] == [1, 2, 3]
    assert matcher.match({"a": "x"}) == [1]


def test_a_schema_may_have_types() -> None:
    schema = {
        "symbol": "string",
        "price": "float",
        "side": ["buy", "sell"],
        "tags": "list of string",
    }
    matcher = bm.Matcher(schema)
    matcher.subscribe(0, {"symbol": ["IBM"], "price": [{"numeric": [">", 20]}]}, dialect="sns")
    matcher.subscribe(
        1, {"tags": [{"suffix": "x"}], "side": [{"anything-but": "buy"}]}, dialect="sns"
    )
    matcher.subscribe(2, {"tags": [{"wildcard": "a*b*c"}]}, dialect="eventbridge")
    matcher.subscribe(3, {"price": [{"exists": False}]}, dialect="eventbridge")
    events = [
        {"symbol": "IBM", "price": 20.5},
        {"tags": ["a", "ax"], "side": "sell", "price": 1.0},
        {"tags": ["abbc"], "price": 1.0},
        {"tags": ["abbc"]},
    ]
    found = [[0], [1], [2], [2, 3]]
    assert [sorted(matcher.match(event)) for event in events] == found
    assert [sorted(ids.tolist()) for _, ids in matcher.match_batch(events)] == found
    with pytest.raises(bm.UnknownAttributeError):
        matcher.subscribe(4, {"other": ["x"]}, dialect="sns")
    with pytest.raises(bm.FilterError, match="timestamp"):
        bm.Matcher({"at": "timestamp"}).subscribe(0, {"at": ["x"]}, dialect="sns")


def test_an_element_of_a_list_satisfies_all_fields() -> None:
    matcher = bm.Matcher()
    matcher.subscribe(
        0, {"items": {"sku": ["a"], "n": [{"numeric": [">", 1]}]}}, dialect="eventbridge"
    )
    one = {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}
    other = {"items": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]}
    assert [ids.tolist() for _, ids in matcher.match_batch([one, other, one])] == [[], [0], []]
    assert matcher.count_batch([one, other]).tolist() == [0, 1]
    parts = matcher.match_batches([one, other, other], size=2)
    assert [part.counts.tolist() for part in parts] == [[0, 1], [1]]
    assert matcher.explain(other, 0).matched
    assert not matcher.explain(one, 0).matched
    assert matcher.nearest(other).matched.tolist() == [0]
    many = {"items": [{"sku": "a", "n": n} for n in range(10_001)]}
    with pytest.raises(bm.EventError, match="'items'"):
        matcher.match(many)
    with pytest.raises(bm.EventError, match=r"row 1: .*'items'"):
        matcher.match_batch([one, many])


def test_explanations_show_values_as_events_have_them() -> None:
    """Not turned around, nor in one case, as they are compared."""
    matcher = bm.Matcher()
    event = {"a": "Xyz", "ip": "10.0.0.7", "tags": ["ab", "Cb"]}
    for id, field, condition in (
        ("suffix", "a", {"suffix": "yz"}),
        ("case", "a", {"equals-ignore-case": "XYZ"}),
        ("both", "a", {"suffix": {"equals-ignore-case": "YZ"}}),
        ("cidr", "ip", {"cidr": "10.0.0.0/24"}),
        ("list", "tags", {"suffix": "b"}),
    ):
        matcher.subscribe(id, {field: [condition]}, dialect="eventbridge")
        [found] = matcher.explain(event, id).predicates
        assert (found.got, found.satisfied) == (event[field], True)


def test_thousands_of_values_are_put_together_at_once() -> None:
    many = [str(number) for number in range(20_000)]
    pattern = {"a": [{"anything-but": many}]}
    matcher = bm.Matcher(max_boxes=50_000)
    matcher.subscribe(0, pattern, dialect="eventbridge")
    names = ", ".join(f"'{one}'" for one in many)
    matcher.subscribe(1, f"a IN ({names})", dialect="jms")
    found = [matcher.match({"a": one}) for one in (many[0], many[-1], "x", 5, None)]
    assert found == [[1], [1], [0], [0], [0]]


@pytest.mark.parametrize("max_boxes", [1, 6, 1024])
def test_filters_of_too_many_boxes_get_larger_ones(max_boxes: int) -> None:
    names = "abcdefghijkl"
    excluded = {"anything-but": ["x", "y", "z"]}
    filters: list[Any] = [
        {name: [f"{name}{number}" for number in range(40)] for name in "abc"},
        {name: [excluded] for name in names},
        {name: [{"prefix": "p"}, {"suffix": "s"}, {"equals-ignore-case": "e"}] for name in names},
        {name: [1, {"exists": False}] for name in names},
        {"d": {name: [excluded] for name in names}},
    ]
    rnd = random.Random(3)
    words = ["x", "z", "w", "pq", "ts", "E", "y0", 1, *(f"{name}7" for name in "abc")]
    events: list[Any] = [
        {name: rnd.choice(words[:4]) for name in names if rnd.random() < 0.9} for _ in range(40)
    ]
    events += [{name: f"{name}{rnd.randrange(39, 42)}" for name in "abc"} for _ in range(40)]
    events += [{name: rnd.choice(words[3:6]) for name in names} for _ in range(40)]
    events += [{name: rnd.choice((1, 1.0, 2)) for name in names[:2]} for _ in range(20)]
    events += [{"d": [{**one, "a": "x"}, one]} for one in events[80:100]]
    matcher = bm.Matcher(max_boxes=max_boxes)
    matcher.subscribe_many(
        [{"id": number, "filter": one} for number, one in enumerate(filters)],
        dialect="eventbridge",
    )
    wanted = [
        [number for number, one in enumerate(filters) if matches(one, event)] for event in events
    ]
    assert [number for number in range(5) if not any(number in ids for ids in wanted)] == []
    assert [sorted(ids.tolist()) for _, ids in matcher.match_batch(events)] == wanted
    assert [sorted(matcher.match(event)) for event in events] == wanted
