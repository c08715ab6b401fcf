"""What skipping predicates gains in the engine alone, by rate, and what larger batches do."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np

from boxmatch.engine.matcher import Matcher
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.settings import Bed

RATED: Final = ("rein", "hem", "tile")
_RATES: Final = (0.0, 0.0001, 0.001, 0.01, 0.05)
_BATCHES: Final = (1, 16, 256)
_EVENTS: Final = 256
_REPEATS: Final = 3


def measure_rates(bed: Bed, index: str) -> dict[str, Any]:
    """Microseconds of an event by rate and batch, and the false matches that come with a true one.

    The best of some rounds, in which rates and batches take turns.
    """
    workload = bed.workload
    matcher = Matcher(workload.schema, index=index)
    matcher.subscribe_boxes(np.arange(workload.subscriptions), *workload.bounds())
    matcher.compact()
    events = workload.events(0, _EVENTS)
    exact = matcher.match_batch(events, threads=1)
    pairs = _pairs(exact)
    cases = [(rate, batch) for rate in _RATES for batch in _BATCHES]
    best = dict.fromkeys(cases, float("inf"))
    false = {}
    for _ in range(_REPEATS):
        for rate, batch in cases:
            began = perf_counter()
            for first in range(0, _EVENTS, batch):
                matcher.match_batch(
                    events[first : first + batch], threads=1, max_false_positive_rate=rate
                )
            best[rate, batch] = min(best[rate, batch], (perf_counter() - began) / _EVENTS)
    for rate in _RATES:
        found = _pairs(matcher.match_batch(events, threads=1, max_false_positive_rate=rate))
        if not np.isin(pairs, found).all():
            raise MismatchError(f"{index}: at a rate of {rate:g} a match is missing")
        false[rate] = len(found) / max(1, len(pairs)) - 1
    return {
        "events": _EVENTS,
        "matches": len(pairs) / _EVENTS,
        "rates": [
            {"rate": rate, "batch": batch, "us": 1e6 * seconds, "false": false[rate]}
            for (rate, batch), seconds in best.items()
        ],
    }


def _pairs(result: Any) -> Any:
    return result.event * (1 << 32) + result.subscription
