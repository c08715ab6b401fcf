"""What a broker does before it is ready, and how far it is: for the log, `/readyz` and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

log = structlog.get_logger("boxmatch.server")

_EVERY = 2.0
"""Seconds after which the log hears how far a start is, whatever a single step takes."""


class Step(NamedTuple):
    """What is being done, and how much of it is done already."""

    name: str
    feed: str | None = None
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        feed = "" if self.feed is None else f" of feed {self.feed!r}"
        share = f": {self.done:,} of {self.total:,}" if self.total else ""
        return f"{self.name}{feed}{share}"


class Startup:
    """The steps of a start. Written by the thread that starts; anybody may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._step_began = clock()
        self.step = Step("opening the data")
        self.seconds: dict[str, float] = {}
        """By step, those of all feeds together; the step that goes on is not in it yet."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    async def follow(self, load: Callable[[], None]) -> None:
        """Carry the steps out in a thread, and meanwhile tell the log how far they are."""
        loading = asyncio.create_task(asyncio.to_thread(load))
        while not (await asyncio.wait((loading,), timeout=_EVERY))[0]:
            self._tell()
        loading.result()

    def begin(self, name: str, feed: str | None = None, total: int = 0) -> None:
        """Another step: the one before is done."""
        self._end_step()
        self.step = Step(name, feed, 0, total)

    def advance(self, done: int) -> None:
        """So much of the step is done."""
        self.step = self.step._replace(done=done)

    def finish(self) -> None:
        """The broker is ready."""
        self._end_step()
        self.step = Step("ready")

    def _end_step(self) -> None:
        now = self._clock()
        name = self.step.name
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._step_began
        self._step_began = now

    def _tell(self) -> None:
        name, feed, done, total = self.step
        more = {} if feed is None else {"feed": feed}
        if total:
            more |= {"done": done, "total": total}  # type: ignore[dict-item]
        log.info("starting", step=name, **more, seconds=round(self.elapsed, 1))
