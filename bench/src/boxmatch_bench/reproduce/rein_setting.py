"""What the experiments of the REIN paper share: the setting, and indexes."""

from __future__ import annotations

from functools import partial
from typing import Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Experiment,
    Series,
    rein,
    vary,
)

BASE: Final = RangeWorkload(
    subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.5
)

REIN: Final = rein()

SIENA: Final = Series("SIENA", "siena")

HTREE: Final = Series("H-TREE", "htree", {"cells": 6, "indexed": 6})

N: Final = Axis("Number of subscriptions", log=True, scaled=True)

OTHERS: Final = (SIENA.label, TAMA.label, HTREE.label)

SIZES: Final = vary(
    BASE,
    (200_000, 2_000_000),
    "subscriptions",
    full=(*range(400_000, 2_000_000, 200_000), 5_000_000, 10_000_000),
)

LARGEST: Final = next(point for point in SIZES if point.x == 2_000_000)

SETTING: Final = "m = 20, k = 10, b = 1,000, w = 0.5"

experiment = partial(
    Experiment,
    paper="rein",
    y=(q.SINGLE, q.BATCH),
    series=(SIENA, TAMA, HTREE, REIN, TILE),
    points=SIZES,
    events=400,
)

BETTER: Final = {
    SIENA.label: "Our SIENA keeps its lists in order and finds the end of a search by bisection",
    TAMA.label: "Our TAMA has counters of one byte and lists that lie next to each other",
    HTREE.label: "Our H-Tree copies no box for the cells of an attribute that it leaves open",
}
