"""Figure 5 of Ada-REIN: latency under a changing load, and the setting of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    HALF_MORE,
    Claim,
    Finding,
)
from boxmatch_bench.reproduce.comparisons import Cell, times
from boxmatch_bench.reproduce.experiment import (
    Axis,
    Experiment,
    Point,
    Series,
)
from boxmatch_bench.reproduce.statements import (
    Bound,
    Judged,
)
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.tables import number

DEFAULT: Final = RangeWorkload(
    subscriptions=1_000_000,
    attributes=1_000,
    predicates=5,
    event_size=1_000,
    width=0.5,
    attribute_choice="zipf",
    attribute_alpha=2.0,
)
"""The paper's default setting."""

LITTLE_TO_SKIP: Final = (
    "Marking a box costs us a few nanoseconds where the paper's coefficients have 120, and going "
    "on to the next bucket as little: what is skipped with rare attributes is a smaller share"
)

BY_SECOND, BY_MINUTE = "seconds of Figure 5", "minutes of Figure 1"
LOADS: Final[Mapping[str, tuple[float, str]]] = {
    **{f"{load:g}": (load, BY_SECOND) for load in (0.7, 0.8, 0.9, 0.95)},
    "0.95, minutes of Figure 1": (0.95, BY_MINUTE),
}
"""Average loads, and of whose rates arrivals are made."""
ADJUSTERS: Final[Mapping[str, str]] = {
    "ours": "Ada-REIN, our adjuster",
    "published": "Ada-REIN and PADA as published",
}


_SHORTER: Final = 2.09


def _shorter(x: str, label: str) -> Judged:
    """Whether a mean latency is shorter, where the interval of 95 % tells."""

    def found(grid: Grid) -> Finding | None:
        low, mean, high = (
            grid.value(one, label, x) for one in (q.LOWEST_RATIO, q.LATENCY_RATIO, q.HIGHEST_RATIO)
        )
        if low is None or mean is None or high is None:
            return None
        shown = f"{number(mean)} × (95 %: {number(low)} to {number(high)})"
        if low <= 1 <= high:
            return Finding(shown, None)
        return Finding(shown, low > 1 and HALF_MORE.holds(mean, _SHORTER))

    return Judged(f"{_SHORTER} ×", f"an interval above 1, a mean {HALF_MORE}", found)


_STEADIER: Final = 1.65


def _steadier(x: str, label: str) -> Judged:
    """Whether latency varies less, where the interval of the mean tells."""

    def found(grid: Grid) -> Finding | None:
        ratio = times(q.LATENCY_DEVIATION, "REIN", label, at=x).measured(grid)
        low, high = (grid.value(one, label, x) for one in (q.LOWEST_RATIO, q.HIGHEST_RATIO))
        if ratio is None or low is None or high is None:
            return None
        agrees = None if low <= 1 <= high else HALF_MORE.holds(ratio, _STEADIER)
        return Finding(f"{number(ratio)} ×", agrees)

    return Judged(f"{_STEADIER} ×", f"where the interval of means tells: {HALF_MORE}", found)


QUEUE: Final = Experiment(
    name="ada-rein-latency",
    paper="ada-rein",
    figure="Figure 5",
    title="Latency under a changing load (100,000 subscriptions, m = 616, k = 5, w = 0.3, α = 2)",
    x=Axis("Average load, as a share of what exact matching carries"),
    y=(q.LATENCY,),
    tabled=(
        *(q.LATENCY_DEVIATION, q.LATENCY_RATIO, q.LOWEST_RATIO, q.HIGHEST_RATIO),
        *(q.MEASURED_RATE, q.WAITED_RATE),
    ),
    series=(
        Series("REIN", "rein"),
        *(
            Series(label, "rein", {"adjuster": adjuster}, exact=False)
            for adjuster, label in ADJUSTERS.items()
        ),
    ),
    points=tuple(
        Point(
            x=name,
            workload=replace(
                DEFAULT, subscriptions=100_000, attributes=616, event_size=616, width=0.3
            ),
            parameters={"rein": {"load": load, "arrivals": arrivals}},
        )
        for name, (load, arrivals) in LOADS.items()
    ),
    events=1_312,
    method="queue",
    compared="matching",
    claims=(
        *(
            Claim(
                "VI-C, abstract",
                f"Mean latency falls, at a load of {x}, with {label}, to one part in",
                _shorter(x, label),
                LITTLE_TO_SKIP,
            )
            for x in LOADS
            for label in ADJUSTERS.values()
        ),
        *(
            Claim(
                "VI-C",
                f"REIN's standard deviation of latency, at a load of 0.95, in that with {label}",
                _steadier("0.95", label),
                LITTLE_TO_SKIP,
            )
            for label in ADJUSTERS.values()
        ),
        *(
            Claim(
                "Abstract",
                f"At a load of 0.95 false matches with {label} stay below 0.1 %",
                Bound(Cell(q.MEASURED_RATE, label, "0.95"), "at most", 0.1),
            )
            for label in ADJUSTERS.values()
        ),
    ),
    notes="Events are matched one by one and timed; when they would have arrived and how long they "
    "would have waited follows from these times, in ten repetitions that take turns. There are 131 "
    "events in an interval, as in the paper, and ten intervals of its thirty, whose rates we draw "
    "from a seed; the rate of false matches is at most 0.1 %, in steps of 0.01 % from a wait of "
    "5 ms on. The last load has the minutes of a trading day, of a model that fluctuates as much "
    "as Figure 1. A ratio has an interval, and a verdict only where it lies on one side of 1. For "
    "the same over sockets there is pada-fluctuation.",
)
