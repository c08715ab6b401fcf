"""The experiments of the RAPIDMatch paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from boxmatch.workloads import BooleanWorkload
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.experiment import (
    TILE,
    Axis,
    Claim,
    Experiment,
    Paper,
    Series,
    change,
    times,
    vary,
)

_ZIPF: Final = BooleanWorkload(subscriptions=100_000, alpha=2.0)
_EXPONENTIAL: Final = replace(_ZIPF, event_model="exponential", chance=0.1)
_SERIES: Final = (
    Series("CountMatch", "count"),
    Series("TreeMatch", "tree"),
    Series("RAPIDMatch", "rapid"),
    TILE,
)
_SETTING: Final = "100 properties, 0 and 1 with probabilities around 0.05"
_N: Final = Axis("Number of subscriptions", log=True, scaled=True)
_NUMBERS: Final = (10_000, 20_000, 50_000, 100_000, 200_000)

_times = partial(
    Experiment,
    paper="rapidmatch",
    series=_SERIES,
    events=500,
    y=(q.SINGLE, q.BATCH),
    tabled=(q.MATCHES, q.MEMORY),
)
_times_by_number = partial(
    _times,
    x=_N,
    notes="The paper's numbers of subscriptions are not in its text; its machine had 512 MB of "
    "memory.",
)
_per_match = partial(
    Experiment,
    paper="rapidmatch",
    series=_SERIES,
    events=500,
    x=Axis("Matched subscriptions", log=True),
    y=(q.TIME_PER_MATCH,),
    extras=frozenset({"profile"}),
    found="With more matches each of them takes less time. RAPIDMatch always takes less than "
    "TreeMatch, most of all where few match.",
    notes="Single events, put together by their number of matches, four bins to each doubling. At "
    "one number of subscriptions nearly all events have about as many matches, so those of 10,000 "
    "to 200,000 subscriptions are drawn in one plot.",
)


def _tree_over_rapid(published: float) -> tuple[Claim, ...]:
    text = "TreeMatch takes so many times as long as RAPIDMatch, on average"
    return (Claim(text, "6.1", published, times(q.SINGLE, "TreeMatch", "RAPIDMatch")),)


def _constant(text: str, start: float, end: float) -> tuple[Claim, ...]:
    return (Claim(text, "6.2, constant", 1, change(q.SINGLE, "TreeMatch", start, end)),)


PAPER: Final = Paper(
    "RAPIDMatch: event matching for events with few relevant properties",
    "Nothing.",
    (
        _times_by_number(
            name="rapidmatch-subscriptions-zipf",
            figure="Figure 3, Zipf",
            title=f"Running time against subscriptions, Zipf events with α = 2 ({_SETTING})",
            points=vary(_ZIPF, _NUMBERS, "subscriptions"),
            claims=_tree_over_rapid(8),
            found="RAPIDMatch is more than 8 times faster than TreeMatch, whatever the number of "
            "subscriptions. CountMatch is slower than TreeMatch in all experiments.",
        ),
        _times_by_number(
            name="rapidmatch-subscriptions-exponential",
            figure="Figure 3, Exponential",
            title="Running time against subscriptions, exponential events with p = 0.1 "
            f"({_SETTING})",
            points=vary(_EXPONENTIAL, _NUMBERS, "subscriptions"),
            claims=_tree_over_rapid(1.2),
            found="RAPIDMatch is 1.2 times faster than TreeMatch: events have 10 ones on average "
            "instead of 3.",
        ),
        _times(
            name="rapidmatch-alpha",
            figure="Figure 4, Zipf",
            title=f"Running time against α of Zipf events (100,000 subscriptions, {_SETTING})",
            x=Axis("α"),
            points=vary(_ZIPF, (1.25, 1.5, 2.0, 2.5, 3.0, 4.0), "alpha"),
            claims=_constant(
                "TreeMatch at α = 4 takes so many times what it takes at α = 1.25", 1.25, 4.0
            ),
            found="With a larger α events have fewer ones and RAPIDMatch gets faster, up to about "
            "α = 3; TreeMatch stays the same.",
            notes="The paper's values of α are not in its text.",
        ),
        _times(
            name="rapidmatch-p",
            figure="Figure 4, Exponential",
            title="Running time against p of exponential events (100,000 subscriptions, "
            f"{_SETTING})",
            x=Axis("p"),
            points=vary(_EXPONENTIAL, (0.01, 0.02, 0.05, 0.1, 0.2), "chance"),
            claims=_constant(
                "TreeMatch at p = 0.01 takes so many times what it takes at p = 0.2", 0.2, 0.01
            ),
            found="With a smaller p events have fewer ones and RAPIDMatch gets faster; TreeMatch "
            "stays the same.",
            notes="The paper's values of p are not in its text.",
        ),
        _per_match(
            name="rapidmatch-per-match-zipf",
            figure="Figure 5",
            title=f"Running time per match, Zipf events with α = 2 ({_SETTING})",
            points=vary(_ZIPF, _NUMBERS, "subscriptions"),
        ),
        _per_match(
            name="rapidmatch-per-match-exponential",
            figure="Figure 6",
            title=f"Running time per match, exponential events with p = 0.1 ({_SETTING})",
            points=vary(_EXPONENTIAL, _NUMBERS, "subscriptions"),
        ),
    ),
)
