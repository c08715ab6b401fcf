"""What the broker says of itself while it is under load, about once a second."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from boxmatch_bench.broker.processes import Server, usage
from boxmatch_bench.settings import FEED

_EVERY: Final = 1.0
_LINE: Final = re.compile(r"^boxmatch_(\w+?)(?:_total)?(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


class Samples:
    """Samples from `see`, which may be called more often than they are taken."""

    def __init__(self, server: Server, every: float = _EVERY) -> None:
        self._server = server
        self._every = every
        self.samples: list[dict[str, Any]] = []

    def see(self) -> None:
        if self.samples and perf_counter() - self.samples[-1]["at"] < self._every:
            return
        self.samples.append(sample(self._server))

    def since(self, began: float) -> list[dict[str, Any]]:
        """The samples with their times from `began` on, and the size of batches between them."""
        made = []
        for before, now in zip(self.samples, self.samples[1:], strict=False):
            batches = now["batches"] - before["batches"]
            events = now["matched"] - before["matched"]
            size = events / batches if batches else None
            made.append({**now, "at": round(now["at"] - began, 3), "batch_size": size})
        return made


def sample(server: Server) -> dict[str, Any]:
    """Queue, rate and memory at this moment; events and batches since the broker started."""
    text = server.ask("/metrics")
    feed = json.loads(server.ask(f"/feeds/{FEED}"))
    values: dict[str, float] = {}
    for name, labels, value in _LINE.findall(text):
        if name == "stage_seconds_count":
            name = "batches" if 'stage="match"' in labels else ""
        values[name] = values.get(name, 0.0) + float(value)
    used = usage(server.pid)
    return {
        "at": perf_counter(),
        "queue": int(values.get("queue_events", 0)),
        "matched": int(values.get("events_matched", 0)),
        "batches": int(values.get("batches", 0)),
        "rate": feed["rate"],
        "sampled_matches": feed["sampled_matches"],
        "sampled_false": feed["sampled_false"],
        "private": used and used.private,
        "cpu": used and used.cpu,
    }


class Cores:
    """How many cores the broker, the load and everything else on the machine have used since."""

    def __init__(self, server: int, generator: int) -> None:
        self._processes = {"server": server, "generator": generator}
        self._began = perf_counter()
        self._first = self._seconds()

    def used(self) -> dict[str, float]:
        """By name; what the system does not tell is left out."""
        spent = perf_counter() - self._began
        last = self._seconds()
        cores = {
            name: (last[name] - first) / spent
            for name, first in self._first.items()
            if name in last
        }
        if "all" in cores:
            every = cores.pop("all")
            cores["others"] = max(0.0, every - sum(cores.values()))
        return cores

    def _seconds(self) -> dict[str, float]:
        """Of processors, so far."""
        known = {name: usage(process) for name, process in self._processes.items()}
        spent = {name: used.cpu for name, used in known.items() if used is not None}
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        except OSError:
            return spent
        ticks = [int(field) for field in fields[:8]]
        idle = ticks[3] + ticks[4]
        return {**spent, "all": (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")}
