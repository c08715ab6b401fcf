"""What should have been delivered, and whether it was: no match missing, false ones counted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from boxmatch.arrays import Float64Array, Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting


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


def find_truth(setting: BrokerSetting, options: BrokerOptions) -> Truth:
    """Match the pool with a matcher in this process."""
    workload = setting.workload
    matcher = Matcher(workload.schema)
    ids = np.arange(workload.subscriptions, dtype=np.int64)
    matcher._subscribe_compressed(ids, workload.boxes())
    events = workload.events(0, options.pool)
    found = matcher.match_batch(events)
    order = np.lexsort((found.subscription, found.event))
    start = np.concatenate([[0], np.cumsum(found.counts)]).astype(np.int64)
    subscription = found.subscription[order].astype(np.int64)
    return Truth(start, subscription, events[:, 0].astype(np.int64))


class Deliveries(NamedTuple):
    """What came, a place for each notification; `matches` of them say which subscriptions it was
    for.
    """

    time: Float64Array
    sequence: Int64Array
    rate: Float64Array
    value: Int64Array
    """The event's first value."""
    matches: Int64Array
    subscription: Int64Array
    """Of all notifications, one after the other."""


class Counted(NamedTuple):
    """By event, in the order of sequence numbers."""

    true: Int64Array
    false: Int64Array
    rate: Float64Array
    """The rate in its notifications; 0 where there are none."""
    place: Int64Array
    """For each notification, which of the events it is."""

    @property
    def measured(self) -> float:
        """False matches for each true one."""
        return float(self.false.sum() / max(1, self.true.sum()))

    @property
    def promised(self) -> float:
        """The rate that the notifications allow."""
        return float((self.rate * self.true).sum() / max(1, self.true.sum()))


class Compared(NamedTuple):
    """Deliveries compared with what was published."""

    counted: Counted
    due: Float64Array
    """When each event was due, in the order of sequence numbers."""
    delays: Float64Array
    """From when its event was due until each notification came."""
    matches: Int64Array
    """Matches in each notification."""


def compare(truth: Truth, result: dict[str, Any], batch: int) -> Compared:
    """Compare every delivery with the exact matches of acknowledged events; see `count`."""
    if result["disordered"]:
        raise MismatchError(f"{result['disordered']:,} notifications came out of order")
    first = result["published"]["first"]
    accepted = np.flatnonzero(first)
    accepted = accepted[np.argsort(first[accepted])]
    if (np.diff(first[accepted]) < batch).any():
        raise MismatchError("two requests were given the same sequence numbers")
    within = np.arange(batch)
    event = (accepted[:, None] * batch + within).reshape(-1) % len(truth.value)
    sequence = (first[accepted][:, None] + within).reshape(-1)
    came = Deliveries(**result["received"])
    counted = count(truth, event, sequence, came)
    due = np.repeat(result["published"]["due"][accepted], batch)
    return Compared(counted, due, came.time - due[counted.place], came.matches)


def count(truth: Truth, event: Int64Array, sequence: Int64Array, came: Deliveries) -> Counted:
    """Compare every delivery; `sequence` is ascending, `event` says which of the pool each was.

    Raises `MismatchError` if a match is missing, came twice, came with another event, or is false
    although the notification says that it is exact.
    """
    place = np.searchsorted(sequence, came.sequence)
    known = place < len(sequence)
    known[known] = sequence[place[known]] == came.sequence[known]
    if not known.all():
        raise MismatchError(
            f"{int((~known).sum()):,} notifications are of events that nobody published"
        )
    if not np.array_equal(truth.value[event[place]], came.value):
        raise MismatchError("notifications came with the wrong events")
    true, subscriptions = truth.matches(event)
    most = 1 + int(max(truth.subscription.max(initial=0), came.subscription.max(initial=0)))
    wanted = most * np.repeat(np.arange(len(event)), true) + subscriptions
    got = np.sort(most * np.repeat(place, came.matches) + came.subscription)
    twice = int((np.diff(got) == 0).sum())
    at = np.searchsorted(got, wanted)
    found = at < len(got)
    found[found] = got[at[found]] == wanted[found]
    if twice or not found.all():
        missing = wanted[~found]
        some = [(int(sequence[one // most]), int(one % most)) for one in missing[:3]]
        raise MismatchError(
            f"of {len(wanted):,} matches {len(missing):,} are missing, {twice:,} came twice "
            f"(sequence and subscription of missing ones: {some})"
        )
    false = np.bincount(got // most, minlength=len(event)) - true
    rate = np.zeros(len(event))
    rate[place] = came.rate
    if not np.array_equal(rate[place], came.rate):
        raise MismatchError("notifications of one event tell different rates")
    lies = int(false[rate == 0].sum())
    if lies:
        raise MismatchError(f"{lies:,} matches are false that were said to be exact")
    return Counted(true, false, rate, place)
