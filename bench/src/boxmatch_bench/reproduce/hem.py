"""The experiments of the HEM paper (Shi and Qian)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import cpp
from boxmatch_bench.reproduce.experiment import Axis, Claim, Experiment, Point, Published
from boxmatch_bench.reproduce.grid import Grid, increase, ratio, reduction
from boxmatch_bench.reproduce.quantities import (
    AVOIDED,
    BATCH,
    FIRST_INSERTION,
    INSERTION,
    INSERTION_ONE,
    MARKING,
    MARKS,
    MATCHES,
    MEMORY,
    SINGLE,
    SKIPPED_ATTRIBUTES,
    SKIPPED_PREDICATES,
)
from boxmatch_bench.reproduce.series import HEM, OPINDEX, TAMA, TILE, ada_rein, rein

DEFAULT: Final = RangeWorkload(
    subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.3
)
"""The paper's default setting."""

_REIN: Final = rein()
_SHARED: Final[dict[str, Any]] = {"paper": "hem", "events": 500, "real_events": True}
_COMPARED: Final[dict[str, Any]] = {
    **_SHARED,
    "series": (_REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, TILE),
    "y": (SINGLE, BATCH),
    "tabled": (MATCHES,),
}


def _point(x: float, workload: RangeWorkload) -> Point:
    # An event lacks some attributes: a predicate is satisfied by as many fewer events.
    holds = workload.width * workload.event_size / workload.attributes
    return Point(x=x, workload=workload, parameters={"ada-rein": {"selectivity": holds}})


_GROUPS: Final = tuple(2**i for i in range(10))
_BY_GROUPS: Final = tuple(
    Point(x=g, workload=DEFAULT, parameters={"hem": {"groups": g}}) for g in _GROUPS
)
_BY_SIZE: Final = tuple(
    _point(k, replace(DEFAULT, attributes=30, event_size=30, predicates=k, width=0.7))
    for k in (5, 10, 20, 30)
)
_BY_NUMBER: Final = tuple(
    _point(n, replace(DEFAULT, subscriptions=n)) for n in (300_000, 1_000_000, 3_000_000)
)
_N: Final = Axis("Number of subscriptions n", log=True, scaled=True)


def _reductions(where: str, **percent: float) -> tuple[Claim, ...]:
    labels = {"rein": "REIN", "tama": "TAMA", "ada_rein": "Ada-REIN", "opindex": "OpIndex"}
    return tuple(
        Claim(
            f"HEM's matching time is so much below that of {labels[name]}, on average",
            where,
            published,
            "%",
            reduction(SINGLE, "HEM", labels[name]),
        )
        for name, published in percent.items()
    )


def _marking_share(grid: Grid, g: int) -> float | None:
    marking, matching = (grid.value(quantity, "HEM", g) for quantity in (MARKING, BATCH))
    return None if marking is None or not matching else 100 * marking / matching


def _marking_saved(grid: Grid, start: int, end: int) -> float | None:
    before, after = (grid.value(MARKING, "HEM", g) for g in (start, end))
    return None if after is None or not before else 100 * (1 - after / before)


_MARKING: Final = Experiment(
    **_SHARED,
    name="hem-marking",
    figure="Figure 3, Theorem 1",
    title="Marking time against the number of groups (default setting)",
    x=Axis("Number of groups g", log=True),
    y=(MARKING,),
    tabled=(MARKS, AVOIDED),
    series=(HEM,),
    points=_BY_GROUPS,
    extras=frozenset({"marks"}),
    published=(
        Published(MARKING, "HEM", 16, 0.60),
        Published(MARKING, "HEM", 32, 0.31),
        Published(AVOIDED, "HEM", 32, 95.4),
        *(Published(AVOIDED, "HEM", g, 100 * (1 - 1 / max(g, 2)), "Theorem 1") for g in _GROUPS),
    ),
    claims=(
        Claim(
            "Marking time falls by so much from g = 16 to g = 32",
            "6.2",
            100 * (1 - 0.31 / 0.60),
            "%",
            lambda grid: _marking_saved(grid, 16, 32),
        ),
        Claim(
            "Marking takes so much of the matching time at g = 1",
            "6.2",
            93.7,
            "%",
            lambda grid: _marking_share(grid, 1),
        ),
        Claim(
            "Marking takes so much of the matching time at g = 512",
            "6.2",
            2.5,
            "%",
            lambda grid: _marking_share(grid, 512),
        ),
    ),
    found="Marking time halves with every doubling of g from g = 2 on: 6.79 ms without groups, "
    "0.60 ms with 16, 0.31 ms with 32.",
    notes="Marks avoided: of the predicates that an event does not satisfy, the share that need "
    "not be marked one by one; by Theorem 1 it is 1 - 1/g, and for g = 1 the same as for g = 2.",
)

