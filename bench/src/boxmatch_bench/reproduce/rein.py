"""The experiments of the REIN paper (Qian et al., INFOCOM 2014)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    TENTH,
    Claim,
    Finding,
    NotMeasurable,
    Within,
)
from boxmatch_bench.reproduce.comparisons import Cell, change, times
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Paper,
    Point,
    Published,
    vary,
)
from boxmatch_bench.reproduce.rein_setting import (
    BASE,
    BETTER,
    HTREE,
    LARGEST,
    OTHERS,
    REIN,
    SETTING,
    SIENA,
    N,
    experiment,
)
from boxmatch_bench.reproduce.rein_upkeep import (
    DELETION,
    INSERTION,
    INSERTION_BY_WIDTH,
    MEMORY,
    SUBSUMPTION,
)
from boxmatch_bench.reproduce.statements import (
    STEADY,
    Along,
    Bound,
    ByMatches,
    Cells,
    Course,
    Extreme,
    Judged,
    Near,
    Order,
    Refused,
)
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.tables import number


def _times_faster(where: str, at: float, *published: float) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            where,
            f"{rival.label}'s matching time in REIN's",
            Near(times(q.SINGLE, rival.label, "REIN", at=at), figure),
            BETTER[rival.label],
        )
        for rival, figure in zip((SIENA, TAMA, HTREE), published, strict=True)
    )


def _growth(grid: Grid) -> Finding | None:
    """From the first to the last number of subscriptions that all papers' figures have."""
    found = []
    for label in ("REIN", *OTHERS):
        grown = change(q.SINGLE, label, 200_000, 2_000_000).measured(grid)
        if grown is None:
            return None
        found.append((grown, label))
    shown = ", ".join(f"{label} {number(grown)} ×" for grown, label in sorted(found))
    return Finding(shown, min(found)[1] == "REIN")


def _critical(grid: Grid) -> Finding | None:
    """The number of buckets with the least time."""
    known = [(grid.value(q.SINGLE, "REIN", x), x) for x in grid.xs]
    found = [(value, x) for value, x in known if value is not None]
    if len(found) < len(grid.xs):
        return None
    best, at = min(found)
    ends = f"{number(found[0][0])} and {number(found[-1][0])} ms at the ends"
    near = isinstance(at, int) and 500 <= at <= 2_000
    return Finding(f"{at:,} buckets, {number(best)} ms; {ends}", near)


def _distributions(grid: Grid) -> Finding | None:
    """The largest difference from uniform values."""
    worst = (0.0, "")
    for n in _TABLE_V_SIZES:
        uniform = grid.value(q.SINGLE, "REIN", f"Uniform, {n:,}")
        for name in ("Normal", "Pareto"):
            value = grid.value(q.SINGLE, "REIN", f"{name}, {n:,}")
            if value is None or uniform is None:
                return None
            worst = max(worst, (abs(value / uniform - 1), f"{name}, {n:,}"))
    shown = f"at most {number(100 * worst[0])} % from uniform values ({worst[1]})"
    return Finding(shown, worst[0] <= 0.1)


def _asymptotic(grid: Grid) -> Finding | None:
    """TAMA's time in SIENA's, from narrow to wide."""
    pairs = [(grid.value(q.SINGLE, "TAMA", x), grid.value(q.SINGLE, "SIENA", x)) for x in grid.xs]
    ratios = [tama / siena for tama, siena in pairs if tama and siena]
    if len(ratios) < 3:
        return None
    shown = " → ".join(map(number, ratios)) + " of SIENA's"
    return Finding(shown, 1 / STEADY <= ratios[-1] / ratios[-2] <= STEADY)


def _matched(counts: Mapping[Any, int]) -> tuple[Published, ...]:
    return tuple(Published(q.MATCHES_OF_400, "tile", x, count) for x, count in counts.items())


def _table_iii() -> Iterable[Published]:
    # Seconds in the paper.
    rows = (
        (SIENA, 24.2147, 19.9990, 0.7280),
        (TAMA, 19.1677, 8.4958, 1.7972),
        (HTREE, 179.5545, 0.4445, 14.1006),
        (REIN, 2.0291, 1.0977, 0.1498),
    )
    for series, *seconds in rows:
        for quantity, second in zip((q.SLOWEST, q.FASTEST, q.DEVIATION), seconds, strict=True):
            yield Published(quantity, series.label, 2_000_000, 1000 * second)


