"""Operations in pieces give what NumPy gives in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boxmatch.kernels import pieces
from boxmatch.kernels.pieces import concatenate, repeat, take

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
    counts = random.integers(0, 4, length)
    places = random.integers(0, max(length, 1), length)
    for mine, numpys in (
        (repeat(values, counts), np.repeat(values, counts)),
        (take(values, places), values[places]),
        (concatenate([values, values[:3], values]), np.concatenate([values, values[:3], values])),
    ):
        assert mine.dtype == dtype
        assert mine.tolist() == numpys.tolist()
