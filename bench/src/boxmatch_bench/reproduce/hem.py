"""The experiments of the HEM paper (Shi and Qian)."""

from __future__ import annotations

from typing import Any, Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import cpp
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    POINTS,
    TENTH,
    Claim,
    Finding,
    NotMeasurable,
)
from boxmatch_bench.reproduce.comparisons import (
    change,
    percent_less,
    times,
)
from boxmatch_bench.reproduce.experiment import (
    ADA_REIN_PUBLISHED,
    TAMA,
    TILE,
    Axis,
    Paper,
    Point,
    Published,
    ada_rein,
    ada_rein_published,
)
from boxmatch_bench.reproduce.hem_groups import GROUPS, MARKING, PARTS, THEOREM
from boxmatch_bench.reproduce.hem_setting import (
    BY_ALPHA,
    BY_ATTRIBUTES,
    BY_EVENT_SIZE,
    BY_NUMBER,
    BY_SIZE,
    BY_WIDTH,
    COMPARED,
    CUT,
    HEM,
    HEM_128,
    OPINDEX,
    REIN,
    WHY,
    N,
    against_others,
)
from boxmatch_bench.reproduce.hem_upkeep import INSERTION, MEMORY
from boxmatch_bench.reproduce.statements import (
    Along,
    Bound,
    Cells,
    Extreme,
    Judged,
    Near,
    Order,
)
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.tables import number


def _cpp(points: tuple[Point, ...]) -> tuple[Published, ...]:
    return tuple(
        Published(q.SINGLE, "Authors' C++", point.x, cpp.BEST[point.workload] / 1000, "counting")
        for point in points
        if isinstance(point.workload, RangeWorkload) and point.workload in cpp.BEST
    )


def _reductions(**percent: float) -> tuple[Claim, ...]:
    labels = {"rein": "REIN", "tama": "TAMA", "ada_rein": "Ada-REIN", "opindex": "OpIndex"}
    return tuple(
        Claim(
            "6.3",
            f"HEM's matching time is below that of {labels[name]} by, on average",
            Near(percent_less(q.SINGLE, "HEM", labels[name]), published, POINTS),
            WHY.get(labels[name], ""),
        )
        for name, published in percent.items()
    )


def _along(course: str, *labels: str) -> tuple[Claim, ...]:
    return tuple(
        Claim("6.3", f"{label}'s time", Along(q.SINGLE, label, course))  # type: ignore[arg-type]
        for label in labels
    )


def _best(label: str, others: tuple[str, ...] = COMPARED, **place: Any) -> Claim:
    what = "the fastest of the paper's five"
    return Claim("6.3", f"{label} is {what}", Extreme(q.SINGLE, "least", label, others, **place))


def _overall(label: str) -> Any:
    """HEM's reduction over all places of the experiments of 6.3."""

    def found(grid: Grid) -> Finding | None:
        published = _OVERALL[label]
        reduced = [
            percent_less(q.SINGLE, "HEM", label, at=x).measured(beside)
            for name in _METRIC
            if (beside := grid.beside(name)) is not None
            for x in beside.xs
        ]
        known = [one for one in reduced if one is not None]
        if len({name for name in _METRIC if grid.beside(name) is not None}) < len(_METRIC):
            return None
        mean = sum(known) / len(known)
        return Finding(f"{number(mean)} %", POINTS.holds(mean, published))

    return Judged(f"{_OVERALL[label]} %", f"{POINTS}, over all places of Figures 5 to 10", found)


_OVERALL: Final = {"REIN": 86.8, "Ada-REIN": 86.3, "OpIndex": 82.1, "TAMA": 45.3}
_METRIC: Final = (
    *("hem-subscriptions", "hem-subscription-size", "hem-event-size", "hem-width"),
    *("hem-attributes", "hem-alpha"),
)


def _linear(label: str) -> Any:
    """How far the time is from a straight line through its ends."""

    def found(grid: Grid) -> Finding | None:
        pairs = [(float(x), grid.value(q.SINGLE, label, x)) for x in grid.xs]
        known = [(x, value) for x, value in pairs if value is not None]
        if len(known) < len(pairs) or len(known) < 3:
            return None
        (first, low), (last, high) = known[0], known[-1]
        off = max(
            abs(value / (low + (high - low) * (x - first) / (last - first)) - 1)
            for x, value in known
        )
        shown = f"{number(low)} → {number(high)} ms, at most {number(100 * off)} % off the line"
        return Finding(shown, high > low and off <= 0.15)

    return Judged("linear", "rises, within 15 % of a straight line", found)


