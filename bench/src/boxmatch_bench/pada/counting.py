"""What was delivered, put to the exact matches: none may be missing, false ones are counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch_bench.broker.comparing import Truth
from boxmatch_bench.measure import MismatchError

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


class Deliveries(NamedTuple):
    """What came, a place for each note; `matches` of them say which subscriptions it was for."""

    time: Float64Array
    sequence: Int64Array
    rate: Float64Array
    value: Int64Array
    """The event's first value."""
    matches: Int64Array
    subscription: Int64Array
    """Of all notes, one after the other."""


class Counted(NamedTuple):
    """By event, in the order of sequence numbers."""

    true: Int64Array
    false: Int64Array
    rate: Float64Array
    """That the notes said; 0 where nobody got one."""
    place: Int64Array
    """For each note, which of the events it is."""

    @property
    def measured(self) -> float:
        """False matches for each true one."""
        return float(self.false.sum() / max(1, self.true.sum()))

    @property
    def promised(self) -> float:
        """The same, as the notes allowed for it."""
        return float((self.rate * self.true).sum() / max(1, self.true.sum()))


def count(truth: Truth, event: Int64Array, sequence: Int64Array, came: Deliveries) -> Counted:
    """Compare every delivery; `sequence` is ascending, `event` says which of the pool each was.

    Raises `MismatchError` if a match is missing, came twice, came with another event, or is false
    although the note says that it is exact.
    """
    place = np.searchsorted(sequence, came.sequence)
    known = place < len(sequence)
    known[known] = sequence[place[known]] == came.sequence[known]
    if not known.all():
        raise MismatchError(f"{int((~known).sum()):,} notes are of events that nobody published")
    if not np.array_equal(truth.value[event[place]], came.value):
        raise MismatchError("notes came with the wrong events")
    true, subscriptions = truth.matches(event)
    most = 1 + int(max(truth.subscription.max(initial=0), came.subscription.max(initial=0)))
    wanted = most * np.repeat(np.arange(len(event)), true) + subscriptions
    got = np.sort(most * np.repeat(place, came.matches) + came.subscription)
    twice = int((np.diff(got) == 0).sum())
    at = np.searchsorted(got, wanted)
    found = at < len(got)
    found[found] = got[at[found]] == wanted[found]
    if twice or not found.all():
        raise MismatchError(
            f"of {len(wanted):,} matches {int((~found).sum()):,} are missing, {twice:,} came twice"
        )
    false = np.bincount(got // most, minlength=len(event)) - true
    rate = np.zeros(len(event))
    rate[place] = came.rate
    if not np.array_equal(rate[place], came.rate):
        raise MismatchError("notes of one event tell different rates")
    lies = int(false[rate == 0].sum())
    if lies:
        raise MismatchError(f"{lies:,} matches are false that were said to be exact")
    return Counted(true, false, rate, place)


def by_second(
    due: Float64Array, values: Float64Array, seconds: int, *, empty: float | None = None
) -> list[float | None]:
    """Means of values in each second that they were due in."""
    second = np.minimum(due.astype(np.int64), seconds - 1)
    counts = np.bincount(second, minlength=seconds)
    sums = np.bincount(second, weights=values, minlength=seconds)
    return [float(s / c) if c else empty for s, c in zip(sums, counts, strict=True)]
