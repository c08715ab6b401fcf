"""Transitions as columns, which can also be read one by one, and the log of them in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.engine.ids import IdArray
from boxmatch.model.ids import SubscriptionId

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["enter", "leave", "deleted"]
KINDS: Final[tuple[Kind, ...]] = ("enter", "leave", "deleted")
ENTER, LEAVE, DELETED = range(3)


class Transition(NamedTuple):
    """A subscription is notified that a publication matches it, or no longer does."""

    sequence: int
    kind: Kind
    publication: SubscriptionId
    subscription: SubscriptionId


@dataclass(slots=True, eq=False, repr=False)
class Transitions:
    """Transitions in the order of their sequence numbers.

    `sequence`, `publication` and `subscription` are parallel arrays; so is `code`, whose numbers
    stand for the names in `KINDS`.
    """

    first: int
    code: npt.NDArray[np.uint8]
    publication: IdArray
    subscription: IdArray

    @property
    def sequence(self) -> Int64Array:
        """Numbers without gaps, over all operations."""
        return np.arange(self.first, self.first + len(self))

    @property
    def kind(self) -> list[Kind]:
        """The kinds by name."""
        return [KINDS[code] for code in self.code.tolist()]

    def __len__(self) -> int:
        return len(self.code)

    def __bool__(self) -> bool:
        return len(self.code) > 0

    def __iter__(self) -> Iterator[Transition]:
        columns = (
            self.sequence.tolist(),
            self.kind,
            self.publication.tolist(),
            self.subscription.tolist(),
        )
        return map(Transition, *columns)

    def __repr__(self) -> str:
        counts = np.bincount(self.code, minlength=len(KINDS)).tolist()
        counted = ", ".join(
            f"{count:,} {kind}" for kind, count in zip(KINDS, counts, strict=True) if count
        )
        return f"<Transitions: {counted or 'none'}>"

    def cut(self, start: int, stop: int | None = None) -> Transitions:
        """Those from one place up to another."""
        if start == 0 and (stop is None or stop == len(self)):
            return self
        part = slice(start, stop)
        return Transitions(
            self.first + start, self.code[part], self.publication[part], self.subscription[part]
        )

    def to_arrow(self) -> pa.Table:
        """Columns `sequence`, `kind`, `publication` and `subscription`."""
        import pyarrow as pa

        def column(ids: IdArray) -> pa.Array[Any]:
            return pa.array(ids, pa.int64() if ids.dtype == np.int64 else pa.string())

        return pa.table(
            {
                "sequence": self.sequence,
                "kind": pa.array(self.kind, pa.string()),
                "publication": column(self.publication),
                "subscription": column(self.subscription),
            }
        )


def join(batches: Sequence[Transitions]) -> Transitions:
    """Transitions of several steps of one operation, one after the other."""
    if len(batches) == 1:
        return batches[0]
    some = [batch for batch in batches if batch] or batches[:1]
    return Transitions(
        some[0].first,
        np.concatenate([batch.code for batch in some]),
        np.concatenate([batch.publication for batch in some]),
        np.concatenate([batch.subscription for batch in some]),
    )


class RecentTransitions:
    """The last transitions, in memory. Its verbs are those of a `Journal`, without waiting."""

    def __init__(self, most: int) -> None:
        self.first_sequence = 1
        """The number of the oldest one."""
        self._most = most
        self._count = 0
        self._batches: deque[Transitions] = deque()

    def add(self, notified: Transitions) -> None:
        """Remember these; forget whole operations, the oldest first, while there are too many."""
        if not notified:
            return
        self._batches.append(notified)
        self._count += len(notified)
        while self._count > self._most and len(self._batches) > 1:
            gone = self._batches.popleft()
            self.first_sequence = gone.first + len(gone)
            self._count -= len(gone)

    def forget_transitions(self, before: int) -> None:
        """Forget those under numbers before this one."""
        upcoming = self._batches[-1].first + len(self._batches[-1]) if self._batches else 1
        self.first_sequence = max(self.first_sequence, min(before, upcoming))
        self._batches = deque(self.transitions(self.first_sequence))
        self._count = sum(map(len, self._batches))

    def transitions(self, since: int) -> Iterator[Transitions]:
        """Those under numbers from `since` on, as they are now."""
        cut = [batch.cut(max(since - batch.first, 0)) for batch in self._batches]
        return filter(None, cut)

    def check(self) -> None:
        """Nothing can fail."""

    def close(self) -> None:
        """Nothing is open."""


def of_rows(
    first: int, publications: IdArray, subscriptions: IdArray, counts: Int64Array
) -> Transitions:
    """Publication by publication the subscriptions that it enters, then those that it leaves.

    How many these are is in `counts`, n × 2.
    """
    kinds = np.tile(np.array([ENTER, LEAVE], np.uint8), len(counts))
    code = np.repeat(kinds, counts.reshape(-1))
    repeated: IdArray = publications.repeat(counts.sum(axis=1))
    return Transitions(first, code, repeated, subscriptions)


def repeat_id(member_id: SubscriptionId, count: int) -> IdArray:
    """The same id so many times."""
    if isinstance(member_id, str):
        return np.full(count, member_id, object)
    # One number in memory, however many times it stands there.
    return np.ndarray(count, np.int64, np.array([member_id]), strides=(0,))
