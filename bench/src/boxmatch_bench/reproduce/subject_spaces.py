"""The experiments of the subject-spaces paper, and one about spaces that are kept on disk."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch.workloads import RegionWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    Claim,
    Finding,
    NotMeasurable,
    Within,
)
from boxmatch_bench.reproduce.comparisons import Cell, Comparison, change, times
from boxmatch_bench.reproduce.experiment import (
    Axis,
    Experiment,
    Paper,
    Point,
    Published,
    Series,
    vary,
)
from boxmatch_bench.reproduce.statements import (
    CHANCE,
    Along,
    Bound,
    Judged,
    Near,
)
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.tables import number

MOST: Final = 100_000
"""The paper's largest numbers of publications and of subscriptions."""

_INSERTED: Final = RegionWorkload(publications=MOST, subscriptions=MOST, publication_constraints=20)
_UPDATED: Final = replace(_INSERTED, publication_constraints=25)
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

_experiment = partial(
    Experiment, paper="subject-spaces", method="operations", compared="spaces with", events=1_000
)
_by_number = partial(
    _experiment,
    x=Axis("Number of subscriptions", log=True, scaled=True),
    series=(LARGEST, *(stored(number) for number in (10_000, 1_000, 100))),
)


def _cheaper(random: q.Quantity, incremental: q.Quantity) -> Comparison:
    """How many times as long a random update takes as an incremental one."""
    return Comparison(Cell(random, LARGEST.label, MOST), Cell(incremental, LARGEST.label, MOST))


_CHEAPER: Final = _cheaper(q.RANDOM_UPDATE, q.INCREMENTAL_UPDATE)
_CHEAPER_TOGETHER: Final = _cheaper(q.RANDOM_TOGETHER, q.INCREMENTAL_TOGETHER)
_AIM: Final = "our aim"


def _as_long(quantity: q.Quantity, label: str = LARGEST.label) -> Comparison:
    """How long something takes in the time to add a publication, at the largest size."""
    return Comparison(Cell(quantity, label, MOST), Cell(q.ADDING, label, MOST))


def _below_linear(grid: Grid) -> Finding | None:
    """From 10 to 100,000 subscriptions, against what would be as many times as there are more."""
    grown = change(q.ADDING, LARGEST.label, 10, MOST).measured(grid)
    if grown is None:
        return None
    return Finding(f"{number(grown)} times for {MOST // 10:,} times as many", grown < MOST / 100)


def _fewer(grid: Grid) -> Finding | None:
    """Candidates of an incremental update, of a random one, and of adding."""
    series = grid.experiment.series[0].label
    found = [
        grid.value(one, series, MOST)
        for one in (q.CANDIDATES_OF_INCREMENTAL, q.CANDIDATES_OF_RANDOM, q.CANDIDATES_OF_ADDING)
    ]
    if found[0] is None or found[1] is None or found[2] is None:
        return None
    shown = f"{number(found[0])}, {number(found[1])} and {number(found[2])}"
    return Finding(shown, found[0] < found[1] and found[0] < found[2])


def _by_candidates(grid: Grid) -> Finding | None:
    """Whether time goes with candidates rather than with subscriptions: their ratios."""
    beside = grid.beside("subject-spaces-incremental")
    series = grid.experiment.series[0].label
    if beside is None:
        return None
    ends = [
        (grid.value(one, series, MOST), beside.value(time, LARGEST.label, MOST))
        for one, time in (
            (q.CANDIDATES_OF_INCREMENTAL, q.INCREMENTAL_UPDATE),
            (q.CANDIDATES_OF_RANDOM, q.RANDOM_UPDATE),
        )
    ]
    (few, short), (many, long) = ends
    if few is None or short is None or many is None or long is None:
        return None
    shown = f"{number(many / few)} times the candidates take {number(long / short)} times as long"
    return Finding(shown, 0.5 <= (long / short) / (many / few) <= 2)


