"""The longest times that calls hold the GIL, seen by a thread that wants it all the time."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time, thread_time
from types import FrameType
from typing import Any, NamedTuple

import boxmatch

_SLEEP = 5e-4
_SWITCH = 1e-4
"""Seconds after which Python code gives way here; 50 times as often as by default, so that what
remains of a longer wait was one call that did not."""
_ROOT = str(Path(boxmatch.__file__).parent)
_IDLE = ("threading.py", "thread.py", "_base.py")
"""Where threads are that wait for others."""


class Hold(NamedTuple):
    """Milliseconds for which nobody else could run Python code, and where that was."""

    milliseconds: float
    place: str


class Watched(NamedTuple):
    """What was seen beside a call, and how long that took."""

    seconds: float
    holds: list[Hold]
    """The longest first."""
    collections: list[float]
    """The longest garbage collection of each generation, in milliseconds."""


def watch(call: Callable[[], object], *, keep: int = 5) -> tuple[object, Watched]:
    """Call it, and say for how long at most it let no other thread run.

    A wait is no hold as far as the watching thread had the GIL to wait for no longer and only no
    core, or as nothing in this process computed: then others had the cores.
    """
    holds: list[Hold] = []
    ready, done = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(holds, ready, done), daemon=True)
    with _switching(_SWITCH), _timing_collections() as collections:
        watcher.start()
        ready.wait()
        began = perf_counter()
        try:
            result = call()
            seconds = perf_counter() - began
        finally:
            done.set()
            watcher.join()
    holds.sort(reverse=True)
    return result, Watched(seconds, holds[:keep], collections)


def _watch(holds: list[Hold], ready: threading.Event, done: threading.Event) -> None:
    delayed = _delay_reader()
    ready.set()
    while not done.is_set():
        began, delay, busy = perf_counter(), delayed(), process_time() - thread_time()
        time.sleep(_SLEEP)
        wait = perf_counter() - began - _SLEEP
        if wait > _SLEEP:
            wait -= delayed() - delay
            busy = process_time() - thread_time() - busy
            held = min(wait, busy)
            if held > _SLEEP:
                with _switching(1.0):  # frames of a thread that runs must not be looked at
                    place = _place()
                holds.append(Hold(1e3 * held, place))


def _delay_reader() -> Callable[[], float]:
    """Seconds for which this thread was ready to run and had no core; 0 where it is not known."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return lambda: 0.0
    read: Any = ctypes.PyDLL(None).pread  # which keeps the GIL: it would have to be waited for
    buffer = ctypes.create_string_buffer(128)

    def delayed() -> float:
        read(file, buffer, len(buffer), ctypes.c_long(0))
        return int(buffer.value.split()[1]) / 1e9

    return delayed


def _place() -> str:
    """The innermost functions of the library that other threads are in."""
    own = threading.get_ident()
    places = []
    for thread, top in sys._current_frames().items():
        if thread == own or top.f_code.co_filename.endswith(_IDLE):
            continue
        frame: FrameType | None = top
        while isinstance(frame, FrameType) and not frame.f_code.co_filename.startswith(_ROOT):
            frame = frame.f_back
        if isinstance(frame, FrameType):  # in Python 3.11, not always, if its thread runs again
            file = frame.f_code.co_filename[len(_ROOT) + 1 :]
            places.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
    return ", ".join(places)


@contextmanager
def _switching(interval: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _timing_collections() -> Iterator[list[float]]:
    """The longest collection of each generation, in milliseconds of computing."""
    longest = [0.0, 0.0, 0.0]
    began = 0.0

    def collecting(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = thread_time()
        else:
            generation = info["generation"]
            longest[generation] = max(longest[generation], 1e3 * (thread_time() - began))

    gc.callbacks.append(collecting)
    try:
        yield longest
    finally:
        gc.callbacks.remove(collecting)