_TRADE_OFF: Final = Experiment(
    **_SHARED,
    name="hem-groups",
    figure="Figure 4",
    title="Matching time and memory against the number of groups (default setting)",
    x=Axis("Number of groups g", log=True),
    y=(SINGLE, BATCH, MEMORY),
    series=(_REIN, HEM, TILE),
    points=_BY_GROUPS,
    published=tuple(cpp.published({32: cpp.DEFAULT}, only="HEM")),
    claims=(
        Claim(
            "With 32 groups matching takes so much less than without",
            "6.2",
            89.7,
            "%",
            reduction(SINGLE, "HEM", "REIN", at=32),
        ),
        Claim(
            "With 32 groups HEM takes so many times the memory",
            "6.2",
            2,
            "×",
            ratio(MEMORY, "HEM", "REIN", at=32),
        ),
    ),
    found="Without groups matching takes 7.56 ms and 152 MB; with 32 groups 89.7 % less time and "
    "nearly twice the memory.",
    notes=f"REIN is what HEM is without groups; it and `tile` do not depend on g. {cpp.NOTE}",
)

_SUBSCRIPTIONS: Final = Experiment(
    **_COMPARED,
    name="hem-subscriptions",
    figure="Figure 5",
    title="Effect of the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
    x=_N,
    points=_BY_NUMBER,
    published=tuple(cpp.published({1_000_000: cpp.DEFAULT})),
    claims=_reductions("6.3", rein=90.1, tama=83.5, ada_rein=90.0, opindex=95.9),
    found="HEM is the fastest throughout, OpIndex the slowest, since every attribute becomes a "
    "pivot.",
    notes=f"5,000,000 to 9,000,000 subscriptions are left out, for time and memory. {cpp.NOTE}",
)

_SIZE: Final = Experiment(
    **_COMPARED,
    name="hem-subscription-size",
    figure="Figure 6",
    title="Effect of the subscription size (d = 30, event size 30, w = 0.7)",
    x=Axis("Subscription size ψS"),
    points=_BY_SIZE,
    published=tuple(cpp.published(cpp.SUBSCRIPTION_SIZE)),
    claims=_reductions("6.3", rein=83.7, tama=82.6, ada_rein=83.1, opindex=95.2),
    found="Time grows linearly with the subscription size for all five; Ada-REIN is next to REIN.",
    notes=f"Sizes 15 and 25 are left out. {cpp.NOTE}",
)

_EVENT_SIZE: Final = Experiment(
    **_COMPARED,
    name="hem-event-size",
    figure="Figure 7",
    title="Effect of the event size (d = 80, 10 predicates, w = 0.3)",
    x=Axis("Event size ψE"),
    points=tuple(
        _point(size, replace(DEFAULT, attributes=80, event_size=size)) for size in (30, 50, 80)
    ),
    published=tuple(cpp.published(cpp.EVENT_SIZE)),
    claims=_reductions("6.3", rein=86.5, tama=50.3, ada_rein=86.3, opindex=88.5),
    found="Larger events take TAMA and OpIndex longer and REIN and Ada-REIN less; HEM a little "
    "longer.",
    notes=cpp.NOTE,
)

_WIDTH: Final = Experiment(
    **_COMPARED,
    name="hem-width",
    figure="Figure 8",
    title="Effect of the predicate width (d = 20, 5 predicates)",
    x=Axis("Predicate width w"),
    points=tuple(
        _point(w, replace(DEFAULT, predicates=5, width=w)) for w in (0.1, 0.3, 0.5, 0.7, 0.9)
    ),
    published=tuple(cpp.published(cpp.WIDTH)),
    claims=_reductions("6.3", rein=88.0, tama=85.0, ada_rein=87.3, opindex=95.9),
    found="Wider predicates take TAMA longer, REIN and Ada-REIN less, and hardly change HEM and "
    "OpIndex.",
    notes=f"Every other width is left out. {cpp.NOTE}",
)