INSERTION: Final = _by_number(
    name="subject-spaces-insertion",
    figure="Figure 11",
    title="Adding a publication (50 dimensions, 20 constraints, subscriptions with 2)",
    y=(q.ADDING, q.SUBSCRIBING, q.REMOVING),
    tabled=(q.TOLD_BY_ADDING,),
    points=vary(_INSERTED, _NUMBERS, "subscriptions"),
    extras=frozenset({"adding", "others"}),
    published=(
        Published(q.ADDING, LARGEST.label, 10, 172),
        Published(q.ADDING, LARGEST.label, MOST, 776),
    ),
    claims=(
        Claim(
            "7.1.1",
            "With 100,000 publications, the time to add one among 100,000 subscriptions in that "
            "among 10",
            Near(change(q.ADDING, LARGEST.label, 10, MOST), 4.5),
            "What ours takes for every operation is small, so that what grows shows more",
        ),
        Claim(
            "7.1.1",
            "Times do not grow in proportion to the subscriptions",
            Judged("far less", "less than a hundredth of proportional", _below_linear),
        ),
        Claim(
            "7.1.1",
            "Time to add a subscription in that to add a publication: about the same",
            Near(_as_long(q.SUBSCRIBING), 1, Within(factor=2)),
            "A subscription of two constraints matches other publications than a publication of "
            "twenty matches subscriptions, and less of it has to be stored",
        ),
        Claim(
            "7.1.1",
            "Time to remove a publication in that to add one: about the same",
            Near(_as_long(q.REMOVING), 1, Within(factor=2)),
            "Who matched is found in the same way, but nothing has to be put in order",
        ),
        Claim(
            _AIM,
            "Time to add a publication at the largest size",
            Bound(Cell(q.ADDING, LARGEST.label, MOST), "at most", 2),
        ),
    ),
    notes=f"Of the figure, only these two values are in the paper's text. {_NOTES} Publications "
    "that were added are retracted in time, so that there are at most 1 % more than the line says.",
)
RANDOM: Final = _by_number(
    name="subject-spaces-random",
    figure="Figure 12",
    title="Updating all 25 values of a publication, to any value",
    y=(q.RANDOM_UPDATE,),
    tabled=(q.RANDOM_TOGETHER, q.TOLD_BY_RANDOM),
    points=vary(_UPDATED, _NUMBERS, "subscriptions"),
    extras=frozenset({"moves"}),
    claims=(
        Claim(
            "Figure 12",
            "Time with the number of subscriptions, for 100,000 publications",
            Along(q.RANDOM_UPDATE, LARGEST.label, "rises", start=100),
        ),
    ),
    notes=f"The paper's text has no values of this figure. {_NOTES}",
)
INCREMENTAL: Final = _by_number(
    name="subject-spaces-incremental",
    figure="Figure 13",
    title="Updating all 25 values of a publication, each by one",
    y=(q.INCREMENTAL_UPDATE,),
    tabled=(q.INCREMENTAL_TOGETHER, q.TOLD_BY_INCREMENTAL),
    points=RANDOM.points,
    extras=frozenset({"moves"}),
    claims=(
        Claim(
            "7.1.2",
            "A random update takes much more time than an incremental one, with 100,000 "
            "publications and subscriptions",
            Bound(_CHEAPER, "at least", 2, "much more"),
        ),
        Claim(
            "6.1",
            "Incremental updates are faster than adding",
            Judged("faster", "at the largest size", lambda grid: _faster_than_adding(grid)),
        ),
        Claim(
            _AIM,
            "Time of an incremental update at the largest size",
            Bound(Cell(q.INCREMENTAL_UPDATE, LARGEST.label, MOST), "at most", 0.2),
        ),
        Claim(_AIM, "A random update in an incremental one", Bound(_CHEAPER, "at least", 10)),
        Claim(
            _AIM,
            "The same where 100 updates are one operation",
            Bound(_CHEAPER_TOGETHER, "at least", 10),
        ),
    ),
    notes=f"The paper's text has no values of this figure. {_NOTES}",
)


