"""The experiments of the subject-spaces paper, and one about spaces that are kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from boxmatch.workloads import RegionWorkload
from boxmatch_bench.reproduce.experiment import Axis, Claim, Experiment, Point, Published, Series
from boxmatch_bench.reproduce.grid import Grid, change
from boxmatch_bench.reproduce.quantities import (
    ADDING,
    CORRELATION,
    DISK_SYNCS,
    FIXED_TIME,
    INCREMENTAL_TOGETHER,
    INCREMENTAL_UPDATE,
    RANDOM_TOGETHER,
    RANDOM_UPDATE,
    TIME_OF_EACH,
    TOLD_BY_ADDING,
    TOLD_BY_INCREMENTAL,
    TOLD_BY_RANDOM,
    TRANSITIONS,
    UPDATE_BY_MATCHES,
    UPDATES_PER_SECOND,
    WAITED,
)

MOST: Final = 100_000
"""The paper's largest numbers of publications and of subscriptions."""

_INSERTED: Final = RegionWorkload(publications=MOST, subscriptions=MOST, publication_constraints=20)
_UPDATED: Final = replace(_INSERTED, publication_constraints=25)
_N: Final = Axis("Number of subscriptions", log=True, scaled=True)
_NUMBERS: Final = (10, 100, 1_000, 10_000, MOST)
_NOTES: Final = (
    "The lines are named for the numbers of publications at full size. The paper does not say how "
    "wide intervals of subscriptions are; ours lie between two values drawn alike from 0 to 99. "
    "NumPy compares both constraints of all subscriptions, and stores no publications."
)


def stored(publications: int) -> Series:
    """Spaces with so many publications."""
    return Series(
        f"{publications:,} publications", "spaces", changes={"publications": publications}
    )


LARGEST: Final = stored(MOST)
_SERIES: Final = (LARGEST, *(stored(number) for number in (10_000, 1_000, 100)))
_SHARED: Final[dict[str, Any]] = {
    "paper": "subject-spaces",
    "method": "operations",
    "compared": "spaces with",
    "events": 1_000,
}
_BY_NUMBERS: Final[dict[str, Any]] = {**_SHARED, "x": _N, "series": _SERIES}


def _numbers(workload: RegionWorkload) -> tuple[Point, ...]:
    return tuple(Point(x=n, workload=replace(workload, subscriptions=n)) for n in _NUMBERS)


def cheaper(at: int, *, together: bool = False) -> Callable[[Grid], float | None]:
    """How many times as long a random update takes as an incremental one."""
    quantities = (
        (RANDOM_TOGETHER, INCREMENTAL_TOGETHER) if together else (RANDOM_UPDATE, INCREMENTAL_UPDATE)
    )

    def measured(grid: Grid) -> float | None:
        random, incremental = (grid.value(one, LARGEST.label, at) for one in quantities)
        return None if random is None or not incremental else random / incremental

    return measured


INSERTION: Final = Experiment(
    **_BY_NUMBERS,
    name="subject-spaces-insertion",
    figure="Figure 11",
    title="Adding a publication (50 dimensions, 20 constraints, subscriptions with 2)",
    y=(ADDING,),
    tabled=(TOLD_BY_ADDING,),
    points=_numbers(_INSERTED),
    extras=frozenset({"adding"}),
    published=(
        Published(ADDING, LARGEST.label, 10, 172),
        Published(ADDING, LARGEST.label, MOST, 776),
    ),
    claims=(
        Claim(
            "With 100,000 publications, adding one takes so many times as long among 100,000 "
            "subscriptions as among 10",
            "7.1.1",
            4.5,
            "×",
            change(ADDING, LARGEST.label, 10, MOST),
        ),
    ),
    found="Time grows far less than the number of subscriptions; on the curve of 100,000 "
    "publications it is 172 ms with 10 subscriptions and 776 ms with 100,000.",
    notes=f"Of the figure, only these two values are in the paper's text. {_NOTES} Publications "
    "that were added are retracted in time, so that there are at most 1 % more than the line says.",
)