_ATTRIBUTES: Final = Experiment(
    **_COMPARED,
    name="hem-attributes",
    figure="Figure 9",
    title="Effect of the number of attributes (10 predicates, event size 20, w = 0.5)",
    x=Axis("Number of attributes d", log=True),
    points=tuple(_point(d, replace(DEFAULT, attributes=d, width=0.5)) for d in (30, 100, 300, 900)),
    published=tuple(cpp.published(cpp.ATTRIBUTES)),
    found="More attributes take TAMA and OpIndex less time and the other three more; from d = 300 "
    "on TAMA is the fastest.",
    notes=cpp.NOTE,
)

_ALPHA: Final = Experiment(
    **{**_COMPARED, "tabled": (MATCHES, SKIPPED_ATTRIBUTES, SKIPPED_PREDICATES)},
    name="hem-alpha",
    figure="Figure 10",
    title="Effect of the distribution of attributes (d = 50, 5 predicates, w = 0.5)",
    x=Axis("Zipf α of the attributes"),
    points=tuple(
        _point(
            alpha,
            replace(
                DEFAULT,
                attributes=50,
                predicates=5,
                width=0.5,
                attribute_choice="zipf" if alpha else "uniform",
                attribute_alpha=float(alpha or 1),
            ),
        )
        for alpha in (0, 1, 2, 3, 5)
    ),
    published=(
        Published(SKIPPED_ATTRIBUTES, "Ada-REIN", 1, 1),
        Published(SKIPPED_ATTRIBUTES, "Ada-REIN", 5, 40),
        Published(SKIPPED_PREDICATES, "Ada-REIN", 1, 26_000),
        Published(SKIPPED_PREDICATES, "Ada-REIN", 5, 5_000_000),
    ),
    found="HEM and TAMA hardly feel a skewed choice of attributes, the other three do. Ada-REIN "
    "skips 1 attribute and about 26,000 predicates at α = 1, 40 and about 5,000,000 at α = 5.",
    notes="α applies to the attributes of subscriptions and of events; 0 is a uniform choice. "
    "α = 4 is left out. We count in that events lack attributes, which the paper does not: as if "
    "they had all, Ada-REIN could skip 1 attribute with 26,561 predicates at α = 1, and 40 with "
    "40,525 at α = 5. The paper's 5,000,000 would be all that there are, and must be a slip.",
)

_INSERTION: Final = Experiment(
    **{
        **_COMPARED,
        "y": (INSERTION, INSERTION_ONE),
        "tabled": (FIRST_INSERTION,),
        "extras": frozenset({"updates"}),
    },
    name="hem-insertion",
    figure="Figure 11",
    title="Insertion time against the subscription size (d = 30, event size 30, w = 0.7)",
    x=Axis("Subscription size ψS"),
    points=_BY_SIZE,
    claims=(
        Claim(
            "HEM takes so much longer to insert than REIN, on average",
            "6.4",
            42.6,
            "%",
            increase(INSERTION, "HEM", "REIN"),
        ),
    ),
    found="HEM takes 42.6 % longer than REIN, for the bits that it sets; TAMA takes the longest.",
    notes="The very first insertion onto a built index makes room; it is listed apart. `tile` is "
    "built once: its subscriptions go through the engine (`Matcher.subscribe`).",
)

_MEMORY: Final = Experiment(
    **{**_COMPARED, "y": (MEMORY,), "tabled": ()},
    name="hem-memory",
    figure="Figure 12",
    title="Memory against the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
    x=_N,
    points=_BY_NUMBER,
    claims=(
        Claim(
            "HEM takes so many times the memory of REIN",
            "6.4",
            2,
            "×",
            ratio(MEMORY, "HEM", "REIN"),
        ),
        Claim(
            "HEM takes so much of the memory of TAMA",
            "6.4",
            64.3,
            "%",
            lambda grid: _percent(ratio(MEMORY, "HEM", "TAMA")(grid)),
        ),
    ),
    found="HEM takes about twice the memory of REIN and 64.3 % of that of TAMA.",
    notes="Bytes that the indexes hold, the boxes among them.",
)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


EXPERIMENTS: Final = (
    _MARKING,
    _TRADE_OFF,
    _SUBSCRIPTIONS,
    _SIZE,
    _EVENT_SIZE,
    _WIDTH,
    _ATTRIBUTES,
    _ALPHA,
    _INSERTION,
    _MEMORY,
)
