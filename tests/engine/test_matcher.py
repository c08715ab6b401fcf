"""The public API of `Matcher`, method by method."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.indexes.registry import index_names
from boxmatch.model import axis_table
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.filters import compile_filter

SCHEMA = bm.Schema(
    {
        "symbol": "string",
        "price": "float",
        "volume": "int",
        "halted": "bool",
        "at": "timestamp",
        "side": ["buy", "sell", "short"],
    }
)
NUMBERS = bm.Schema({"x": "int", "y": "float"})
# Three boxes that overlap (checked below: the compiler takes apart what it can).
OVERLAPPING = "volume BETWEEN 1 AND 5 OR price BETWEEN 1 AND 5 OR symbol BETWEEN 'o' AND 'p'"
TRIPLE = {"volume": 3, "price": 3.0, "symbol": "or"}


@pytest.fixture(params=index_names())
def m(request: pytest.FixtureRequest) -> bm.Matcher:
    return bm.Matcher(SCHEMA, index=request.param)


def by_event(result: bm.MatchResult) -> list[list[Any]]:
    found: list[list[Any]] = [[] for _ in result.counts]
    for event, subscription in zip(
        result.event.tolist(), result.subscription.tolist(), strict=True
    ):
        found[event].append(subscription)
    return [sorted(one) for one in found]


# --- making one ------------------------------------------------------------------------------


def test_a_schema_can_be_given_as_a_dict() -> None:
    matcher = bm.Matcher({"x": "int", "y": "float"})
    assert matcher.schema == NUMBERS
    with pytest.raises(bm.SchemaError, match=r"made from a mapping of names to types, .* not 5"):
        bm.Matcher(5)  # type: ignore[arg-type]  # what is wrong is said all the same
    with pytest.raises(bm.SchemaError, match=r'such as {"symbol": "string", .*; \'a\' is no Attr'):
        bm.Matcher(["a"])  # type: ignore[arg-type]


def test_options_that_are_misspelt() -> None:
    with pytest.raises(bm.IndexConfigError, match="'max_box'; did you mean 'max_boxes'"):
        bm.Matcher(SCHEMA, max_box=3)
    with pytest.raises(bm.IndexConfigError, match=r"no parameter 'cels' \(it takes: cells\)"):
        bm.Matcher(SCHEMA, cels=3)


def test_indexes_by_name_with_their_parameters() -> None:
    m = bm.Matcher(SCHEMA, index="tile", cells=16)
    m.subscribe(1, {"volume": 5})
    assert m.match({"volume": 5}) == [1]
    assert m.index == "tile"
    assert m.schema == SCHEMA
    assert "1 subscriptions" in repr(m)
    assert bm.Matcher(SCHEMA).index == "tile"


def test_a_wrong_index_or_parameter_is_refused_at_once() -> None:
    with pytest.raises(bm.IndexConfigError, match="cube"):
        bm.Matcher(SCHEMA, index="cube")
    with pytest.raises(bm.IndexConfigError, match="colour"):
        bm.Matcher(SCHEMA, colour=1)
    with pytest.raises(bm.IndexConfigError, match="cells"):
        bm.Matcher(SCHEMA, cells=1)


# --- ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [7, np.int64(7), np.uint8(7), -(2**63), 2**63 - 1])
def test_integer_ids_come_back_as_they_went_in(m: bm.Matcher, given: Any) -> None:
    m.subscribe(given, "volume = 1")
    found = m.match({"volume": 1})
    assert found == [int(given)]
    assert type(found[0]) is int
    assert given in m


class Desk(str, Enum):  # noqa: UP042 - a StrEnum would show its value
    """Shows itself as `Desk.EAST`."""

    EAST = "east"


@pytest.mark.parametrize("given", ["a", "", "é😀", "7", "\0", Desk.EAST])
def test_string_ids_come_back_as_they_went_in(m: bm.Matcher, given: str) -> None:
    m.subscribe(given, "volume = 1")
    assert m.match({"volume": 1}) == [given]
    assert m.match_batch([{"volume": 1}]).subscription.tolist() == [given]
    assert given in m


def test_ids_whose_hashes_collide_are_told_apart(m: bm.Matcher) -> None:
    # hash(-1) == hash(-2)
    m.subscribe_many([{"id": -1, "filter": "volume = 1"}, {"id": -2, "filter": "volume = 2"}])
    m.compact()
    assert m.filter_of(-1) == "volume = 1"
    m.unsubscribe(-1)
    assert m.match({"volume": 2}) == [-2]
    assert m.match({"volume": 1}) == []


@pytest.mark.parametrize("given", [True, np.True_, 1.0, None, b"a", ("a",), 2**63, -(2**63) - 1])
def test_other_ids_are_refused(m: bm.Matcher, given: Any) -> None:
    for call in (
        lambda: m.subscribe(given, "volume = 1"),
        lambda: m.unsubscribe(given),
        lambda: m.filter_of(given),
        lambda: m.explain({}, given),
        lambda: m.subscribe_many([{"id": given, "filter": "volume = 1"}]),
    ):
        with pytest.raises(bm.SubscriptionIdError) as refused:
            call()
        assert isinstance(refused.value, TypeError)
    assert given not in m
    assert len(m) == 0


@pytest.mark.parametrize(("first", "second"), [("a", 1), (1, "a")])
def test_one_kind_of_id_per_matcher(m: bm.Matcher, first: Any, second: Any) -> None:
    m.subscribe(first, "volume = 1")
    with pytest.raises(bm.SubscriptionIdError, match="kind"):
        m.subscribe(second, "volume = 1")
    with pytest.raises(bm.SubscriptionIdError, match="kind"):
        m.subscribe_many([{"id": second, "filter": "volume = 1"}])
    with pytest.raises(bm.UnknownSubscriptionError):
        m.unsubscribe(second)
    m.compact()
    with pytest.raises(bm.UnknownSubscriptionError):
        m.unsubscribe(second)
    assert second not in m
    assert m.match({"volume": 1}) == [first]


def test_kinds_mixed_in_one_call_are_refused(m: bm.Matcher) -> None:
    with pytest.raises(bm.SubscriptionIdError):
        m.subscribe_many([{"id": 1, "filter": "volume = 1"}, {"id": "a", "filter": "volume = 1"}])
    assert len(m) == 0
    m.subscribe("free to choose", "volume = 1")  # nothing was settled by the failure


def test_a_refused_filter_does_not_settle_the_kind_of_ids(m: bm.Matcher) -> None:
    with pytest.raises(bm.FilterError):
        m.subscribe("a", "volume +")
    m.subscribe(1, "volume = 1")


# --- subscribing, replacing, unsubscribing ---------------------------------------------------


def test_subscribe_in_text_and_dict_form(m: bm.Matcher) -> None:
    m.subscribe("alice", "symbol = 'IBM' AND price BETWEEN 20 AND 30")
    m.subscribe("bob", {"price": (20, None), "symbol": "IBM"})
    m.subscribe("carol", {"side": ["buy", "short"], "halted": None})
    assert sorted(m.match({"symbol": "IBM", "price": 24.5})) == ["alice", "bob"]
    assert m.match({"symbol": "IBM", "price": 31}) == ["bob"]
    assert m.match({"side": "short"}) == ["carol"]
    assert m.match({"side": "short", "halted": False}) == []
    assert m.match({}) == []
    assert len(m) == 3


def test_subscribe_says_what_it_did(m: bm.Matcher) -> None:
    assert m.subscribe("a", "volume = 1") == (1, 0, 0, ())
    done = m.subscribe("a", "volume = 1 AND volume = 2")
    assert (done.subscriptions, done.replaced, done.never) == (1, 1, 1)
    table = [
        {"id": "a", "filter": "TRUE"},
        {"id": "b", "filter": "FALSE"},
        {"id": "c", "filter": "volume > 5 OR price < 2"},
    ]
    assert m.subscribe_many(table) == (3, 1, 1, ())
    assert m.subscribe_many(table) == (3, 3, 1, ())
    assert m.subscribe_many([]) == (0, 0, 0, ())
    assert len(m) == 3


def test_bad_rows_can_be_left_out(m: bm.Matcher) -> None:
    done = m.subscribe_many(
        [
            {"id": "a", "filter": "volume = 1"},
            {"id": "b", "filter": "volme = 1"},
            {"id": "c", "filter": None},
            {"id": "d", "filter": "volume = 1"},
        ],
        on_error="skip",
    )
    assert (done.subscriptions, [bad.row for bad in done.rejected]) == (2, [1, 2])
    assert done.rejected[0].reason.startswith("there is no attribute 'volme'")
    assert done.rejected[0].reason.endswith("(at offset 0)")
    assert sorted(m.match({"volume": 1})) == ["a", "d"]

    sides = ["buy", "none", "sell", "sell", "either"]
    table = pa.table({"id": list("efghi"), "side": sides, "volume_low": [1, 1, 1, None, 1]})
    done = m.subscribe_many(table, on_error="skip")
    assert (done.subscriptions, [bad.row for bad in done.rejected]) == (3, [1, 4])
    assert "'none'" in done.rejected[0].reason
    assert sorted(m.match({"side": "sell", "volume": 2})) == ["g", "h"]
    assert m.subscribe_many(table.slice(1, 1), on_error="skip").subscriptions == 0
    assert m.subscribe_many(table.to_reader(), on_error="skip") == (3, 3, 0, done.rejected)
    with pytest.raises(bm.AttributeValueError):
        m.subscribe_many(table)
    with pytest.raises(bm.SchemaError, match="'sde'"):
        m.subscribe_many(table.rename_columns(["id", "sde", "volume_low"]), on_error="skip")
    with pytest.raises(ValueError, match="on_error"):
        m.subscribe_many(table, on_error="ignore")  # type: ignore[arg-type]
    assert len(m) == 5


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_bad_values_can_be_left_out_of_any_table(kind: str) -> None:
    sides = ["sell", "none", "buy"]
    table: Any = pa.table({"id": [1, 2, 3], "side": sides})
    if kind == "pandas":
        # Objects of several types, and rows that are no longer numbered from 0.
        columns = {"id": [0, 1, 2, 3], "side": ["buy", *sides], "volume_low": [1, "many", 2, 3]}
        table = pd.DataFrame(columns, dtype=object).iloc[1:]
    elif kind == "polars":
        table = pl.DataFrame({"id": [1, 2, 3], "side": sides})
    m = bm.Matcher(SCHEMA)
    done = m.subscribe_many(table, on_error="skip")
    rows = [0, 1] if kind == "pandas" else [1]
    assert [bad.row for bad in done.rejected] == rows
    assert "'none'" in done.rejected[-1].reason
    assert m.match({"side": "buy", "volume": 5}) == [3]
    assert len(m) == done.subscriptions == 3 - len(rows)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pl.LazyFrame({"id": [1], "price_low": [1.0]}), "collect"),
        (pa.table({"id": [1]}), "no column besides 'id'"),
        (pa.table([[1], [1.0], [1.0]], ["id", "price_low", "price_low"]), "two columns"),
    ],
)
def test_a_table_of_the_wrong_kind_has_no_bad_rows(table: Any, words: str) -> None:
    with pytest.raises(bm.EventError, match=words):
        bm.Matcher(SCHEMA).subscribe_many(table, on_error="skip")


def test_replacing(m: bm.Matcher) -> None:
    for round_ in range(3):
        for number in range(5):
            m.subscribe("a", {"volume": number})
            assert len(m) == 1
            assert m.match({"volume": number}) == ["a"]
            assert m.match({"volume": (number + 1) % 5}) == []
        if round_ == 1:
            m.compact()


def test_replacing_many_boxes_by_one_and_back(m: bm.Matcher) -> None:
    for filter in (OVERLAPPING, "volume = 3", "volume IN (1, 3, 5)", OVERLAPPING, "TRUE"):
        for _ in range(2):
            m.subscribe("a", filter)
            assert m.match(TRIPLE) == ["a"]
            assert len(m) == 1
            m.compact()
            assert m.match(TRIPLE) == ["a"]


def test_unsubscribing(m: bm.Matcher) -> None:
    m.subscribe_many([{"id": n, "filter": "volume > 0"} for n in range(1000)])
    m.subscribe(1000, OVERLAPPING)
    left = set(range(1001))
    for gone in [0, 999, 1000, 500, 511, 512]:
        m.unsubscribe(gone)
        left.discard(gone)
        assert gone not in m
        assert len(m) == len(left)
        assert set(m.match({"volume": 3})) == left
        assert set(m.match_batch([{"volume": 3}]).subscription.tolist()) == left
        assert m.count_batch([{"volume": 3}]).tolist() == [len(left)]


def test_unsubscribing_and_subscribing_again_with_matches_in_between(m: bm.Matcher) -> None:
    expected = set()
    for number in range(40):
        m.subscribe(number, "volume = 1")
        expected.add(number)
        assert set(m.match({"volume": 1})) == expected
        if number % 3 == 0:
            m.unsubscribe(number // 2 if number // 2 in expected else number)
            expected.discard(number // 2 if number // 2 in expected else number)
            assert set(m.match({"volume": 1})) == expected


def test_an_unknown_id(m: bm.Matcher) -> None:
    m.subscribe("a", "volume = 1")
    m.unsubscribe("a")
    for call in (m.unsubscribe, m.filter_of, lambda id: m.explain({}, id)):
        for unknown in ("a", "b"):
            with pytest.raises(bm.UnknownSubscriptionError, match=repr(unknown)) as missing:
                call(unknown)
            assert isinstance(missing.value, KeyError)
    assert len(m) == 0


def test_overlapping_boxes_do_overlap() -> None:
    compiled = compile_filter(SCHEMA, OVERLAPPING)
    assert not compiled.disjoint
    assert len(compiled.boxes) == 3


def test_many_boxes_report_their_subscription_once(m: bm.Matcher) -> None:
    m.subscribe("or", OVERLAPPING)
    m.subscribe("in", {"volume": [1, 3, 5, 7]})
    m.subscribe_many([{"id": f"or{n}", "filter": OVERLAPPING} for n in range(20)])
    event = TRIPLE
    everyone = sorted(["or", "in", *(f"or{n}" for n in range(20))])
    for _ in range(2):
        assert sorted(m.match(event)) == everyone
        assert by_event(m.match_batch([event, {}, event])) == [everyone, [], everyone]
        assert m.count_batch([event, {}, event]).tolist() == [22, 0, 22]
        m.compact()


def test_overlapping_filters_of_several_loads_stay_apart_when_merged() -> None:
    """Numbers of owners come from different loads and must not run into each other."""
    for first in range(12):
        m = bm.Matcher(SCHEMA)
        for load, overlapping in enumerate((first, 6, 3)):
            m.subscribe_many(
                [
                    {
                        "id": 100 * load + n,
                        "filter": OVERLAPPING if n == overlapping else "price = 9",
                    }
                    for n in range(12)
                ]
            )
        wanted = sorted([first, 106, 203])
        event = TRIPLE
        while True:
            assert sorted(m.match(event)) == wanted
            assert m.count_batch([event]).tolist() == [3]
            if not m._stores.merge_once():
                break
        m.compact()
        assert sorted(m.match(event)) == wanted


def test_as_many_boxes_as_subscriptions_but_not_one_each(m: bm.Matcher) -> None:
    """The overlapping filter is kept apart, and the boxes that are left number two as well."""
    m.subscribe_many(
        [{"id": "two", "filter": "volume IN (1, 3)"}, {"id": "or", "filter": OVERLAPPING}]
    )
    assert sorted(m.match({"volume": 1})) == sorted(m.match({"volume": 3})) == ["or", "two"]
    assert m.match({"price": 2.0}) == ["or"]
    m.unsubscribe("or")
    assert m.match({"volume": 3}) == ["two"]


@pytest.mark.parametrize("share", [2, 4, 10])
def test_compaction_comes_to_an_end(share: int) -> None:
    """Filters with and without overlapping boxes are kept in parts of their own."""
    m = bm.Matcher(SCHEMA)
    m.subscribe_many(
        [{"id": n, "filter": OVERLAPPING if n % share == 0 else "price = 9"} for n in range(100)]
    )
    m.subscribe_many([{"id": n, "filter": OVERLAPPING} for n in range(100, 110)])
    rounds = 0
    while m._stores.merge_once():
        rounds += 1
        assert rounds < 20
    m.compact()
    assert not m._stores.merge_once()
    limit = time.monotonic() + 5
    while any(thread.name == "boxmatch-compaction" for thread in threading.enumerate()):
        assert time.monotonic() < limit, "the compaction thread is still running"
        time.sleep(0.01)


def test_filters_that_never_match(m: bm.Matcher) -> None:
    m.subscribe("never", "volume > 5 AND volume < 3")
    m.subscribe_many([{"id": "false", "filter": "FALSE"}, {"id": "null", "filter": "price = NULL"}])
    for _ in range(2):
        assert len(m) == 3
        assert "never" in m
        assert (
            m.filter_of("never", as_written=False)
            == m.filter_of("null", as_written=False)
            == "FALSE"
        )
        assert m.match({}) == m.match({"volume": 4, "symbol": "", "price": 0.0}) == []
        assert m.count_batch([{}, {"volume": 4}]).tolist() == [0, 0]
        assert m.explain({"volume": 4}, "never").never
        m.compact()
    m.unsubscribe("never")
    m.subscribe("false", "TRUE")
    assert m.match({}) == ["false"]


def test_filters_without_a_condition(m: bm.Matcher) -> None:
    m.subscribe("all", "TRUE")
    m.subscribe("dict", {})
    for _ in range(2):
        assert sorted(m.match({})) == ["all", "dict"]
        assert m.count_batch(np.full((5, 6), np.nan)).tolist() == [2] * 5
        assert m.filter_of("dict") == "TRUE"
        m.compact()


def test_what_the_filter_cannot_say_is_an_error(m: bm.Matcher) -> None:
    with pytest.raises(bm.UnknownAttributeError):
        m.subscribe("a", "prize > 5")
    with pytest.raises(bm.FilterSyntaxError):
        m.subscribe("a", "price >")
    with pytest.raises(bm.UnsupportedFilterError):
        m.subscribe("a", "price > (SELECT 1)")
    assert len(m) == 0


def test_the_limit_of_boxes() -> None:
    m = bm.Matcher(SCHEMA, max_boxes=3)
    m.subscribe("a", "volume IN (1, 3, 5)")
    with pytest.raises(bm.FilterTooLargeError):
        m.subscribe("a", "volume IN (1, 3, 5, 7)")
    with pytest.raises(bm.FilterTooLargeError):
        m.subscribe_many([{"id": "b", "filter": "volume IN (1, 3, 5, 7)"}])
    assert m.match({"volume": 3}) == ["a"]


# --- many at once ----------------------------------------------------------------------------

IDS = ["a", "b", "c"]
FILTERS = ["symbol = 'IBM'", "price > 5 OR volume > 5", "symbol LIKE 'I%' AND price <= 5"]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": IDS, "filter": FILTERS}),
        pa.table({"id": IDS, "filter": FILTERS}).to_batches()[0],
        pa.table({"filter": pa.array(FILTERS).dictionary_encode(), "id": IDS, "note": [1, 2, 3]}),
        pa.concat_tables(
            [pa.table({"id": [i], "filter": [f]}) for i, f in zip(IDS, FILTERS, strict=True)]
        ),
        pd.DataFrame({"id": IDS, "filter": FILTERS}),
        pl.DataFrame({"id": IDS, "filter": FILTERS}),
        [{"id": i, "filter": f} for i, f in zip(IDS, FILTERS, strict=True)],
        ({"id": i, "filter": f} for i, f in zip(IDS, FILTERS, strict=True)),
    ],
    ids=["arrow", "batch", "dictionary", "chunks", "pandas", "polars", "records", "generator"],
)
def test_tables_of_filters(table: Any) -> None:
    m = bm.Matcher(SCHEMA)
    m.subscribe("b", "TRUE")
    assert m.subscribe_many(table) == (3, 1, 0, ())
    assert sorted(m.match({"symbol": "IBM", "price": 4.0})) == ["a", "c"]
    assert sorted(m.match({"symbol": "IBM", "price": 6.0, "volume": 6})) == ["a", "b"]
    assert m.match({"symbol": "I", "price": 5}) == ["c"]
    assert len(m) == 3


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([5, 6], pa.int32()),
        pa.array([5, 6], pa.uint64()),
        pa.chunked_array([[5], [6]]),
        pd.Series([5, 6], dtype="Int64"),
    ],
)
def test_tables_with_integer_ids(ids: Any) -> None:
    table = (
        pd.DataFrame({"id": ids, "filter": FILTERS[:2]})
        if isinstance(ids, pd.Series)
        else pa.table({"id": ids, "filter": FILTERS[:2]})
    )
    m = bm.Matcher(SCHEMA)
    m.subscribe_many(table)
    assert m.match({"symbol": "IBM"}) == [5]


def test_records_with_text_and_dict_filters(m: bm.Matcher) -> None:
    m.subscribe_many(
        [
            {"id": 1, "filter": {"symbol": "IBM"}},
            {"id": 2, "filter": "symbol = 'IBM'"},
            {"id": 3, "filter": {"volume": [1, 2]}},
        ]
    )
    assert sorted(m.match({"symbol": "IBM", "volume": 2})) == [1, 2, 3]


def test_a_generator_survives_a_full_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """When labels run out the load is made again, and the records must still be there."""
    from boxmatch.model.strings import AxisFullError, StringAxis

    add = StringAxis.add
    failures = iter([True])

    def failing(self: StringAxis, strings: Any) -> None:
        if next(failures, False):
            raise AxisFullError("full")
        add(self, strings)

    m = bm.Matcher(SCHEMA)
    monkeypatch.setattr(StringAxis, "add", failing)
    done = m.subscribe_many({"id": n, "filter": f"symbol = 'S{n}'"} for n in range(5))
    assert done.subscriptions == 5
    assert m.match({"symbol": "S3"}) == [3]


def bounds_table() -> pa.Table:
    return pa.table(
        {
            "id": [1, 2, 3, 4, 5, 6],
            "symbol": ["IBM", None, None, None, None, None],
            "symbol_low": [None, "I", None, None, None, None],
            "symbol_high": [None, "J", None, None, None, None],
            "price_low": [1.0, None, None, 2.0, None, 5.0],
            "price_high": [3.0, None, 2.0, 2.0, None, 4.0],
            "halted": [None, None, False, None, None, None],
            "side": pa.array([None, "sell", None, None, None, None]).dictionary_encode(),
            "at_low": pa.array([None, None, None, datetime(2024, 1, 1), None, None]),
        }
    )


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_tables_of_bounds(m: bm.Matcher, kind: str) -> None:
    table: Any = bounds_table()
    if kind == "pandas":
        table = table.to_pandas()
    if kind == "polars":
        table = pl.from_arrow(table)
    assert m.subscribe_many(table) == (6, 0, 1, ())
    # 5 wants everything, 6 is contradictory
    everything = [5]
    assert sorted(m.match({"symbol": "IBM", "price": 1.0})) == [1, *everything]
    assert sorted(m.match({"symbol": "IBM", "price": 3.0, "side": "sell"})) == [1, 2, *everything]
    assert m.match({"symbol": "IBM", "price": 3.1}) == everything
    assert m.match({"symbol": "IBM"}) == everything
    assert sorted(m.match({"symbol": "J", "side": "sell"})) == [2, *everything]
    assert m.match({"symbol": "J!", "side": "sell"}) == everything
    assert sorted(m.match({"price": -1e300, "halted": False})) == [3, *everything]
    assert m.match({"halted": False}) == everything
    assert sorted(m.match({"price": 2, "at": datetime(2024, 1, 1)})) == [4, *everything]
    assert m.match({"price": 2, "at": datetime(2023, 12, 31, 23, 59)}) == everything
    assert m.filter_of(6, as_written=False) == "FALSE"
    assert m.filter_of(5, as_written=False) == "TRUE"
    again = bm.Matcher(SCHEMA)
    for number in range(1, 7):
        again.subscribe(number, m.filter_of(number, as_written=False))
        assert again.filter_of(number, as_written=False) == m.filter_of(number, as_written=False)
    for event in ({"symbol": "IBM", "price": 2.0, "side": "sell", "at": datetime(2025, 1, 1)}, {}):
        assert sorted(again.match(event)) == sorted(m.match(event))


def test_an_attribute_called_id_is_not_the_subscriptions_id() -> None:
    m = bm.Matcher(bm.Schema({"id": "int", "price": "float"}))
    m.subscribe_many(pa.table({"id": [1, 2], "price_low": [1.0, 9.0]}))
    assert m.match({"price": 5.0}) == [1]
    assert m.filter_of(1, as_written=False) == "price >= 1"


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        (pa.table({"filter": ["TRUE"]}), ValueError, "'id'"),
        (pa.table({"id": [1]}), ValueError, "id"),
        (pa.table({"id": [1], "prize_low": [1.0]}), bm.SchemaError, "prize_low"),
        (pa.table({"id": [1], "price_low": ["x"]}), ValueError, "price_low"),
        (pd.DataFrame({"id": [1], 5: [1.0]}), bm.SchemaError, "column 5"),
        (pa.table({"id": [1, 2], "filter": ["TRUE", None]}), ValueError, "None|1"),
        ([{"filter": "TRUE"}], ValueError, "record 0"),
        ([{"id": 1, "filter": "TRUE"}, {"id": 2}], ValueError, "record 1"),
        ([5], ValueError, "record 0"),
        (pa.table({"id": [1.5], "filter": ["TRUE"]}), bm.SubscriptionIdError, "float"),
        (pa.table({"id": [True], "filter": ["TRUE"]}), bm.SubscriptionIdError, "bool"),
        (pa.table({"id": ["a", None], "filter": ["TRUE"] * 2}), bm.SubscriptionIdError, "None"),
        (pa.table({"id": [1, 1], "filter": ["TRUE"] * 2}), bm.DuplicateSubscriptionError, "1"),
        (
            pd.DataFrame({"id": ["a", "b", "a"], "filter": ["TRUE"] * 3}),
            bm.DuplicateSubscriptionError,
            "'a'",
        ),
        (
            pa.table(
                {"id": [2**63], "filter": ["TRUE"]},
                pa.schema({"id": pa.uint64(), "filter": pa.string()}),
            ),
            bm.SubscriptionIdError,
            "64 bits",
        ),
    ],
)
def test_tables_that_are_refused(table: Any, error: type[Exception], words: str) -> None:
    m = bm.Matcher(bm.Schema([*SCHEMA, bm.Attribute("5", "float")]))
    with pytest.raises(error, match=words):
        m.subscribe_many(table)
    assert len(m) == 0
    assert m.match({}) == []


def test_a_failing_bulk_call_changes_nothing(m: bm.Matcher) -> None:
    m.subscribe("a", "volume = 1")
    m.subscribe("b", "symbol = 'x'")
    bad = [
        {"id": "a", "filter": "TRUE"},
        {"id": "c", "filter": "symbol > 'm'"},
        {"id": "d", "filter": "volume >"},
    ]
    with pytest.raises(bm.FilterError) as refused:
        m.subscribe_many(bad)
    assert "2" in str(refused.value)  # the row
    with pytest.raises(bm.DuplicateSubscriptionError):
        m.subscribe_many([*bad[:2], bad[0]])
    with pytest.raises(bm.AttributeValueError):
        m.subscribe_many(pa.table({"id": ["a", "c"], "side": ["buy", "bye"]}))
    assert len(m) == 2
    assert "c" not in m
    assert m.filter_of("a") == "volume = 1"
    assert m.match({"symbol": "x"}) == ["b"]
    assert m.match({"symbol": "z"}) == []


def test_boxes_from_arrays() -> None:
    schema = bm.Schema({"x": "int", "y": "float", "b": "bool"})
    m = bm.Matcher(schema)
    nan = np.nan
    lows = [[1, nan, nan], [nan, 0.5, nan], [nan, nan, 1], [nan, nan, nan], [5, nan, nan]]
    highs = [[3, nan, nan], [nan, nan, nan], [nan, nan, 1], [nan, nan, nan], [4, nan, nan]]
    assert m.subscribe_boxes(["a", "b", "c", "d", "e"], lows, highs) == (5, 0, 1, ())
    assert sorted(m.match({"x": 3})) == ["a", "d"]
    assert sorted(m.match({"x": 4, "y": 0.5})) == ["b", "d"]
    assert sorted(m.match({"b": True})) == ["c", "d"]
    assert m.match({"b": False}) == ["d"]
    filters = {id: m.filter_of(id, as_written=False) for id in "abcde"}
    assert filters == {
        "a": "x BETWEEN 1 AND 3",
        "b": "y >= 0.5",
        "c": filters["c"],
        "d": "TRUE",
        "e": "FALSE",
    }
    for id in "abcde":
        m.subscribe(id, filters[id])
    assert {id: m.filter_of(id, as_written=False) for id in "abcde"} == filters


@pytest.mark.parametrize("ids", [[1, 2], np.array([1, 2]), pa.array([1, 2]), pd.Series([1, 2])])
def test_boxes_take_ids_of_any_make(ids: Any) -> None:
    m = bm.Matcher(NUMBERS)
    m.subscribe_boxes(ids, [[0, 0], [5, 0]], [[9, 9], [9, 9]])
    assert m.match({"x": 1, "y": 1}) == [1]


def test_boxes_do_not_keep_the_arrays_they_came_from() -> None:
    for index in index_names():
        m = bm.Matcher(NUMBERS, index=index)
        ids, lows, highs = np.array([1, 2]), np.zeros((2, 2)), np.ones((2, 2))
        m.subscribe_boxes(ids, lows, highs)
        ids[:], lows[:], highs[:] = 7, 50, 60
        assert sorted(m.match({"x": 1, "y": 1})) == [1, 2]


def test_arrays_that_are_refused() -> None:
    m = bm.Matcher(NUMBERS)
    with pytest.raises(bm.DuplicateSubscriptionError):
        m.subscribe_boxes([1, 1], np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="3 ids"):
        m.subscribe_boxes([1, 2, 3], np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="rows"):
        m.subscribe_boxes([1, 2], np.zeros((2, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"2|3"):
        m.subscribe_boxes([1, 2], np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="dimensions"):
        m._subscribe_compressed([1], Boxes.of(3, [[]]))
    assert len(m) == 0


def test_filters_compiled_before() -> None:
    schema = bm.Schema({"x": "int", "s": "string"})
    filters = [
        compile_filter(schema, text) for text in ("x > 1", "s = 'a' OR x = 7", "x > 1 AND x < 1")
    ]
    m = bm.Matcher(schema)
    assert m.subscribe_compiled([1, 2, 3], filters) == bm.Matcher(schema).subscribe_many(
        [
            {"id": 1, "filter": "x > 1"},
            {"id": 2, "filter": "s = 'a' OR x = 7"},
            {"id": 3, "filter": "x > 1 AND x < 1"},
        ]
    )
    assert m.subscribe_compiled([np.int64(3)], filters[:1]).replaced == 1
    assert sorted(m.match({"x": 7})) == [1, 2, 3]
    with pytest.raises(ValueError, match="2 ids for 1 filters"):
        m.subscribe_compiled([1, 2], filters[:1])


# --- looking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "symbol = 'IBM'",
        "symbol LIKE 'IB%'",
        "symbol > 'A' AND symbol <= 'it''s'",
        "symbol = ''",
        "symbol IS NULL AND price IS NOT NULL",
        "price BETWEEN 20 AND 30",
        "price > 0.1 OR volume IN (1, 3, 5)",
        "NOT halted",
        "side <> 'sell'",
        "side IN ('buy', 'short') OR at < '2024-01-01'",
        OVERLAPPING,
        "FALSE",
        "TRUE",
    ],
)
def test_filters_round_trip(m: bm.Matcher, text: str) -> None:
    m.subscribe("a", text)
    shown = m.filter_of("a", as_written=False)
    m.subscribe("b", shown)
    assert m.filter_of("b", as_written=False) == shown
    m.subscribe("noise", "symbol > 'IA' OR symbol BETWEEN '' AND 'zz' OR symbol = 'IBN'")
    m.compact()
    wanted = compile_filter(SCHEMA, text)
    for id in ("a", "b"):
        again = compile_filter(SCHEMA, m.filter_of(id, as_written=False))
        assert set(again.boxes) == set(wanted.boxes)
        assert again.disjoint == wanted.disjoint


def test_len_and_in(m: bm.Matcher) -> None:
    assert len(m) == 0
    assert "a" not in m
    m.subscribe("a", "TRUE")
    assert "a" in m
    assert 1 not in m
    assert [] not in m


def test_explaining(m: bm.Matcher) -> None:
    m.subscribe("bob", "symbol = 'IBM' AND price BETWEEN 20 AND 30")
    for _ in range(2):
        event = {"symbol": "IBM", "price": 35.0}
        explained = m.explain(event, "bob")
        assert not explained
        assert explained.matched is False
        assert explained.subscription == "bob"
        wanted = {p.attribute: (p.wanted, p.got, p.satisfied) for p in explained.predicates}
        assert wanted == {
            "symbol": ("symbol = 'IBM'", "IBM", True),
            "price": ("price BETWEEN 20 AND 30", 35.0, False),
        }
        assert "does not match" in str(explained)
        assert "price BETWEEN 20 AND 30" in str(explained)
        assert m.explain({"symbol": "IBM", "price": 20}, "bob")
        absent = m.explain({"price": None}, "bob")
        assert [p.got for p in absent.predicates] == [None, None]
        assert "absent" in str(absent)
        m.compact()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_is_not_copied(m: bm.Matcher, way: Callable[[Any], Any]) -> None:
    """A copy that shares its subscriptions would change with what it was copied from."""
    m.subscribe("a", "price > 3")
    with pytest.raises(bm.StorageError, match="cannot be copied or pickled: save it to a dir"):
        way(m)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_what_it_gives_can_be_copied(m: bm.Matcher, way: Callable[[Any], Any]) -> None:
    m.subscribe("a", "price > 3")
    result = m.match_batch([{"price": 5.0}])
    assert way(result).to_arrow().equals(result.to_arrow())
    assert way(m.schema) == m.schema
    explained = m.explain({"price": 5.0}, "a")
    assert way(explained) == explained


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"filter": ["price > 3"]}), "no column 'id' .it has: 'filter'"),
        (pa.table({"price": [3.0], "name": ["a"]}), "no column 'id' .it has: 'price', 'name'"),
        ([{"id": 1, "filter": "TRUE"}, {"filter": "TRUE"}], "record 1 has no 'id'"),
        ([{"id": 1}], "record 0 has no 'filter'"),
        ([("a", "TRUE")], "record 0 is not a dict"),
    ],
)
def test_a_table_without_ids(m: bm.Matcher, table: Any, said: str) -> None:
    for on_error in ("raise", "skip"):
        with pytest.raises(bm.SchemaError, match=said):
            m.subscribe_many(table, on_error=on_error)  # type: ignore[arg-type]
    assert len(m) == 0


@pytest.mark.parametrize("index", index_names())
def test_events_with_lists_one_by_one(index: str) -> None:
    matcher = bm.Matcher({"tags": "list of string", "x": "int"}, index=index)
    matcher.subscribe("tag", "'a' = ANY(tags) AND x > 1")
    matcher.subscribe("none", "NOT 'a' = ANY(tags)")
    matcher.compact()
    assert matcher.match({"tags": ["b", "a"], "x": 2}) == ["tag"]
    assert matcher.match({"tags": ["b"], "x": 2}) == ["none"]


def test_expressions_are_limited_to_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis_table, "MOST_EXPRESSIONS", 4)
    matcher = bm.Matcher({"x": "int"})
    for divisor in range(2, 6):
        matcher.subscribe(divisor, f"x % {divisor} = 0")
    with pytest.raises(bm.FilterTooLargeError, match="4 different expressions, and x % 6 would"):
        matcher.subscribe(2, "x % 6 = 0")
    assert sorted(matcher.match({"x": 12})) == [2, 3, 4]
    matcher.unsubscribe(3)  # nothing is merged yet
    matcher.subscribe(6, "x % 6 = 0")
    matcher.compact()
    matcher.unsubscribe(4)
    matcher.unsubscribe(5)
    new = compile_filter(matcher.schema, "x % 7 = 0 AND x % 8 = 0")
    matcher.check_room(new.axes)
    with pytest.raises(bm.FilterTooLargeError, match="x % 9"):
        matcher.check_room([*new.axes, *compile_filter(matcher.schema, "x % 9 = 0").axes])
    matcher.subscribe_compiled([78, 87], [new, new])
    assert sorted(matcher.match({"x": 336})) == [2, 6, 78, 87]


def test_explaining_a_suffix_shows_the_text_as_it_is() -> None:
    matcher = bm.Matcher({"title": "string"})
    matcher.subscribe("suffix", "title ILIKE '%.PDF'")
    matcher.subscribe("reversed", "REVERSE(title) = 'txt.a'")
    [predicate] = matcher.explain({"title": "A.txt"}, "suffix").predicates
    assert (predicate.wanted, predicate.got) == ("title ILIKE '%.PDF'", "A.txt")
    [predicate] = matcher.explain({"title": "A.txt"}, "reversed").predicates
    assert (predicate.wanted, predicate.got) == ("REVERSE(title) = 'txt.a'", "txt.A")


def test_explaining_alternatives(m: bm.Matcher) -> None:
    m.subscribe("a", OVERLAPPING)
    explained = m.explain({"price": 3.0}, "a")
    assert explained.matched
    assert len(explained.alternatives) == 3
    assert [p.attribute for p in explained.predicates] == ["price"]
    assert "2 more alternatives" in str(m.explain({}, "a"))
    m.subscribe("all", "TRUE")
    assert m.explain({}, "all").predicates == ()
    assert "always" in str(m.explain({}, "all"))
    m.subscribe("never", "FALSE")
    assert "never" in str(m.explain({}, "never"))


def test_explaining_agrees_with_matching(m: bm.Matcher) -> None:
    filters = ["symbol > 'b'", "price < 2", "at = '2024-01-01'", "side >= 'sell'", "halted IS NULL"]
    for number, text in enumerate(filters):
        m.subscribe(number, text)
    for event in (
        {"symbol": "c", "price": 1},
        {"at": datetime(2024, 1, 1, tzinfo=UTC), "side": "short"},
        {"halted": True, "side": "buy", "price": 2.0},
        {},
    ):
        found = m.match(event)
        assert {n for n in range(5) if m.explain(event, n)} == set(found)


# --- matching --------------------------------------------------------------------------------

EVENTS = [
    {"symbol": "IBM", "price": 4.0, "volume": 1, "halted": False, "side": "buy"},
    {"symbol": "AAPL", "price": 6.0, "volume": None, "halted": True, "side": None},
    {"symbol": None, "price": None, "volume": 6, "halted": None, "side": "short"},
    {"symbol": "I", "price": 5.0, "volume": 0, "halted": None, "side": "sell"},
]


def event_tables() -> list[Any]:
    table = pa.Table.from_pylist(EVENTS).append_column("payload", pa.array([[1]] * 4))
    return [
        EVENTS,
        tuple(EVENTS),
        iter(EVENTS),
        table,
        table.to_batches()[0],
        pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)]),
        pd.DataFrame(EVENTS),
        pl.DataFrame(EVENTS),
    ]


@pytest.mark.parametrize("place", range(8))
def test_batches_of_any_make(m: bm.Matcher, place: int) -> None:
    m.subscribe_many([{"id": i, "filter": f} for i, f in zip(IDS, FILTERS, strict=True)])
    m.subscribe("d", {"side": "short"})
    events = event_tables()[place]
    result = m.match_batch(events)
    assert result.counts.dtype == np.int64
    assert by_event(result) == [["a", "c"], ["b"], ["b", "d"], ["c"]]
    assert len(result) == 4
    assert len(result.subscription) == 6
    assert by_event(result) == [sorted(m.match(event)) for event in EVENTS]
    assert m.count_batch(event_tables()[place]).tolist() == [2, 1, 2, 1]


def test_batches_of_numbers() -> None:
    m = bm.Matcher(NUMBERS)
    m.subscribe(1, "x = 3")
    m.subscribe(2, "y IS NULL")
    result = m.match_batch(np.array([[3, 0.5], [np.nan, np.nan], [3, np.nan]]))
    assert by_event(result) == [[1], [2], [1, 2]]


def test_results_as_arrow(m: bm.Matcher) -> None:
    m.subscribe("a", "volume > 1")
    table = m.match_batch([{"volume": 2}, {"volume": 1}, {"volume": 3}]).to_arrow()
    assert table.schema == pa.schema({"event": pa.int64(), "subscription": pa.string()})
    assert table.to_pydict() == {"event": [0, 2], "subscription": ["a", "a"]}
    numbers = bm.Matcher(SCHEMA)
    numbers.subscribe(5, "volume > 1")
    table = numbers.match_batch([{"volume": 2}]).to_arrow()
    assert table.schema == pa.schema({"event": pa.int64(), "subscription": pa.int64()})


@pytest.mark.parametrize("id", ["a", 1])
def test_nothing_to_match(m: bm.Matcher, id: Any) -> None:
    assert m.match({}) == []
    assert m.match({"volume": 1}) == []
    for filled in range(3):
        for empty in ([], pa.Table.from_pylist(EVENTS).slice(0, 0), np.zeros((0, 6))):
            result = m.match_batch(empty)
            assert len(result) == 0
            assert result.counts.tolist() == []
            assert result.event.tolist() == []
            assert result.subscription.tolist() == []
            assert result.to_arrow().num_rows == 0
            assert m.count_batch(empty).tolist() == []
            assert m.count_batch(empty).dtype == np.int64
        if filled == 0:
            m.subscribe(id, "volume BETWEEN 5 AND 6")
        else:
            m.compact()
    assert m.match_batch([{}, {}]).counts.tolist() == [0, 0]
    m.unsubscribe(id)
    assert m.match_batch([{"volume": 5}] * 3).counts.tolist() == [0, 0, 0]
    assert m.match_batch([{"volume": 5}]).to_arrow().schema.field("subscription").type == (
        pa.string() if id == "a" else pa.int64()
    )


@pytest.mark.parametrize("events", [1, 127, 129, 257, 1000])
def test_threads_agree(m: bm.Matcher, events: int) -> None:
    rng = np.random.default_rng(events)
    m.subscribe_many(
        [{"id": n, "filter": f"volume BETWEEN {n % 50} AND {n % 70}"} for n in range(300)]
        + [{"id": 1000 + n, "filter": OVERLAPPING} for n in range(20)]
    )
    m.subscribe(300, "price > 0.5")
    batch = [
        {"volume": int(v), "price": float(p)}
        for v, p in zip(rng.integers(0, 80, events), rng.random(events) * 7, strict=True)
    ]
    wanted = [sorted(m.match(event)) for event in batch]
    for threads in (1, 2, 3, None):
        result = m.match_batch(batch, threads=threads)
        assert by_event(result) == wanted
        assert np.array_equal(result.event, np.sort(result.event))
        counts = m.count_batch(batch, threads=threads)
        assert counts.tolist() == result.counts.tolist() == [len(one) for one in wanted]


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_refused(m: bm.Matcher, threads: int) -> None:
    m.subscribe("a", "volume = 1")
    for call in (m.match_batch, m.count_batch):
        with pytest.raises(ValueError, match="threads"):
            call([{}], threads=threads)


def test_values_are_checked(m: bm.Matcher) -> None:
    m.subscribe("a", "volume = 1")
    for event in ({"volume": 1.5}, {"volume": True}, {"symbol": 5}, {"side": "bye"}):
        with pytest.raises(bm.AttributeValueError):
            m.match(event)
        with pytest.raises(bm.AttributeValueError):
            m.match_batch([event])
        with pytest.raises(bm.AttributeValueError):
            m.explain(event, "a")
    with pytest.raises(bm.EventError):
        m.match_batch({"volume": 1})
    with pytest.raises(bm.EventError):
        m.match([1, 2])  # type: ignore[arg-type]


def test_strings_that_no_filter_names(m: bm.Matcher) -> None:
    m.subscribe("low", "symbol < 'b'")
    m.subscribe("mid", "symbol BETWEEN 'b' AND 'd'")
    m.subscribe("high", "symbol > 'd'")
    expected = {"": "low", "a": "low", "b": "mid", "bz": "mid", "d": "mid", "d\0": "high"}
    for number in range(3):
        for text, id in expected.items():
            assert m.match({"symbol": text}) == [id]
        # More strings on the axis, and another place for the boxes.
        m.subscribe(f"other{number}", f"symbol = '{'bc'[number % 2]}{number}'")
        if number:
            m.compact()


# --- the rest --------------------------------------------------------------------------------


def test_memory_usage(m: bm.Matcher) -> None:
    empty = m.memory_usage()
    m.subscribe_many(
        [{"id": f"s{n}", "filter": f"symbol = 'x{n}' AND volume = {n}"} for n in range(3000)]
    )
    m.unsubscribe("s1")
    full = m.memory_usage()
    assert full["total"] == sum(size for part, size in full.items() if part != "total")
    assert all(isinstance(size, int) and size >= 0 for size in full.values())
    assert full["total"] > empty["total"]
    assert full["boxes"] >= 3000 * 2 * 18
    assert full["ids"] >= 3000 * 8
    assert full["strings"] > empty["strings"]


def test_warming_up_changes_nothing(m: bm.Matcher) -> None:
    m.warmup()
    assert len(m) == 0
    m.subscribe("a", "volume = 1")
    m.warmup()
    assert m.match({"volume": 1}) == ["a"]


def test_many_subscriptions_one_by_one() -> None:
    """Through several tails and merges in the background."""
    m = bm.Matcher(NUMBERS)
    for number in range(5000):
        m.subscribe(number, {"x": number % 10})
        if number % 7 == 0:
            m.unsubscribe(number // 2)
            if number // 2 % 3 == 0:
                m.subscribe(number // 2, {"x": number // 2 % 10})
    gone = {n // 2 for n in range(0, 5000, 7) if n // 2 % 3}
    for digit in range(10):
        assert set(m.match({"x": digit})) == {
            n for n in range(5000) if n % 10 == digit and n not in gone
        }
    assert len(m) == 5000 - len(gone)
    m.compact()
    assert m.count_batch(np.array([[d, np.nan] for d in range(10)])).sum() == len(m)


def test_compressed_boxes_at_the_ends_of_the_axis() -> None:
    m = bm.Matcher(NUMBERS)
    m._subscribe_compressed(
        [1, 2, 3, 4],
        Boxes.of(2, [[(0, ABSENT, ABSENT)], [(0, ABSENT, LAST)], [(0, 5, 4)], [(1, 9, 2)]]),
    )
    assert sorted(m.match({})) == [1, 2]
    assert m.match({"x": 5, "y": 1.0}) == [2]
    assert m.filter_of(3, as_written=False) == m.filter_of(4, as_written=False) == "FALSE"


@pytest.mark.parametrize("size", [1, 300, 1_000, 5_000])
def test_batches_are_a_batch_in_parts(size: int) -> None:
    rng = np.random.default_rng(size)
    m = bm.Matcher({"a": "int", "b": "int"})
    m.subscribe_boxes(np.arange(700), rng.integers(0, 50, (700, 2)), rng.integers(40, 99, (700, 2)))
    events = rng.integers(0, 99, (1_000, 2)).astype(float)
    whole = m.match_batch(events)
    parts = list(m.match_batches(events, size=size))
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert sum(map(len, parts)) == 1_000
    found = [set(ids.tolist()) for part in parts for _, ids in part]
    assert found == [set(ids.tolist()) for _, ids in whole]


def test_batches_of_no_events() -> None:
    m = bm.Matcher({"a": "int", "b": "int"})
    assert list(m.match_batches(np.zeros((0, 2)))) == []
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        next(m.match_batches([{"a": 1}], size=0))


def test_a_result_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from boxmatch.engine import matcher as module

    m = bm.Matcher({"a": "int"})
    m.subscribe_boxes(range(1_000), np.zeros((1_000, 1)), np.full((1_000, 1), 5_000.0))
    events = np.arange(2_000.0).reshape(-1, 1)
    monkeypatch.setattr(module, "_NEVER_TOO_LARGE", 1_000)
    monkeypatch.setattr(module, "available_memory", lambda: 24 * 1_000 * 2_000)
    assert len(m.match_batch(events).subscription) == 2_000_000
    monkeypatch.setattr(module, "available_memory", lambda: 24 * 1_000 * 2_000 - 1)
    with pytest.raises(bm.ResultTooLargeError, match=r"about 2,000,000 matches of 2,000 events"):
        m.match_batch(events)
    assert sum(len(part.subscription) for part in m.match_batches(events)) == 2_000_000
    monkeypatch.setattr(module, "available_memory", lambda: None)
    assert len(m.match_batch(events).subscription) == 2_000_000