def _immune(grid: Grid) -> Finding | None:
    """HEM's time varies less along the axis than that of the others."""
    found = []
    for label in ("HEM", *COMPARED):
        values = [grid.value(q.SINGLE, label, x) for x in grid.xs]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        found.append((max(known) / min(known), label))
    shown = ", ".join(f"{label} {number(spread)} ×" for spread, label in sorted(found))
    calm = {label for _, label in sorted(found)[:2]}
    return Finding(shown, calm == {"HEM", "TAMA"})


SUBSCRIPTIONS: Final = against_others(
    name="hem-subscriptions",
    figure="Figure 5",
    title="Effect of the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
    x=N,
    points=BY_NUMBER,
    series=(REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, HEM_128, CUT, TILE),
    published=_cpp(BY_NUMBER),
    claims=(
        *_reductions(rein=90.1, tama=83.5, ada_rein=90.0, opindex=95.9),
        *_along("rises", *COMPARED, "HEM"),
        _best("HEM"),
        Claim(
            "6.3",
            "OpIndex is the slowest of the five, since every attribute becomes a pivot",
            Extreme(q.SINGLE, "most", "OpIndex", ("REIN", "Ada-REIN", "TAMA", "HEM")),
            WHY["OpIndex"],
        ),
        Claim(
            "6.3",
            "TAMA's time grows faster than REIN's: from 300,000 to 3,000,000 subscriptions",
            Judged("TAMA more than REIN", "TAMA's factor is above REIN's", lambda g: _faster(g)),
        ),
        *(
            Claim(
                "1, 6",
                f"Over all experiments HEM's matching time is below that of {label} by",
                _overall(label),
                WHY.get(label, ""),
            )
            for label in _OVERALL
        ),
    ),
    notes="5,000,000 to 9,000,000 subscriptions are left out for time and memory, but for --full. "
    f"{cpp.SOURCE}",
)


def _faster(grid: Grid) -> Finding | None:
    grown = [
        change(q.SINGLE, label, 300_000, 3_000_000).measured(grid) for label in ("TAMA", "REIN")
    ]
    tama, rein_ = grown
    if tama is None or rein_ is None:
        return None
    return Finding(f"{number(tama)} and {number(rein_)} times", tama > rein_)


