"""Publications and their updates as one job on Spark, compared with spaces alone."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import KINDS, Transitions
from boxmatch.spark import local_session, transitions
from boxmatch.spark.workloads import subscriptions, updates
from boxmatch.workloads import RegionWorkload
from boxmatch.workloads.ranges import intervals_of
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.reproduce.experiment import Extra, Series
from boxmatch_bench.settings import Movement
from boxmatch_bench.spark.measure import run_apart, spark_session
from boxmatch_bench.timing import Effort, Figures, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGES: Final = 2
"""How often `measure` reports a stage."""

_TOGETHER: Final = 1_000  # updates that are one operation of spaces
_PRIME: Final = 2**31 - 1
_WEIGHTS: Final = {"publication": 2_654_435_761, "subscription": 40_503, "sequence": 97, "code": 1}
_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_UPDATES: Final = 3
_REPEATS: Final = 2


@dataclass(frozen=True)
class Told:
    """How many transitions there are, and a checksum that does not depend on their order.

    It is a sum of squares, so that ids that are exchanged change it too.
    """

    transitions: int
    checksum: int

    @classmethod
    def by_spark(cls, found: DataFrame) -> Told:
        """What a job tells, added up where it is found."""
        code = " ".join(f"WHEN '{kind}' THEN {number}" for number, kind in enumerate(KINDS))
        columns = ("publication_id", "subscription_id", "sequence", f"CASE kind {code} END")
        weighed = zip(columns, _WEIGHTS.values(), strict=True)
        terms = " + ".join(f"{column} * {weight}L" for column, weight in weighed)
        mixed = found.selectExpr(f"({terms}) % {_PRIME}L AS mixed")
        (row,) = mixed.selectExpr("count(*)", f"sum(mixed * mixed % {_PRIME}L)").collect()
        return cls(row[0], row[1] or 0)

    def and_by(self, told: Transitions, sequence: int) -> Told:
        """Both this and what spaces tell of updates with a number."""
        mixed = _WEIGHTS["sequence"] * sequence + told.code.astype(np.int64)
        mixed += _WEIGHTS["publication"] * told.publication.astype(np.int64)
        mixed += _WEIGHTS["subscription"] * told.subscription.astype(np.int64)
        mixed %= _PRIME
        checksum = int((mixed * mixed % _PRIME).sum())
        return Told(self.transitions + len(told), self.checksum + checksum)

    def __str__(self) -> str:
        return f"{self.transitions:,} transitions with checksum {self.checksum:x}"


def measure(
    movement: Movement, options: SparkOptions, scratch: Path, stage: Stage = lambda _: None
) -> Figures:
    """Measure one setting, on Spark and in spaces alone, each in its own process.

    Raises `MismatchError` if they tell different transitions.
    """
    log = scratch.resolve() / "log.txt"
    stage("transitions on Spark")
    spark, told = run_apart(log, _apart, movement, options)
    stage("spaces alone")
    alone, wanted = run_apart(log, in_spaces, movement)
    _same(movement, told, wanted)
    log.unlink()
    return {
        "bench": "spark-transitions",
        "workload": type(movement.workload).__name__,
        "parameters": asdict(movement.workload),
        "kind": movement.kind,
        "updates": movement.rows,
        "options": {
            "master": options.master,
            "cores": options.cores,
            "driver_memory": options.driver_memory,
            "repeats": options.repeats,
        },
        "transitions": told.transitions,
        "checksum": told.checksum,
        "per_update": told.transitions / movement.rows,
        "spark": spark,
        "spaces": alone,
        "ratio": spark["seconds"] / alone["seconds"],
        "cpu_ratio": spark["cpu_seconds"] and spark["cpu_seconds"] / alone["cpu_seconds"],
    }


def _apart(movement: Movement, options: SparkOptions) -> tuple[Figures, Told]:
    with spark_session(options) as spark:
        return on_spark(spark, movement, options.repeats)


def on_spark(spark: SparkSession, movement: Movement, repeats: int) -> tuple[Figures, Told]:
    """The best of some runs, and what the first one told, which also warms everything up.

    Updates and subscriptions are in Spark's memory. A run reads the subscriptions, finds the
    transitions and lets Spark throw them away.
    """
    workload = movement.workload
    moves = updates(spark, workload, kind=movement.kind, last=movement.last).cache()
    standing = subscriptions(spark, workload).cache()
    try:
        moves.count(), standing.count()
        began = perf_counter()
        told = Told.by_spark(transitions(moves, standing, schema=workload.schema))
        figures: Figures = {"version": spark.version, "first_seconds": perf_counter() - began}
        runs, planned, cpu = [], [], []
        for _ in range(repeats):
            cpu_before, began = _cpu_seconds(), perf_counter()
            found = transitions(moves, standing, schema=workload.schema)
            planned.append(perf_counter() - began)
            found.write.format("noop").mode("overwrite").save()
            runs.append(perf_counter() - began)
            cpu_after = _cpu_seconds()
            if cpu_before is not None and cpu_after is not None:
                cpu.append(cpu_after - cpu_before)
    finally:
        moves.unpersist()
        standing.unpersist()
    times = {"runs": runs, "planned_seconds": min(planned), "cpu_seconds": min(cpu, default=None)}
    return figures | times | _rates(movement, min(runs)), told


def in_spaces(movement: Movement) -> tuple[Figures, Told]:
    """The same updates as operations of one `Spaces`, which has the subscriptions already."""
    workload = movement.workload
    _follow(replace(movement, workload=replace(workload, publications=2, subscriptions=2)))
    return _follow(movement)  # after all is compiled


def _follow(movement: Movement) -> tuple[Figures, Told]:
    workload = movement.workload
    spaces = Spaces({"space": workload.schema}, remember=1)
    began = perf_counter()
    spaces.load(subscriptions=dict(enumerate(workload.filters(0, workload.subscriptions))))
    load_seconds = perf_counter() - began
    told, seconds, cpu = Told(0, 0), 0.0, 0.0
    boxes = workload.publication_boxes()
    for publication, region in enumerate(intervals_of(workload.names, boxes)):
        cpu_before, began = process_time(), perf_counter()
        found = spaces.publish(publication, region)
        seconds, cpu = seconds + perf_counter() - began, cpu + process_time() - cpu_before
        told = told.and_by(found, 0)
    rows = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
    each = workload.each_update(0, boxes.count, kind=movement.kind, count=movement.last)
    for sequence, values in enumerate(each, 1):
        points = np.full((boxes.count, workload.dimensions), np.nan)
        points[rows, boxes.attribute] = values.reshape(-1)
        for first in range(0, boxes.count, _TOGETHER):
            some = slice(first, first + _TOGETHER)
            ids: Int64Array = np.arange(boxes.count)[some]
            cpu_before, began = process_time(), perf_counter()
            found = spaces.update_publications(ids, points[some])
            seconds, cpu = seconds + perf_counter() - began, cpu + process_time() - cpu_before
            told = told.and_by(found, sequence)
    figures = {"load_seconds": load_seconds, "cpu_seconds": cpu, **_rates(movement, seconds)}
    return figures, told


def _rates(movement: Movement, seconds: float) -> Figures:
    return {
        "seconds": seconds,
        "per_second": movement.rows / seconds,
        "microseconds": 1e6 * seconds / movement.rows,
    }


def _same(movement: Movement, told: Told, wanted: Told) -> None:
    if told != wanted:
        raise MismatchError(
            f"{movement.rows:,} {movement.kind} updates: Spark tells {told}, spaces {wanted}"
        )


def _cpu_seconds() -> float | None:
    """Of this process and all that it has started: Spark's JVM, and its Python workers.

    Those that have ended count too, if their parent has waited for them. None where there is no
    `/proc`.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(stat.parent.name)
        parents[number], ticks[number] = int(words[1]), sum(map(int, words[11:15]))
    if not ticks:
        return None
    own = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(one, 0) for one in own) / os.sysconf("SC_CLK_TCK")


