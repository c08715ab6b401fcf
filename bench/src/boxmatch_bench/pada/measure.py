"""One index on the test bed: what exact matching carries, and what the adjuster makes of more.

The paper scales the ticks of a morning, which we do not have, and gives only their average and how
far they fluctuate. So the rates of arrivals are drawn: one for each second, related to the one
before, then stretched so that the highest is as many times the lowest as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from boxmatch.arrays import Float64Array
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.broker.deliveries import Counted, Truth, compare
from boxmatch_bench.broker.processes import LoadGenerator, Server
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.pada.samples import Cores, Samples
from boxmatch_bench.settings import Adjustment, Bed, BrokerSetting, Schedule
from boxmatch_bench.timing import spread_ms

Tell = Callable[[str], None]
Figures = dict[str, Any]

_WARM: Final = 2.0
_MEMORY: Final = 0.5
"""How much a second's rate has of the one before: the correlation of neighbours."""


class OnBed:
    """A broker whose feed has one index and all subscriptions, and its publishers."""

    def __init__(self, bed: Bed, index: str, truth: Truth, folder: Path, tell: Tell) -> None:
        self._bed, self._index, self.truth, self._folder = bed, index, truth, folder
        self._tell = tell
        self.capacity = 0.0
        """Events a second that it matches exactly, and delivers."""

    def __enter__(self) -> Self:
        bed = self._bed
        setting = BrokerSetting(
            workload=bed.workload, subscribers=bed.subscribers, index=self._index
        )
        options = BrokerOptions(pool=bed.pool, batch=bed.overload_batch)
        with ExitStack() as stack:
            self._tell("starting the broker")
            self.server = stack.enter_context(Server(self._folder / "data", options))
            load = LoadGenerator(self.server.port, setting, options)
            self._generator = stack.enter_context(load)
            self._call("loading subscriptions", "load")
            self._call("connecting", "connect", np.diff(self.truth.start))
            self.capacity = self._capacity()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _capacity(self) -> float:
        """Answers a second while publishers send again as soon as they are answered."""
        bed = self._bed
        connections = min(bed.capacity_connections, bed.connections)
        rates = []
        for seconds in (_WARM, bed.capacity_seconds):
            # More than can be sent, all of it due at once.
            schedule = Schedule(
                moments=np.zeros(round(20_000 * seconds)), connections=connections, seconds=seconds
            )
            result = self._call("measuring what exact matching carries", "publish", schedule)
            compare(self.truth, result, 1)
            answered = np.sort(result["published"]["answered"])
            answered = answered[answered > 0] - result["began"]
            inside = answered[(answered > seconds / 4) & (answered <= seconds)]
            rates.append(len(inside) / (0.75 * seconds))
        return rates[-1]

    def measure(self, adjustment: Adjustment) -> Figures:
        """The fluctuating arrivals, with this adjuster."""
        bed = self._bed
        rates = bed.load * self.capacity * shape(bed.seconds, bed.fluctuation, bed.workload.seed)
        due = moments(rates, bed.workload.seed)
        schedule = Schedule(moments=due, connections=bed.connections, seconds=10.0 * bed.seconds)
        result, sampling = self.send(f"adjuster {adjustment.name}", schedule, adjustment)
        counted, came_due, delays, _ = compare(self.truth, result, 1)
        if result["published"]["refused"].any():
            raise MismatchError("a broker that was not to be overloaded refused events")
        came_due = came_due - result["began"]
        late = result["published"]["sent"] - result["published"]["due"]
        return {
            "capacity": self.capacity,
            "load": bed.load,
            "adaptive": adjustment.request,
            "events": len(due),
            "notifications": len(delays),
            "latency_ms": spread_ms(delays),
            "sent_late_ms": spread_ms(late),
            **false_figures(counted),
            "by_second": {
                "arrivals": np.bincount(due.astype(np.int64), minlength=bed.seconds).tolist(),
                "latency_ms": by_second(came_due[counted.place], 1e3 * delays, bed.seconds),
                "rate": by_second(came_due, counted.rate, bed.seconds),
                "false": by_second(came_due, counted.false.astype(float), bed.seconds),
                "true": by_second(came_due, counted.true.astype(float), bed.seconds),
            },
            **self.use(result, sampling),
        }

    def send(
        self, name: str, schedule: Schedule, adjustment: Adjustment | None, every: float = 1.0
    ) -> tuple[dict[str, Any], Samples]:
        """Publish with this adjuster, or with the one that the feed has."""
        if adjustment is not None:
            self._call(name, "adapt", adjustment.request)
        sampling = Samples(self.server, every)
        sampling.see()
        cores = Cores(self.server.pid, self._generator.pid)
        result = self._call(name, "publish", schedule, meanwhile=sampling.see)
        result["cores"] = cores.used()
        return result, sampling

    def use(self, result: dict[str, Any], sampling: Samples) -> Figures:
        """What the machine was busy with."""
        return {"cores": result["cores"], "samples": sampling.since(result["began"])}

    def _call(self, name: str, command: str, *arguments: object, **more: Any) -> Any:
        self._tell(name)
        return self._generator.call(
            command,
            *arguments,
            progress=lambda done, total: self._tell(f"{name}, {done:,.0f} of {total:,.0f}"),
            **more,
        )


def false_figures(counted: Counted) -> Figures:
    """False positives, counted and promised."""
    inexact = counted.rate > 0
    return {
        "true": int(counted.true.sum()),
        "false": int(counted.false.sum()),
        "measured_rate": counted.measured,
        "promised_rate": counted.promised,
        "highest_rate": float(counted.rate.max(initial=0.0)),
        "inexact_events": int(inexact.sum()),
        "mean_rate": float(counted.rate.mean()) if len(counted.rate) else 0.0,
    }


def by_second(
    due: Float64Array, values: Float64Array, seconds: int, *, empty: float | None = None
) -> list[float | None]:
    """Means of values in each second that they were due in."""
    second = np.minimum(due.astype(np.int64), seconds - 1)
    counts = np.bincount(second, minlength=seconds)
    sums = np.bincount(second, weights=values, minlength=seconds)
    return [float(s / c) if c else empty for s, c in zip(sums, counts, strict=True)]


def shape(seconds: int, fluctuation: float, seed: int) -> Float64Array:
    """Rates second by second: one on average, the highest `fluctuation` times the lowest."""
    if seconds < 1 or fluctuation < 1:
        raise ValueError("there must be a second, and the highest rate is not below the lowest")
    random = np.random.default_rng([seed, seconds])
    drawn = random.normal(size=seconds)
    for second in range(1, seconds):
        fresh = (1 - _MEMORY**2) ** 0.5 * drawn[second]
        drawn[second] = _MEMORY * drawn[second - 1] + fresh
    height = drawn - drawn.min()
    rates = 1 + (fluctuation - 1) * height / (height.max() or 1.0)
    stretched: Float64Array = rates / rates.mean()
    return stretched


def moments(rates: Float64Array, seed: int) -> Float64Array:
    """Seconds from the start at which events arrive, so many in each second, in order.

    Within a second they are where chance puts them, as with independent publishers.
    """
    random = np.random.default_rng([seed, len(rates), 1])
    counts = np.rint(rates).astype(np.int64)
    parts = [second + np.sort(random.random(count)) for second, count in enumerate(counts)]
    return np.concatenate(parts)
