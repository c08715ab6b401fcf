"""Kernels that another process compiles, while this one answers without them.

Numba holds one lock while it compiles, and the GIL for most of that time. In a thread it would
delay every answer, and stop those that need any other kernel. A helper process has locks of its
own. It fills the cache, and a thread here then loads what is there. The helper goes on if this
process ends before, so that short programs get their kernels too.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol

import llvmlite.binding as llvm
import numba

from boxmatch.kernels.jit import cache_folder, notice
from boxmatch.storage.folders import alone

SWITCH = "BOXMATCH_BACKGROUND_COMPILATION"
"""The environment variable that turns this off, with the value 0."""

_LOADER = "boxmatch.engine.warmup"
"""The module whose `load` uses the kernels of a stage. It is of a layer above this one."""

_log = logging.getLogger("boxmatch")

_HELPER = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from {__name__} import background
background.compile_all(sys.argv[2])
"""

_PATIENCE = 120
"""Seconds that a helper waits for another one at most: that might have been stopped."""


_LAST_LOAD = 5
"""Seconds for which the end of the interpreter waits for kernels that are being loaded."""


class Stage(IntEnum):
    """What is there, in the order in which it is compiled. Each stage has all before it."""

    NOTHING = 0
    SCAN = 1
    """What compares boxes one by one."""
    INDEX = 2
    """The `tile` index, and what reads many filters at once."""
    LISTS = 3
    """Its search for points with sets of keys, and tests of texts."""


ALL = Stage.LISTS


class Waiting(Protocol):
    """Somebody who wants to know that a stage is there."""

    def kernels_came(self) -> None: ...


class Background:
    """Which kernels can be used without waiting for the compiler."""

    def __init__(self) -> None:
        self._stage = Stage.NOTHING
        self._waiting: weakref.WeakSet[Waiting] = weakref.WeakSet()
        self._mine = threading.local()
        self._start_again()
        # Neither a fork nor the end of the interpreter may come while LLVM is at work: the child
        # would inherit locks that nobody opens, and the end would take away what is in use.
        atexit.register(lambda: self._loading.acquire(timeout=_LAST_LOAD))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: self._loading.acquire(),
                after_in_parent=lambda: self._loading.release(),
                after_in_child=self._start_again,
            )

    def _start_again(self) -> None:
        # A fork leaves the thread behind, and locks as they were.
        self._running = False
        self._changed = threading.Condition()
        self._loading = threading.Lock()

    def has(self, stage: Stage) -> bool:
        """Whether the kernels of a stage are there; has them compiled if they are not."""
        if self._stage >= stage or getattr(self._mine, "all", False):
            return True
        if not self._running and self._look(stage):
            self._reach(stage)
        return self._stage >= stage

    def wait(self, stage: Stage) -> None:
        """Wait for the kernels of a stage."""
        while not self.has(stage):
            with self._changed:
                if self._running and self._stage < stage:
                    self._changed.wait()

    def tell(self, waiting: Waiting) -> None:
        """Tell `waiting`, as long as it lives, whenever a stage is there."""
        with self._changed:
            self._waiting.add(waiting)

    @contextmanager
    def in_this_thread(self, last: Stage) -> Iterator[None]:
        """Compile what the block uses: all stages to `last`. Waits for a helper that is at it."""
        if self._running:
            self.wait(last)
        with self._using_all():
            yield
        if last > self._stage:
            for stage in Stage:
                if stage <= last:
                    _note(stage)
            self._reach(last)

    @contextmanager
    def _using_all(self) -> Iterator[None]:
        before = getattr(self._mine, "all", False)
        self._mine.all = True
        try:
            yield
        finally:
            self._mine.all = before

    def _look(self, stage: Stage) -> bool:
        """Whether the kernels are in the cache; starts to compile them if they are not."""
        with self._changed:
            if self._running:
                return False
            if numba.config.DISABLE_JIT or os.environ.get(SWITCH) == "0":
                self._stage = ALL
            else:
                self._stage = max(self._stage, *(one for one in Stage if _is_noted(one)))
            if self._stage >= stage:
                return True
            try:
                threading.Thread(target=self._follow, name="boxmatch-kernels", daemon=True).start()
            except RuntimeError:  # the interpreter is about to end
                self._stage = ALL
                return True
            self._running = True
            return False

    def _follow(self) -> None:
        """Load each stage as soon as the helper has compiled it; without one, compile it here."""
        try:
            load = import_module(_LOADER).load
            with _reports() as reports, self._using_all():
                for stage in Stage:
                    while reports is not None and not _is_noted(stage) and reports.readline():
                        pass
                    if stage > self._stage:
                        with self._loading:
                            load(stage)
                        self._reach(stage)
        except Exception:
            _log.exception("kernels could not be compiled in the background")
        finally:
            # Whatever is missing is now compiled where it is needed.
            self._running = False
            self._reach(ALL)

    def _reach(self, stage: Stage) -> None:
        with self._changed:
            self._stage = max(self._stage, stage)
            self._changed.notify_all()
            waiting = list(self._waiting)
        for one in waiting:
            one.kernels_came()

    def compile_all(self, folder: str) -> None:
        """Of the helper: compile all stages, and report each. Helpers take turns."""
        if folder != str(cache_folder()):
            raise OSError(f"{folder} is not where kernels are cached")
        with suppress(AttributeError, OSError):
            os.nice(5)
        notice.silence()
        load = import_module(_LOADER).load
        for stage in Stage:
            with _turn(Path(folder)):
                if not _is_noted(stage):
                    with self._using_all():
                        load(stage)
                    _note(stage)
            with suppress(OSError):  # nobody reads it any more
                print(stage.name, flush=True)


@contextmanager
def _reports() -> Iterator[IO[str] | None]:
    """What a new helper writes; None if there can be none."""
    folder = cache_folder()
    # Some programs that embed Python name themselves here, and would start once more.
    python = sys.executable if "python" in os.path.basename(sys.executable or "") else None
    if folder is None or python is None or getattr(sys, "frozen", False):
        yield None
        return
    notice.announce_helper()
    path = [os.path.abspath(entry) for entry in sys.path]
    try:
        helper = subprocess.Popen(
            [python, "-c", _HELPER, json.dumps(path), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
    except OSError:
        yield None
        return
    with helper:
        yield helper.stdout


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Alone among helpers, unless another one takes too long or there are no locks."""
    with ExitStack() as turn:
        if hasattr(signal, "alarm"):
            signal.signal(signal.SIGALRM, _give_up)
            signal.alarm(_PATIENCE)
            with suppress(OSError):  # of which a timeout is one
                turn.enter_context(alone(folder))
            signal.alarm(0)
        yield


def _give_up(*_: object) -> None:
    raise TimeoutError


def _note(stage: Stage) -> None:
    """Note in the cache that the kernels of a stage are in it."""
    mark = _mark(stage)
    if mark is not None:
        with suppress(OSError):
            mark.touch()


def _is_noted(stage: Stage) -> bool:
    mark = _mark(stage)
    return stage == Stage.NOTHING or (mark is not None and mark.exists())


def _mark(stage: Stage) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"compiled-{_machine()}-{stage.name.lower()}"


@cache
def _machine() -> str:
    """What Numba's cache distinguishes besides the sources: see `magic_tuple` of its codegen."""
    cpu = numba.config.CPU_NAME or llvm.get_host_cpu_name()
    features = numba.config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    what = (numba.__version__, sys.implementation.cache_tag, os.path.dirname(__file__))
    return hashlib.sha256(repr((what, cpu, features)).encode()).hexdigest()[:16]


background = Background()
