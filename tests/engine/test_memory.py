"""Collections of garbage are put off for a while, and then go on as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

import boxmatch as bm
from boxmatch.engine.memory import pausing_full_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(500, 7, 9)
    yield 500, 7, 9
    gc.set_threshold(*before)


def test_full_collections_are_put_off(thresholds: tuple[int, int, int]) -> None:
    def fail() -> None:
        with pausing_full_collections():
            assert gc.get_threshold()[:2] == (500, 7)
            with pausing_full_collections():
                pass
            assert gc.get_threshold()[2] > 1_000_000
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.get_threshold() == thresholds


def test_threads_that_overlap(thresholds: tuple[int, int, int]) -> None:
    def pause() -> None:
        for _ in range(200):
            with pausing_full_collections():
                assert gc.get_threshold()[2] > 1_000_000

    threads = [Thread(target=pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.get_threshold() == thresholds


def test_while_filters_are_compiled(thresholds: tuple[int, int, int]) -> None:
    seen: list[Any] = []

    class Filters(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            seen.append(gc.get_threshold()[2])
            return super().__iter__()

    bm.Matcher({"n": "int"}).subscribe_many(Filters([{"id": 1, "filter": "n = 1"}]))
    assert min(seen) > 1_000_000
    assert gc.get_threshold() == thresholds
