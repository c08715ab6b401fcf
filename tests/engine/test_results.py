from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import boxmatch as bm

EVENTS = [
    {"symbol": "IBM", "price": 20.0, "note": {"n": 1}},
    {"symbol": "SAP", "price": 120.0, "note": None},
    {"symbol": "KO"},
    {"symbol": "IBM", "price": 31.0, "note": {"n": 4}},
]
BY_EVENT = [[1, 3], [2], [], [3]]
MAKES: dict[str, Callable[[], Any]] = {
    "dicts": lambda: EVENTS,
    "generator": lambda: (event for event in EVENTS),
    "arrow": lambda: pa.Table.from_pylist(EVENTS),
    "chunks": lambda: pa.concat_tables([pa.Table.from_pylist(EVENTS).slice(i, 2) for i in (0, 2)]),
    "stream": lambda: pa.Table.from_pylist(EVENTS).to_reader(),
    "pandas": lambda: pd.DataFrame(EVENTS),
    "polars": lambda: pl.DataFrame(EVENTS),
}


@pytest.fixture
def matcher() -> bm.Matcher:
    matcher = bm.Matcher({"symbol": "string", "price": "float"}, index="scan")
    matcher.subscribe(1, "symbol = 'IBM' AND price < 25")
    matcher.subscribe(2, "price > 100")
    matcher.subscribe(3, "symbol LIKE 'I%'")
    return matcher


def test_a_result_by_event(matcher: bm.Matcher) -> None:
    result = matcher.match_batch(EVENTS)
    assert len(result) == 4
    assert [(event, sorted(ids)) for event, ids in result] == list(enumerate(BY_EVENT))
    assert [sorted(result[event]) for event in range(4)] == BY_EVENT
    assert result[-1].tolist() == result[np.int64(3)].tolist() == [3]
    assert all(np.shares_memory(ids, result.subscription) for _, ids in result if len(ids))
    for event in (4, -5):
        with pytest.raises(IndexError, match=f"no event {event}: the batch has 4"):
            result[event]
    with pytest.raises(TypeError):
        result["IBM"]  # type: ignore[index]
    event, ids = result.pairs()
    assert sorted(zip(event, ids, strict=True)) == [(0, 1), (0, 3), (1, 2), (3, 3)]


def test_a_result_without_matches_is_false(matcher: bm.Matcher) -> None:
    assert matcher.match_batch(EVENTS)
    nothing = matcher.match_batch([{"symbol": "KO"}])
    assert (len(nothing), bool(nothing), nothing[0].tolist()) == (1, False, [])
    empty = matcher.match_batch([])
    assert (len(empty), bool(empty), list(empty)) == (0, False, [])
    assert empty.to_arrow().num_rows == 0


def test_a_result_is_a_table(matcher: bm.Matcher) -> None:
    result = matcher.match_batch(EVENTS)
    table = result.to_arrow()
    assert table.schema == pa.schema({"event": pa.int64(), "subscription": pa.int64()})
    for name, array in (("event", result.event), ("subscription", result.subscription)):
        memory = table.column(name).chunk(0).to_numpy(zero_copy_only=True)
        assert np.shares_memory(memory, array)  # not a copy
    assert pa.table(result).equals(table)
    assert pl.DataFrame(result).equals(result.to_polars())
    assert result.to_polars().to_arrow().equals(table)
    assert result.to_pandas().equals(table.to_pandas())
    count = duckdb.sql("SELECT count(*) FROM result WHERE subscription = 3").fetchall()
    assert count == [(2,)]


def test_ids_that_are_strings_in_a_table() -> None:
    matcher = bm.Matcher({"price": "float"})
    matcher.subscribe("a", "price > 1")
    result = matcher.match_batch([{"price": 2.0}], keep=["price"])
    assert result.to_polars().rows() == [(0, "a", 2.0)]
    frame = result.to_pandas()
    assert frame.equals(result.to_arrow().to_pandas())
    assert frame.to_dict("list") == {"event": [0], "subscription": ["a"], "price": [2]}
    frame.loc[0, ["event", "subscription"]] = [7, "b"]  # it is a copy
    assert next(iter(result))[1].tolist() == ["a"]
    assert result.event.tolist() == [0]


@pytest.mark.parametrize("make", MAKES)
def test_columns_that_are_kept(matcher: bm.Matcher, make: str) -> None:
    result = matcher.match_batch(MAKES[make](), keep=["symbol", "note"])
    assert result.to_arrow().column_names == ["event", "subscription", "symbol", "note"]
    rows = sorted(
        result.to_arrow().to_pylist(), key=lambda row: (row["event"], row["subscription"])
    )
    assert rows == [
        {"event": event, "subscription": id} | {n: EVENTS[event].get(n) for n in ("symbol", "note")}
        for event, ids in enumerate(BY_EVENT)
        for id in ids
    ]
    assert result.to_polars().columns == list(result.to_pandas()) == result.to_arrow().column_names
    with pytest.raises(bm.EventError, match="no column 'symbl'; did you mean 'symbol'"):
        matcher.match_batch(MAKES[make](), keep=["symbl"])
    with pytest.raises(bm.EventError, match="the result has a column 'event' of its own"):
        matcher.match_batch(MAKES[make](), keep=["event"])


def test_columns_of_arrays_and_of_empty_batches(matcher: bm.Matcher) -> None:
    numbers = bm.Matcher({"x": "float", "y": "float"})
    numbers.subscribe(1, "x > 1")
    result = numbers.match_batch(np.array([[0.0, 1.0], [2.0, np.nan], [3.0, 4.0]]), keep=["y"])
    assert result.to_pandas()["y"].tolist()[1:] == [4.0]
    with pytest.raises(bm.EventError, match="no column 'z'"):
        numbers.match_batch(np.zeros((1, 2)), keep=["z"])
    assert matcher.match_batch([], keep=["id"]).to_arrow().num_rows == 0
    empty = pa.table({"symbol": pa.chunked_array([], pa.string())})
    kept = matcher.match_batch(empty, keep=["symbol"]).to_arrow()
    assert kept.schema.field("symbol").type == pa.string()


def test_what_cannot_be_kept(matcher: bm.Matcher) -> None:
    with pytest.raises(bm.EventError, match="keep is a list of columns, not the text 'symbol'"):
        matcher.match_batch(EVENTS, keep="symbol")
    mixed = [{"symbol": "IBM", "id": 1}, {"symbol": "IBM", "id": "two"}]
    result = matcher.match_batch(mixed, keep=["id"])
    assert result[1].tolist() == [3]
    with pytest.raises(bm.EventError, match="column 'id' cannot be read"):
        result.to_arrow()
    twice = pa.table([["IBM"], [1], [2]], names=["symbol", "id", "id"])
    with pytest.raises(bm.EventError, match="two columns named 'id'"):
        matcher.match_batch(twice, keep=["id"])
    with pytest.raises(bm.EventError, match="not one dict"):
        matcher.match_batch(EVENTS[0], keep=["symbol"])
    with pytest.raises(bm.EventError, match="mapping"):
        matcher.match_batch([1], keep=["symbol"])
