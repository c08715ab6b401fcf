"""Who gets which events, as arrays: as matches are put together, stored and read.

Nothing here is done for each notification by itself: with five matches an event, that would be
most of what an event takes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import AnyArray, BoolArray, Int64Array

Inboxes = Mapping[int, Sequence[tuple[int, Sequence[str]]]]
"""By subscriber: events, ascending, and the ids of the subscriptions that matched."""

_WIDTHS = {width: np.dtype(f"<u{width}") for width in (1, 2, 4)} | {8: np.dtype("<i8")}
_ADDRESSEES = struct.Struct("<QBB")
_DETAILS = struct.Struct("<QQBB")
_HEAD = 8
"""Bytes of a packed notification without its ids, at most if no number is large."""
_RUN = 8
"""Notifications that follow one another are copied together if so many do."""


class Recipients(NamedTuple):
    """Notifications, by subscriber and then by event: a place in each array but `length`.

    Events are positions among some events, or sequence numbers.
    """

    subscriber: Int64Array
    event: Int64Array
    amount: Int64Array
    """How many of its subscriptions matched."""
    length: Int64Array
    """Bytes of the id of each of these subscriptions."""
    ids: bytes
    """One after the other."""

    @classmethod
    def of(cls, inboxes: Inboxes) -> Recipients:
        """The same of lists."""
        return cls.of_rows(
            [
                (subscriber, event, ids)
                for subscriber, box in sorted(inboxes.items())
                for event, ids in box
            ]
        )

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, Sequence[str]]]) -> Recipients:
        """The same of subscribers, events and ids, in this order. For few this is faster than to
        make arrays of arrays.
        """
        texts = [id.encode() for _, _, ids in rows for id in ids]
        numbers = [(subscriber, event, len(ids)) for subscriber, event, ids in rows]
        subscriber, event, amount = np.array(numbers, np.int64).reshape(-1, 3).T
        length = np.array(list(map(len, texts)), np.int64)
        return cls(subscriber, event, amount, length, b"".join(texts))

    @property
    def size(self) -> int:
        """How many notifications there are."""
        return len(self.subscriber)

    def take(self, places: Int64Array) -> Recipients:
        """Some of them, in this order."""
        return self._take(places, _bounds(self.amount), _bounds(self.length))

    def _take(self, places: Int64Array, matches: Int64Array, texts: Int64Array) -> Recipients:
        """The same, where matches of a notification and texts of a match begin and end."""
        amount = self.amount[places]
        length = self.length[_ranges(matches[places], amount)]
        low, high = texts[matches[places]], texts[matches[places + 1]]
        runs = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        if _RUN * len(runs) < len(places):  # neighbours are copied together
            ends = high[np.append(runs[1:], len(places)) - 1].tolist()
            ids = b"".join(map(self.ids.__getitem__, map(slice, low[runs].tolist(), ends)))
        else:
            ids = np.frombuffer(self.ids, np.uint8)[_ranges(low, high - low)].tobytes()
        return Recipients(self.subscriber[places], self.event[places], amount, length, ids)

    def only(self, chosen: BoolArray) -> Recipients:
        """Those that are chosen."""
        places = chosen.nonzero()[0]
        if not len(places):
            return NOBODY
        return self if len(places) == self.size else self.take(places)

    def of_subscriber(self, subscriber: int) -> slice:
        """Which are for a subscriber."""
        begin, end = np.searchsorted(self.subscriber, (subscriber, subscriber + 1)).tolist()
        return slice(begin, end)

    def select(self, positions: Sequence[int]) -> Recipients:
        """Those of some events, whose places in this list are their new positions."""
        wanted = np.array(positions, np.int64)
        size = 1 + max(wanted.max(initial=-1), self.event.max(initial=-1))
        place = np.full(size, -1)
        place[wanted] = np.arange(len(wanted))
        moved = self._replace(event=place[self.event])
        return moved.only(moved.event >= 0)

    def boxes(self) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
        """As lists, one subscriber after the other."""
        if not self.size:
            return
        ends = accumulate(self.length.tolist(), initial=0)
        ids = [self.ids[low:high].decode() for low, high in pairwise(ends)]
        last, box, place = 0, list[tuple[int, list[str]]](), 0
        for subscriber, event, amount in zip(
            self.subscriber.tolist(), self.event.tolist(), self.amount.tolist(), strict=True
        ):
            if subscriber != last and box:
                yield last, box
                box = []
            box.append((event, ids[place : place + amount]))
            last, place = subscriber, place + amount
        if box:
            yield last, box

    def pieces(self, most: int) -> Iterator[Recipients]:
        """Cut between events, so that no piece takes many more bytes than `most` when packed."""
        if _HEAD * self.size + len(self.length) + len(self.ids) <= most:
            if self.size:
                yield self
            return
        matches, texts = _bounds(self.amount), _bounds(self.length)
        nbytes = _HEAD + self.amount + np.diff(texts[matches])
        of_event = self.event - self.event.min()
        by_event = np.bincount(of_event, nbytes)
        piece = ((np.cumsum(by_event) - by_event) // most)[of_event]
        order = np.argsort(piece, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(piece[order])) + 1):
            yield self._take(places, matches, texts)


NOBODY = Recipients.of({})


class Addressees(NamedTuple):
    """The first half of a row, which says who waits for what; as narrow as it is stored."""

    first: int
    subscriber: AnyArray
    offset: AnyArray
    """Of the event, from the first one of the row."""

    @property
    def nbytes(self) -> int:
        return int(self.subscriber.nbytes + self.offset.nbytes)

    def of_subscriber(self, subscriber: int, after: int) -> slice:
        """Which are for a subscriber, of events after a number."""
        among = self.subscriber
        if not len(among) or subscriber > among[-1]:
            return slice(0, 0)
        wanted = among.dtype.type(subscriber)
        begin, end = int(among.searchsorted(wanted)), int(among.searchsorted(wanted, "right"))
        if after >= self.first:
            begin += int(np.searchsorted(self.offset[begin:end], after - self.first, "right"))
        return slice(begin, end)

    def is_after(self, numbers: Int64Array) -> BoolArray:
        """Which events come after the number that each subscriber, by its own, has there; none of
        subscribers that are not there.
        """
        known = len(self.subscriber)
        if known and self.subscriber[-1] >= len(numbers):  # their rows are damaged
            known = int(np.searchsorted(self.subscriber, len(numbers)))
        found = np.zeros(len(self.subscriber), np.bool_)
        found[:known] = self.offset[:known] > numbers[self.subscriber[:known]] - self.first
        return found


class Details(NamedTuple):
    """The second half of a row, which says of what subscriptions: as in `Recipients`."""

    amount: AnyArray
    length: AnyArray
    ids: bytes

    def names(self, places: slice) -> list[list[str]]:
        """The ids of the subscriptions of some."""
        amounts = self.amount[places].astype(np.int64)
        begin = int(self.amount[: places.start].sum(dtype=np.int64))
        lengths = self.length[begin : begin + int(amounts.sum())].astype(np.int64)
        first = int(self.length[:begin].sum(dtype=np.int64))
        ends = np.concatenate([[first], first + np.cumsum(lengths)]).tolist()
        ids = [self.ids[low:high].decode() for low, high in pairwise(ends)]
        cuts = np.concatenate([[0], np.cumsum(amounts)]).tolist()
        return [ids[low:high] for low, high in pairwise(cuts)]

    @property
    def nbytes(self) -> int:
        return int(self.amount.nbytes + self.length.nbytes) + len(self.ids)


def join(parts: Sequence[Recipients]) -> Recipients:
    """All together. Events of one part come before those of the next."""
    if len(parts) <= 1:
        return parts[0] if parts else NOBODY
    together = Recipients(
        np.concatenate([part.subscriber for part in parts]),
        np.concatenate([part.event for part in parts]),
        np.concatenate([part.amount for part in parts]),
        np.concatenate([part.length for part in parts]),
        b"".join(part.ids for part in parts),
    )
    order = np.argsort(together.subscriber, kind="stable")
    return together.take(order)


def within(events: Int64Array, ranges: Sequence[tuple[int, int]]) -> BoolArray:
    """Which are in one of some ranges, whose ends belong to them."""
    lows, highs = np.array(sorted(ranges), np.int64).reshape(-1, 2).T
    place = np.searchsorted(lows, events, "right") - 1
    return (place >= 0) & (events <= highs[place]) if len(lows) else np.zeros(len(events), bool)


def pack(recipients: Recipients, first: int) -> tuple[bytes, bytes]:
    """Who, and what: two columns of a row whose events begin with a number."""
    (who, subscribers), (when, events) = map(
        _narrow, (recipients.subscriber, recipients.event - first)
    )
    (many, amounts), (long, lengths) = map(_narrow, (recipients.amount, recipients.length))
    head = _DETAILS.pack(recipients.size, len(recipients.length), many, long)
    return (
        _ADDRESSEES.pack(recipients.size, who, when) + subscribers + events,
        head + amounts + lengths + recipients.ids,
    )


def unpack_addressees(content: bytes, first: int) -> Addressees:
    """Of the first column."""
    count, who, when = _ADDRESSEES.unpack_from(content)
    subscriber = np.frombuffer(content, _WIDTHS[who], count, _ADDRESSEES.size)
    place = _ADDRESSEES.size + subscriber.nbytes
    return Addressees(first, subscriber, np.frombuffer(content, _WIDTHS[when], count, place))


def unpack_details(content: bytes) -> Details:
    """Of the second column."""
    count, matches, many, long = _DETAILS.unpack_from(content)
    amount = np.frombuffer(content, _WIDTHS[many], count, _DETAILS.size)
    place = _DETAILS.size + amount.nbytes
    length = np.frombuffer(content, _WIDTHS[long], matches, place)
    return Details(amount, length, content[place + length.nbytes :])


def unpack(addressees: bytes, details: bytes, first: int) -> Recipients:
    """Of both columns."""
    _, subscriber, offset = unpack_addressees(addressees, first)
    amount, length, ids = unpack_details(details)
    return Recipients(
        subscriber.astype(np.int64),
        offset.astype(np.int64) + first,
        amount.astype(np.int64),
        length.astype(np.int64),
        ids,
    )


def _narrow(values: Int64Array) -> tuple[int, bytes]:
    """In as few bytes each as the largest takes, and how many those are."""
    largest = int(values.max(initial=0))
    width = next(width for width in _WIDTHS if largest < 1 << min(8 * width, 63))
    return width, values.astype(_WIDTHS[width]).tobytes()


def _bounds(lengths: Int64Array) -> Int64Array:
    """Where each begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)])


def _ranges(begins: Int64Array, lengths: Int64Array) -> npt.NDArray[Any]:
    """The numbers of all ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - ends + lengths, lengths) + np.arange(total)
