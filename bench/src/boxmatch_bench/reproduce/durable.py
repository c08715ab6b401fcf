"""How many updates a second spaces on disk take from threads that share the wait for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from time import perf_counter, perf_counter_ns
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import Transitions
from boxmatch.storage.sqlite import Sync
from boxmatch_bench.answers import within
from boxmatch_bench.reproduce.experiment import Series
from boxmatch_bench.reproduce.regions import Regions, Step, Walk, check
from boxmatch_bench.timing import Effort, Figures, Stage, spread

_CHECKED = 10  # updates of each thread
_PAGE = 4096


class Disk:
    """Spaces in a folder that is removed at the end, stored once for each way of writing them."""

    def __init__(self, regions: Regions, moving: int, folder: Path) -> None:
        self._regions = regions
        self._folder = folder
        self._opened: dict[Sync | None, _Kept] = {}
        self._steps = Walk(regions, moving).there_and_back()

    def __enter__(self) -> Self:
        self._exit = ExitStack()
        place = TemporaryDirectory(dir=self._folder, prefix="spaces-")
        self._place = Path(self._exit.enter_context(place))
        self._syncs = _syncs_per_second(self._place / "probe")
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.clear()
        self._exit.close()

    def measure(self, series: Series, effort: Effort, stage: Stage) -> Figures:
        """Figures of updates by `threads`, with `sync` as in `Spaces.open`; None is in memory."""
        sync, threads = series.parameters["sync"], series.parameters["threads"]
        stage("storing")
        kept = self._kept(sync)
        stage("updating")
        barrier = Barrier(threads)
        with ThreadPoolExecutor(threads) as pool:
            parts = [
                pool.submit(kept.update, range(first, len(self._steps), threads), barrier, effort)
                for first in range(threads)
            ]
            done = [part.result() for part in parts]
        with within(series.label):
            for part in done:
                for step, told in part.kept:
                    check(step, told, self._regions.columns)
        nanoseconds = np.concatenate([part.nanoseconds for part in done])
        seconds = max(part.ended for part in done) - min(part.began for part in done)
        return {
            "durable": {
                **spread(nanoseconds),
                "updates": len(nanoseconds),
                "seconds": seconds,
                "per_second": len(nanoseconds) / seconds,
                "transitions": sum(part.told for part in done) / len(nanoseconds),
            },
            "disk": {"syncs_per_second": self._syncs},
            "checked_operations": min(len(part.kept) for part in done),
        }

    def _kept(self, sync: Sync | None) -> _Kept:
        if sync not in self._opened:
            schemas = self._regions.schemas
            spaces = (
                Spaces(schemas)
                if sync is None
                else Spaces.open(self._place / sync, schemas, sync=sync)
            )
            self._regions.store(self._exit.enter_context(spaces))
            for step in self._steps[0]:  # so that no figure contains compilation
                spaces.update_publication(step.publication, step.spec)
            self._opened[sync] = _Kept(spaces, self._steps)
        return self._opened[sync]


class _Part(NamedTuple):
    """What one thread did, and the first of it with what was told."""

    began: float
    ended: float
    nanoseconds: npt.NDArray[np.int64]
    told: int
    kept: list[tuple[Step, Transitions]]


class _Kept:
    """Spaces, and which of their publications are away."""

    def __init__(self, spaces: Spaces, steps: Sequence[tuple[Step, Step]]) -> None:
        self._spaces, self._steps = spaces, steps
        self._away = [False] * len(steps)

    def update(self, rows: Iterable[int], barrier: Barrier, effort: Effort) -> _Part:
        """Move publications in turn, which no other thread may have, until the time is over."""
        taken, told = [], 0
        kept: list[tuple[Step, Transitions]] = []
        barrier.wait()
        began = now = perf_counter()
        for row in cycle(rows):
            step = self._steps[row][self._away[row]]
            start = perf_counter_ns()
            heard = self._spaces.update_publication(step.publication, step.spec)
            taken.append(perf_counter_ns() - start)
            self._away[row] = not self._away[row]
            told += len(heard)
            if len(kept) < _CHECKED:
                kept.append((step, heard))
            now = perf_counter()
            if now - began > effort.seconds:
                break
        return _Part(began, now, np.array(taken, np.int64), told, kept)


def _syncs_per_second(path: Path, seconds: float = 0.3) -> float:
    """How often this disk takes a page for good, from one who waits each time."""
    syncs, began = 0, perf_counter()
    with path.open("wb", buffering=0) as file:
        while perf_counter() - began < seconds:
            file.write(bytes(_PAGE))
            os.fsync(file.fileno())
            syncs += 1
    return syncs / (perf_counter() - began)
