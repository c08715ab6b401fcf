"""What is said while kernels are compiled: one message, and a progress bar on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core import event as numba_event

if TYPE_CHECKING:
    from rich.progress import Progress

_QUIET_SECONDS = 120
"""For so long nothing is said again: worker processes that start together compile together."""


_LONG = "30 to 120 seconds in all"


class CompilationNotice(numba_event.Listener):  # type: ignore[misc]  # Numba has no types
    """Says why the first calls on a machine take seconds. Numba compiles one kernel at a time."""

    def __init__(self, cache_folder: Callable[[], Path | None]) -> None:
        self._cache_folder = cache_folder
        self._said = False
        self._kernels: set[tuple[str, str]] = set()
        self._compiled: set[tuple[str, str]] = set()
        self._depth = 0
        self._bar: Progress | None = None
        self._silent = False

    def silence(self) -> None:
        """Say nothing: somebody else has said it."""
        self._silent = True

    def announce_helper(self) -> None:
        """Say that a helper process compiles the kernels."""
        folder = self._cache_folder()
        if folder is not None and not _was_announced(folder):
            _say(
                "in the background, a minute of one core; until then matching is slower. "
                f"This happens once: they are cached in {folder}"
            )

    def expect(self, function: Callable[..., Any]) -> None:
        """Count a kernel that may have to be compiled."""
        self._kernels.add(_name_of(function))

    @property
    def compiled(self) -> int:
        """How many kernels this process has compiled itself."""
        return len(self._compiled)

    def on_start(self, event: Any) -> None:
        if not _is_ours(event):
            return
        if self._depth == 0 and not self._silent:
            self._announce()
            self._show()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        if not _is_ours(event):
            return
        self._depth -= 1
        name = _name_of(event.data["dispatcher"].py_func)
        if name in self._kernels:  # and not a part of one
            self._compiled.add(name)
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0], completed=self.compiled, total=len(self._kernels)
            )
            if self._depth == 0:
                self._bar.stop()

    def _announce(self) -> None:
        folder = self._cache_folder()
        if folder is None:
            if not self._said:
                _say(f"{_LONG}, in every process: no folder can be written, set NUMBA_CACHE_DIR")
        elif not _was_announced(folder):
            _say(f"{_LONG}, once, and cached in {folder} (`boxmatch warmup` does it in advance)")
        self._said = True

    def _show(self) -> None:
        """Show the bar, unless the output is captured or somebody shows a bar already."""
        terminal = sys.__stderr__
        if terminal is None or sys.stderr is not terminal or not terminal.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        if self._bar is None:
            columns = (TextColumn("kernels"), BarColumn(), MofNCompleteColumn(), Elapsed())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=len(self._kernels))
        self._bar.start()


def _is_ours(event: Any) -> bool:
    module: str = event.data["dispatcher"].py_func.__module__
    return module.startswith("boxmatch.")


def _name_of(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def _say(how: str) -> None:
    print(f"boxmatch: compiling kernels for this machine, {how}", file=sys.stderr)


def _was_announced(folder: Path) -> bool:
    """Whether a process that compiles into this folder has just said so; notes that one has now."""
    mark = folder / "announced"
    try:
        with open(mark, "x"):  # of several at once, one makes the file
            return False
    except FileExistsError:
        pass
    except OSError:
        return False
    with suppress(OSError):
        if time.time() - mark.stat().st_mtime < _QUIET_SECONDS:
            return True
        mark.touch()
    return False