_BY_MATCHES: Final[Mapping[str, Course]] = {
    **dict.fromkeys(OTHERS, "rises"),
    "REIN": "falls",
}
_TABLE_IV: Final = {
    **{5: 11_745_128, 7: 3_015_656, 9: 752_285, 11: 178_837, 13: 43_162, 15: 10_727},
    **{17: 2_769, 19: 762, 21: 251, 23: 54},
}
_TABLE_V: Final = {
    "Uniform": (
        *(0.1551, 0.3061, 0.4607, 0.6163, 0.7708),
        *(0.9146, 1.0812, 1.2423, 1.3793, 1.5387),
    ),
    "Normal": (
        *(0.1554, 0.3098, 0.4680, 0.6175, 0.7754),
        *(0.9259, 1.0739, 1.2349, 1.4166, 1.5765),
    ),
    "Pareto": (
        *(0.1534, 0.3106, 0.4657, 0.6174, 0.7743),
        *(0.9290, 1.0740, 1.2484, 1.4110, 1.5422),
    ),
}
"""Seconds for 200,000 subscriptions and each 200,000 more."""
_TABLE_V_ALL: Final = tuple(range(200_000, 2_000_001, 200_000))
_TABLE_V_SIZES: Final = (200_000, 1_000_000, 2_000_000)
_SHAPES: Final = {
    "Uniform": BASE,
    "Normal": replace(BASE, values="normal", event_values="uniform", value_deviation=0.02**0.5),
    "Pareto": replace(
        BASE, values="pareto", event_values="uniform", value_alpha=2.0, value_lowest=1 / 3
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


PAPER: Final = Paper(
    "REIN: rectangle intersection",
    (
        experiment(
            name="rein-subscriptions",
            figure="Figure 7, Table III",
            title=f"Effect of the number of subscriptions ({SETTING})",
            x=N,
            tabled=(
                *(q.COUNT, q.SLOWEST, q.FASTEST, q.DEVIATION, q.MATCHES_OF_400),
                *(q.SLOWEST_MATCHES, q.FASTEST_MATCHES),
            ),
            published=(*_table_iii(), *_matched({2_000_000: 727_894})),
            claims=(
                *_times_faster("V-B-1, at 2,000,000", 2_000_000, 14, 9, 6),
                *(
                    Claim("V-B-1", f"{label}'s time", Along(q.SINGLE, label, "rises"))
                    for label in (*OTHERS, "REIN")
                ),
                Claim(
                    "V-B-1",
                    "REIN is affected least by the number of subscriptions",
                    Judged("REIN grows least", "the least of the four", _growth),
                    "REIN marks boxes here and there in a bit set, which the nearest caches do not "
                    "hold for the larger numbers; TAMA's lists are read from end to end",
                ),
                Claim(
                    "V-B-1",
                    "400 events match so many of 2,000,000 subscriptions",
                    Near(Cell(q.MATCHES_OF_400, "tile", 2_000_000), 727_894, TENTH),
                ),
                Claim(
                    "Table III",
                    "From event to event, H-TREE's time varies most",
                    Extreme(
                        q.DEVIATION,
                        "most",
                        HTREE.label,
                        ("REIN", SIENA.label, TAMA.label),
                        (2_000_000,),
                    ),
                ),
                Claim(
                    "Table III",
                    "REIN's varies least",
                    Extreme(q.DEVIATION, "least", "REIN", OTHERS, (2_000_000,)),
                    BETTER[TAMA.label],
                ),
                Claim(
                    "V-B-1",
                    "Matches of the event that takes H-TREE longest",
                    Near(Cell(q.SLOWEST_MATCHES, HTREE.label, 2_000_000), 35_194),
                ),
                Claim(
                    "V-B-1",
                    "Matches of the event that H-TREE is fastest for",
                    Near(Cell(q.FASTEST_MATCHES, HTREE.label, 2_000_000), 30, Within(factor=3)),
                ),
            ),
            notes="The paper goes up to 10,000,000 in its table of parameters and to 2,000,000 in "
            "the figure; we take the first and the last of its ten steps, and all with --full. Its "
            "times are in seconds, on a machine of 2011.",
        ),
        experiment(
            name="rein-matches",
            figure="Figure 10",
            title="Matching time against the matches of the event (2,000,000 subscriptions)",
            x=Axis("Matched subscriptions", log=True),
            y=(q.TIME_BY_MATCHES,),
            points=(LARGEST,),
            extras=frozenset({"profile"}),
            claims=tuple(
                Claim(
                    "V-B-1",
                    f"With the matches of an event, {label}'s time",
                    ByMatches(q.TIME_BY_MATCHES, label, course),
                )
                for label, course in _BY_MATCHES.items()
            ),
            notes="Events with about as many matches are put together, four bins to each doubling.",
        ),
        experiment(
            name="rein-constraints",
            figure="Figure 8, Table IV",
            title="Effect of the number of constraints (m = 2k, n = 1,000,000, b = 1,000, w = 0.5)",
            x=Axis("Constraints in a subscription"),
            tabled=(q.MATCHES_OF_400,),
            points=tuple(
                Point(
                    x=k,
                    workload=replace(BASE, attributes=2 * k, event_size=2 * k, predicates=k),
                    full=k not in (5, 9, 13, 17, 23),
                )
                for k in _TABLE_IV
            ),
            published=_matched(_TABLE_IV),
            claims=(
                *_times_faster("V-B-2, with 23 constraints", 23, 16, 10, 4),
                Claim(
                    "Table IV",
                    "Matched subscriptions",
                    Cells(q.MATCHES_OF_400, "tile", Within(percent=10, counting=3)),
                    "Where few match, chance decides; an event that matches one of these "
                    "subscriptions is likely to match others",
                ),
                *(
                    Claim("V-B-2", f"{label}'s time", Along(q.SINGLE, label, "rises"))
                    for label in (SIENA.label, TAMA.label, "REIN")
                ),
                Claim(
                    "V-B-2",
                    "H-TREE's time first",
                    Along(q.SINGLE, HTREE.label, "falls", end=9),
                ),
                Claim(
                    "V-B-2",
                    "and afterwards",
                    Along(q.SINGLE, HTREE.label, "rises", start=13),
                ),
            ),
            notes="Every other number of constraints is left out, but for --full.",
        ),
        experiment(
            name="rein-buckets",
            figure="Figure 9",
            title="Effect of the number of buckets (n = 2,000,000)",
            x=Axis("Buckets", log=True),
            series=(REIN, TILE),
            points=tuple(
                Point(x=b, workload=LARGEST.workload, parameters={"rein": {"cells": b}})
                for b in (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
            ),
            claims=(
                Claim(
                    "V-B-3",
                    "There is a number of buckets before which more help and after which they hurt",
                    Judged("1,000 buckets", "within a factor of 2", _critical),
                ),
                Claim(
                    "V-B-3",
                    "REIN's time before that",
                    Along(q.SINGLE, "REIN", "falls", end=1_000),
                ),
                Claim(
                    "V-B-3",
                    "and after it",
                    Along(q.SINGLE, "REIN", "rises", start=2_000),
                ),
            ),
            notes="`tile` has no buckets; its time is the same line throughout.",
        ),
        experiment(
            name="rein-distributions",
            figure="Table V",
            title="Effect of the distribution of constraint values",
            x=Axis("Distribution and subscriptions"),
            series=(REIN, TILE),
            points=tuple(
                Point(
                    x=f"{name}, {n:,}",
                    workload=replace(shape, subscriptions=n),
                    full=n not in _TABLE_V_SIZES,
                )
                for name, shape in _SHAPES.items()
                for n in _TABLE_V_ALL
            ),
            published=tuple(
                Published(q.SINGLE, "REIN", f"{name}, {n:,}", 1000 * seconds)
                for name, row in _TABLE_V.items()
                for n, seconds in zip(_TABLE_V_ALL, row, strict=True)
            ),
            claims=(
                Claim(
                    "V-B-4, Table V",
                    "The distribution of values hardly matters",
                    Judged("at most 2.5 % apart", "within 10 % of uniform values", _distributions),
                ),
                Claim(
                    "Table V",
                    "With uniform values, 2,000,000 subscriptions take so many times what 200,000 "
                    "take",
                    Near(
                        change(q.SINGLE, "REIN", "Uniform, 200,000", "Uniform, 2,000,000"),
                        1.5387 / 0.1551,
                    ),
                ),
            ),
            notes="Normal with mean 0.5 and variance 0.02; Pareto with mean 0.5 and shape 2, cut "
            "off at 1 (a scale of 2, as the paper has it, would put all values outside of the "
            "domain). Table V has ten numbers of subscriptions, of which we take three, and all "
            "with --full.",
        ),
        experiment(
            name="rein-width",
            figure="Figure 11, Table VI",
            title="Effect of the width of constraints (n = 1,000,000, m = 20, k = 10, b = 1,000)",
            x=Axis("Width of constraints"),
            tabled=(q.MATCHES_OF_400, q.MEMORY),
            points=vary(BASE, _TABLE_VI, "width", full=(0.05,)),
            published=_matched(_TABLE_VI),
            claims=(
                *_times_faster("V-B-5, at w = 0.6", 0.6, 17, 12, 50),
                Claim(
                    "Table VI",
                    "Matched subscriptions",
                    Cells(q.MATCHES_OF_400, "tile", Within(percent=10, counting=3)),
                ),
                Claim("V-B-5", "SIENA's time", Along(q.SINGLE, SIENA.label, "rises")),
                Claim("V-B-5", "REIN's time", Along(q.SINGLE, "REIN", "falls")),
                Claim(
                    "V-B-5",
                    "Up to w = 0.1 TAMA is faster than REIN",
                    Order(q.SINGLE, (TAMA.label, "REIN"), (0.01, 0.1)),
                ),
                Claim(
                    "V-B-5",
                    "and slower from there on",
                    Order(q.SINGLE, ("REIN", TAMA.label), tuple(w for w in _TABLE_VI if w > 0.1)),
                    BETTER[TAMA.label],
                ),
                Claim(
                    "V-B-5",
                    "Up to w = 0.3 H-TREE is the fastest of the four",
                    Extreme(
                        q.SINGLE,
                        "least",
                        HTREE.label,
                        (SIENA.label, TAMA.label, "REIN"),
                        (0.01, 0.1, 0.2, 0.3),
                    ),
                    BETTER[TAMA.label],
                ),
                Claim(
                    "V-B-5",
                    "H-TREE's time up to w = 0.1",
                    Along(q.SINGLE, HTREE.label, "stays", end=0.1),
                ),
                Claim(
                    "V-B-5",
                    "TAMA's time nears SIENA's course",
                    Judged(
                        "asymptotic",
                        f"the last two ratios differ by less than {STEADY:g}",
                        _asymptotic,
                    ),
                ),
                Claim(
                    "V-B-5",
                    "From w = 0.7 on H-TREE takes more than 32 GB",
                    Refused(HTREE.label, (0.7, 0.8)),
                    BETTER[HTREE.label],
                ),
                Claim(
                    "Abstract",
                    "REIN is ahead by an order of magnitude where much matches",
                    Bound(times(q.SINGLE, TAMA.label, "REIN", at=0.8), "at least", 10),
                    BETTER[TAMA.label],
                ),
            ),
            notes="A width of 0.05 (no matches in Table VI) is left out, but for --full.",
        ),
        INSERTION,
        INSERTION_BY_WIDTH,
        DELETION,
        MEMORY,
        SUBSUMPTION,
    ),
    claims=(
        Claim(
            "Figures 7 and 8, Tables III and V",
            "Matching times in seconds",
            NotMeasurable("0.15 to 180 s", "another machine's; only ratios can be compared"),
        ),
        Claim(
            "V-C, V-D",
            "TAMA stores an id at least 10k times at w = 0.5, H-TREE ⌈w c⌉ˡ times, REIN 2k times",
            NotMeasurable("entries", "our rows have bytes, not entries"),
        ),
    ),
)
