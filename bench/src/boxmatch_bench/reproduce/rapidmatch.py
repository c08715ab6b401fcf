"""The experiments of the RAPIDMatch paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch.workloads import BooleanWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.claims import (
    Claim,
    Finding,
    NotMeasurable,
    Within,
)
from boxmatch_bench.reproduce.comparisons import Cell, Comparison, times
from boxmatch_bench.reproduce.experiment import TILE, Axis, Experiment, Paper, Point, Series, vary
from boxmatch_bench.reproduce.statements import (
    CHANCE,
    Along,
    Bound,
    ByMatches,
    Judged,
    Near,
    Order,
    curve_ends,
)
from boxmatch_bench.reproduce.tables import Grid, curve_cells
from boxmatch_bench.tables import number

_ZIPF: Final = BooleanWorkload(subscriptions=100_000, alpha=2.0)
_EXPONENTIAL: Final = replace(_ZIPF, event_model="exponential", chance=0.1)
_COUNT, _TREE, _RAPID = (
    Series("CountMatch", "count"),
    Series("TreeMatch", "tree"),
    Series("RAPIDMatch", "rapid"),
)
_SERIES: Final = (_COUNT, _TREE, _RAPID, TILE)
_SETTING: Final = "100 properties, 0 and 1 with probabilities around 0.05"
_N: Final = Axis("Number of subscriptions", log=True, scaled=True)
_NUMBERS: Final = (10_000, 20_000, 50_000, 100_000, 200_000)
_ALL_TREE: Final = (
    "Events with more ones than c go to the tree of all, and to count the ones takes time too"
)
_ONES: Final = "The more ones an event has, the more branches that ask for a one are followed"
_OUR_TREE: Final = (
    "Our tree omits levels on which no box has a predicate and keeps edges next to each other, "
    "which helps the tree more than RAPIDMatch"
)

_times = partial(
    Experiment,
    paper="rapidmatch",
    series=_SERIES,
    events=500,
    y=(q.SINGLE, q.BATCH),
    tabled=(q.MATCHES, q.ONES, q.MEMORY),
)
_times_by_number = partial(
    _times,
    x=_N,
    notes="The paper's numbers of subscriptions are not in its text; its machine had 512 MB of "
    "memory.",
)


def _by_number(ratio: float, kind: str) -> tuple[Claim, ...]:
    figure = times(q.SINGLE, "TreeMatch", "RAPIDMatch")
    statement = Bound(figure, "at least", ratio) if kind == "at least" else Near(figure, ratio)
    return (
        Claim("6.1", "TreeMatch's time in RAPIDMatch's, on average", statement, _OUR_TREE),
        Claim(
            "6.1",
            "That ratio depends little on the number of subscriptions",
            Judged("stable", "the largest is less than 1.5 times the smallest", _spread_of_ratio),
        ),
        *_NEVER_WORSE,
    )


_NEVER_WORSE: Final = (
    Claim(
        "6.1",
        "RAPIDMatch is never slower",
        Order(q.SINGLE, ("RAPIDMatch", "TreeMatch")),
        _ALL_TREE,
    ),
    Claim("6", "Counting is the slowest", Order(q.SINGLE, ("TreeMatch", "CountMatch"))),
)


def _ratios(grid: Grid) -> list[float]:
    pairs = (
        (grid.value(q.SINGLE, "TreeMatch", x), grid.value(q.SINGLE, "RAPIDMatch", x))
        for x in grid.xs
    )
    return [tree / rapid for tree, rapid in pairs if tree and rapid]


def _spread_of_ratio(grid: Grid) -> Finding | None:
    found = _ratios(grid)
    if len(found) < 2:
        return None
    shown = f"{number(min(found))} to {number(max(found))} ×"
    return Finding(shown, max(found) < 1.5 * min(found))


def _flattens(grid: Grid) -> Finding | None:
    """From α = 3 on the ratio grows less than before, per unit of α."""
    by_alpha = dict(zip(grid.xs, _ratios(grid), strict=False))
    if not {2.0, 3.0, 4.0} <= by_alpha.keys():
        return None
    before, after = by_alpha[3.0] / by_alpha[2.0], by_alpha[4.0] / by_alpha[3.0]
    shown = f"{number(before)} times from α = 2 to 3, {number(after)} from 3 to 4"
    return Finding(shown, after < before)


def _advantage(grid: Grid) -> Finding | None:
    """RAPIDMatch against the tree where few match, and where many do."""
    ends = [curve_ends(grid, q.TIME_PER_MATCH, label) for label in ("TreeMatch", "RAPIDMatch")]
    if ends[0] is None or ends[1] is None:
        return None
    few, many = (tree / rapid for tree, rapid in zip(ends[0], ends[1], strict=True))
    shown = f"{number(few)} × where few match, {number(many)} where many do"
    return Finding(shown, few >= CHANCE * many)


def _always_less(grid: Grid) -> Finding | None:
    """At every number of matches, to the nearest power of two."""
    cells = curve_cells(grid, q.TIME_PER_MATCH)
    both = [
        (cells[power, "RAPIDMatch"], cells[power, "TreeMatch"])
        for power, series in cells
        if series == "TreeMatch" and (power, "RAPIDMatch") in cells
    ]
    if not both:
        return None
    kept = sum(rapid <= CHANCE * tree for rapid, tree in both)
    return Finding(f"at {kept} of {len(both)} numbers of matches", kept == len(both))


def _per_match(name: str, figure: str, model: str, workload: BooleanWorkload) -> Experiment:
    courses = tuple(
        Claim(
            "6.3",
            f"With more matches, {series.label} takes less for each",
            ByMatches(q.TIME_PER_MATCH, series.label, "falls"),
        )
        for series in (_TREE, _RAPID)
    )
    return Experiment(
        name=name,
        paper="rapidmatch",
        figure=figure,
        title=f"Running time per match, {model} ({_SETTING})",
        series=_SERIES,
        points=vary(workload, _NUMBERS, "subscriptions"),
        events=500,
        x=Axis("Matched subscriptions", log=True),
        y=(q.TIME_PER_MATCH,),
        extras=frozenset({"profile"}),
        claims=(
            *courses,
            Claim(
                "6.3",
                "RAPIDMatch always takes less for a match than TreeMatch",
                Judged("at any number of matches", "but for 5 %", _always_less),
                _ALL_TREE,
            ),
            Claim(
                "6.3",
                "Its advantage is the greater the fewer subscriptions match",
                Judged("greatest where few match", "by 5 % or more", _advantage),
                "All events on one number of subscriptions match about as many of them, so that "
                "more matches go with more subscriptions here",
            ),
        ),
        notes="Single events, put together by their number of matches, four bins to each doubling. "
        "At one number of subscriptions nearly all events have about as many matches, so those of "
        "10,000 to 200,000 subscriptions are drawn in one plot.",
    )


_SWEEP: Final = (2, 4, 6, 8, 10)


def _memory(most: int) -> Comparison:
    return times(q.MEMORY, "RAPIDMatch", "TreeMatch", at=most)


PAPER: Final = Paper(
    "RAPIDMatch: event matching for events with few relevant properties",
    (
        _times_by_number(
            name="rapidmatch-subscriptions-zipf",
            figure="Figure 3, Zipf",
            title=f"Running time against subscriptions, Zipf events with α = 2 ({_SETTING})",
            points=vary(_ZIPF, _NUMBERS, "subscriptions"),
            claims=(
                *_by_number(8, "at least"),
                Claim(
                    "6.1",
                    "An event has about so many ones",
                    Near(Cell(q.ONES, "tile", 100_000), 3, Within(percent=20)),
                ),
            ),
        ),
        _times_by_number(
            name="rapidmatch-subscriptions-exponential",
            figure="Figure 3, Exponential",
            title="Running time against subscriptions, exponential events with p = 0.1 "
            f"({_SETTING})",
            points=vary(_EXPONENTIAL, _NUMBERS, "subscriptions"),
            claims=(
                *_by_number(1.2, "near"),
                Claim(
                    "6.1",
                    "An event has about so many ones",
                    Near(Cell(q.ONES, "tile", 100_000), 10, Within(percent=20)),
                ),
            ),
        ),
        _times(
            name="rapidmatch-alpha",
            figure="Figure 4, Zipf",
            title=f"Running time against α of Zipf events (100,000 subscriptions, {_SETTING})",
            x=Axis("α"),
            points=vary(_ZIPF, (1.25, 1.5, 2.0, 2.5, 3.0, 4.0), "alpha"),
            claims=(
                Claim(
                    "6.2",
                    "RAPIDMatch gets faster with α",
                    Along(q.SINGLE, "RAPIDMatch", "falls"),
                ),
                Claim(
                    "6.2",
                    "TreeMatch does not depend on α",
                    Along(q.SINGLE, "TreeMatch", "stays"),
                    _ONES,
                ),
                Claim(
                    "6.2",
                    "The ratio of the two hardly grows beyond α = 3",
                    Judged("flattens out", "grows less beyond 3 than before", _flattens),
                ),
                *_NEVER_WORSE,
            ),
            notes="The paper's values of α are not in its text.",
        ),
        _times(
            name="rapidmatch-p",
            figure="Figure 4, Exponential",
            title="Running time against p of exponential events (100,000 subscriptions, "
            f"{_SETTING})",
            x=Axis("p"),
            points=vary(_EXPONENTIAL, (0.01, 0.02, 0.05, 0.1, 0.2), "chance"),
            claims=(
                Claim(
                    "6.2",
                    "RAPIDMatch gets slower with p",
                    Along(q.SINGLE, "RAPIDMatch", "rises"),
                ),
                Claim(
                    "6.2",
                    "TreeMatch does not depend on p",
                    Along(q.SINGLE, "TreeMatch", "stays"),
                    _ONES,
                ),
                *_NEVER_WORSE,
            ),
            notes="The paper's values of p are not in its text.",
        ),
        _per_match("rapidmatch-per-match-zipf", "Figure 5", "Zipf events with α = 2", _ZIPF),
        _per_match(
            "rapidmatch-per-match-exponential",
            "Figure 6",
            "exponential events with p = 0.1",
            _EXPONENTIAL,
        ),
        _times(
            name="rapidmatch-most-ones",
            figure="Section 4, the light query model",
            title="Running time where no event has more than c ones, and trees are made for as "
            f"many (Zipf events with α = 2, 100,000 subscriptions, {_SETTING})",
            x=Axis("c"),
            series=(_TREE, _RAPID),
            points=tuple(
                Point(
                    x=most,
                    workload=replace(_ZIPF, most_ones=most),
                    parameters={"rapid": {"most_ones": most}},
                )
                for most in _SWEEP
            ),
            claims=(
                Claim(
                    "6.1",
                    "With trees for all events, TreeMatch's time in RAPIDMatch's",
                    Bound(times(q.SINGLE, "TreeMatch", "RAPIDMatch"), "at least", 8),
                    _OUR_TREE,
                ),
                *(
                    Claim(
                        "4.3",
                        f"With c = {most} the trees are at most c² times as large as one tree",
                        Bound(_memory(most), "at most", most**2),
                    )
                    for most in _SWEEP[1:]
                ),
            ),
            notes="The paper's model and its index have the same c, whose value is not in the "
            "text. Elsewhere on this page the model has c = 100, the number of properties, so that "
            "an event has about three ones as in the paper; the index has c = 6, and events with "
            "more ones are looked up in the tree of all.",
        ),
    ),
    claims=(
        Claim(
            "2.1, Propositions 3 and 4",
            "Matching is as hard as partial match; bounds for the worst case",
            NotMeasurable("proofs", "a bound for the worst case is not seen in means"),
        ),
        Claim(
            "3",
            "An example in which counting updates kN counters and a tree visits 2N nodes",
            NotMeasurable("kN, 2N", "our indexes do not count operations"),
        ),
        Claim(
            "6",
            "Running times of Figures 3 to 6",
            NotMeasurable("curves", "the text has no values, and they were another machine's"),
        ),
    ),
)
