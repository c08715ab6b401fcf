"""The experiments of the RAPIDMatch paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from boxmatch.workloads import BooleanWorkload
from boxmatch_bench.reproduce.experiment import Axis, Claim, Experiment, Point
from boxmatch_bench.reproduce.grid import change, ratio
from boxmatch_bench.reproduce.quantities import BATCH, MATCHES, MEMORY, SINGLE, TIME_PER_MATCH
from boxmatch_bench.reproduce.series import COUNT, RAPID, TILE, TREE

_LIGHT: Final = BooleanWorkload(subscriptions=100_000, alpha=2.0)
_EXPONENTIAL: Final = replace(_LIGHT, event_model="exponential", chance=0.1)
_SHARED: Final[dict[str, Any]] = {
    "paper": "rapidmatch",
    "series": (COUNT, TREE, RAPID, TILE),
    "events": 500,
}
_TIMES: Final[dict[str, Any]] = {**_SHARED, "y": (SINGLE, BATCH), "tabled": (MATCHES, MEMORY)}
_SETTING: Final = "100 properties, 0 and 1 with probabilities around 0.05"
_SIZE_NOTE: Final = (
    "The paper's numbers of subscriptions are not in its text; its machine had 512 MB of memory."
)
_N: Final = Axis("Number of subscriptions", log=True, scaled=True)
_NUMBERS: Final = (10_000, 20_000, 50_000, 100_000, 200_000)


def _numbers(workload: BooleanWorkload) -> tuple[Point, ...]:
    return tuple(Point(x=n, workload=replace(workload, subscriptions=n)) for n in _NUMBERS)


def _tree_over_rapid(published: float) -> tuple[Claim, ...]:
    return (
        Claim(
            "TreeMatch takes so many times as long as RAPIDMatch, on average",
            "6.1",
            published,
            "×",
            ratio(SINGLE, "TreeMatch", "RAPIDMatch"),
        ),
    )


_LIGHT_NUMBER: Final = Experiment(
    **_TIMES,
    name="rapidmatch-subscriptions-zipf",
    figure="Figure 3, Zipf",
    title=f"Running time against subscriptions, Zipf events with α = 2 ({_SETTING})",
    x=_N,
    points=_numbers(_LIGHT),
    claims=_tree_over_rapid(8),
    found="RAPIDMatch is more than 8 times faster than TreeMatch, whatever the number of "
    "subscriptions. CountMatch is slower than TreeMatch in all experiments.",
    notes=_SIZE_NOTE,
)

_EXPONENTIAL_NUMBER: Final = Experiment(
    **_TIMES,
    name="rapidmatch-subscriptions-exponential",
    figure="Figure 3, Exponential",
    title=f"Running time against subscriptions, exponential events with p = 0.1 ({_SETTING})",
    x=_N,
    points=_numbers(_EXPONENTIAL),
    claims=_tree_over_rapid(1.2),
    found="RAPIDMatch is 1.2 times faster than TreeMatch: events have 10 ones on average instead "
    "of 3.",
    notes=_SIZE_NOTE,
)

_BY_ALPHA: Final = Experiment(
    **_TIMES,
    name="rapidmatch-alpha",
    figure="Figure 4, Zipf",
    title=f"Running time against α of Zipf events (100,000 subscriptions, {_SETTING})",
    x=Axis("α"),
    points=tuple(
        Point(x=alpha, workload=replace(_LIGHT, alpha=alpha))
        for alpha in (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
    ),
    claims=(
        Claim(
            "TreeMatch at α = 4 takes so many times what it takes at α = 1.25",
            "6.2, constant",
            1,
            "×",
            change(SINGLE, "TreeMatch", 1.25, 4.0),
        ),
    ),
    found="With a larger α events have fewer ones and RAPIDMatch gets faster, up to about α = 3; "
    "TreeMatch stays the same.",
    notes="The paper's values of α are not in its text.",
)

_BY_CHANCE: Final = Experiment(
    **_TIMES,
    name="rapidmatch-p",
    figure="Figure 4, Exponential",
    title=f"Running time against p of exponential events (100,000 subscriptions, {_SETTING})",
    x=Axis("p"),
    points=tuple(
        Point(x=chance, workload=replace(_EXPONENTIAL, chance=chance))
        for chance in (0.01, 0.02, 0.05, 0.1, 0.2)
    ),
    claims=(
        Claim(
            "TreeMatch at p = 0.01 takes so many times what it takes at p = 0.2",
            "6.2, constant",
            1,
            "×",
            change(SINGLE, "TreeMatch", 0.2, 0.01),
        ),
    ),
    found="With a smaller p events have fewer ones and RAPIDMatch gets faster; TreeMatch stays the "
    "same.",
    notes="The paper's values of p are not in its text.",
)

_PER_MATCH: Final[dict[str, Any]] = {
    **_SHARED,
    "x": Axis("Matched subscriptions", log=True),
    "y": (TIME_PER_MATCH,),
    "extras": frozenset({"profile"}),
    "found": "With more matches each of them takes less time. RAPIDMatch always takes less than "
    "TreeMatch, most of all where few match.",
    "notes": "Single events, put together by their number of matches, four bins to each doubling. "
    "At one number of subscriptions nearly all events have about as many matches, so those of "
    "10,000 to 200,000 subscriptions are drawn in one plot.",
}

_LIGHT_PER_MATCH: Final = Experiment(
    **_PER_MATCH,
    name="rapidmatch-per-match-zipf",
    figure="Figure 5",
    title=f"Running time per match, Zipf events with α = 2 ({_SETTING})",
    points=_numbers(_LIGHT),
)

_EXPONENTIAL_PER_MATCH: Final = Experiment(
    **_PER_MATCH,
    name="rapidmatch-per-match-exponential",
    figure="Figure 6",
    title=f"Running time per match, exponential events with p = 0.1 ({_SETTING})",
    points=_numbers(_EXPONENTIAL),
)

EXPERIMENTS: Final = (
    _LIGHT_NUMBER,
    _EXPONENTIAL_NUMBER,
    _BY_ALPHA,
    _BY_CHANCE,
    _LIGHT_PER_MATCH,
    _EXPONENTIAL_PER_MATCH,
)
