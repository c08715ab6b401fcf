"""CPU, memory and state of the server while a phase runs, and the speed of its disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from boxmatch.arrays import Float64Array
from boxmatch_bench.settings import FEED
from boxmatch_bench.timing import spread_ms

if TYPE_CHECKING:
    from boxmatch_bench.broker.processes import Server

_SYNCS: Final = 50
_METRIC: Final = re.compile(r"^boxmatch_(\w+?)(?:_total)?(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_STAGE: Final = re.compile(r'stage="(\w+)"')


class Usage(NamedTuple):
    """CPU time, memory and writes of a process."""

    cpu: float
    """Seconds, of all its threads."""
    resident: int
    private: int
    """Resident memory that is not of files (RssAnon): heap, stacks, arrays."""
    written: int
    """Bytes handed to the disk since it started."""


def usage(process: int) -> Usage | None:
    """The usage of a process; None without /proc, or if the process has ended."""
    folder = Path("/proc") / str(process)
    try:
        # The name, in parentheses, may have anything in it.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if line
        )
        io = dict(line.split(":", 1) for line in (folder / "io").read_text().splitlines())
    except OSError:
        return None
    return Usage(
        (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        1024 * int(status["VmRSS"].split()[0]),
        1024 * int(status["RssAnon"].split()[0]),
        int(io["write_bytes"]),
    )


Sample = dict[str, Any]
Look = Callable[["Server"], Sample]


def held(server: Server) -> Sample:
    """The memory and the open files of the server at this moment."""
    used = usage(server.pid)
    return {
        "resident": used and used.resident,
        "private": used and used.private,
        "descriptors": _descriptors(server.pid),
    }


def _descriptors(process: int) -> int | None:
    """How many files, sockets among them, a process has open; None where it cannot be read."""
    try:
        return len(os.listdir(f"/proc/{process}/fd"))
    except OSError:
        return None


def state_of_feed(server: Server) -> Sample:
    """Queue, rate and memory at this moment; events and batches since the broker started."""
    feed = json.loads(server.ask(f"/feeds/{FEED}"))
    values: dict[str, float] = {}
    for name, labels, value in _METRIC.findall(server.ask("/metrics")):
        if name == "stage_seconds_count":
            name = "batches" if 'stage="match"' in labels else ""
        values[name] = values.get(name, 0.0) + float(value)
    used = usage(server.pid)
    return {
        "queue": int(values.get("queue_events", 0)),
        "matched": int(values.get("events_matched", 0)),
        "batches": int(values.get("batches", 0)),
        "rate": feed["rate"],
        "sampled_matches": feed["sampled_matches"],
        "sampled_false": feed["sampled_false"],
        "private": used and used.private,
        "cpu": used and used.cpu,
    }


def stages(server: Server) -> dict[str, tuple[float, float]]:
    """Count and total seconds of each stage of publishing, over all feeds, since the start."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in _METRIC.findall(server.ask("/metrics")):
        stage = _STAGE.search(labels)
        if name in ("stage_seconds_count", "stage_seconds_sum") and stage is not None:
            sums = found.setdefault(stage[1], dict.fromkeys(("count", "sum"), 0.0))
            sums[name.rpartition("_")[2]] += float(value)
    return {name: (sums["count"], sums["sum"]) for name, sums in found.items()}