def _faster_than_adding(grid: Grid) -> Finding | None:
    beside = grid.beside(INSERTION.name)
    adding = None if beside is None else beside.value(q.ADDING, LARGEST.label, MOST)
    moving = grid.value(q.INCREMENTAL_UPDATE, LARGEST.label, MOST)
    if adding is None or moving is None:
        return None
    return Finding(f"{number(moving)} and {number(adding)} ms", moving < adding / CHANCE)


BY_MATCHES: Final = _experiment(
    name="subject-spaces-matches",
    figure="Figure 14",
    title="Time of an update against the matches that it changes (100,000 of each)",
    x=Axis("Matches that come or go", log=True),
    y=(q.UPDATE_BY_MATCHES,),
    tabled=(q.FIXED_TIME, q.TIME_OF_EACH, q.CORRELATION),
    series=(LARGEST,),
    points=RANDOM.points[-1:],
    extras=frozenset({"profile"}),
    claims=(
        Claim(
            "7.1.2, Figure 14",
            "The time of an update depends linearly on the matches that come or go: correlation",
            Bound(Cell(q.CORRELATION, LARGEST.label, MOST), "at least", 0.9),
        ),
    ),
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
    y=(q.UPDATES_PER_SECOND, q.WAITED),
    tabled=(q.TRANSITIONS, q.DISK_SYNCS),
    series=tuple(
        Series(label, "spaces", {"sync": sync})
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
    claims=(
        Claim(
            _AIM,
            "Durable updates from concurrent callers, the most of all numbers of threads",
            Judged("at least 2,000 per second", "at least", lambda grid: _most_durable(grid)),
        ),
    ),
    notes="This experiment is not in the paper, whose spaces are in memory. Up to 10,000 "
    "publications move there and back again, all 25 values by one; values go up to 11,999, so that "
    "an update changes about ten matches. An update has returned when it is durable: with `full` "
    "after the disk was told to keep it, with `normal` after the system was. The disk is that of "
    "the results; how often it syncs for a single writer stands beside.",
)


def _most_durable(grid: Grid) -> Finding | None:
    rates = [(grid.value(q.UPDATES_PER_SECOND, "full", x), x) for x in grid.xs if x != 1]
    known = [(rate, x) for rate, x in rates if rate is not None]
    if not known:
        return None
    best, threads = max(known)
    return Finding(f"{number(best)} per second with {threads} threads", best >= 2_000)


def _fewer_steps(grid: Grid) -> Finding | None:
    mine = grid.value(q.CANDIDATES_OF_ADDING, "counts", MOST)
    others = {name: grid.value(one, "counts", MOST) for name, one in q.BY_FORMULA.items()}
    known = {name: value for name, value in others.items() if value is not None}
    if mine is None or len(known) < len(others):
        return None
    said = ", ".join(f"{name} {number(value)}" for name, value in known.items())
    return Finding(f"{number(mine)}; {said}", mine < min(known.values()))


COUNTS: Final = _experiment(
    name="subject-spaces-counts",
    figure="Tables 1 and 2",
    title="What the paper's algorithms would look at, counted",
    x=Axis("Number of subscriptions", log=True, scaled=True),
    series=(Series("counts", "spaces", changes={"publications": 1_000}),),
    y=(q.CANDIDATES_OF_ADDING, q.CANDIDATES_OF_RANDOM, q.CANDIDATES_OF_INCREMENTAL),
    tabled=(
        *(q.TRAVERSED_BY_ADDING, q.TRAVERSED_BY_RANDOM, q.TRAVERSED_BY_INCREMENTAL),
        *q.BY_FORMULA.values(),
    ),
    points=vary(_UPDATED, _NUMBERS, "subscriptions"),
    extras=frozenset({"counts"}),
    events=200,
    claims=(
        Claim(
            "6.1",
            "An incremental update has fewer candidates than a random one and than adding",
            Judged("fewer", "at the largest size", _fewer),
        ),
        Claim(
            "6.1, 7.1.2",
            "Time is in proportion to candidates: random and incremental updates",
            Judged("linear", "within a factor of 2", _by_candidates),
            "Every operation has a fixed cost, which is most of an incremental update here",
        ),
        Claim(
            "1, 6.2",
            "Candidates do not depend on the number of subscriptions, but on their use",
            Along(q.CANDIDATES_OF_INCREMENTAL, "counts", "stays", start=100),
            "In the paper's own experiments all subscriptions are alike, so that with more of them "
            "in the same way more are candidates",
        ),
        Claim(
            "6.2, Table 2",
            "Candidates of adding are fewer than the steps of the others by formula",
            Judged("fewer", "at the largest size", lambda grid: _fewer_steps(grid)),
            "Gough's search tree is not bound to go through who matches",
        ),
    ),
    notes="Means of 200 operations. Adding collects the ends of intervals below and above each "
    "value (Figure 7), and its candidates are who is left. An update traverses the ends between "
    "the old value and the new one (Figure 9, lines 2 to 11); its candidates are the "
    "subscriptions that have one of them. Table 2 is evaluated for the same subscriptions: |S| "
    "times predicates each; predicates satisfied times |S|; |A| log2 |S|; |S| (|A| + 1).",
)

PAPER: Final = Paper(
    "Subject spaces: publications that stay",
    (INSERTION, RANDOM, INCREMENTAL, BY_MATCHES, COUNTS, DURABLE),
    claims=(
        Claim(
            "7.1.1",
            "172 ms with 10 subscriptions, 776 ms with 100,000",
            NotMeasurable("172 ms, 776 ms", "another machine's, in Java; the ratio is above"),
        ),
        Claim(
            "6.2, Table 2",
            "Cluster propagation, and Gryphon on average",
            NotMeasurable("formulas", "they have constants that only their implementations have"),
        ),
    ),
)

_ON_SPARK: Final = Series("Spark", "spark", changes={"publications": 1_000})
_ALONE: Final = replace(_ON_SPARK, label="spaces alone", index="spaces")
_FEW_ON_SPARK: Final = replace(
    _ON_SPARK, label="Spark, 100 publications", changes={"publications": 100}
)
_JOBS: Final = (
    "A job on Spark has 1,000 publications, or 100 where a line says so, and no others are stored: "
    "they would take no time, since Spark finds the state of a publication by its key. "
)
_UPDATED_BY_JOBS: Final = (
    f"{_JOBS}It adds each one and updates it three times, and the time is that of the job divided "
    "by all four; spaces alone do the same one after the other."
)


def _through_spark(experiment: Experiment, quantity: q.Quantity, notes: str) -> Experiment:
    """The experiment as jobs on Spark, in one run with spaces alone."""
    return replace(
        experiment,
        name=experiment.name.replace("spaces-", "spaces-spark-"),
        paper="subject-spaces-spark",
        method="spark",
        compared="through",
        series=(_ON_SPARK, _FEW_ON_SPARK, _ALONE),
        tabled=tuple(one for one in experiment.tabled if not one.path[0].endswith("_together")),
        y=(quantity,),
        extras=experiment.extras - {"others"},
        published=(),
        claims=(
            Claim(
                "not in the paper",
                "With 100,000 subscriptions, the time on Spark in that of spaces alone",
                Bound(times(quantity, _ON_SPARK.label, _ALONE.label, MOST), "at least", 1),
            ),
        ),
        notes=notes,
    )


SPARK: Final = Paper(
    "Subject spaces on Spark",
    (
        _through_spark(INSERTION, q.ADDING, f"{_JOBS}The time is that of the job divided by them."),
        _through_spark(RANDOM, q.RANDOM_UPDATE, _UPDATED_BY_JOBS),
        _through_spark(INCREMENTAL, q.INCREMENTAL_UPDATE, _UPDATED_BY_JOBS),
        replace(
            _through_spark(BY_MATCHES, q.RANDOM_UPDATE, ""),
            title="Time of an update against the matches that it changes (1,000 publications)",
            series=(_ON_SPARK, _ALONE),
            claims=(),
            notes=f"{_UPDATED_BY_JOBS} Jobs have a sixteenth to all of the subscriptions, and the "
            "straight line is that of least squares through them.",
        ),
    ),
)
"""Figures 11 to 14 through `boxmatch.spark.transitions`."""
