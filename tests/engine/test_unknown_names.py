"""Events with names that the schema lacks: payload, or typing errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import boxmatch as bm

SCHEMA = {"symbol": "string", "price": "float", "trader.name": "string"}
PAYLOAD = {"symbol": "IBM", "prize": 3.0}


def matcher(unknown: Any) -> bm.Matcher:
    made = bm.Matcher(SCHEMA, index="scan", unknown=unknown)
    made.subscribe("a", "symbol = 'IBM'")
    return made


def test_payload_is_ignored() -> None:
    m = matcher("ignore")
    assert m.match(PAYLOAD) == ["a"]
    assert m.count(PAYLOAD) == 1
    assert m.match_batch([PAYLOAD, {}, {"other": 1}]).counts.tolist() == [1, 0, 0]
    assert m.count_batch(pa.Table.from_pylist([PAYLOAD])).tolist() == [1]


def told(unknown: str, look: Callable[[Any], object], events: Any) -> str:
    """The text of the error, or of the one warning, which points at the caller."""
    if unknown == "refuse":
        with pytest.raises(bm.EventError, match="schema") as error:
            look(events)
        return str(error.value)
    with pytest.warns(UserWarning, match="schema") as caught:
        look(events)
    (warning,) = caught.list
    assert warning.filename == __file__
    return str(warning.message)


@pytest.mark.parametrize("unknown", ["warn", "refuse"])
def test_typing_errors_are_told(unknown: Any) -> None:
    m = matcher(unknown)
    hint = "'prize'{} is not in the schema; did you mean 'price'?"
    for look_at_one in (m.match, m.count):
        assert told(unknown, look_at_one, PAYLOAD) == "attribute " + hint.format("")
    for look in (m.match_batch, m.count_batch):
        one = told(unknown, look, iter([{}, PAYLOAD]))
        assert one == "attribute " + hint.format(" in row 1")
        for frame in (pa.Table.from_pylist, pd.DataFrame, pl.DataFrame):
            assert told(unknown, look, frame([PAYLOAD])) == "column " + hint.format("")


def test_what_is_no_typing_error() -> None:
    m = matcher("refuse")
    for event in ({}, {"symbol": "IBM"}, {"trader": {"name": "Ann"}}, {"trader.name": "Ann"}):
        m.match(event)
        m.match_batch([event])
    m.match_batch(pa.table({"trader": [{"name": "Ann"}], "price": [1.0]}))
    m.match_batch(np.zeros((0, 3)))
    with pytest.raises(bm.EventError, match="not one dict"):
        m.match_batch(PAYLOAD)
    with pytest.raises(bm.EventError, match="an event is a mapping"):
        m.match(3)  # type: ignore[arg-type]


def test_a_warning_does_not_change_the_answer() -> None:
    m = matcher("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert m.match(PAYLOAD) == ["a"]
        assert m.match_batch(event for event in [PAYLOAD]).counts.tolist() == [1]
        assert m.match_batch(pa.Table.from_pylist([PAYLOAD]).to_reader()).counts.tolist() == [1]


def test_what_is_kept_is_no_typing_error() -> None:
    table = pa.table({"symbol": ["IBM"], "id": [7]})
    result = matcher("refuse").match_batch(table, keep=["id"])
    assert result.to_arrow().column("id").to_pylist() == [7]


@pytest.mark.parametrize("unknown", ["ignore", "warn", "refuse"])
@pytest.mark.parametrize("frame", [pa.Table.from_pylist, pd.DataFrame, pl.DataFrame])
def test_a_table_without_any_attribute(unknown: Any, frame: Any) -> None:
    m = matcher(unknown)
    for look in (m.match_batch, m.count_batch):
        with pytest.raises(bm.EventError, match=r"none .*: 'Symbol', 'x'; did you mean 'symbol'"):
            look(frame([{"Symbol": "IBM", "x": 1}]))
    with pytest.raises(
        bm.EventError, match=r"'x'; attributes are 'price', 'symbol', 'trader.name'"
    ):
        m.match_batch(frame([{"x": 1}]))
    assert m.match_batch(frame([])).counts.tolist() == []


def test_columns_without_names() -> None:
    with pytest.raises(bm.EventError, match=r"none of the columns is an attribute .*: 0, 1"):
        matcher("ignore").match_batch(pd.DataFrame(np.zeros((2, 2))))


def test_the_setting() -> None:
    with pytest.raises(ValueError, match="'ignore', 'warn' or 'refuse', not 'carry'"):
        matcher("carry")


def test_the_setting_is_not_saved(tmp_path: Path) -> None:
    matcher("refuse").save(tmp_path / "saved")
    assert bm.Matcher.load(tmp_path / "saved").match(PAYLOAD) == ["a"]
    with pytest.raises(bm.EventError, match="prize"):
        bm.Matcher.load(tmp_path / "saved", unknown="refuse").match(PAYLOAD)
    bm.Matcher.open(tmp_path / "durable", SCHEMA, unknown="refuse").close()
    with bm.Matcher.open(tmp_path / "durable") as m:
        assert m.match(PAYLOAD) == []
    with (
        bm.Matcher.open(tmp_path / "durable", unknown="refuse") as m,
        pytest.raises(bm.EventError, match="prize"),
    ):
        m.match(PAYLOAD)
