"""Memory of results is lent again, but not before the last array of it has gone."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from boxmatch.indexes.tile.cuda.pinned import PinnedResults

MIB = 1 << 18
"""Numbers in as many bytes."""


def address(array: Any) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again() -> None:
    results = PinnedResults()
    first = results.array(MIB)
    assert first is not None
    where = address(first)
    del first
    gc.collect()
    second = results.array(MIB // 2)
    assert second is not None
    assert address(second) == where
    assert len(second) == MIB // 2


def test_a_part_of_a_result_keeps_its_memory() -> None:
    results = PinnedResults()
    first = results.array(MIB)
    assert first is not None
    first[:] = 7
    part = first[10:20][2:]
    del first
    gc.collect()
    second = results.array(MIB)
    assert second is not None
    second[:] = 8
    assert part.tolist() == [7] * 8
    assert address(second) != address(part) - 4 * 12


def test_no_more_is_pinned_than_may_be() -> None:
    results = PinnedResults(most=4 << 20)
    held = [results.array(MIB), results.array(MIB)]
    assert all(array is not None for array in held)
    assert results.array(MIB) is None
    held.clear()
    gc.collect()
    # Both blocks are too small, and make room.
    large = results.array(5 * MIB // 2)
    assert large is not None
    large[:] = 1
    assert results.array(2 * MIB) is None


def test_without_pinned_memory_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("boxmatch.indexes.tile.cuda.pinned.cuda.pinned_array", refuse)
    assert PinnedResults().array(MIB) is None


def test_a_small_result_does_not_take_a_large_block() -> None:
    results = PinnedResults()
    large = results.array(64 * MIB)
    assert large is not None
    where = address(large)
    del large
    gc.collect()
    small = results.array(MIB)
    assert small is not None
    assert address(small) != where


def test_results_outlive_the_pool() -> None:
    results = PinnedResults()
    array = results.array(MIB)
    assert array is not None
    array[:] = np.arange(MIB)
    del results
    gc.collect()
    assert int(array.sum()) == MIB * (MIB - 1) // 2
