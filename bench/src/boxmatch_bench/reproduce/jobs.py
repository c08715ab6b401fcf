"""Work in several processes, each on a core, as many at a time as there is memory for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import Generic, NamedTuple, TypeVar

from boxmatch.engine.memory import available_memory
from boxmatch_bench.answers import FailedError
from boxmatch_bench.timing import Stage

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item, Stage], Iterator[Result]]
"""Results of an item as they are found; a function of a module, for other processes to import."""


class Found(NamedTuple, Generic[Item, Result]):
    """A result, and how many other items were worked on at the same time, at the most."""

    item: Item
    result: Result
    beside: int


@dataclass
class _Job(Generic[Item]):
    item: Item
    process: SpawnProcess
    core: int | None
    bytes: int
    beside: int = 0


def side_by_side(
    work: Work[Item, Result],
    items: Sequence[Item],
    jobs: int,
    needs: Callable[[Item], int],
    stage: Stage,
) -> Generator[Found[Item, Result], None, None]:
    """All results, of so many items at a time; one at a time is worked on in this process.

    An item has to wait until what it `needs`, in bytes, is left of the memory that was available
    at the beginning, or until it is alone. Each has a process of its own, which ends with this
    one. Raises what the work raises, and `FailedError` if a process was killed.
    """
    if jobs == 1:
        for item in items:
            yield from (Found(item, result, 0) for result in work(item, stage))
        return
    waiting, busy = list(items), dict[Connection, _Job[Item]]()
    room = available_memory()
    try:
        while waiting or busy:
            while len(busy) < jobs:
                left = None if room is None else room - sum(job.bytes for job in busy.values())
                fits = [not busy or left is None or needs(item) <= left for item in waiting]
                if not any(fits):
                    break
                item = waiting.pop(fits.index(True))
                core = _free_core([job.core for job in busy.values()])
                connection, process = _start(work, item, core)
                busy[connection] = _Job(item, process, core, needs(item))
                for job in busy.values():
                    job.beside = max(job.beside, len(busy) - 1)
            readable = wait(list(busy))
            for ready in [one for one in busy if one in readable]:
                job = busy[ready]
                try:
                    kind, value = ready.recv()
                except EOFError:
                    raise FailedError("a process was killed, perhaps for its memory") from None
                if kind == "stage":
                    stage(value)
                elif kind == "found":
                    yield Found(job.item, value, job.beside)
                    job.beside = len(busy) - 1
                elif kind == "failed":
                    raise value
                else:
                    del busy[ready]
                    job.process.join()
    finally:
        for job in busy.values():
            job.process.kill()
            job.process.join()


def _free_core(taken: Sequence[int | None]) -> int | None:
    """The core with the fewest jobs; None where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return min(sorted(os.sched_getaffinity(0)), key=taken.count)


def _start(
    work: Work[Item, Result], item: Item, core: int | None
) -> tuple[Connection, SpawnProcess]:
    context = get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, core, work, item), daemon=True)
    process.start()
    theirs.close()
    return mine, process


def _work(connection: Connection, core: int | None, work: Work[Item, Result], item: Item) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    Thread(target=_end_with_parent, daemon=True).start()
    with on_core(core):
        try:
            for result in work(item, lambda what: connection.send(("stage", what))):
                connection.send(("found", result))
        except Exception as error:
            connection.send(("failed", error))
        else:
            connection.send(("end", None))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core; None leaves them as they are."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on one of its cores, where the system can."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    # Not the same for all processes of this machine.
    with on_core(cores[os.getpid() % len(cores)]):
        yield
