"""The experiments of the subject-spaces paper, and one about spaces that are kept on disk."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch.workloads import RegionWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.experiment import (
    Axis,
    Cell,
    Claim,
    Comparison,
    Experiment,
    Paper,
    Point,
    Published,
    Series,
    change,
    times,
    vary,
)

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


CHEAPER: Final = _cheaper(q.RANDOM_UPDATE, q.INCREMENTAL_UPDATE)
CHEAPER_TOGETHER: Final = _cheaper(q.RANDOM_TOGETHER, q.INCREMENTAL_TOGETHER)

INSERTION: Final = _by_number(
    name="subject-spaces-insertion",
    figure="Figure 11",
    title="Adding a publication (50 dimensions, 20 constraints, subscriptions with 2)",
    y=(q.ADDING,),
    tabled=(q.TOLD_BY_ADDING,),
    points=vary(_INSERTED, _NUMBERS, "subscriptions"),
    extras=frozenset({"adding"}),
    published=(
        Published(q.ADDING, LARGEST.label, 10, 172),
        Published(q.ADDING, LARGEST.label, MOST, 776),
    ),
    claims=(
        Claim(
            "With 100,000 publications, adding one takes so many times as long among 100,000 "
            "subscriptions as among 10",
            "7.1.1",
            4.5,
            change(q.ADDING, LARGEST.label, 10, MOST),
        ),
    ),
    found="Time grows far less than the number of subscriptions; on the curve of 100,000 "
    "publications it is 172 ms with 10 subscriptions and 776 ms with 100,000.",
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
    found="Time grows with the numbers of publications and subscriptions.",
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
            "A random update takes so many times as long as an incremental one, with 100,000 "
            "publications and subscriptions",
            "7.1.2, “much less time”",
            None,
            CHEAPER,
        ),
        Claim(
            "The same where 100 updates are one operation",
            "not in the paper",
            None,
            CHEAPER_TOGETHER,
        ),
    ),
    found="It takes much less time to update values incrementally than randomly.",
    notes=f"The paper's text has no values of this figure. {_NOTES}",
)
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
    found="Nothing: this experiment is not in the paper, whose spaces are in memory.",
    notes="Up to 10,000 publications move there and back again, all 25 values by one; values go up "
    "to 11,999, so that an update changes about ten matches. An update has returned when it is "
    "durable: with `full` after the disk was told to keep it, with `normal` after the system was. "
    "The disk is that of the results; how often it syncs for a single writer stands beside.",
)

PAPER: Final = Paper(
    "Subject spaces: publications that stay",
    "Inserting subscriptions and deleting publications, which the paper expects to take the same "
    "time as inserting publications and does not draw.",
    (INSERTION, RANDOM, INCREMENTAL, BY_MATCHES, DURABLE),
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
        published=(),
        claims=(
            Claim(
                "Spark takes so many times as long as spaces alone, with 100,000 subscriptions",
                "not in the paper",
                None,
                times(quantity, _ON_SPARK.label, _ALONE.label, MOST),
            ),
        ),
        notes=notes,
    )


SPARK: Final = Paper(
    "Subject spaces on Spark",
    "Updates of subscriptions, which transitions on Spark does not have.",
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
