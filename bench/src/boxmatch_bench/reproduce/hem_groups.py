"""HEM by the number of its groups: Figures 1, 3 and 4, and Theorem 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    HALF_MORE,
    POINTS,
    TENTH,
    Claim,
    Finding,
    Within,
)
from boxmatch_bench.reproduce.comparisons import (
    Cell,
    Comparison,
    change,
    percent_less,
    times,
)
from boxmatch_bench.reproduce.cpp import DEFAULT
from boxmatch_bench.reproduce.experiment import (
    TILE,
    Axis,
    Published,
)
from boxmatch_bench.reproduce.hem_setting import (
    BY_GROUPS,
    BY_NUMBER,
    HEM,
    NUMBERS,
    REIN,
    N,
    experiment,
)
from boxmatch_bench.reproduce.statements import (
    Along,
    Bound,
    Cells,
    Judged,
    Near,
)
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.tables import number


def _marking_share(groups: int, published: float) -> Claim:
    marking, matching = (Cell(one, "HEM", groups) for one in (q.MARKING, q.BATCH))
    return Claim(
        "6.2",
        f"At g = {groups} marking takes of the matching time",
        Near(Comparison(marking, matching, "percent"), published, POINTS),
        "In batches, we mark a box by one instruction once its line is in the cache",
    )


def _halves(grid: Grid) -> Finding | None:
    """The factor for each doubling from g = 2 on."""
    values = [grid.value(q.MARKING, "HEM", x) for x in NUMBERS[1:]]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    steps = [a / b for a, b in pairwise(known)]
    to_64 = steps[:5]
    shown = (
        f"{number(min(steps))} to {number(max(steps))} times ({number(min(to_64))} up to g = 64)"
    )
    return Finding(shown, all(1.7 <= step <= 2.3 for step in to_64))


MARKING: Final = experiment(
    name="hem-marking",
    figure="Figure 3",
    title="Marking time against the number of groups (default setting)",
    x=Axis("Number of groups g", log=True),
    y=(q.MARKING,),
    tabled=(q.MARKS, q.AVOIDED),
    series=(HEM,),
    points=BY_GROUPS,
    extras=frozenset({"marks"}),
    published=(
        Published(q.MARKING, "HEM", 16, 0.60),
        Published(q.MARKING, "HEM", 32, 0.31),
        Published(q.AVOIDED, "HEM", 32, 95.4),
    ),
    claims=(
        Claim(
            "6.2, Lemma 2",
            "From g = 2 on, marking time falls with every doubling of g",
            Judged("2 times", "1.7 to 2.3 times up to g = 64", _halves),
        ),
        Claim(
            "6.2",
            "Marking time falls from g = 16 to g = 32 by",
            Near(
                Comparison(Cell(q.MARKING, "HEM", 32), Cell(q.MARKING, "HEM", 16), "percent less"),
                100 * (1 - 0.31 / 0.60),
                POINTS,
            ),
        ),
        Claim(
            "6.2",
            "Marking time at g = 1 in that at g = 2",
            Near(change(q.MARKING, "HEM", 2, 1), 1, TENTH),
        ),
        Claim(
            "6.2",
            "Marks that 32 groups avoid",
            Near(Cell(q.AVOIDED, "HEM", 32), 95.4, Within(points=2)),
        ),
        _marking_share(1, 93.7),
        _marking_share(512, 2.5),
    ),
    notes="Marks avoided: of the predicates that an event does not satisfy, the share that "
    "need not be marked one by one. The paper gives the share of marking time that is saved.",
)


THEOREM: Final = experiment(
    name="hem-theorem",
    figure="Theorem 1",
    title="Marks avoided against the number of groups, with ends spread evenly (n = 300,000, "
    "w = 0.0001)",
    x=Axis("Number of groups g", log=True),
    y=(q.AVOIDED,),
    tabled=(q.MARKS,),
    series=(HEM,),
    points=tuple(
        replace(point, workload=replace(DEFAULT, subscriptions=300_000, width=1e-4))
        for point in BY_GROUPS
    ),
    extras=frozenset({"marks"}),
    published=tuple(
        Published(q.AVOIDED, "HEM", g, 100 * (1 - 1 / max(g, 2)), "paper") for g in NUMBERS
    ),
    claims=(
        Claim(
            "Theorem 1",
            "Marks avoided are 1 - 1/g, and those of g = 2 at g = 1",
            Cells(q.AVOIDED, "HEM", Within(points=1)),
            "With one group our own cell and half of the others are left to be marked",
        ),
    ),
    notes="The theorem presumes that low ends and high ends are each spread evenly over the whole "
    "domain, as they are only if ranges are narrow.",
)


PARTS: Final = experiment(
    name="hem-rein-parts",
    figure="Figure 1",
    title="What REIN's matching time goes to",
    x=N,
    series=(REIN,),
    y=(q.MARKING_SHARE,),
    tabled=(q.COMPARING_SHARE, q.REST_SHARE),
    points=BY_NUMBER,
    extras=frozenset({"parts"}),
    claims=(
        Claim(
            "4.2, Figure 1",
            "Marking is most of REIN's matching time",
            Bound(Cell(q.MARKING_SHARE, "REIN"), "at least", 50, "most"),
        ),
    ),
    notes="Marking and comparing alone, without the other steps, as shares of matching in batches. "
    "The rest is to clear the bit set and to list what is not marked. The figure has no values in "
    "the text.",
)


GROUPS: Final = experiment(
    name="hem-groups",
    figure="Figure 4",
    title="Matching time and memory against the number of groups (default setting)",
    x=Axis("Number of groups g", log=True),
    y=(q.SINGLE, q.BATCH, q.MEMORY),
    series=(REIN, HEM, TILE),
    points=BY_GROUPS,
    claims=(
        Claim(
            "6.2",
            "With 32 groups matching takes less than without, by",
            Near(percent_less(q.SINGLE, "HEM", "REIN", at=32), 89.7, POINTS),
        ),
        Claim(
            "6.2",
            "With 32 groups HEM's memory in that without",
            Near(times(q.MEMORY, "HEM", "REIN", at=32), 2, HALF_MORE),
        ),
        Claim("6.2", "Matching time with the number of groups", Along(q.SINGLE, "HEM", "falls")),
        Claim("6.2", "Memory with the number of groups", Along(q.MEMORY, "HEM", "rises")),
    ),
    notes="REIN is what HEM is without groups; it and `tile` do not depend on g. The authors' code "
    "can have 16 to 512 groups.",
)
