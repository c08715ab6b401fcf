"""Memory and time of the processes while a phase runs."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import numpy as np

from boxmatch_bench.broker.processes import LoadGenerator, Server, Usage, usage

_EVERY: Final = 1.0
_SYNCS: Final = 50


class Watch:
    """Samples of the server every second, from `see`, which is called more often than that."""

    def __init__(self, server: Server, generator: LoadGenerator) -> None:
        self._server, self._generator = server, generator
        self._began = perf_counter()
        self._samples: list[tuple[float, Usage]] = []
        self._first = usage(server.pid), usage(generator.pid)
        self._stages = server.stages()
        self.see()

    def see(self) -> None:
        now = perf_counter() - self._began
        if self._samples and now - self._samples[-1][0] < _EVERY:
            return
        used = usage(self._server.pid)
        if used is not None:
            self._samples.append((now, used))

    def figures(self, began: float, ended: float) -> dict[str, Any]:
        """For a report. Shares of a core are of the time from `began` to `ended`."""
        seconds = ended - began
        last = usage(self._server.pid), usage(self._generator.pid)
        made: dict[str, Any] = {"stages": self._stage_figures()}
        for name, before, after in zip(("server", "generator"), self._first, last, strict=True):
            if before is not None and after is not None:
                made[f"{name}_cores"] = (after.cpu - before.cpu) / seconds
        before, after = self._first[0], last[0]
        if before is not None and after is not None:
            made["written_bytes"] = after.written - before.written
            made["memory"] = self._memory(before, after)
        return made

    def _memory(self, before: Usage, after: Usage) -> dict[str, Any]:
        times = [round(time, 2) for time, _ in self._samples]
        private = [used.private for _, used in self._samples]
        late = len(times) // 2
        return {
            "resident_before": before.resident,
            "resident_after": after.resident,
            "private_before": before.private,
            "private_after": after.private,
            "slope_per_minute": slope(times, private),
            "late_slope_per_minute": slope(times[late:], private[late:]),
            "seconds": times,
            "resident": [used.resident for _, used in self._samples],
            "private": private,
        }

    def _stage_figures(self) -> dict[str, Any]:
        made = {}
        for name, (count, total) in self._server.stages().items():
            count_before, total_before = self._stages.get(name, (0.0, 0.0))
            if count > count_before:
                mean = (total - total_before) / (count - count_before)
                made[name] = {"count": int(count - count_before), "mean_ms": 1e3 * mean}
        return made


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
