"""What the experiments of the HEM paper share: places on their axes, and indexes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.cpp import DEFAULT
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Experiment,
    Point,
    Series,
    ada_rein,
    rein,
    vary,
)

REIN: Final = rein()

HEM: Final = Series("HEM", "hem", {"groups": 32, "cells": 1_000})

HEM_128: Final = Series("HEM, 128 groups", "hem", {"groups": 128, "cells": 1_000})

OPINDEX: Final = Series("OpIndex", "opindex")

CUT: Final = Series("RAPIDMatch, space cut", "rapid-cut")

NUMBERS: Final = tuple(2**i for i in range(10))

BY_GROUPS: Final = tuple(
    Point(x=g, workload=DEFAULT, parameters={"hem": {"groups": g}}) for g in NUMBERS
)

BY_SIZE: Final = vary(
    replace(DEFAULT, attributes=30, event_size=30, width=0.7),
    (5, 10, 20, 30),
    "predicates",
    full=(15, 25),
)

BY_NUMBER: Final = vary(
    DEFAULT,
    (300_000, 1_000_000, 3_000_000),
    "subscriptions",
    full=(5_000_000, 7_000_000, 9_000_000),
)

BY_ALPHA: Final = tuple(
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
        full=alpha == 4,
    )
    for alpha in (0, 1, 2, 3, 4, 5)
)

BY_EVENT_SIZE: Final = vary(replace(DEFAULT, attributes=80), (30, 50, 80), "event_size")

BY_WIDTH: Final = vary(
    replace(DEFAULT, predicates=5),
    (0.1, 0.3, 0.5, 0.7, 0.9),
    "width",
    full=(0.2, 0.4, 0.6, 0.8),
)

BY_ATTRIBUTES: Final = vary(replace(DEFAULT, width=0.5), (30, 100, 300, 900), "attributes")

N: Final = Axis("Number of subscriptions n", log=True, scaled=True)

experiment = partial(Experiment, paper="hem", events=500, real_events=True)

against_others = partial(
    experiment,
    series=(REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, TILE),
    y=(q.SINGLE, q.BATCH),
    tabled=(q.MATCHES,),
)

COMPARED: Final = ("REIN", "Ada-REIN", "TAMA", "OpIndex")

WHY: Final = {
    "TAMA": "Our TAMA has counters of one byte and lists that lie next to each other",
    "OpIndex": "Our OpIndex finds the end of a search in a list by bisection",
}
