"""What REIN costs beside matching: Figures 12 to 14, and subscriptions that cover others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    Claim,
    Within,
)
from boxmatch_bench.reproduce.comparisons import Cell, percent_more, times
from boxmatch_bench.reproduce.experiment import (
    TAMA,
    TILE,
    Axis,
    Published,
    Series,
    vary,
)
from boxmatch_bench.reproduce.rein_setting import (
    BASE,
    BETTER,
    HTREE,
    OTHERS,
    REIN,
    SETTING,
    SIENA,
    SIZES,
    N,
    experiment,
)
from boxmatch_bench.reproduce.statements import (
    Along,
    Bound,
    Cells,
    Course,
    Extreme,
    Near,
    Order,
)


def _table_vii() -> Iterable[Published]:
    """Bytes by the paper's own formulas, for 4-byte values and ids and 8-byte buckets."""
    level, cells, indexed, buckets = 13, 6, 6, 1_000
    m, k, w = BASE.attributes, BASE.predicates, BASE.width
    for point in SIZES:
        n = point.workload.subscriptions
        formulas = {
            SIENA.label: 16 * m + 16 * k * n + 4 * n,
            TAMA.label: 8 * m * 2**level + 40 * k * n + 4 * n,
            HTREE.label: 8 * cells**indexed + 4 * ceil(w * cells) ** indexed * n,
            REIN.label: 8 * buckets + 16 * k * n,
        }
        for series, size in formulas.items():
            yield Published(q.MEMORY, series, point.x, size / 1e6)


_BYTES: Final = (
    "The paper counts by formula, with values and ids of 4 bytes; ours are the bytes that the "
    "indexes hold, with keys of 8 bytes, and the boxes themselves among them"
)


_COVERED: Final = Series("REIN, covered found once", "rein-covered")


SUBSUMPTION: Final = experiment(
    name="rein-subsumption",
    figure="II-B, III-A, outlook",
    title="Equal and covered subscriptions found once, at building (200,000 subscriptions of two "
    "constraints on five attributes, of many widths)",
    x=Axis("Values of an attribute", log=True),
    y=(q.SINGLE, q.BATCH, q.MEMORY, q.BUILD),
    tabled=(q.BOXES_HELD, q.MATCHES),
    series=(REIN, _COVERED, TILE),
    points=vary(
        RangeWorkload(
            subscriptions=200_000,
            attributes=5,
            predicates=2,
            event_size=5,
            width=0.1,
            width_spread=0.9,
        ),
        (10, 100, 1_000, 1_000_000),
        "domain",
    ),
    claims=(
        Claim(
            "II-B",
            "Fewer subscriptions have to be kept",
            Bound(Cell(q.BOXES_HELD, _COVERED.label), "at most", 50, "fewer"),
        ),
        Claim(
            "II-B",
            "Matching is faster with covered subscriptions found once, at every place",
            Order(q.SINGLE, (_COVERED.label, "REIN")),
            "To list what matches takes its time either way, and most of it where much matches",
        ),
    ),
    notes="Covering subscriptions are looked for among those on the same attributes, at most "
    "1,000 for each. The paper has no figures; it names the techniques and leaves them out.",
)


_BY_WIDTH: Final[Mapping[str, Course]] = {
    **dict.fromkeys((SIENA.label, "REIN"), "stays"),
    **dict.fromkeys((TAMA.label, HTREE.label), "rises"),
}

INSERTION: Final = experiment(
    name="rein-insertion",
    figure="Figure 12",
    title=f"Insertion time ({SETTING})",
    x=N,
    y=(q.INSERTION, q.INSERTION_ONE, q.BUILD),
    tabled=(q.FIRST_INSERTION, q.INSERTION_ALL),
    extras=frozenset({"updates"}),
    claims=(
        Claim(
            "V-C",
            "SIENA is the fastest to insert into, REIN next",
            Order(q.INSERTION, (SIENA.label, "REIN", HTREE.label, TAMA.label)),
        ),
        Claim(
            "V-C, at 2,000,000",
            "REIN takes longer than SIENA by",
            Near(
                percent_more(q.INSERTION, "REIN", SIENA.label, at=2_000_000),
                4,
                Within(points=10),
            ),
        ),
        *(
            Claim(
                "V-C, at 2,000,000",
                f"{series.label}'s time in SIENA's{more}",
                Near(times(quantity, series.label, SIENA.label, at=2_000_000), published),
            )
            for series, published in ((TAMA, 18), (HTREE, 8))
            for quantity, more in (
                (q.INSERTION, ""),
                (q.INSERTION_ALL, ", making room included"),
            )
        ),
    ),
    notes="The very first insertion onto a built index makes room for many, at a cost that "
    "grows with the index; it is listed apart, and is in the time with making room. "
    "`tile` is built once: its subscriptions go through the engine (`Matcher.subscribe`), "
    "which collects them and builds in the background.",
)
INSERTION_BY_WIDTH: Final = experiment(
    name="rein-insertion-width",
    figure="Figure 12, the last sentences",
    title="Insertion time against the width of constraints (n = 200,000)",
    x=Axis("Width of constraints"),
    series=(SIENA, TAMA, HTREE, REIN),
    y=(q.INSERTION,),
    extras=frozenset({"updates"}),
    points=vary(replace(BASE, subscriptions=200_000), (0.1, 0.3, 0.5), "width"),
    claims=tuple(
        Claim(
            "V-C",
            f"With wider constraints, {label}'s time",
            Along(q.INSERTION, label, course),
        )
        for label, course in _BY_WIDTH.items()
    ),
)
DELETION: Final = experiment(
    name="rein-deletion",
    figure="Figure 13",
    title=f"Deletion time ({SETTING})",
    x=N,
    y=(q.DELETION, q.DELETION_ONE),
    extras=frozenset({"updates"}),
    claims=(
        Claim(
            "V-D",
            "REIN is the fastest to delete from, being fit for dynamic environments",
            Extreme(q.DELETION, "least", "REIN", OTHERS),
        ),
    ),
    notes="1,000 subscriptions are removed together, as in the paper, and others one by "
    "one. `tile` through the engine (`Matcher.unsubscribe`). The paper calls deletion "
    "costly for the other three and gives no order of them.",
)
MEMORY: Final = experiment(
    name="rein-memory",
    figure="Figure 14, Table VII",
    title=f"Memory ({SETTING}, c = 6, l = 6, d = 13)",
    x=N,
    y=(q.MEMORY,),
    published=tuple(_table_vii()),
    claims=(
        Claim(
            "V-E",
            "REIN takes the least memory",
            Extreme(q.MEMORY, "least", "REIN", OTHERS),
            _BYTES,
        ),
        *(
            Claim(
                "Table VII",
                f"Bytes of {label}, by formula",
                Cells(q.MEMORY, label, Within(factor=1.5)),
                _BYTES if label != HTREE.label else BETTER[HTREE.label],
            )
            for label in (*OTHERS, "REIN")
        ),
    ),
    notes=_BYTES + ".",
)