class Watch:
    """Samples of the server, from `see`, which may be called more often than they are taken."""

    def __init__(self, server: Server, generator: int, look: Look, every: float = 1.0) -> None:
        self._server, self._look, self._every = server, look, every
        self._processes = {"server": server.pid, "generator": generator}
        self.samples: list[Sample] = []
        self._began = perf_counter()
        self._first = self._used()
        self._first_of_all = _machine_seconds()
        self.see()

    def see(self) -> None:
        if not self.samples or perf_counter() - self.samples[-1]["at"] >= self._every:
            seen = self._look(self._server)
            self.samples.append({"at": perf_counter(), **seen})

    def _used(self) -> dict[str, Usage]:
        """By process; what the system does not tell is left out."""
        known = {name: usage(process) for name, process in self._processes.items()}
        return {name: used for name, used in known.items() if used is not None}

    def used(self) -> dict[str, tuple[Usage, Usage]]:
        """By process, at the start and now."""
        last = self._used()
        return {name: (self._first[name], last[name]) for name in self._first if name in last}

    def cores(self) -> dict[str, float]:
        """How many cores the broker, the load and everything else have used since the start."""
        spent = perf_counter() - self._began
        cores = {
            name: (last.cpu - first.cpu) / spent for name, (first, last) in self.used().items()
        }
        last = _machine_seconds()
        if last is not None and self._first_of_all is not None:
            every = (last - self._first_of_all) / spent
            cores["others"] = max(0.0, every - sum(cores.values()))
        return cores

    def since(self, began: float) -> list[Sample]:
        """Samples of a feed with their times from `began` on, and the size of batches between."""
        made = []
        for before, now in zip(self.samples, self.samples[1:], strict=False):
            batches = now["batches"] - before["batches"]
            events = now["matched"] - before["matched"]
            size = events / batches if batches else None
            made.append({**now, "at": round(now["at"] - began, 3), "batch_size": size})
        return made

    def memory(self) -> dict[str, Any]:
        """The server's memory before and after, and how it grew; needs samples by `held`."""
        before, after = self.used()["server"]
        seen = [sample for sample in self.samples if sample["private"] is not None]
        times = [round(sample["at"] - self._began, 2) for sample in seen]
        private = [sample["private"] for sample in seen]
        late = len(times) // 2
        return {
            "resident_before": before.resident,
            "resident_after": after.resident,
            "private_before": before.private,
            "private_after": after.private,
            "slope_per_minute": slope(times, private),
            "late_slope_per_minute": slope(times[late:], private[late:]),
            "seconds": times,
            "resident": [sample["resident"] for sample in seen],
            "private": private,
        }


def thirds(
    began: float,
    ended: float,
    samples: Sequence[Sample],
    arrived: Float64Array,
    delay: Float64Array,
) -> list[dict[str, Any]]:
    """What was held, and how late notifications were, in each third of a phase.

    The first has what a start still adds, so a leak is what the last has above the second.
    `samples` are by `held`; `arrived` and `delay` are of each notification.
    """
    share = (ended - began) / 3
    which = np.clip((arrived - began) // share, 0, 2)
    made = []
    for third in range(3):
        low = began + third * share
        seen = [one for one in samples if low <= one["at"] < low + share]
        private = [one["private"] for one in seen if one["private"] is not None]
        delays = delay[which == third]
        made.append(
            {
                "notifications": len(delays),
                "delivery_ms": spread_ms(delays),
                "private": float(np.median(private)) if private else None,
                "descriptors": max((one["descriptors"] or 0 for one in seen), default=None),
            }
        )
    return made


def _machine_seconds() -> float | None:
    """Busy seconds of all processors so far; None without /proc."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    ticks = [int(field) for field in fields[:8]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def slope(seconds: list[float], sizes: list[int]) -> float | None:
    """Growth in a minute, by the line that fits best; None for too few samples."""
    if len(seconds) < 3:
        return None
    return 60.0 * float(np.polyfit(seconds, sizes, 1)[0])


def disk(folder: Path) -> dict[str, Any]:
    """What durable writes cost there: a file system in memory would make figures worthless."""
    path = folder / "sync.probe"
    taken = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(file, bytes(4096))
            began = perf_counter()
            os.fsync(file)
            taken.append(perf_counter() - began)
            sleep(0.001)
    finally:
        os.close(file)
        path.unlink()
    return {"filesystem": _filesystem(folder), "fsync_ms": 1e3 * float(np.median(taken))}


def _filesystem(folder: Path) -> str | None:
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return None
    mounts = [line.split()[1:3] for line in lines]
    inside = [(place, kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(inside, key=lambda one: len(one[0]))[1] if inside else None
