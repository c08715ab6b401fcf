"""Matchers without a schema: SQL over events of any structure."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boxmatch as bm
from model.filters.filter_oracle import events, to_sql, trees, truth
from property_examples import examples

_TYPED = bm.Schema({"a": "int", "b": "float", "c": "string", "d": "bool"})


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_filters_mean_what_they_mean_with_a_schema(data: st.DataObject) -> None:
    tree = data.draw(trees(_TYPED))
    some = data.draw(st.lists(events(_TYPED, tree), min_size=1, max_size=4))
    text = to_sql(_TYPED, tree, random.Random(0))
    matcher = bm.Matcher()
    matcher.subscribe(0, text)
    wanted = [[0] * (truth(_TYPED, tree, event) is True) for event in some]
    assert [matcher.match(event) for event in some] == wanted
    assert [ids.tolist() for _, ids in matcher.match_batch(some)] == wanted
    assert [matcher.explain(event, 0).matched for event in some] == list(map(bool, wanted))
    again = bm.Matcher()
    again.subscribe(0, matcher.filter_of(0, as_written=False))
    assert [again.match(event) for event in some] == wanted


def _matched(filter: str, *events: Any) -> list[bool]:
    matcher = bm.Matcher()
    matcher.subscribe(0, filter)
    found = [bool(matcher.match(event)) for event in events]
    assert [bool(len(ids)) for _, ids in matcher.match_batch(list(events))] == found
    assert [matcher.explain(event, 0).matched for event in events] == found
    return found


@pytest.mark.parametrize(
    ("filter", "event", "matches"),
    [
        ("price > 20", {"price": 21}, True),
        ("price > 20", {"price": "21"}, False),
        ("NOT price > 20", {"price": "21"}, False),
        ("NOT price > 20", {"price": 20}, True),
        ("NOT price > 20", {}, False),
        ("price = 9007199254740993", {"price": 2**53 + 1}, True),
        ("price = 9007199254740993", {"price": 2**53}, False),
        ("price < 1e400", {"price": 10**399}, True),
        ("price = 1", {"price": 1.0}, True),
        ("price = 1", {"price": True}, False),
        ("price = TRUE", {"price": 1}, False),
        ("price", {"price": True}, True),
        ("price IN (1, 'a')", {"price": "a"}, True),
        ("price NOT IN (1, 'a')", {"price": "b"}, True),
        ("price NOT IN (1, 'a')", {"price": True}, False),
        ("price NOT IN (1, NULL)", {"price": 2}, False),
        ("price IS NULL", {"price": None}, True),
        ("price IS NULL", {}, True),
        ("price IS NULL", {"price": []}, False),
        ("price IS NULL", {"price": {}}, False),
        ("price IS NOT TRUE", {"price": []}, True),
        ("NOT price <=> 5", {"price": "a"}, True),
        ("NOT price <=> 5", {"price": 5}, False),
        ("price <=> NULL", {}, True),
        ("a.b.c = 'x'", {"a": {"b": {"c": "x"}}}, True),
        ("a.b.c = 'x'", {"a.b": {"c": "x"}}, True),
        ("a.b.c = 'x'", {"a.b": 1, "a": {"b": {"c": "x"}}}, False),
        ("a.b.c = 'x'", {"a": [{"b": {"c": "x"}}]}, False),
        ("'x' = ANY(tags)", {"tags": ["y", "x"]}, True),
        ("'x' = ANY(tags)", {"tags": "x"}, True),
        ("'x' = ANY(tags) AND 'y' = ANY(tags)", {"tags": ["y", "x"]}, True),
        ("'x' = ANY(tags) AND 'y' = ANY(tags)", {"tags": ["x"]}, False),
        ("NOT 'x' = ANY(tags)", {"tags": ["y"]}, True),
        ("NOT 'x' = ANY(tags)", {}, False),
        ("5 < ANY(a.b)", {"a": [{"b": 3}, {"b": 6}]}, True),
        ("ANY(a.b) BETWEEN 4 AND 5", {"a": [{"b": 3}, {"b": 6}]}, False),
        ("price * volume > 100", {"price": 20, "volume": 6}, True),
        ("price * volume > 100", {"price": 20, "volume": "6"}, False),
        ("UPPER(symbol) = 'IBM'", {"symbol": "ibm"}, True),
        ("symbol LIKE 'I%'", {"symbol": "IBM"}, True),
        ("symbol LIKE '%0%'", {"symbol": 0}, False),
        ("symbol NOT LIKE '%0%'", {"symbol": 1}, False),
        ("symbol ILIKE '%b_'", {"symbol": "IBM"}, True),
        ("symbol RLIKE '^I'", {"symbol": "IBM"}, True),
        ("at > TIMESTAMP '2024-01-01'", {"at": "2024-02-01T00:00:00Z"}, True),
        ("at > TIMESTAMP '2024-01-01'", {"at": "no time"}, False),
        ("at > TIMESTAMP '2024-01-01'", {"at": datetime(2024, 2, 1, tzinfo=UTC)}, True),
        ("at > TIMESTAMP '2024-01-01'", {"at": date(2023, 2, 1)}, False),
        ("LENGTH(at) = 10", {"at": date(2023, 2, 1)}, True),
        ("CAST(price AS INT) = 2", {"price": 2.5}, True),
        ("price * 2 = 5", {"price": Decimal("2.5")}, True),
        ("price * 2 IS NULL", {"price": Decimal("1e400")}, True),
        ("COALESCE(price, 7) = 7", {}, True),
        ("CAST(a AS DOUBLE) < CAST(b AS DOUBLE)", {"a": 1, "b": 2}, True),
        ("\"detail-type\" = 'x'", {"detail-type": "x"}, True),
    ],
)
def test_what_filters_mean(filter: str, event: dict[str, Any], matches: bool) -> None:
    assert _matched(filter, event) == [matches]


@pytest.mark.parametrize(
    ("filter", "reason"),
    [
        ("a < b", "CAST"),
        ("a = b", "CAST"),
        ("ALL(tags) > 5", "ALL"),
        ("EXISTS(tags, x -> x > 5)", "ANY"),
        ("ANY(tags) LIKE 'a%'", "LIKE"),
        ("a IN (1, TIMESTAMP '2024-01-01')", "not"),
    ],
)
def test_what_has_no_meaning_is_refused(filter: str, reason: str) -> None:
    with pytest.raises(bm.FilterError, match=reason):
        bm.Matcher().subscribe(0, filter)


def test_filters_may_be_dicts() -> None:
    matcher = bm.Matcher()
    matcher.subscribe(0, {"symbol": ["IBM", None], "price": (20, 30)})
    matcher.subscribe(1, {"name": {"like": "%a%"}, "a.b": 1})
    assert matcher.match({"price": 25}) == [0]
    assert matcher.match({"price": 31, "symbol": "IBM"}) == []
    assert matcher.match({"name": "bar", "a": {"b": 1.0}}) == [1]


def test_events_may_be_json() -> None:
    matcher = bm.Matcher()
    matcher.subscribe(0, "price > 20")
    assert matcher.match('{"price": 21}') == [0]
    assert matcher.match(b'{"price": 21}') == [0]
    with pytest.raises(bm.EventError, match="not JSON"):
        matcher.match(b"{")
    with pytest.raises(bm.EventError, match="object"):
        matcher.match(b"[1]")
    with pytest.raises(bm.EventError, match="row 1"):
        matcher.match_batch([b"{}", b"{"])
    typed = bm.Matcher({"price": "float"}, unknown="refuse")
    typed.subscribe(0, "price > 20")
    assert typed.match(b'{"price": 21}') == [0]
    assert typed.match_batch([b'{"price": 21}']).counts.tolist() == [1]
    with pytest.raises(bm.EventError, match="prize"):
        typed.match(b'{"prize": 21}')


def test_tables_have_events_of_any_structure() -> None:
    matcher = bm.Matcher()
    matcher.subscribe(0, "price > 20 AND a.b = 'x'")
    matcher.subscribe(1, "price IS NULL")
    table = pa.table({"price": [21.0, None, 22.0], "a": [{"b": "x"}, {"b": "x"}, {"b": None}]})
    wanted = [[0], [1], []]
    for rows in (table, table.to_pandas(), table.to_pylist()):
        assert [ids.tolist() for _, ids in matcher.match_batch(rows)] == wanted
    tags = pa.array([{"b": "x"}, {}, {"b": None}], pa.map_(pa.string(), pa.string()))
    assert [
        ids.tolist() for _, ids in matcher.match_batch(table.set_column(1, "a", tags))
    ] == wanted
    inside = pa.array([{"b": float("nan")}, {"b": 1.0}, None], pa.struct({"b": pa.float64()}))
    matcher.subscribe(2, "a.b > 0")
    nested = table.set_column(1, "a", inside)
    assert [ids.tolist() for _, ids in matcher.match_batch(nested)] == [[], [1, 2], []]
    with pytest.raises(bm.EventError, match="json"):
        matcher.match_batch(table.to_pandas()[["price"]].to_numpy())


def test_a_schema_may_have_types_and_documents() -> None:
    matcher = bm.Matcher({"symbol": "string", "price": "float", "data": "json"})
    matcher.subscribe(0, "symbol = 'IBM' AND data.state = 'on'")
    matcher.subscribe(1, "price > 20 OR data.level > 3")
    assert matcher.match({"symbol": "IBM", "data": {"state": "on"}}) == [0]
    assert matcher.match({"price": 21.0}) == [1]
    table = pa.table({"symbol": ["IBM", None], "data": ['{"state": "on"}', '{"level": 4}']})
    assert [ids.tolist() for _, ids in matcher.match_batch(table)] == [[0], [1]]
    with pytest.raises(bm.UnknownAttributeError):
        matcher.subscribe(2, "other = 1")
    mixed = bm.Matcher({"symbol": "string", "$": "json"})
    mixed.subscribe(0, "symbol = 'IBM' AND other = 1")
    assert mixed.match({"symbol": "IBM", "other": 1}) == [0]


def test_what_no_document_has_is_refused() -> None:
    matcher = bm.Matcher()
    matcher.subscribe(0, "a > 1")
    for value in (float("nan"), {1}, object()):
        with pytest.raises(bm.EventError):
            matcher.match({"a": value})
        with pytest.raises(bm.EventError, match="row 1"):
            matcher.match_batch([{}, {"a": value}])
    deep = b'{"a": ' + b"[" * 1_000 + b"]" * 1_000 + b"}"
    with pytest.raises(bm.EventError, match="deep"):
        matcher.match_batch([deep])
    with pytest.raises(bm.EventError, match="deep"):
        matcher.match(deep)
    with pytest.raises(bm.EventError):
        matcher.match([1])  # type: ignore[arg-type]


def test_matchers_are_saved_and_opened(tmp_path: Path) -> None:
    with bm.Matcher.open(tmp_path / "open", bm.Schema()) as durable:
        durable.subscribe("a", "price > 20")
        durable.subscribe("b", json.dumps({"state": [{"prefix": "on"}]}), dialect="eventbridge")
        durable.subscribe("c", {"tags": [{"wildcard": "a*b*c"}]}, dialect="eventbridge")
    for matcher in (bm.Matcher.open(tmp_path / "open"), bm.Matcher.load(tmp_path / "open")):
        assert matcher.match({"price": 21}) == ["a"]
        assert matcher.match({"state": "once"}) == ["b"]
        assert matcher.match({"tags": ["x", "abbc"]}) == ["c"]
        assert matcher.dialect_of("b") == "eventbridge"
        assert matcher.dialect_of("a") is None
        assert json.loads(matcher.filter_of("b")) == {"state": [{"prefix": "on"}]}
        assert dict(matcher.items())["b"] == '{"state": [{"prefix": "on"}]}'
        matcher.compact()
        assert matcher.match({"state": "once"}) == ["b"]
        matcher.unsubscribe("b")
        assert matcher.match({"state": "once"}) == []
        matcher.close()