RANDOM: Final = Experiment(
    **_BY_NUMBERS,
    name="subject-spaces-random",
    figure="Figure 12",
    title="Updating all 25 values of a publication, to any value",
    y=(RANDOM_UPDATE,),
    tabled=(RANDOM_TOGETHER, TOLD_BY_RANDOM),
    points=_numbers(_UPDATED),
    extras=frozenset({"moves"}),
    found="Time grows with the numbers of publications and subscriptions.",
    notes=f"The paper's text has no values of this figure. {_NOTES}",
)

INCREMENTAL: Final = Experiment(
    **_BY_NUMBERS,
    name="subject-spaces-incremental",
    figure="Figure 13",
    title="Updating all 25 values of a publication, each by one",
    y=(INCREMENTAL_UPDATE,),
    tabled=(INCREMENTAL_TOGETHER, TOLD_BY_INCREMENTAL),
    points=_numbers(_UPDATED),
    extras=frozenset({"moves"}),
    claims=(
        Claim(
            "A random update takes so many times as long as an incremental one, with 100,000 "
            "publications and subscriptions",
            "7.1.2, “much less time”",
            None,
            "×",
            cheaper(MOST),
        ),
        Claim(
            "The same where 100 updates are one operation",
            "not in the paper",
            None,
            "×",
            cheaper(MOST, together=True),
        ),
    ),
    found="It takes much less time to update values incrementally than randomly.",
    notes=f"The paper's text has no values of this figure. {_NOTES}",
)

BY_MATCHES: Final = Experiment(
    **_SHARED,
    name="subject-spaces-matches",
    figure="Figure 14",
    title="Time of an update against the matches that it changes (100,000 of each)",
    x=Axis("Matches that come or go", log=True),
    y=(UPDATE_BY_MATCHES,),
    tabled=(FIXED_TIME, TIME_OF_EACH, CORRELATION),
    series=(LARGEST,),
    points=_numbers(_UPDATED)[-1:],
    extras=frozenset({"profile"}),
    found="The time of an update depends linearly on the number of matches.",
    notes="The paper's text has no values of this figure, and does not say which updates it shows. "
    "Ours change 1, 2, 4, 8, 16 or all 25 values, by one or to any value; those with about as many "
    "matches are put together, four bins to each doubling. The straight line is that of least "
    "squares through all of them.",
)

DURABLE: Final = Experiment(
    name="subject-spaces-durable",
    paper="subject-spaces",
    figure="Updates on disk",
    title="Updates a second from concurrent callers (100,000 of each, about ten transitions)",
    x=Axis("Threads", log=True),
    y=(UPDATES_PER_SECOND, WAITED),
    tabled=(TRANSITIONS, DISK_SYNCS),
    series=tuple(
        Series(label, "spaces", parameters={"sync": sync})
        for label, sync in (("full", "full"), ("normal", "normal"), ("in memory", None))
    ),
    points=tuple(
        # A hundred times the paper's values: a step by one then crosses few ends of intervals.
        Point(
            x=threads,
            workload=replace(_UPDATED, values=12_000),
            parameters={"spaces": {"threads": threads}},
        )
        for threads in (1, 2, 4, 8, 16, 32)
    ),
    events=10_000,
    method="durable",
    compared="sync",
    found="Nothing: this experiment is not in the paper, whose spaces are in memory.",
    notes="Up to 10,000 publications move there and back again, all 25 values by one; values go up "
    "to 11,999, so that an update changes about ten matches. An update has returned when it is "
    "durable: with `full` after the disk was told to keep it, with `normal` after the system was. "
    "The disk is that of the results; how often it syncs for a single writer stands beside.",
)

EXPERIMENTS: Final = (INSERTION, RANDOM, INCREMENTAL, BY_MATCHES, DURABLE)
