"""Twice what exact matching carries, for a minute, and then nothing: what is lost, and what stays.

Publishers that are refused try again as long as the overload lasts. Then they give up, so that its
end is an end. What was acknowledged must have been delivered, whatever happened meanwhile.
"""

from __future__ import annotations

from time import perf_counter, sleep
from typing import Any, Final

import numpy as np

from boxmatch_bench.broker.deliveries import compare
from boxmatch_bench.broker.watch import slope
from boxmatch_bench.pada.measure import Figures, OnBed, false_figures
from boxmatch_bench.pada.samples import Samples
from boxmatch_bench.settings import Adjustment, Bed, Schedule

_EVERY: Final = 0.5
_IN_FLIGHT: Final = 12_000
"""Events under way at the most. More than the broker lets wait, so that it has to refuse some."""
_AFTERWARDS: Final = 20
"""Events that are published when it is over."""


def overload(on: OnBed, bed: Bed, adjustment: Adjustment) -> Figures:
    """Raises `MismatchError` if an acknowledged event was not delivered to all it concerns."""
    batch, seconds = bed.overload_batch, bed.overload_seconds
    wanted = round(bed.overload * on.capacity * seconds / batch)
    schedule = Schedule(
        moments=np.linspace(0.0, seconds, max(1, wanted), endpoint=False),
        batch=batch,
        connections=_IN_FLIGHT // batch,
        seconds=seconds,
    )
    result, sampling = on.send("overload", schedule, adjustment, _EVERY)
    _wait_until_calm(sampling, bed.quiet_seconds)
    counted = compare(on.truth, result, batch).counted
    afterwards = _afterwards(on)
    samples = sampling.since(result["began"])
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
        **on.use(result, sampling),
    }


def _wait_until_calm(sampling: Samples, timeout: float) -> None:
    deadline = perf_counter() + timeout
    while perf_counter() < deadline:
        sampling.see()
        if is_calm(sampling.samples[-1]):
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
