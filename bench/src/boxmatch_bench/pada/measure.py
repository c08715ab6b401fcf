"""One index on the test bed: what exact matching carries, and what the adjuster makes of more."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import numpy as np

from boxmatch.arrays import Float64Array
from boxmatch.engine.matcher import Matcher
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.broker.deliveries import Counted, Truth, compare
from boxmatch_bench.broker.processes import Session, Tell
from boxmatch_bench.broker.watch import Watch, slope, state_of_feed
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.pada.arrivals import moments, shape
from boxmatch_bench.settings import Adjustment, Bed, BrokerSetting, Schedule
from boxmatch_bench.timing import Figures, spread_ms

_WARM: Final = 2.0
_EVERY: Final = 0.5
_IN_FLIGHT: Final = 12_000
"""Events under way at the most. More than the broker lets wait, so that it has to refuse some."""
_AFTERWARDS: Final = 20
"""Events that are published when it is over."""
RATED: Final = ("rein", "hem", "tile")
_RATES: Final = (0.0, 0.0001, 0.001, 0.01, 0.05)
_BATCHES: Final = (1, 16, 256)
_EVENTS: Final = 256
_REPEATS: Final = 3


class OnBed(Session):
    """A broker whose feed has one index and all subscriptions, and its publishers."""

    def __init__(self, bed: Bed, index: str, truth: Truth, folder: Path, tell: Tell) -> None:
        setting = BrokerSetting(workload=bed.workload, subscribers=bed.subscribers, index=index)
        options = BrokerOptions(pool=bed.pool, batch=bed.overload_batch)
        super().__init__(setting, options, truth, folder / "data", tell)
        self._bed = bed

    def prepare(self) -> None:
        """Load and connect all, and find out what exact matching carries."""
        self.load()
        self.connect()
        self.calibrate()

    def calibrate(self) -> None:
        """Find out anew what exact matching carries: the machine may have others to serve now."""
        self.call("exact matching", "adapt", None)
        self.capacity = self._capacity()
        """Events a second that it matches exactly, and delivers."""
        self._calibrated = 0

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
            result = self.call("measuring what exact matching carries", "publish", schedule)
            compare(self.truth, result, 1)
            answered = np.sort(result["published"]["answered"])
            answered = answered[answered > 0] - result["began"]
            inside = answered[(answered > seconds / 4) & (answered <= seconds)]
            rates.append(len(inside) / (0.75 * seconds))
        return rates[-1]

    def measure(self, adjustment: Adjustment, load: float, repetition: int) -> Figures:
        """The fluctuating arrivals of a repetition, with this adjuster."""
        bed = self._bed
        if repetition != self._calibrated:
            self.calibrate()
            self._calibrated = repetition
        seed = 1_000 * repetition + bed.workload.seed
        due = moments(load * self.capacity * shape(bed.seconds, bed.fluctuation, seed), seed)
        schedule = Schedule(moments=due, connections=bed.connections, seconds=10.0 * bed.seconds)
        result, watch = self.send(f"adjuster {adjustment.name}", schedule, adjustment)
        counted, came_due, delays, _ = compare(self.truth, result, 1)
        if result["published"]["refused"].any():
            raise MismatchError("a broker that was not to be overloaded refused events")
        came_due = came_due - result["began"]
        late = result["published"]["sent"] - result["published"]["due"]
        return {
            "capacity": self.capacity,
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
            "cores": result["cores"],
            "samples": watch.since(result["began"]),
        }

    def send(
        self, name: str, schedule: Schedule, adjustment: Adjustment | None, every: float = 1.0
    ) -> tuple[dict[str, Any], Watch]:
        """Publish with this adjuster, or with the one that the feed has."""
        if adjustment is not None:
            self.call(name, "adapt", adjustment.request)
        result, watch = self.publish(name, schedule, state_of_feed, every)
        result["cores"] = watch.cores()
        return result, watch


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


def by_second(due: Float64Array, values: Float64Array, seconds: int) -> list[float | None]:
    """Means of values in each second that they were due in."""
    second = np.minimum(due.astype(np.int64), seconds - 1)
    counts = np.bincount(second, minlength=seconds)
    sums = np.bincount(second, weights=values, minlength=seconds)
    return [float(s / c) if c else None for s, c in zip(sums, counts, strict=True)]


# --- overload -----------------------------------------------------------------------------------


def overload(on: OnBed, bed: Bed, adjustment: Adjustment) -> Figures:
    """Twice what exact matching carries, and then nothing: what is lost, and what stays.

    Publishers that are refused try again as long as the overload lasts. Then they give up, so that
    its end is an end. Raises `MismatchError` if an acknowledged event was not delivered to all
    whom it concerns.
    """
    batch, seconds = bed.overload_batch, bed.overload_seconds
    wanted = round(bed.overload * on.capacity * seconds / batch)
    schedule = Schedule(
        moments=np.linspace(0.0, seconds, max(1, wanted), endpoint=False),
        batch=batch,
        connections=_IN_FLIGHT // batch,
        seconds=seconds,
    )
    result, watch = on.send("overload", schedule, adjustment, _EVERY)
    _wait_until_calm(watch, bed.quiet_seconds)
    counted = compare(on.truth, result, batch).counted
    afterwards = _afterwards(on)
    samples = watch.since(result["began"])
    published = result["published"]
    accepted = published["first"] > 0
    return {
        "capacity": on.capacity,
        "overload": bed.overload,
        "adaptive": adjustment.request,
        "seconds": seconds,
        "offered": batch * len(accepted),
        "acknowledged": batch * int(accepted.sum()),
        "delivered_matches": int(counted.true.sum() + counted.false.sum()),
        "lost": 0,
        "refusals": int(published["refused"].sum()),
        "accepted_later": batch * int((accepted & (published["refused"] > 0)).sum()),
        "given_up": batch * int((~accepted).sum()),
        "answered_seconds_after": float(published["answered"].max() - result["began"] - seconds),
        **false_figures(counted),
        **recovery(samples, seconds),
        "memory": memory(samples, seconds),
        "afterwards": afterwards,
        "cores": result["cores"],
        "samples": samples,
    }


def _wait_until_calm(watch: Watch, timeout: float) -> None:
    deadline = perf_counter() + timeout
    while perf_counter() < deadline:
        watch.see()
        if is_calm(watch.samples[-1]):
            return
        sleep(_EVERY / 2)


def _afterwards(on: OnBed) -> Figures:
    """Publish a few events with time between them; how many of them were matched exactly.

    All of them, unless something else on the machine kept them waiting.
    """
    schedule = Schedule(
        moments=np.arange(_AFTERWARDS) / 10, connections=4, seconds=10.0 + _AFTERWARDS
    )
    result, _ = on.send("afterwards", schedule, None)
    counted = compare(on.truth, result, 1).counted
    return {"events": len(counted.rate), "exact": int((counted.rate == 0).sum())}


def is_calm(sample: dict[str, Any]) -> bool:
    """Whether nothing waits, and matching is exact."""
    return not sample["queue"] and not sample["rate"]


def recovery(samples: list[dict[str, Any]], end: float) -> Figures:
    """Seconds from the end of the overload until nothing waited, and until matching was exact."""
    after = [sample for sample in samples if sample["at"] >= end]
    empty = next((one["at"] for one in after if one["queue"] == 0), None)
    exact = next((one["at"] for one in after if is_calm(one)), None)
    return {
        "empty_after_seconds": None if empty is None else empty - end,
        "exact_after_seconds": None if exact is None else exact - end,
        "most_waiting": max((one["queue"] for one in samples), default=0),
    }


def memory(samples: list[dict[str, Any]], end: float) -> Figures:
    """The server's own memory: the most, and how it grew in the second half of the overload."""
    known = [(one["at"], one["private"]) for one in samples if one["private"] is not None]
    late = [(at, size) for at, size in known if end / 2 <= at <= end]
    return {
        "before": known[0][1] if known else None,
        "most": max((size for _, size in known), default=None),
        "after": known[-1][1] if known else None,
        "late_slope_per_minute": slope([at for at, _ in late], [size for _, size in late]),
    }


