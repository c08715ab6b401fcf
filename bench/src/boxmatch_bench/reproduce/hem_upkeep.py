"""What HEM costs beside matching: Figures 11 and 12."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    HALF_MORE,
    Claim,
    Within,
)
from boxmatch_bench.reproduce.comparisons import (
    percent_more,
    times,
)
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    ada_rein,
)
from boxmatch_bench.reproduce.hem_setting import (
    BY_NUMBER,
    BY_SIZE,
    COMPARED,
    CUT,
    HEM,
    HEM_128,
    OPINDEX,
    REIN,
    N,
    against_others,
)
from boxmatch_bench.reproduce.statements import (
    Along,
    Extreme,
    Near,
)

_UPKEEP: Final = "The first insertion onto a built index makes room for many; it is listed apart."

INSERTION: Final = against_others(
    name="hem-insertion",
    figure="Figure 11",
    title="Insertion time against the subscription size (d = 30, event size 30, w = 0.7)",
    x=Axis("Subscription size ψS"),
    y=(q.INSERTION, q.INSERTION_ONE),
    tabled=(q.FIRST_INSERTION, q.INSERTION_ALL, q.DELETION),
    extras=frozenset({"updates"}),
    points=BY_SIZE,
    claims=(
        *(
            Claim(
                "6.4",
                f"HEM takes longer to insert than REIN by, on average{more}",
                Near(percent_more(quantity, "HEM", "REIN"), 42.6, Within(points=15)),
                "A predicate sets a bit in up to 32 bit sets, each in another place in memory",
            )
            for quantity, more in (
                (q.INSERTION, ""),
                (q.INSERTION_ALL, ", making room included"),
            )
        ),
        Claim(
            "6.4",
            "TAMA takes the longest of the five to insert",
            Extreme(q.INSERTION, "most", "TAMA", ("REIN", "Ada-REIN", "HEM", "OpIndex")),
        ),
        Claim(
            "6.4",
            "HEM's deletion time in REIN's: nearly the same",
            Near(times(q.DELETION, "HEM", "REIN"), 1, Within(percent=25)),
        ),
    ),
    notes=f"{_UPKEEP} `tile` is built once: its subscriptions go through the engine "
    "(`Matcher.subscribe`).",
)

MEMORY: Final = against_others(
    name="hem-memory",
    figure="Figure 12",
    title="Memory against the number of subscriptions (d = 20, 10 predicates, w = 0.3)",
    x=N,
    y=(q.MEMORY,),
    series=(REIN, ada_rein(0.05), TAMA, OPINDEX, HEM, HEM_128, CUT, TILE),
    tabled=(),
    points=BY_NUMBER,
    claims=(
        Claim("6.4", "HEM's memory in REIN's", Near(times(q.MEMORY, "HEM", "REIN"), 2, HALF_MORE)),
        Claim(
            "6.4",
            "HEM's memory in TAMA's",
            Near(replace(times(q.MEMORY, "HEM", "TAMA"), kind="percent"), 64.3, Within(points=15)),
        ),
        *(
            Claim("6.4", f"{label}'s memory", Along(q.MEMORY, label, "rises"))
            for label in (*COMPARED, "HEM")
        ),
    ),
    notes="Bytes that the indexes hold, the boxes among them.",
)
