"""What skipping predicates costs in false matches and brings in time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from boxmatch.adaptive.cost import CostModel, fit, matching_work
from boxmatch.adaptive.skipping import choose_skipped
from boxmatch.arrays import BoolArray
from boxmatch.indexes.papers.rein import ReinIndex
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce.experiment import Series
from boxmatch_bench.reproduce.setting import Setting
from boxmatch_bench.reproduce.subject import Subject
from boxmatch_bench.timing import best_time

_TRIALS: Final = (
    # Share of the boxes, attributes, predicates, buckets: each makes another step weigh.
    (0.2, 20, 10, 1_000),
    (0.2, 20, 4, 100),
    (0.05, 1_000, 4, 500),
    (0.005, 1_000, 2, 1_000),
    (1.0, 20, 1, 50),
    (0.2, 100, 8, 2_000),
)
_TRIAL_EVENTS: Final = 50
_TRIAL_SECONDS: Final = 0.2


@lru_cache(maxsize=2)
def calibrated(boxes: int) -> CostModel:
    """The time model of REIN on this machine, for about so many boxes."""
    work, seconds = [], []
    for share, attributes, predicates, buckets in _TRIALS:
        workload = RangeWorkload(
            subscriptions=max(1_000, round(share * boxes)),
            attributes=attributes,
            predicates=predicates,
            event_size=attributes,
            width=0.5,
        )
        trial = Setting(workload, _TRIAL_EVENTS)
        index = ReinIndex(attributes, cells=buckets)
        index.build(trial.boxes)
        timing = best_time(
            lambda n, i=index, t=trial: i.match(t.points[:n]),  # type: ignore[misc]  # by defaults
            _TRIAL_EVENTS,
            _TRIAL_SECONDS,
        )
        work.append(matching_work(trial.frequency, trial.boxes.count, buckets))
        seconds.append(timing.microseconds / 1e6)
    return fit(np.stack(work), np.array(seconds))


def skipped_attributes(series: Series, setting: Setting) -> BoolArray | None:
    """The attributes that a series skips by argument; None if it leaves none out that way."""
    if series.skipping is None:
        return None
    return choose_skipped(
        setting.frequency, setting.boxes.count, setting.selectivity, series.skipping
    )


def skipped_by(subject: Subject) -> BoolArray:
    """The attributes that a subject skips, by argument or by its own rate."""
    if subject.skipped is not None:
        return subject.skipped
    # What it would use itself, and has no other way to tell.
    marks: BoolArray = subject.index._marks(None)
    return marks if len(marks) else np.zeros(subject.index.dimensions, bool)


def skipping_figures(subject: Subject, setting: Setting, *, count: bool) -> dict[str, Any]:
    """What is skipped; with `count` also what that leads to, over all events.

    The measured rate is all false matches divided by all true ones. The expected improvement is
    REIN's, by the calibrated time model.
    """
    skipped = skipped_by(subject)
    figures: dict[str, Any] = {
        "rate": subject.rate,
        "attributes": int(skipped.sum()),
        "predicates": int(setting.frequency[skipped].sum()),
    }
    if not count:
        return figures
    true, found = int(setting.counts.sum()), int(subject.count(setting.points).sum())
    figures |= {"true": true, "false": found - true, "events": len(setting.points)}
    figures["measured"] = (found - true) / true if true else None
    buckets = subject.index.chosen["cells"]
    if subject.skipped is None:  # only of REIN is there a time model
        model = calibrated(setting.boxes.count)
        figures["improvement"] = model.improvement(
            setting.frequency, setting.boxes.count, buckets, skipped
        )
        figures["model"] = vars(model)
    return figures