# --- the engine alone ---------------------------------------------------------------------------


def measure_rates(bed: Bed, index: str) -> dict[str, Any]:
    """Microseconds of an event by rate and batch, and the false matches that come with a true one.

    The best of some rounds, in which rates and batches take turns.
    """
    workload = bed.workload
    matcher = Matcher(workload.schema, index=index)
    matcher.subscribe_boxes(np.arange(workload.subscriptions), *workload.bounds())
    matcher.compact()
    events = workload.events(0, _EVENTS)
    exact = matcher.match_batch(events, threads=1)
    pairs = _pairs(exact)
    cases = [(rate, batch) for rate in _RATES for batch in _BATCHES]
    best = dict.fromkeys(cases, float("inf"))
    false = {}
    for _ in range(_REPEATS):
        for rate, batch in cases:
            began = perf_counter()
            for first in range(0, _EVENTS, batch):
                matcher.match_batch(
                    events[first : first + batch], threads=1, max_false_positive_rate=rate
                )
            best[rate, batch] = min(best[rate, batch], (perf_counter() - began) / _EVENTS)
    for rate in _RATES:
        found = _pairs(matcher.match_batch(events, threads=1, max_false_positive_rate=rate))
        if not np.isin(pairs, found).all():
            raise MismatchError(f"{index}: at a rate of {rate:g} a match is missing")
        false[rate] = len(found) / max(1, len(pairs)) - 1
    return {
        "events": _EVENTS,
        "matches": len(pairs) / _EVENTS,
        "rates": [
            {"rate": rate, "batch": batch, "us": 1e6 * seconds, "false": false[rate]}
            for (rate, batch), seconds in best.items()
        ],
    }


def _pairs(result: Any) -> Any:
    return result.event * (1 << 32) + result.subscription
