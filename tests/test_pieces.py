"""Operations in pieces give what NumPy gives in one."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boxmatch.kernels import pieces
from boxmatch.kernels.pieces import (
    concatenate,
    drop,
    equal,
    from_texts,
    let_go,
    listed,
    repeat,
    take,
    to_texts,
    update,
)

LENGTHS = [0, 1, 9, 10, 11, 35]


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 10)


@pytest.mark.parametrize("length", LENGTHS)
def test_pieces_are_all_there_is(length: int) -> None:
    found = list(pieces.pieces(length))
    assert [place for piece in found for place in range(length)[piece]] == list(range(length))
    assert all(piece.stop - piece.start <= 10 for piece in found)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.int64, object])
def test_as_in_one(length: int, dtype: Any) -> None:
    random = np.random.default_rng(length)
    values = random.integers(0, 9, length).astype(dtype)
    places = random.integers(0, max(length, 1), length)
    for mine, numpys in (
        (take(values, places), values[places]),
        (concatenate([values, values[:3], values]), np.concatenate([values, values[:3], values])),
        (equal(values, values[::-1]).astype(dtype), (values == values[::-1]).astype(dtype)),
    ):
        assert mine.dtype == dtype
        assert mine.tolist() == numpys.tolist()
    assert listed(values) == values.tolist()
    assert list(map(type, listed(values))) == list(map(type, values.tolist()))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("most", [1, 4, 40])
def test_repeat(length: int, most: int) -> None:
    random = np.random.default_rng(length)
    values = random.integers(-(2**63), 2**63 - 1, length)
    counts = random.integers(0, most, length)
    repeated = repeat(values, counts)
    assert repeated.dtype == np.int64
    assert repeated.tolist() == np.repeat(values, counts).tolist()


@pytest.mark.parametrize("length", LENGTHS)
def test_texts_and_back(length: int) -> None:
    texts = [None if number % 7 == 3 else f"{number} ä" for number in range(length)]
    column = to_texts(texts, pa.large_string())
    assert column.type == pa.large_string()
    assert column.to_pylist() == texts
    assert from_texts(column).tolist() == texts
    assert from_texts(column.slice(2)).tolist() == texts[2:]


@pytest.mark.parametrize("length", LENGTHS)
def test_update_and_drop(length: int) -> None:
    known = {0: -1, "other": -2}
    update(known, range(length), [number * 2 for number in range(length)])
    assert known == {0: -1, "other": -2} | {number: number * 2 for number in range(length)}
    values = [object() for _ in range(length)]
    drop(values)
    assert values == []


def test_let_go_of_what_nobody_else_has() -> None:
    texts = [f"text {number}" for number in range(3 * pieces._FREED + 7)]
    before = [sys.getrefcount(texts[at]) for at in (0, -1)]
    held = {"ids": np.array(texts, object), "other": np.arange(3)}
    let_go(held, "ids")
    assert list(held) == ["other"]
    assert [sys.getrefcount(texts[at]) for at in (0, -1)] == before
    let_go(held, "ids")  # it is gone
    let_go(held, "other")


@pytest.mark.parametrize("part", [slice(None), slice(70_000, 70_003)])
def test_let_go_leaves_others_what_they_have(part: slice) -> None:
    texts = [f"text {number}" for number in range(2 * pieces._FREED)]
    held = {"ids": np.array(texts, object)}
    theirs = held["ids"][part]
    let_go(held, "ids")
    assert theirs.tolist() == texts[part]
    held = {"ids": np.array(texts, object)}
    same = held["ids"]
    let_go(held, "ids")
    assert same.tolist() == texts