SIZE: Final = against_others(
    name="hem-subscription-size",
    figure="Figure 6",
    title="Effect of the subscription size (d = 30, event size 30, w = 0.7)",
    x=Axis("Subscription size ψS"),
    points=BY_SIZE,
    series=(REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, HEM_128, TILE),
    published=_cpp(BY_SIZE),
    claims=(
        *_reductions(rein=83.7, tama=82.6, ada_rein=83.1, opindex=95.2),
        *(
            Claim("6.3", f"{label}'s time with the size of subscriptions", _linear(label))
            for label in (*COMPARED, "HEM")
        ),
        Claim(
            "6.3",
            "Ada-REIN's time in REIN's: nearly the same",
            Near(times(q.SINGLE, "Ada-REIN", "REIN"), 1, TENTH),
        ),
    ),
    notes=f"Sizes 15 and 25 are left out, but for --full. {cpp.SOURCE}",
)
EVENT_SIZE: Final = against_others(
    name="hem-event-size",
    figure="Figure 7",
    title="Effect of the event size (d = 80, 10 predicates, w = 0.3)",
    x=Axis("Event size ψE"),
    points=BY_EVENT_SIZE,
    published=_cpp(BY_EVENT_SIZE),
    claims=(
        *_reductions(rein=86.5, tama=50.3, ada_rein=86.3, opindex=88.5),
        *_along("rises", "TAMA", "OpIndex", "HEM"),
        *_along("falls", "REIN", "Ada-REIN"),
    ),
    notes=cpp.SOURCE,
)
WIDTH: Final = against_others(
    name="hem-width",
    figure="Figure 8",
    title="Effect of the predicate width (d = 20, 5 predicates)",
    x=Axis("Predicate width w"),
    points=BY_WIDTH,
    series=(REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, HEM_128, TILE),
    published=_cpp(BY_WIDTH),
    claims=(
        *_reductions(rein=88.0, tama=85.0, ada_rein=87.3, opindex=95.9),
        *_along("rises", "TAMA"),
        *_along("stays", "OpIndex", "HEM"),
        *(
            Claim("6.3", f"Up to w = 0.7, {label}'s time", Along(q.SINGLE, label, "falls", end=0.7))
            for label in ("REIN", "Ada-REIN")
        ),
        *(
            Claim(
                "6.3",
                f"At w = 0.9 {label} is a little slower than at 0.7",
                Bound(change(q.SINGLE, label, 0.7, 0.9), "at least", 1, "a little slower"),
            )
            for label in ("REIN", "Ada-REIN")
        ),
    ),
    notes=f"Every other width is left out, but for --full. {cpp.SOURCE}",
)
ATTRIBUTES: Final = against_others(
    name="hem-attributes",
    figure="Figure 9",
    title="Effect of the number of attributes (10 predicates, event size 20, w = 0.5)",
    x=Axis("Number of attributes d", log=True),
    points=BY_ATTRIBUTES,
    published=_cpp(BY_ATTRIBUTES),
    claims=(
        *_along("falls", "TAMA", "OpIndex"),
        *_along("rises", "REIN", "Ada-REIN", "HEM"),
        _best("TAMA", ("REIN", "Ada-REIN", "HEM", "OpIndex"), at=(300, 900)),
    ),
    notes=cpp.SOURCE,
)
ALPHA: Final = against_others(
    name="hem-alpha",
    figure="Figure 10",
    title="Effect of the distribution of attributes (d = 50, 5 predicates, w = 0.5)",
    x=Axis("Zipf α of the attributes"),
    series=(*(REIN, ada_rein(0.05), ada_rein_published(0.05), TAMA, OPINDEX, HEM, TILE),),
    tabled=(q.MATCHES, q.SKIPPED_ATTRIBUTES, q.SKIPPED_PREDICATES),
    points=BY_ALPHA,
    published=(
        Published(q.SKIPPED_ATTRIBUTES, ADA_REIN_PUBLISHED, 1, 1),
        Published(q.SKIPPED_ATTRIBUTES, ADA_REIN_PUBLISHED, 5, 40),
        Published(q.SKIPPED_PREDICATES, ADA_REIN_PUBLISHED, 1, 26_000),
        Published(q.SKIPPED_PREDICATES, ADA_REIN_PUBLISHED, 5, 5_000_000),
    ),
    claims=(
        Claim(
            "6.3",
            "HEM and TAMA vary the least with α",
            Judged("HEM, TAMA", "they have the two smallest spreads", _immune),
        ),
        Claim("6.3", "Ada-REIN is faster than REIN", Order(q.SINGLE, ("Ada-REIN", "REIN"))),
        Claim(
            "6.3",
            "Attributes that Ada-REIN as published skips",
            Cells(q.SKIPPED_ATTRIBUTES, ADA_REIN_PUBLISHED, TENTH),
        ),
        Claim(
            "6.3",
            "Predicates that it skips",
            Cells(q.SKIPPED_PREDICATES, ADA_REIN_PUBLISHED, TENTH),
            "Five million predicates are all that the subscriptions have; the paper's figure must "
            "be a slip",
        ),
    ),
    notes="α applies to the attributes of subscriptions and of events; 0 is a uniform choice. "
    "α = 4 is left out, but for --full. Our Ada-REIN counts in that events lack attributes.",
)
PAPER: Final = Paper(
    "HEM: hardware-aware event matching",
    (
        *(PARTS, MARKING, THEOREM, GROUPS, SUBSCRIPTIONS, SIZE, EVENT_SIZE, WIDTH, ATTRIBUTES),
        *(ALPHA, INSERTION, MEMORY),
    ),
    claims=(
        Claim(
            "6.2",
            "Marking takes 6.79 ms and matching 7.56 ms and 152 MB without groups",
            NotMeasurable("6.79 ms, 7.56 ms, 152 MB", "another machine's, in other code"),
        ),
        Claim(
            "6.3",
            "From 3,000,000 to 7,000,000 subscriptions HEM's time grows more slowly than before, "
            "and faster at 9,000,000",
            NotMeasurable("slower, then faster", "only with --full, for memory"),
        ),
        Claim(
            "5.1",
            "Complexities of insertion, matching and space",
            NotMeasurable("O(gψS), O(dn + nψEψS / dg), O(dc + dng + nψS)", "orders of growth"),
        ),
    ),
)
