"""The experiments of the REIN paper (Qian et al., INFOCOM 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Claim,
    Experiment,
    Paper,
    Point,
    Published,
    Series,
    percent_more,
    rein,
    times,
    vary,
)

_BASE: Final = RangeWorkload(
    subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.5
)
_REIN: Final = rein()
_SIENA: Final = Series("SIENA", "siena")
_HTREE: Final = Series("H-TREE", "htree", {"cells": 6, "indexed": 6})
_N: Final = Axis("Number of subscriptions", log=True, scaled=True)
_SIZES: Final = vary(_BASE, (200_000, 600_000, 1_000_000, 2_000_000), "subscriptions")
_SETTING: Final = "m = 20, k = 10, b = 1,000, w = 0.5"

_experiment = partial(
    Experiment,
    paper="rein",
    y=(q.SINGLE, q.BATCH),
    series=(_SIENA, TAMA, _HTREE, _REIN, TILE),
    points=_SIZES,
    events=400,
)


def _times_faster(where: str, at: float, *published: float) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            f"REIN is so many times faster than {rival.label}",
            where,
            figure,
            times(q.SINGLE, rival.label, "REIN", at=at),
        )
        for rival, figure in zip((_SIENA, TAMA, _HTREE), published, strict=True)
    )


def _matched(counts: dict[float, int]) -> tuple[Published, ...]:
    return tuple(Published(q.MATCHES_OF_400, "tile", x, count) for x, count in counts.items())


def _table_iii() -> Iterable[Published]:
    # Seconds in the paper.
    rows = (
        (_SIENA, 24.2147, 19.9990, 0.7280),
        (TAMA, 19.1677, 8.4958, 1.7972),
        (_HTREE, 179.5545, 0.4445, 14.1006),
        (_REIN, 2.0291, 1.0977, 0.1498),
    )
    for series, *seconds in rows:
        for quantity, second in zip((q.SLOWEST, q.FASTEST, q.DEVIATION), seconds, strict=True):
            yield Published(quantity, series.label, 2_000_000, 1000 * second)


_TABLE_V: Final = {
    "Uniform": (0.1551, 0.7708, 1.5387),
    "Normal": (0.1554, 0.7754, 1.5765),
    "Pareto": (0.1534, 0.7743, 1.5422),
}
_TABLE_V_SIZES: Final = (200_000, 1_000_000, 2_000_000)
_SHAPES: Final = {
    "Uniform": _BASE,
    "Normal": replace(_BASE, values="normal", event_values="uniform", value_deviation=0.02**0.5),
    "Pareto": replace(
        _BASE, values="pareto", event_values="uniform", value_alpha=2.0, value_lowest=1 / 3
    ),
}
_TABLE_VI: Final = {
    0.01: 0,
    0.1: 0,
    0.2: 32,
    0.3: 2_369,
    0.4: 40_166,
    0.5: 378_886,
    0.6: 2_329_247,
    0.7: 10_843_737,
    0.8: 42_023_835,
}


def _table_vii() -> Iterable[Published]:
    """Bytes by the paper's own formulas, for 4-byte values and ids and 8-byte buckets."""
    level, cells, indexed, buckets = 13, 6, 6, 1_000
    m, k, w = _BASE.attributes, _BASE.predicates, _BASE.width
    for point in _SIZES:
        n = point.workload.subscriptions
        formulas = {
            _SIENA.label: 16 * m + 16 * k * n + 4 * n,
            TAMA.label: 8 * m * 2**level + 40 * k * n + 4 * n,
            _HTREE.label: 8 * cells**indexed + 4 * ceil(w * cells) ** indexed * n,
            _REIN.label: 8 * buckets + 16 * k * n,
        }
        for series, size in formulas.items():
            yield Published(q.MEMORY, series, point.x, size / 1e6)


