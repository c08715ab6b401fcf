"""Who works on which notifications of a subscriber that shares them, and until when.

A notification that is handed out is leased until a deadline. If it is acknowledged by then, it is
done; if it is rejected, or the deadline passes, or its holder leaves, it waits to be handed out
again, and after so many times it is exhausted. What is not done is remembered, and nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from boxmatch.broker.store.progress import Progress
from boxmatch.wire.requests import Sharing

_FEW = 64


@dataclass(eq=False, slots=True)
class Lease:
    """A notification that is not done, though it was handed out; without a holder it waits."""

    deliveries: int
    """How many times it was handed out."""
    holder: Hashable | None = None
    until: float = 0.0
    """The deadline; of what waits, the time from which on it may be handed out."""
    reason: str = ""
    """Why it was not done the last time."""
    letter: int | None = None
    """The dead letter that it came from."""


class Exhausted(NamedTuple):
    """A notification that was handed out as often as it may be."""

    sequence: int
    deliveries: int
    reason: str


class LeaseBook:
    """Of one subscriber. Times are those of one clock, which the caller reads."""

    def __init__(self, progress: Progress, settings: Sharing) -> None:
        self.position = progress.position
        """All up to this number was handed out."""
        self.changes = 0
        """So many changes of `progress` there were."""
        self.in_flight = 0
        """How many are leased."""
        self._settings = settings
        self._leases = {
            sequence: Lease(deliveries, reason="the broker was stopped")
            for sequence, deliveries in progress.outstanding.items()
        }
        self._replayed: dict[int, Lease] = {}
        """Those that are dead letters; on disk they are done."""
        self._held: dict[Hashable, set[int]] = {}
        self._waiting: list[tuple[float, int]] = []
        """A heap; what is leased or done by now is left out when it comes up."""
        self._exhausted: dict[int, Lease] = {}
        self._wait_again(self._leases)

    @property
    def settings(self) -> Sharing:
        return self._settings

    @settings.setter
    def settings(self, settings: Sharing) -> None:
        self._settings = settings
        self._waiting = []
        self._exhausted = {}
        self._wait_again(self._without_holder())

    @property
    def progress(self) -> Progress:
        """What has to be on disk."""
        leases = self._leases.items()
        return Progress(self.position, {sequence: one.deliveries for sequence, one in leases})

    @property
    def cursor(self) -> int:
        """All up to this number is done."""
        return next(iter(self._leases), self.position + 1) - 1  # they are in order

    @property
    def outstanding(self) -> int:
        """How many are not done, though they were handed out."""
        return len(self._leases) + len(self._replayed)

    @property
    def room(self) -> int:
        """How many may be outstanding beside those that are."""
        return max(self._settings.max_in_flight - self.outstanding, 0)

    @property
    def exhausted(self) -> list[Exhausted]:
        """Those that are to become dead letters, or are acknowledged before that."""
        return [Exhausted(n, one.deliveries, one.reason) for n, one in self._exhausted.items()]

    def held_by(self, holder: Hashable) -> int:
        return len(self._held.get(holder, ()))

    def deliveries(self, sequence: int, holder: Hashable) -> int | None:
        """How many times it was handed out; None if the holder does not have it (any more)."""
        lease = self._find(sequence)
        return None if lease is None or lease.holder != holder else lease.deliveries

    def letter(self, sequence: int) -> int | None:
        """The dead letter that it came from."""
        lease = self._find(sequence)
        return None if lease is None else lease.letter

    def hand_out(self, sequences: Sequence[int], holder: Hashable, until: float) -> None:
        """Lease notifications that come for the first time, in order."""
        for sequence in sequences:
            lease = self._leases[sequence] = Lease(0)
            self._lease(sequence, lease, holder, until)
            self.position = sequence

    def hand_out_again(
        self, holder: Hashable, now: float, until: float, most: int
    ) -> Sequence[int]:
        """Lease notifications that have waited long enough."""
        taken: list[int] = []
        while self._waiting and self._waiting[0][0] <= now and len(taken) < most:
            since, sequence = heapq.heappop(self._waiting)
            lease = self._find(sequence)
            if lease is not None and lease.holder is None and lease.until == since:
                self._lease(sequence, lease, holder, until)
                taken.append(sequence)
        return taken

    def is_ready(self, now: float) -> bool:
        """Whether something may have waited long enough."""
        return bool(self._waiting) and self._waiting[0][0] <= now

    def take_back(self, sequences: Iterable[int], holder: Hashable | None = None) -> int:
        """Those that are leased, or that `holder` has, were no delivery: they did not go out, or
        nobody began with them. How many those are.
        """
        found = self._leased(sequences, holder)
        for sequence in found:
            lease = self._drop_lease(sequence)
            lease.deliveries -= 1
            self._wait(sequence, lease, 0.0)
        self.changes += 1
        return len(found)

    def acknowledge(self, sequences: Iterable[int]) -> tuple[int, list[int]]:
        """They are done, whoever has them now. How many of them were not before, and the dead
        letters that are done by this.
        """
        letters: list[int] = []
        count = 0
        for sequence in sequences:
            if self._find(sequence) is not None:
                lease = self.forget(sequence)
                count += 1
                if lease.letter is not None:
                    letters.append(lease.letter)
        return count, letters

    def forget(self, sequence: int) -> Lease:
        """One that is done, is a dead letter now, or is not kept any more."""
        lease = self._drop_lease(sequence)
        (self._leases if lease.letter is None else self._replayed).pop(sequence)
        self._exhausted.pop(sequence, None)
        self.changes += 1
        return lease

    def reject(
        self,
        sequences: Iterable[int],
        ready: float,
        reason: str,
        holder: Hashable | None = None,
    ) -> int:
        """They are not done and wait again, until `ready` at least: those that are leased, or that
        `holder` has. How many those are.
        """
        found = self._leased(sequences, holder)
        for sequence in found:
            self._give_up(sequence, ready, reason)
        return len(found)

    def extend(self, sequences: Iterable[int], until: float, holder: Hashable | None = None) -> int:
        """Set another deadline for those that are leased, or that `holder` has. How many those
        are.
        """
        found = self._leased(sequences, holder)
        for sequence in found:
            self._get(sequence).until = until
        return len(found)

    def release(self, holder: Hashable) -> None:
        """A holder has left: others get what it had."""
        for sequence in sorted(self._held.get(holder, ())):
            self._give_up(sequence, 0.0, "the connection was closed")

    def expire(self, now: float) -> int:
        """End leases whose deadline has passed. How many those were."""
        held = [sequence for sequences in self._held.values() for sequence in sequences]
        late = sorted(sequence for sequence in held if self._get(sequence).until <= now)
        for sequence in late:
            self._give_up(sequence, 0.0, "not acknowledged in time")
        return len(late)

    def replay(self, sequence: int, letter: int) -> bool:
        """Hand a dead letter out again, as if it was for the first time. False if it is, or will
        be, handed out anyway.
        """
        if sequence > self.position or self._find(sequence) is not None:
            return False
        lease = self._replayed[sequence] = Lease(0, letter=letter)
        self._wait(sequence, lease, 0.0)
        return True

    def discard(self, letters: Iterable[int] | None) -> None:
        """Hand dead letters, or all of them, out no more."""
        gone = None if letters is None else frozenset(letters)
        for sequence, lease in list(self._replayed.items()):
            if gone is None or lease.letter in gone:
                self.forget(sequence)

    def _find(self, sequence: int) -> Lease | None:
        return self._leases.get(sequence) or self._replayed.get(sequence)

    def _get(self, sequence: int) -> Lease:
        return self._leases.get(sequence) or self._replayed[sequence]

    def _leased(self, sequences: Iterable[int], holder: Hashable | None) -> list[int]:
        found = []
        for sequence in dict.fromkeys(sequences):
            lease = self._find(sequence)
            if lease is not None and lease.holder is not None and holder in (None, lease.holder):
                found.append(sequence)
        return found

    def _lease(self, sequence: int, lease: Lease, holder: Hashable, until: float) -> None:
        lease.deliveries += 1
        lease.holder, lease.until = holder, until
        self._held.setdefault(holder, set()).add(sequence)
        self.in_flight += 1
        self.changes += 1

    def _drop_lease(self, sequence: int) -> Lease:
        lease = self._get(sequence)
        if lease.holder is not None:
            held = self._held[lease.holder]
            held.discard(sequence)
            if not held:
                del self._held[lease.holder]
            lease.holder = None
            self.in_flight -= 1
        return lease

    def _give_up(self, sequence: int, ready: float, reason: str) -> None:
        lease = self._drop_lease(sequence)
        lease.reason = reason
        self._wait(sequence, lease, ready)

    def _wait(self, sequence: int, lease: Lease, ready: float) -> None:
        lease.until = ready
        self._wait_again([sequence])

    def _wait_again(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            lease = self._get(sequence)
            if lease.deliveries < self._settings.max_deliveries:
                heapq.heappush(self._waiting, (lease.until, sequence))
            else:
                self._exhausted[sequence] = lease
        if len(self._waiting) > 2 * self.outstanding + _FEW:  # most of it is done by now
            waiting = [n for n in self._without_holder() if n not in self._exhausted]
            self._waiting = sorted((self._get(sequence).until, sequence) for sequence in waiting)

    def _without_holder(self) -> list[int]:
        both = chain(self._leases.items(), self._replayed.items())
        return [sequence for sequence, lease in both if lease.holder is None]
