"""Filters as they were written: kept, listed, explained."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.model.filters.clauses import clauses_of

SCHEMA = {"symbol": "string", "price": "float", "n": "int", "title": "string", "at": "timestamp"}
ODD = [
    "price < 50",
    "  n > 3 OR price BETWEEN 1 AND 2 ",
    "n = 1 -- a comment\n AND symbol = 'Ä''ö'",
    "FALSE",
    "TRUE",
    "title ILIKE '%.PDF' AND NOT title LIKE '%draft%'",
    "n IN (" + ", ".join(map(str, range(0, 200, 2))) + ")",
]


@pytest.fixture
def m() -> bm.Matcher:
    return bm.Matcher(SCHEMA)


def test_texts_stay_through_everything(m: bm.Matcher, tmp_path: Path) -> None:
    chance = random.Random(3)
    wanted: dict[int, str] = {}
    for number in range(3000):
        id, filter = chance.randrange(500), chance.choice(ODD)
        if id in wanted and chance.random() < 0.2:
            m.unsubscribe(id)
            del wanted[id]
        else:
            m.subscribe(id, filter)
            wanted[id] = filter
        if number % 700 == 0:
            m.compact()
    rows = [{"id": id, "filter": ODD[id % len(ODD)]} for id in range(1000, 1100)]
    m.subscribe_many(rows)
    wanted |= {row["id"]: row["filter"] for row in rows}  # type: ignore[misc]
    for one in (m, (m.save(tmp_path / "m"), bm.Matcher.load(tmp_path / "m"))[1]):
        for _ in range(2):
            assert dict(one.items()) == wanted
            assert sorted(one.ids()) == sorted(one) == sorted(wanted)  # type: ignore[type-var]
            assert {id: one.filter_of(id) for id in wanted} == wanted
            one.compact()
    assert m.memory_usage()["texts"] < sum(map(len, wanted.values())) / 4


def test_other_forms_are_rendered(m: bm.Matcher) -> None:
    m.subscribe("dict", {"n": {"low": 3}})
    m.subscribe_many(pa.table({"id": ["bounds"], "n_high": [5]}))
    rows = [{"id": "zone", "filter": "at < '2026-01-01'"}, {"id": "both", "filter": {"n": 1}}]
    m.subscribe_many(rows, time_zone=ZoneInfo("Europe/Berlin"))
    m.subscribe_many([*rows[1:], {"id": "text", "filter": "n < 3"}])
    for _ in range(2):
        assert dict(m.items()) == {
            "dict": "n >= 3",
            "bounds": "n <= 5",
            "zone": "at < TIMESTAMP '2025-12-31 23:00:00'",
            "both": "n = 1",
            "text": "n < 3",
        }
        assert m.filter_of("text", as_written=False) == "n <= 2"
        m.compact()


def test_texts_need_not_be_kept(tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA, keep_texts=False)
    m.subscribe(1, "n < 3")
    m.subscribe_many([{"id": 2, "filter": "n < 4"}])
    m.compact()
    assert dict(m.items()) == {1: "n <= 2", 2: "n <= 3"}
    assert "texts" not in m.memory_usage()
    m.save(tmp_path / "m")
    assert bm.Matcher.load(tmp_path / "m").keep_texts is False
    assert str(m.explain({"n": 5}, 1)) == "1 does not match\n  ✗ n <= 2   got 5"


def test_unsubscribing_many(m: bm.Matcher) -> None:
    for number in range(2000):
        m.subscribe(number, ODD[number % len(ODD)])
    with pytest.raises(bm.UnknownSubscriptionError, match="5000"):
        m.unsubscribe_many([1, 2, 5000])
    assert len(m) == 2000
    assert m.unsubscribe_many([]) == 0
    assert m.unsubscribe_many(range(0, 2000, 2)) == 1000
    assert m.unsubscribe_many([1, 1, 2, 4000], missing_ok=True) == 1
    assert sorted(m.ids()) == list(range(3, 2000, 2))  # type: ignore[type-var]
    with pytest.raises(bm.SubscriptionIdError):
        m.unsubscribe_many("abc")


def test_info(m: bm.Matcher) -> None:
    m.subscribe("a", "n > 3 OR price * n > 2")
    m.subscribe("b", "NOT title LIKE '%x%' AND n = 1 OR title LIKE '%y%' AND title LIKE '%z%'")
    info = m.info()
    assert (info.subscriptions, info.residuals, info.index, info.pending) == (2, 1, "tile", None)
    assert info.boxes >= 3
    assert info.expressions >= 2
    assert info.total_memory == m.memory_usage()["total"]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("price < 50", [["price < 50"]]),
        ("a=1 AND b BETWEEN 1 AND 2 AND c", [["a=1", "b BETWEEN 1 AND 2", "c"]]),
        ("(a=1 OR b=2) AND c=3", [["(a=1 OR b=2)", "c=3"]]),
        ("a=1 OR (b=2 AND (c=3 AND d=4))", [["a=1"], ["b=2", "c=3", "d=4"]]),
        ("NOT a=1 AND CASE WHEN x AND y THEN 1 END = 1 OR z IN (1,2)",
         [["NOT a=1", "CASE WHEN x AND y THEN 1 END = 1"], ["z IN (1,2)"]]),
        ("EXISTS(l, i -> i.a > 1 AND i.b = 2) AND q NOT BETWEEN 1 AND 2",
         [["EXISTS(l, i -> i.a > 1 AND i.b = 2)", "q NOT BETWEEN 1 AND 2"]]),
        ("\"and\" = 1 AND s = 'x AND y'", [['"and" = 1', "s = 'x AND y'"]]),
        ("a < 5 -- hi\n AND b=2", [["a < 5", "b=2"]]),
        ("WHERE a < 5 AND b=2", [["a < 5", "b=2"]]),
    ],
)  # fmt: skip
def test_clauses(text: str, clauses: list[list[str]]) -> None:
    assert clauses_of(text) == clauses


def test_explaining_what_was_written(m: bm.Matcher) -> None:
    m.subscribe("a", "price < 50 AND (symbol = 'A' OR symbol = 'B' OR n > 3)")
    event: dict[str, Any] = {"symbol": "C", "price": 70.0, "n": 60}
    explained = m.explain(event, "a")
    assert [(one.wanted, one.got, one.satisfied) for one in explained.predicates] == [
        ("price < 50", 70.0, False),
        ("(symbol = 'A' OR symbol = 'B' OR n > 3)", {"n": 60, "symbol": "C"}, True),
    ]
    m.subscribe("b", "n < 5 AND symbol = 'A' OR NOT title LIKE '%x%' AND price * 2 > 3")
    explained = m.explain({**event, "title": "x"}, "b")
    assert [[one.wanted for one in each] for each in explained.alternatives] == [
        ["n < 5", "symbol = 'A'"],
        ["NOT title LIKE '%x%'", "price * 2 > 3"],
    ]
    assert [(one.got, one.residual) for one in explained.predicates] == [
        ("x", True),
        (140.0, False),
    ]
    assert m.explainer("b").nearest(event).alternatives == (m.explain(event, "b").predicates,)
