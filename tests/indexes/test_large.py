"""Arrays on large pages are arrays like any other."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np
import pytest

from boxmatch.kernels.large_pages import large_zeros


@pytest.mark.parametrize("shape", [(0,), (3,), (300_000,), (100_000, 3), (1 << 18,), (1, 1 << 19)])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_zeros_that_can_be_written(shape: tuple[int, ...], kind: Any) -> None:
    array = large_zeros(shape, kind)
    assert (array.shape, array.dtype) == (shape, np.dtype(kind))
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert not array.any()
    array[...] = 7
    other = large_zeros(shape, kind)
    assert not other.any()
    assert (array == 7).all()


def test_objects_are_left_to_numpy() -> None:
    assert large_zeros((1 << 19,), object)[-1] == 0


def test_without_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert large_zeros((1 << 20,), np.int64).sum() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_memory_is_given_back() -> None:
    def held() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE

    before = held()
    array = large_zeros((64 << 20,), np.uint8)
    array[:] = 1
    assert held() - before > 60 << 20
    del array
    assert held() - before < 20 << 20
