"""The experiments of the HEM paper (Shi and Qian)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import cpp
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.cpp import DEFAULT
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Cell,
    Claim,
    Comparison,
    Experiment,
    Paper,
    Point,
    Published,
    Series,
    ada_rein,
    percent_less,
    percent_more,
    rein,
    times,
    vary,
)


def _cpp(points: tuple[Point, ...]) -> tuple[Published, ...]:
    return tuple(
        Published(q.SINGLE, "Authors' C++", point.x, cpp.BEST[point.workload] / 1000, "counting")
        for point in points
        if isinstance(point.workload, RangeWorkload) and point.workload in cpp.BEST
    )


_REIN: Final = rein()
_HEM: Final = Series("HEM", "hem", {"groups": 32, "cells": 1_000})
_GROUPS: Final = tuple(2**i for i in range(10))
_BY_GROUPS: Final = tuple(
    Point(x=g, workload=DEFAULT, parameters={"hem": {"groups": g}}) for g in _GROUPS
)
_BY_SIZE: Final = vary(
    replace(DEFAULT, attributes=30, event_size=30, width=0.7), (5, 10, 20, 30), "predicates"
)
_BY_NUMBER: Final = vary(DEFAULT, (300_000, 1_000_000, 3_000_000), "subscriptions")
_BY_ALPHA: Final = tuple(
    Point(
        x=alpha,
        workload=replace(
            DEFAULT,
            attributes=50,
            predicates=5,
            width=0.5,
            attribute_choice="zipf" if alpha else "uniform",
            attribute_alpha=float(alpha or 1),
        ),
    )
    for alpha in (0, 1, 2, 3, 5)
)
_BY_EVENT_SIZE: Final = vary(replace(DEFAULT, attributes=80), (30, 50, 80), "event_size")
_BY_WIDTH: Final = vary(replace(DEFAULT, predicates=5), (0.1, 0.3, 0.5, 0.7, 0.9), "width")
_BY_ATTRIBUTES: Final = vary(replace(DEFAULT, width=0.5), (30, 100, 300, 900), "attributes")
_N: Final = Axis("Number of subscriptions n", log=True, scaled=True)

_experiment = partial(Experiment, paper="hem", events=500, real_events=True)
_against_others = partial(
    _experiment,
    series=(_REIN, ada_rein(0.05), TAMA, Series("OpIndex", "opindex"), _HEM, TILE),
    y=(q.SINGLE, q.BATCH),
    tabled=(q.MATCHES,),
)


def _reductions(**percent: float) -> tuple[Claim, ...]:
    labels = {"rein": "REIN", "tama": "TAMA", "ada_rein": "Ada-REIN", "opindex": "OpIndex"}
    return tuple(
        Claim(
            f"HEM's matching time is so much below that of {labels[name]}, on average",
            "6.3",
            published,
            percent_less(q.SINGLE, "HEM", labels[name]),
        )
        for name, published in percent.items()
    )


def _marking_share(groups: int, published: float) -> Claim:
    text = f"Marking takes so much of the matching time at g = {groups}"
    marking, matching = (Cell(one, "HEM", groups) for one in (q.MARKING, q.BATCH))
    return Claim(text, "6.2", published, Comparison(marking, matching, "percent"))


SUBSCRIPTIONS: Final = _against_others(
    name="hem-subscriptions",
    figure="Figure 5",
    title="Effect of the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
    x=_N,
    points=_BY_NUMBER,
    published=_cpp(_BY_NUMBER),
    claims=_reductions(rein=90.1, tama=83.5, ada_rein=90.0, opindex=95.9),
    found="HEM is the fastest throughout, OpIndex the slowest, since every attribute becomes a "
    "pivot.",
    notes=f"5,000,000 to 9,000,000 subscriptions are left out, for time and memory. {cpp.SOURCE}",
)
SIZE: Final = _against_others(
    name="hem-subscription-size",
    figure="Figure 6",
    title="Effect of the subscription size (d = 30, event size 30, w = 0.7)",
    x=Axis("Subscription size ψS"),
    points=_BY_SIZE,
    published=_cpp(_BY_SIZE),
    claims=_reductions(rein=83.7, tama=82.6, ada_rein=83.1, opindex=95.2),
    found="Time grows linearly with the subscription size for all five; Ada-REIN is next to REIN.",
    notes=f"Sizes 15 and 25 are left out. {cpp.SOURCE}",
)
EVENT_SIZE: Final = _against_others(
    name="hem-event-size",
    figure="Figure 7",
    title="Effect of the event size (d = 80, 10 predicates, w = 0.3)",
    x=Axis("Event size ψE"),
    points=_BY_EVENT_SIZE,
    published=_cpp(_BY_EVENT_SIZE),
    claims=_reductions(rein=86.5, tama=50.3, ada_rein=86.3, opindex=88.5),
    found="Larger events take TAMA and OpIndex longer and REIN and Ada-REIN less; HEM a little "
    "longer.",
    notes=cpp.SOURCE,
)
WIDTH: Final = _against_others(
    name="hem-width",
    figure="Figure 8",
    title="Effect of the predicate width (d = 20, 5 predicates)",
    x=Axis("Predicate width w"),
    points=_BY_WIDTH,
    published=_cpp(_BY_WIDTH),
    claims=_reductions(rein=88.0, tama=85.0, ada_rein=87.3, opindex=95.9),
    found="Wider predicates take TAMA longer, REIN and Ada-REIN less, and hardly change HEM and "
    "OpIndex.",
    notes=f"Every other width is left out. {cpp.SOURCE}",
)
ATTRIBUTES: Final = _against_others(
    name="hem-attributes",
    figure="Figure 9",
    title="Effect of the number of attributes (10 predicates, event size 20, w = 0.5)",
    x=Axis("Number of attributes d", log=True),
    points=_BY_ATTRIBUTES,
    published=_cpp(_BY_ATTRIBUTES),
    found="More attributes take TAMA and OpIndex less time and the other three more; from d = 300 "
    "on TAMA is the fastest.",
    notes=cpp.SOURCE,
)

PAPER: Final = Paper(
    "HEM: hardware-aware event matching",
    "5,000,000 to 9,000,000 subscriptions. Over all its experiments the paper finds HEM's matching "
    "time 86.8, 86.3, 82.1 and 45.3 % below those of REIN, Ada-REIN, OpIndex and TAMA.",
    (
        _experiment(
            name="hem-marking",
            figure="Figure 3, Theorem 1",
            title="Marking time against the number of groups (default setting)",
            x=Axis("Number of groups g", log=True),
            y=(q.MARKING,),
            tabled=(q.MARKS, q.AVOIDED),
            series=(_HEM,),
            points=_BY_GROUPS,
            extras=frozenset({"marks"}),
            published=(
                Published(q.MARKING, "HEM", 16, 0.60),
                Published(q.MARKING, "HEM", 32, 0.31),
                Published(q.AVOIDED, "HEM", 32, 95.4),
                *(
                    Published(q.AVOIDED, "HEM", g, 100 * (1 - 1 / max(g, 2)), "Theorem 1")
                    for g in _GROUPS
                ),
            ),
            claims=(
                Claim(
                    "Marking time falls by so much from g = 16 to g = 32",
                    "6.2",
                    100 * (1 - 0.31 / 0.60),
                    Comparison(
                        Cell(q.MARKING, "HEM", 32), Cell(q.MARKING, "HEM", 16), "percent less"
                    ),
                ),
                _marking_share(1, 93.7),
                _marking_share(512, 2.5),
            ),
            found="Marking time halves with every doubling of g from g = 2 on: 6.79 ms without "
            "groups, 0.60 ms with 16, 0.31 ms with 32.",
            notes="Marks avoided: of the predicates that an event does not satisfy, the share that "
            "need not be marked one by one; by Theorem 1 it is 1 - 1/g, and for g = 1 the same as "
            "for g = 2.",
        ),
        _experiment(
            name="hem-groups",
            figure="Figure 4",
            title="Matching time and memory against the number of groups (default setting)",
            x=Axis("Number of groups g", log=True),
            y=(q.SINGLE, q.BATCH, q.MEMORY),
            series=(_REIN, _HEM, TILE),
            points=_BY_GROUPS,
            claims=(
                Claim(
                    "With 32 groups matching takes so much less than without",
                    "6.2",
                    89.7,
                    percent_less(q.SINGLE, "HEM", "REIN", at=32),
                ),
                Claim(
                    "With 32 groups HEM takes so many times the memory",
                    "6.2",
                    2,
                    times(q.MEMORY, "HEM", "REIN", at=32),
                ),
            ),
            found="Without groups matching takes 7.56 ms and 152 MB; with 32 groups 89.7 % less "
            "time and nearly twice the memory.",
            notes="REIN is what HEM is without groups; it and `tile` do not depend on g.",
        ),
        *(SUBSCRIPTIONS, SIZE, EVENT_SIZE, WIDTH, ATTRIBUTES),
        _against_others(
            name="hem-alpha",
            figure="Figure 10",
            title="Effect of the distribution of attributes (d = 50, 5 predicates, w = 0.5)",
            x=Axis("Zipf α of the attributes"),
            tabled=(q.MATCHES, q.SKIPPED_ATTRIBUTES, q.SKIPPED_PREDICATES),
            points=_BY_ALPHA,
            published=(
                Published(q.SKIPPED_ATTRIBUTES, "Ada-REIN", 1, 1),
                Published(q.SKIPPED_ATTRIBUTES, "Ada-REIN", 5, 40),
                Published(q.SKIPPED_PREDICATES, "Ada-REIN", 1, 26_000),
                Published(q.SKIPPED_PREDICATES, "Ada-REIN", 5, 5_000_000),
            ),
            found="HEM and TAMA hardly feel a skewed choice of attributes, the other three do. "
            "Ada-REIN skips 1 attribute and about 26,000 predicates at α = 1, 40 and about "
            "5,000,000 at α = 5.",
            notes="α applies to the attributes of subscriptions and of events; 0 is a uniform "
            "choice. α = 4 is left out. We count in that events lack attributes, which the paper "
            "does not: as if they had all, Ada-REIN could skip 1 attribute with 26,561 predicates "
            "at α = 1, and 40 with 40,525 at α = 5. The paper's 5,000,000 would be all that there "
            "are, and must be a slip.",
        ),
        _against_others(
            name="hem-insertion",
            figure="Figure 11",
            title="Insertion time against the subscription size (d = 30, event size 30, w = 0.7)",
            x=Axis("Subscription size ψS"),
            y=(q.INSERTION, q.INSERTION_ONE),
            tabled=(q.FIRST_INSERTION,),
            extras=frozenset({"updates"}),
            points=_BY_SIZE,
            claims=(
                Claim(
                    "HEM takes so much longer to insert than REIN, on average",
                    "6.4",
                    42.6,
                    percent_more(q.INSERTION, "HEM", "REIN"),
                ),
            ),
            found="HEM takes 42.6 % longer than REIN, for the bits that it sets; TAMA takes the "
            "longest.",
            notes="The very first insertion onto a built index makes room; it is listed apart. "
            "`tile` is built once: its subscriptions go through the engine (`Matcher.subscribe`).",
        ),
        _against_others(
            name="hem-memory",
            figure="Figure 12",
            title="Memory against the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
            x=_N,
            y=(q.MEMORY,),
            tabled=(),
            points=_BY_NUMBER,
            claims=(
                Claim(
                    "HEM takes so many times the memory of REIN",
                    "6.4",
                    2,
                    times(q.MEMORY, "HEM", "REIN"),
                ),
                Claim(
                    "HEM takes so much of the memory of TAMA",
                    "6.4",
                    64.3,
                    replace(times(q.MEMORY, "HEM", "TAMA"), kind="percent"),
                ),
            ),
            found="HEM takes about twice the memory of REIN and 64.3 % of that of TAMA.",
            notes="Bytes that the indexes hold, the boxes among them.",
        ),
    ),
)
