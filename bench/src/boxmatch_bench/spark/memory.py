"""What Spark's Python workers hold in memory while a job runs, and how much of it is the index.

A page that several processes have mapped counts whole in the resident size of each. Its share
(proportional size, PSS) adds up to what there really is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_PROCESSES: Final = Path("/proc")
_DAEMON: Final = b"pyspark.daemon"
_EVERY: Final = 0.5

_FIELDS: Final = {
    "Rss": "resident",
    "Pss": "proportional",
    "Private_Clean": "private",
    "Private_Dirty": "private",
    "Shared_Clean": "shared",
    "Shared_Dirty": "shared",
}


class Peak:
    """The sample in which the workers together held most."""

    def __init__(self) -> None:
        self.samples = 0
        self.workers: list[dict[str, int]] = []

    def see(self, workers: list[dict[str, int]]) -> None:
        """Take a sample into account."""
        self.samples += 1
        if _total(workers) > _total(self.workers):
            self.workers = workers

    @property
    def figures(self) -> dict[str, Any] | None:
        """For a report; None if no worker was seen, as on systems other than Linux."""
        if not self.workers:
            return None
        return {
            "workers": self.workers,
            "total_proportional": _total(self.workers),
            "index_proportional": sum(worker["index_proportional"] for worker in self.workers),
            "index_resident": sum(worker["index_resident"] for worker in self.workers),
            "samples": self.samples,
        }


def _total(workers: list[dict[str, int]]) -> int:
    return sum(worker["proportional"] for worker in workers)


@contextmanager
def watched(index: str) -> Iterator[Peak]:
    """Watch the Python workers of the Spark that this process has started.

    Reading a process's page tables takes some milliseconds, so a run that is timed should not be
    watched.
    """
    peak = Peak()
    done = threading.Event()

    def watch() -> None:
        while True:
            last = done.wait(_EVERY)
            peak.see([held(worker, index) for worker in _workers()])
            if last:  # workers outlive a job, so even a short one has been seen
                return

    thread = threading.Thread(target=watch, name="boxmatch-memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def held(process: int, index: str) -> dict[str, int]:
    """Bytes of a process by kind; those of files below the folder `index` also by themselves."""
    names = ("resident", "proportional", "private", "shared")
    sizes = dict.fromkeys((*names, "index_resident", "index_proportional"), 0)
    inside = False
    try:
        lines = (_PROCESSES / str(process) / "smaps").read_text(errors="replace").splitlines()
    except OSError:  # it has ended
        return sizes
    for line in lines:
        word, _, rest = line.partition(" ")
        if not word.endswith(":"):  # the head of a mapping: addresses, rights, …, file
            inside = index in rest
        elif name := _FIELDS.get(word[:-1]):
            size = 1024 * int(rest.split()[0])
            sizes[name] += size
            if inside and f"index_{name}" in sizes:
                sizes[f"index_{name}"] += size
    return sizes


def _workers() -> list[int]:
    """Python workers are forks of a daemon, which is a child of an executor or of the driver."""
    parents = _parents()
    daemons = {process for process in parents if _DAEMON in _command(process)}
    return [p for p in sorted(daemons) if parents[p] in daemons and _is_ours(p, parents)]


def _parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for entry in _PROCESSES.glob("[0-9]*"):
        try:
            # The name, in parentheses, may have anything in it.
            after = (entry / "stat").read_text(errors="replace").rpartition(")")[2]
        except OSError:
            continue
        found[int(entry.name)] = int(after.split()[1])
    return found


def _command(process: int) -> bytes:
    try:
        return (_PROCESSES / str(process) / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_ours(process: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == os.getpid():
            return True
    return False