# --- the paper's figures -----------------------------------------------------------------------


class Jobs:
    """The operations of an experiment as jobs of up to so many publications, each made once."""

    def __init__(self, workload: RegionWorkload, most: int) -> None:
        # It stays for the next workload, until the process ends: to start one takes seconds.
        self._spark = local_session(name="boxmatch bench")
        self._spark.sparkContext.setLogLevel("ERROR")
        self._workload = replace(workload, publications=min(workload.publications, most))
        self._alone: dict[Movement, tuple[Figures, Told]] = {}
        self._found: dict[tuple[str, Movement], Figures] = {}

    def measure(self, series: Series, extras: frozenset[Extra], _: Effort, stage: Stage) -> Figures:
        """The time of an operation is its share of a job; with updates, adding has a share too."""
        figures: Figures = {"publications": self._workload.publications}
        if "adding" in extras:
            stage("adding")
            figures["adding"] = self._job(series, Movement(workload=self._workload, last=0))
        if "moves" in extras:
            for kind in ("incremental", "random"):
                stage(f"{kind} updates")
                moves = Movement(workload=self._workload, kind=kind, last=_UPDATES)
                figures[kind] = self._job(series, moves)
        if "profile" in extras:
            stage("updates with more and more matches")
            figures |= self._profile(series)
        return figures

    def _job(self, series: Series, movement: Movement) -> Figures:
        known = series.index, movement
        if known not in self._found:
            if movement not in self._alone:
                self._alone[movement] = in_spaces(movement)
            alone, wanted = self._alone[movement]
            figures = alone
            if series.index == "spark":
                figures, told = on_spark(self._spark, movement, _REPEATS)
                _same(movement, told, wanted)
            own = {"mean": figures["microseconds"], "operations": movement.rows}
            per_row = {"transitions": wanted.transitions / movement.rows}
            self._found[known] = figures | own | per_row
        return self._found[known]

    def _profile(self, series: Series) -> Figures:
        """Random updates against growing shares of the subscriptions."""
        found = []
        for share in _SHARES:
            number = max(1, round(share * self._workload.subscriptions))
            workload = replace(self._workload, subscriptions=number)
            job = Movement(workload=workload, kind="random", last=_UPDATES)
            found.append(self._job(series, job))
        bins = [
            {
                "matches": job["transitions"],
                "microseconds": job["mean"],
                "events": job["operations"],
            }
            for job in found
        ]
        matches, times = (
            np.array([part[name] for part in bins]) for name in bins[0] if name != "events"
        )
        each, fixed = np.polyfit(matches, times, 1)
        correlation = np.corrcoef(matches, times)[0, 1]
        line = {"fixed": float(fixed), "each": 1e3 * float(each), "correlation": float(correlation)}
        return {"profile": bins, "line": line}
