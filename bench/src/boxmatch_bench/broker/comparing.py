"""What should have been delivered, and whether it was: each match once, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.engine.matcher import Matcher
from boxmatch_bench.broker.settings import Options, Setting
from boxmatch_bench.measure import MismatchError

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
Found = dict[str, Any]


class Truth(NamedTuple):
    """Matches of the pool's events, found by the engine alone, and the events' first values."""

    start: Int64Array
    """Where each event's matches begin; one more than there are events."""
    subscription: Int64Array
    value: Int64Array

    def matches(self, event: Int64Array) -> tuple[Int64Array, Int64Array]:
        """How many matches each of these events has, and the subscriptions, event by event."""
        counts = self.start[event + 1] - self.start[event]
        ends = np.cumsum(counts)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
        return counts, self.subscription[np.repeat(self.start[event], counts) + within]


def truth_of(setting: Setting, options: Options) -> Truth:
    """Match the pool with a matcher in this process."""
    workload = setting.workload
    matcher = Matcher(workload.schema)
    ids = np.arange(workload.subscriptions, dtype=np.int64)
    matcher.subscribe_compressed(ids, workload.boxes())
    events = workload.events(0, options.pool)
    found = matcher.match_batch(events)
    order = np.lexsort((found.subscription, found.event))
    start = np.concatenate([[0], np.cumsum(found.counts)]).astype(np.int64)
    subscription = found.subscription[order].astype(np.int64)
    return Truth(start, subscription, events[:, 0].astype(np.int64))


class Compared(NamedTuple):
    """What was delivered, put to what was published."""

    events: int
    matches: int
    delays: Float64Array
    """From when an event was due to be published until each of its deliveries."""


def compare(truth: Truth, batch: int, result: Found) -> Compared:
    """Raises `MismatchError` unless every match of what was published arrived once, in order."""
    published, received = result["published"], result["received"]
    if result["disordered"]:
        raise MismatchError(f"{result['disordered']:,} notes came out of order")
    order = np.argsort(published["first"])
    first, due = published["first"][order], published["due"][order]
    if (np.diff(first) < batch).any():
        raise MismatchError("two requests were given the same sequence numbers")
    pool = len(truth.value)
    event = (order[:, None] * batch + np.arange(batch)).reshape(-1) % pool
    sequence = (first[:, None] + np.arange(batch)).reshape(-1)
    counts, subscriptions = truth.matches(event)
    sequences = np.repeat(sequence, counts)
    by_sequence = np.lexsort((received["subscription"], received["sequence"]))
    got = received["sequence"][by_sequence], received["subscription"][by_sequence]
    if not (np.array_equal(got[0], sequences) and np.array_equal(got[1], subscriptions)):
        raise MismatchError(_difference(got, (sequences, subscriptions)))
    place = np.searchsorted(sequence, received["sequence"])
    if not np.array_equal(truth.value[event[place]], received["value"]):
        raise MismatchError("notes came with the wrong events")
    delays = received["time"] - due[place // batch]
    return Compared(len(event), len(delays), delays)


def _difference(got: tuple[Int64Array, ...], wanted: tuple[Int64Array, ...]) -> str:
    ours, theirs = (set(zip(*map(np.ndarray.tolist, one), strict=True)) for one in (got, wanted))
    missing, extra = sorted(theirs - ours), sorted(ours - theirs)
    return (
        f"{len(got[0]):,} deliveries for {len(theirs):,} matches: {len(missing):,} missing, "
        f"{len(extra):,} too many, {len(got[0]) - len(ours):,} twice (sequence and subscription, "
        f"such as {missing[:3]} and {extra[:3]})"
    )
