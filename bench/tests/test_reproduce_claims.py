"""Claims of the papers: how they are judged, and that each can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.catalogue import PAPERS, choose
from boxmatch_bench.reproduce.claims import (
    AGREES,
    DIFFERS,
    IMPOSSIBLE,
    UNDECIDED,
    UNMEASURED,
    Claim,
    Finding,
    NotMeasurable,
    Statement,
    Verdict,
    Within,
    counted,
    judge,
)
from boxmatch_bench.reproduce.comparisons import Cell, change, percent_less, times
from boxmatch_bench.reproduce.experiment import Axis, Experiment, Published, Series, vary
from boxmatch_bench.reproduce.statements import (
    Along,
    Bound,
    ByMatches,
    Cells,
    Extreme,
    Judged,
    Near,
    Order,
    Refused,
    curve_ends,
)
from boxmatch_bench.reproduce.tables import Grid, grids_of

LABELS = ("REIN", "HEM", "TAMA")
EXPERIMENT = Experiment(
    name="small",
    paper="hem",
    figure="Figure 0",
    title="Small",
    x=Axis("w"),
    y=(q.SINGLE,),
    series=tuple(Series(label, label.lower()) for label in LABELS),
    points=vary(RangeWorkload(subscriptions=100), (0.1, 0.5, 0.9), "width"),
    events=20,
    published=(
        Published(q.SINGLE, "HEM", 0.1, 1.05),
        Published(q.SINGLE, "HEM", 0.5, 4.0),
        Published(q.SINGLE, "HEM", 0.9, 9.0, "somebody else"),
    ),
)


def grid(scale: float = 1.0, **milliseconds: tuple[float | None, ...]) -> Grid:
    """Rows of the series named, at the places of the axis; None for what was refused."""
    rows: list[dict[str, Any]] = []
    for label, values in milliseconds.items():
        for point, value in zip(EXPERIMENT.points, values, strict=True):
            time = {"refused": "55 GB"} if value is None else {"single": {"mean": 1000 * value}}
            head = {"series": label, "x": point.x, "scale": scale}
            rows.append({**head, "workload": {"subscriptions": 100}, **time})
    return Grid(EXPERIMENT, rows)


THREE = grid(REIN=(8.0, 4.0, 2.0), HEM=(1.0, 1.0, 1.1), TAMA=(2.0, 4.1, 6.0))


def judged(statement: Statement, of: Grid = THREE) -> tuple[str, str]:
    verdict = judge(Claim("6", "It is so", statement, "Because"), of)
    return verdict.word, verdict.ours


class TestWithin:
    @pytest.mark.parametrize(
        ("within", "published", "near", "far"),
        [
            (Within(percent=10), 100, (90, 110), (89, 111)),
            (Within(factor=1.5), 6, (4, 9), (3.9, 9.1, -6, 0)),
            (Within(points=5), 90.0, (85, 95), (84.9, 95.1)),
            (Within(percent=10, counting=3), 25, (10, 40), (9, 41)),
            (Within(percent=10), 0, (0,), (0.1,)),
        ],
    )
    def test_is_near_enough(
        self, within: Within, published: float, near: tuple[float, ...], far: tuple[float, ...]
    ) -> None:
        assert all(within.holds(one, published) for one in near)
        assert not any(within.holds(one, published) for one in far)

    def test_says_what_it_takes(self) -> None:
        assert (
            str(Within(percent=10, counting=3)) == "within 10 % or 3 standard deviations of a count"
        )
        assert str(Within(factor=1.5)) == "within a factor of 1.5"


class TestStatements:
    @pytest.mark.parametrize(
        ("statement", "word", "ours"),
        [
            (Near(times(q.SINGLE, "REIN", "HEM", at=0.1), 7.0), AGREES, "8.00 ×"),
            (Near(times(q.SINGLE, "REIN", "HEM", at=0.1), 14.0), DIFFERS, "8.00 ×"),
            (Near(percent_less(q.SINGLE, "HEM", "REIN", at=0.5), 75.0), AGREES, "75.0 %"),
            (Near(Cell(q.SINGLE, "HEM", 0.9), 1.1), AGREES, "1.10 ms"),
            (Near(times(q.SINGLE, "REIN", "SIENA"), 3.0), UNMEASURED, ""),
            (Bound(change(q.SINGLE, "TAMA", 0.1, 0.9), "at least", 3), AGREES, "3.00 ×"),
            (Bound(change(q.SINGLE, "TAMA", 0.1, 0.9), "at most", 2.9), DIFFERS, "3.00 ×"),
            (Along(q.SINGLE, "REIN", "falls"), AGREES, "8.00 → 4.00 → 2.00 ms"),
            (Along(q.SINGLE, "REIN", "rises"), DIFFERS, "8.00 → 4.00 → 2.00 ms"),
            (Along(q.SINGLE, "HEM", "stays"), AGREES, "1.00 → 1.00 → 1.10 ms"),
            (Along(q.SINGLE, "TAMA", "stays"), DIFFERS, "2.00 → 4.10 → 6.00 ms"),
            (Along(q.SINGLE, "TAMA", "rises", start=0.5), AGREES, "4.10 → 6.00 ms"),
            (Along(q.SINGLE, "TAMA", "rises", end=0.5), AGREES, "2.00 → 4.10 ms"),
            (Along(q.SINGLE, "TAMA", "rises", end=0.7), UNMEASURED, ""),
            (Order(q.SINGLE, ("HEM", "TAMA", "REIN"), (0.1,)), AGREES, "so"),
            (Order(q.SINGLE, ("HEM", "TAMA")), AGREES, "at 3 of 3 places"),
            (
                Order(q.SINGLE, ("TAMA", "REIN")),
                DIFFERS,
                # 4.1 and 4 are equal but for 5 %.
                "at 2 of 3 places; at 0.9 REIN 2.00 < TAMA 6.00",
            ),
            (Extreme(q.SINGLE, "least", "HEM", ("REIN", "TAMA")), AGREES, "at 3 of 3 places"),
            (
                Extreme(q.SINGLE, "most", "TAMA", ("REIN", "HEM"), (0.1,)),
                DIFFERS,
                "not so; at 0.1 HEM 1.00 < TAMA 2.00 < REIN 8.00",
            ),
            # What somebody else published is no claim of the paper.
            (Cells(q.SINGLE, "HEM"), DIFFERS, "1 of 2; 1.00 for 4.00 at 0.5"),
            (Cells(q.SINGLE, "HEM", only=(0.1,)), AGREES, "1 of 1"),
            (Judged("so", "so", lambda _: Finding("both", None)), UNDECIDED, "both"),
            (NotMeasurable("12 ms", "another machine's"), IMPOSSIBLE, ""),
        ],
    )
    def test_are_judged(self, statement: Statement, word: str, ours: str) -> None:
        assert judged(statement) == (word, ours)
        assert statement.paper
        assert statement.rule

    def test_a_course_has_no_steps_back(self) -> None:
        up_and_down = grid(HEM=(1.0, 3.0, 2.0))
        assert judged(Along(q.SINGLE, "HEM", "rises"), up_and_down)[0] == DIFFERS
        nearly = grid(HEM=(1.0, 3.0, 2.9))
        assert judged(Along(q.SINGLE, "HEM", "rises"), nearly)[0] == AGREES

    def test_memory_may_not_suffice(self) -> None:
        some = grid(REIN=(1.0, None, None))
        assert judged(Refused("REIN", (0.5, 0.9)), some) == (AGREES, "refuses at 2 of 2")
        assert judged(Refused("REIN", (0.1, 0.9)), some) == (DIFFERS, "refuses at 1 of 2")
        assert judged(Along(q.SINGLE, "REIN", "rises"), some)[0] == UNMEASURED

    def test_rows_of_another_setting_say_nothing(self) -> None:
        elsewhere = grid(0.02, REIN=(8.0, 4.0, 2.0))
        assert judged(Along(q.SINGLE, "REIN", "falls"), elsewhere)[0] == UNMEASURED
        assert judged(Along(q.SINGLE, "REIN", "falls"), Grid(EXPERIMENT, []))[0] == UNMEASURED

    def test_a_part_of_an_axis_says_nothing(self) -> None:
        some = [row for row in THREE.rows if (row["series"], row["x"]) != ("HEM", 0.9)]
        assert judged(Along(q.SINGLE, "REIN", "falls"), Grid(EXPERIMENT, some))[0] == UNMEASURED
        without = [row for row in THREE.rows if row["series"] != "HEM"]
        assert judged(Along(q.SINGLE, "REIN", "falls"), Grid(EXPERIMENT, without))[0] == AGREES

    def test_curves_by_matches(self) -> None:
        bins = [
            {"matches": matches, "events": events, "microseconds": time}
            for matches, events, time in ((4, 10, 8.0), (8, 10, 4.0), (16, 1, 1.0), (32, 9, 2.0))
        ]
        rows = [{"series": "HEM", "x": 0.1, "scale": 1, "workload": {}, "profile": bins}]
        some = Grid(replace(EXPERIMENT, points=EXPERIMENT.points[:1]), rows)
        assert curve_ends(some, q.TIME_BY_MATCHES, "HEM") == (0.008, pytest.approx(0.0019))
        assert judged(ByMatches(q.TIME_BY_MATCHES, "HEM", "falls"), some)[0] == AGREES
        assert judged(ByMatches(q.TIME_BY_MATCHES, "HEM", "rises"), some)[0] == DIFFERS
        assert judged(ByMatches(q.TIME_BY_MATCHES, "REIN", "rises"), some)[0] == UNMEASURED

    def test_reasons_are_given_for_differences_only(self) -> None:
        agreeing, differing = (
            judge(Claim("6", "", Along(q.SINGLE, "REIN", course), "Because"), THREE)
            for course in ("falls", "rises")
        )
        assert "Because" not in agreeing.explained
        assert differing.explained.endswith("). Because")
        assert counted([agreeing, differing, agreeing]) == "2 agree, 1 differ"


class TestDeclarations:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_every_experiment_says_what_it_is_about(self, paper: str) -> None:
        for experiment in PAPERS[paper].experiments:
            if experiment.method != "spark":
                assert experiment.claims, experiment.name
            texts = [claim.text for claim in experiment.claims]
            assert all(texts)
            # Reasons have no figures: those are in the rows.
            for claim in experiment.claims:
                assert claim.where
                assert not claim.why.endswith("."), claim.why

    def test_series_and_places_exist(self) -> None:
        """A claim about what is not measured would never be judged."""
        for experiment in choose(["all"]):
            labels = {series.label for series in experiment.measured}
            places = {point.x for point in experiment.points if not point.full}
            for claim in experiment.claims:
                statement: Any = claim.statement
                for field in ("series", "label"):
                    one = getattr(statement, field, None)
                    assert one is None or one in labels, claim
                for one in (*getattr(statement, "labels", ()), *getattr(statement, "others", ())):
                    assert one in labels, claim
                for x in getattr(statement, "at", None) or ():
                    assert x in places, claim
                figure = getattr(statement, "figure", None)
                cells = [figure] if isinstance(figure, Cell) else []
                if hasattr(figure, "cell"):
                    cells = [figure.cell, figure.other]
                for cell in cells:
                    assert cell.series in labels, claim
                    assert cell.x is None or cell.x in places, claim

    def test_grids_know_each_other(self) -> None:
        names = [experiment.name for experiment in choose(["all"])]
        row = {"experiment": names[0], "series": "tile", "x": 1}
        grids = grids_of(PAPERS, [row])
        assert grids[names[1]].beside(names[0]) is grids[names[0]]
        assert grids[names[0]].beside(names[1]) is None  # nothing of it was measured

    def test_verdicts_name_their_claims(self) -> None:
        claim = Claim("6", "It is so", NotMeasurable("x", "no"))
        assert Verdict(claim, "", IMPOSSIBLE).explained == "not measurable here: no"
        assert replace(claim, why="y") != claim