PAPER: Final = Paper(
    "REIN: rectangle intersection",
    "More than 2,000,000 subscriptions (the paper's parameters go to 10,000,000, its figures do "
    "not).",
    (
        _experiment(
            name="rein-subscriptions",
            figure="Figure 7, Table III",
            title=f"Effect of the number of subscriptions ({_SETTING})",
            x=_N,
            tabled=(q.COUNT, q.SLOWEST, q.FASTEST, q.DEVIATION, q.MATCHES_OF_400),
            published=(*_table_iii(), *_matched({2_000_000: 727_894})),
            claims=_times_faster("V-B-1, at 2,000,000", 2_000_000, 14, 9, 6),
            found="REIN is affected least by the number of subscriptions, and its time varies "
            "least from event to event; H-TREE's varies most.",
            notes="The paper goes up to 10,000,000 in its table of parameters and to 2,000,000 in "
            "the figure; we take four of its ten steps. Its times are in seconds, on a machine of "
            "2011.",
        ),
        _experiment(
            name="rein-matches",
            figure="Figure 10",
            title="Matching time against the matches of the event (2,000,000 subscriptions)",
            x=Axis("Matched subscriptions", log=True),
            y=(q.TIME_BY_MATCHES,),
            points=_SIZES[-1:],
            extras=frozenset({"profile"}),
            found="Time grows with the matches of an event for SIENA and TAMA (logarithmically) "
            "and for H-TREE (linearly); for REIN it falls.",
            notes="Events with about as many matches are put together, four bins to each doubling.",
        ),
        _experiment(
            name="rein-constraints",
            figure="Figure 8, Table IV",
            title="Effect of the number of constraints (m = 2k, n = 1,000,000, b = 1,000, w = 0.5)",
            x=Axis("Constraints in a subscription"),
            tabled=(q.MATCHES_OF_400,),
            points=tuple(
                Point(
                    x=k, workload=replace(_BASE, attributes=2 * k, event_size=2 * k, predicates=k)
                )
                for k in (5, 9, 13, 17, 23)
            ),
            published=_matched({5: 11_745_128, 9: 752_285, 13: 43_162, 17: 2_769, 23: 54}),
            claims=_times_faster("V-B-2, with 23 constraints", 23, 16, 10, 4),
            found="Time grows with the number of constraints, for H-TREE after a fall.",
            notes="Table IV has 7, 11, 15, 19 and 21 constraints as well (3,015,656, 178,837, "
            "10,727, 762 and 251 matches).",
        ),
        _experiment(
            name="rein-buckets",
            figure="Figure 9",
            title="Effect of the number of buckets (n = 2,000,000)",
            x=Axis("Buckets", log=True),
            series=(_REIN, TILE),
            points=tuple(
                Point(x=b, workload=_SIZES[-1].workload, parameters={"rein": {"cells": b}})
                for b in (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
            ),
            found="There is a critical point, at 1,000 buckets with 2,000,000 subscriptions: "
            "before it comparisons weigh more, after it the walk from bucket to bucket.",
            notes="`tile` has no buckets; its time is the same line throughout.",
        ),
        _experiment(
            name="rein-distributions",
            figure="Table V",
            title="Effect of the distribution of constraint values",
            x=Axis("Distribution and subscriptions"),
            series=(_REIN, TILE),
            points=tuple(
                Point(x=f"{name}, {n:,}", workload=replace(shape, subscriptions=n))
                for name, shape in _SHAPES.items()
                for n in _TABLE_V_SIZES
            ),
            published=tuple(
                Published(q.SINGLE, "REIN", f"{name}, {n:,}", 1000 * seconds)
                for name, row in _TABLE_V.items()
                for n, seconds in zip(_TABLE_V_SIZES, row, strict=True)
            ),
            found="REIN takes the same time whatever the distribution.",
            notes="Normal with mean 0.5 and variance 0.02; Pareto with mean 0.5 and shape 2, cut "
            "off at 1 (a scale of 2, as the paper has it, would put all values outside of the "
            "domain). Table V has ten numbers of subscriptions, of which we take three.",
        ),
        _experiment(
            name="rein-width",
            figure="Figure 11, Table VI",
            title="Effect of the width of constraints (n = 1,000,000, m = 20, k = 10, b = 1,000)",
            x=Axis("Width of constraints"),
            tabled=(q.MATCHES_OF_400,),
            points=vary(_BASE, _TABLE_VI, "width"),
            published=_matched(_TABLE_VI),
            claims=_times_faster("V-B-5, at w = 0.6", 0.6, 17, 12, 50),
            found="REIN gets faster with the width, the others slower. TAMA is faster than REIN up "
            "to 0.1, H-TREE is the fastest up to 0.3 and runs out of 32 GB from 0.7 on.",
            notes="A width of 0.05 (no matches in Table VI) is left out.",
        ),
        _experiment(
            name="rein-insertion",
            figure="Figure 12",
            title=f"Insertion time ({_SETTING})",
            x=_N,
            y=(q.INSERTION, q.INSERTION_ONE, q.BUILD),
            tabled=(q.FIRST_INSERTION,),
            extras=frozenset({"updates"}),
            claims=(
                Claim(
                    "REIN takes so much longer than SIENA",
                    "V-C, at 2,000,000",
                    4,
                    percent_more(q.INSERTION, "REIN", "SIENA", at=2_000_000),
                ),
                *(
                    Claim(
                        f"{series.label} takes so many times as long as SIENA",
                        "V-C, at 2,000,000",
                        published,
                        times(q.INSERTION, series.label, "SIENA", at=2_000_000),
                    )
                    for series, published in ((TAMA, 18), (_HTREE, 8))
                ),
            ),
            found="SIENA is the fastest to insert into, REIN next to it; TAMA and H-TREE store a "
            "subscription many times.",
            notes="The very first insertion onto a built index makes room for many, at a cost that "
            "grows with the index; it is listed apart and is in neither of the other figures. "
            "`tile` is built once: its subscriptions go through the engine (`Matcher.subscribe`), "
            "which collects them and builds in the background.",
        ),
        _experiment(
            name="rein-deletion",
            figure="Figure 13",
            title=f"Deletion time ({_SETTING})",
            x=_N,
            y=(q.DELETION, q.DELETION_ONE),
            extras=frozenset({"updates"}),
            found="Deleting is costly for SIENA, whose lists are as long as there are "
            "subscriptions, and takes time for TAMA and H-TREE, which store a subscription many "
            "times. REIN suits subscriptions that come and go.",
            notes="1,000 subscriptions are removed together, as in the paper, and others one by "
            "one. `tile` through the engine (`Matcher.unsubscribe`).",
        ),
        _experiment(
            name="rein-memory",
            figure="Figure 14, Table VII",
            title=f"Memory ({_SETTING}, c = 6, l = 6, d = 13)",
            x=_N,
            y=(q.MEMORY,),
            published=tuple(_table_vii()),
            found="REIN takes the least memory.",
            notes="The paper counts by formula, with values and ids of 4 bytes; ours are the bytes "
            "that the indexes hold, with keys of 8 bytes, and the boxes themselves among them.",
        ),
    ),
)
