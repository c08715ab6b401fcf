"""Many publications are moved in one operation, to what one operation each would give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.spaces import members

SCHEMA = bm.Schema({"x": "int", "y": "float", "kind": "string"})
KINDS = ["bus", "car", "van"]
FORMS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "dicts": lambda columns: [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ],
    "iterator": lambda columns: iter(FORMS["dicts"](columns)),
    "arrow": lambda columns: pa.table(columns),
    "chunks": lambda columns: pa.Table.from_batches(pa.table(columns).to_batches(7)),
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
}


def some_spaces(**options: Any) -> bm.Spaces:
    """A hundred publications, some of which constrain less than others, and who wants them."""
    rng = np.random.default_rng(1)
    spaces = bm.Spaces({"road": SCHEMA}, **options)
    for number in range(100):
        point = {"x": int(rng.integers(20)), "y": float(rng.integers(20)), "kind": "bus"}
        spaces.publish(number, dict(list(point.items())[: 1 + number % 3]))
        low, high = sorted(rng.integers(0, 20, 2).tolist())
        spaces.subscribe(number, {"x": (low, high), "kind": KINDS[number % 3]})
        spaces.subscribe(100 + number, {"y": (low + 0.5, None)})
    return spaces


def moves(count: int) -> tuple[list[int], dict[str, list[Any]]]:
    rng = np.random.default_rng(2)

    kept = rng.integers(0, 3, count)  # one that is not freed, so that something remains

    def some(values: list[Any], place: int) -> list[Any]:
        gone = (rng.integers(0, 3, count) == 0) & (kept != place)
        return [None if free else value for value, free in zip(values, gone, strict=True)]

    columns = {
        "x": some(rng.integers(0, 20, count).tolist(), 0),
        "y": some(rng.integers(0, 20, count).astype(float).tolist(), 1),
        "kind": some(rng.choice([*KINDS, "tram", "new", ""], count).tolist(), 2),
    }
    return rng.integers(0, 100, count).tolist(), columns


def one_by_one(spaces: bm.Spaces, ids: list[int], columns: dict[str, list[Any]]) -> list[Any]:
    rows = FORMS["dicts"](columns)
    notified = [list(spaces.update_publication(*one)) for one in zip(ids, rows, strict=True)]
    return in_order(notified)


def in_order(notified: list[list[Any]]) -> list[Any]:
    """The notifications of a row of one kind may come in any order."""
    return [sorted(one[1:] for one in row) for row in notified if row]


def by_row(notified: bm.Transitions, expected: list[Any]) -> list[Any]:
    listed, rows, start = list(notified), [], 0
    for row in expected:
        rows.append(listed[start : start + len(row)])
        start += len(row)
    assert start == len(listed)
    return in_order(rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("leave", [True, False])
def test_is_one_after_the_other(form: str, leave: bool) -> None:
    ids, columns = moves(400)
    expected = one_by_one(some_spaces(leave=leave), ids, columns)
    spaces = some_spaces(leave=leave)
    first = spaces.expire().first
    notified = spaces.update_publications(ids, FORMS[form](columns))
    assert by_row(notified, expected) == expected
    assert notified.sequence.tolist() == list(range(first, first + len(notified)))
    assert [list(batch) for batch in spaces.transitions(first)] == [list(notified)]


def a_corner() -> bm.Spaces:
    spaces = bm.Spaces({"plane": bm.Schema({"x": "int", "y": "float"})})
    spaces.subscribe("corner", {"x": (0, 5), "y": (0, 5)})
    spaces.publish("a", {"x": 9, "y": 9.0})
    spaces.publish("b", {"x": 1, "y": 1.0})
    return spaces


def test_an_array_has_a_column_for_each_dimension() -> None:
    spaces = a_corner()
    notified = spaces.update_publications(["a", "b"], np.array([[3, np.nan], [np.nan, 7]]))
    assert [one[1:] for one in notified] == [("enter", "a", "corner"), ("leave", "b", "corner")]
    assert spaces.get_publication("a").regions["region"] == {"x": bm.Interval(3, 3)}
    assert spaces.get_publication("b").regions["region"] == {"y": bm.Interval(7.0, 7.0)}


@pytest.mark.parametrize(
    "points",
    [
        [{"x": 3, "y": None}, {"x": None}],
        pa.table({"x": [3, None], "y": [None, 1.0]}),
        pa.table({"x": [3.0, np.nan], "y": [np.nan, 1.0]}),
        pd.DataFrame({"x": [3, None], "y": [np.nan, 1.0]}),
        pd.DataFrame({"x": [3, pd.NA], "y": [np.nan, 1.0]}, dtype=object),
        pl.DataFrame({"x": [3, None], "y": [np.nan, 1.0]}),
        np.array([[3, np.nan], [np.nan, 1]]),
        np.array([[3, None], [np.nan, 1]], object),
    ],
    ids=lambda points: f"{type(points).__module__}.{type(points).__name__}",
)
def test_null_frees_a_dimension_as_none_does(points: Any) -> None:
    """In every form of a table, NaN looks like NULL."""
    one, many = a_corner(), a_corner()
    expected = [*one.update_publication("a", {"x": 3, "y": None})]
    expected += one.update_publication("b", {"x": None})
    assert list(many.update_publications(["a", "b"], points)) == expected
    for name in ("a", "b"):
        assert many.get_publication(name) == one.get_publication(name)


def test_what_is_not_named_stays() -> None:
    spaces = a_corner()
    assert not spaces.update_publications(["a", "b"], [{"x": 3}, {"y": 2.0}])
    notified = spaces.update_publications(["a", "b"], pa.table({"y": [3.0, 8.0]}))
    assert [one[1:] for one in notified] == [("enter", "a", "corner"), ("leave", "b", "corner")]
    assert spaces.get_publication("a").regions["region"]["x"] == bm.Interval(3, 3)


def test_to_free_what_is_free_already_changes_nothing() -> None:
    spaces = bm.Spaces({"map": bm.Schema({"x": "int"}), "engine": bm.Schema({"rpm": "int"})})
    spaces.subscribe("here", {"x": (0, 5)})
    spaces.load(publications={n: {"x": 9} for n in range(5)})
    points = np.array([[n, np.nan] for n in (3, 9, 4, 9, 5)])
    notified = spaces.update_publications(range(5), points)
    assert [one[1:3] for one in notified] == [("enter", 0), ("enter", 2), ("enter", 4)]
    assert spaces.get_publication(1).regions["region"] == {"x": bm.Interval(9, 9)}


def test_something_must_remain() -> None:
    spaces = a_corner()
    before = [spaces.get_publication(one) for one in ("a", "b")]
    for rows in (
        [{"x": 3}, {"x": None, "y": None}],
        [{"x": 3}, {"x": None}, {"y": None}],
        pa.table({"x": [3, None], "y": [1.0, np.nan]}),
    ):
        ids = ["a", "b", "b"][: len(rows)]
        with pytest.raises(bm.RegionError, match=f"row {len(rows) - 1}: publication 'b' would"):
            spaces.update_publications(ids, rows)
        assert [spaces.get_publication(one) for one in ("a", "b")] == before
    spaces.update_publications(["b", "b", "b"], [{"x": None}, {"x": 1}, {"y": None}])
    assert spaces.get_publication("b").regions["region"] == {"x": bm.Interval(1, 1)}


def test_little_room_for_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, columns = moves(300)
    expected = one_by_one(some_spaces(), ids, columns)
    monkeypatch.setattr(members, "_MANY", 0)
    notified = some_spaces().update_publications(ids, pa.table(columns))
    assert by_row(notified, expected) == expected


def test_all_come_to_one_place() -> None:
    """So that what is there has to be given more room, in the middle of it."""
    spaces = bm.Spaces({"line": bm.Schema({"x": "int"})})
    count = 5_000
    spaces.load(publications={one: {"x": one} for one in range(count)})
    spaces.subscribe("here", {"x": 7})
    notified = spaces.update_publications(range(count), [{"x": 7}] * count)
    assert len(notified) == count - 1
    assert sorted(spaces.matches_of_subscription("here")) == list(range(count))
    notified = spaces.update_publications(np.arange(count), pa.table({"x": range(count)}))
    assert spaces.matches_of_subscription("here") == [7]
    assert set(notified.kind) == {"leave"}


def test_all_or_none() -> None:
    spaces = some_spaces()
    spaces.publish(200, regions={"front": {"x": 1}, "back": {"x": 2}})
    before = {one: spaces.get_publication(one) for one in spaces.publications()}
    sequence = spaces.expire().first
    wrong: list[tuple[Any, Any, type[Exception], str]] = [
        ([0, 1], [{"x": 3}], bm.RegionError, "there are 2 ids and 1 rows of points"),
        ([0, 999], [{"x": 3}, {"x": 3}], bm.UnknownMemberError, "no publication with id 999"),
        ([0, 200], [{"x": 3}, {"x": 3}], bm.RegionError, "publication 200 has several regions"),
        ([0, 1], [{"x": 3}, {"z": 3}], bm.RegionError, "no space has a dimension 'z'"),
        ([0], pa.table({"x": [1], "z": [2]}), bm.RegionError, "no space has a dimension 'z'"),
        ([0, 1], [{"x": 3}, {"x": "a"}], bm.AttributeValueError, "'a' in row 1 is not an int"),
        (
            [0, 1],
            [{"x": 3}, {"y": np.nan}],
            bm.AttributeValueError,
            "'y': nan in row 1 has no place",
        ),
        ([0], {"x": 1}, bm.EventError, "a list of dicts or a table, not one dict"),
        ("01", [{"x": 3}, {"x": 3}], bm.SubscriptionIdError, "not the text '01'"),
        ([0, "a"], [{"x": 3}, {"x": 3}], bm.SubscriptionIdError, "all strings or all integers"),
    ]
    for ids, points, kind, message in wrong:
        with pytest.raises(kind, match=message):
            spaces.update_publications(ids, points)
    assert {one: spaces.get_publication(one) for one in spaces.publications()} == before
    assert spaces.expire().first == sequence
    assert len(spaces.update_publications([], [])) == 0


def test_on_disk(tmp_path: Path) -> None:
    ids, columns = moves(200)
    expected = one_by_one(some_spaces(), ids, columns)
    with bm.Spaces.open(tmp_path, {"road": SCHEMA}, sync="normal") as kept:
        origin = some_spaces()
        kept.load(
            publications={one: origin.get_publication(one) for one in origin.publications()},
            subscriptions={one: origin.get_subscription(one) for one in origin.subscriptions()},
        )
        notified = list(kept.update_publications(ids, pa.table(columns)))
    origin.update_publications(ids, pa.table(columns))
    with bm.Spaces.open(tmp_path) as again:
        batches = [list(batch) for batch in again.transitions()]
        assert [one for batch in batches for one in batch] == notified
        assert in_order(batches) == expected
        for one in origin.publications():
            assert again.get_publication(one) == origin.get_publication(one)
            found = again.matches_of_publication(one)
            assert sorted(found) == sorted(origin.matches_of_publication(one))
