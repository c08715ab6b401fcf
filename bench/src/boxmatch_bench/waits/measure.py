"""How long calls hold the GIL, over a few rounds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

from boxmatch_bench.options import WaitOptions
from boxmatch_bench.timing import Figures, Stage
from boxmatch_bench.waits.cases import Call, Supplies
from boxmatch_bench.waits.watcher import Hold, Watched, watch


def measure_holds(
    name: str,
    prepare: Callable[[Supplies], Call],
    supplies: Supplies,
    options: WaitOptions,
    stage: Stage = lambda _: None,
) -> Figures:
    """Watch one call a few times, after a first one, which compiles kernels and fills caches."""
    rounds = []
    for number in range(options.rounds + 1):
        stage(f"round {number} of {options.rounds}" if number else "first call")
        watched = _watch(prepare(supplies))
        if number:
            rounds.append(watched)
    longest = [one.holds[0] if one.holds else Hold(0.0, "") for one in rounds]
    # Other processes can only make a hold longer.
    least = min(longest)
    return {
        "call": name,
        "options": asdict(options),
        "hold_ms": least.milliseconds,
        "place": least.place,
        "holds_ms": [hold.milliseconds for hold in longest],
        "longest": [one.holds for one in rounds],
        "collections_ms": [one.collections for one in rounds],
        "seconds": median(one.seconds for one in rounds),
    }


def _watch(call: Call) -> Watched:
    gc.collect()
    _, watched = watch(call)  # the result goes after the watcher has
    return watched
