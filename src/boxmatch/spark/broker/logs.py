"""What can be read from a broker from a place on: a feed's log, or a subscriber's inbox.

A place is a sequence number: everything up to it has been read. Numbers are the broker's, over all
feeds, and nothing is added behind a number once it was given out, so (after, through] is the same
rows whenever it is read, as long as retention has not removed some of them. That is looked at
after a range was read, when it is certain.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boxmatch.errors import ClientError, SparkError
from boxmatch.spark.broker.options import Connection, Place
from boxmatch.spark.broker.rows import event_batch, notification_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.client import Client, Notification

log = logging.getLogger(__name__)

_PAGE = 1_000
_IDLE = 50_000
"""A feed without events moves on all the same once others had so many, or its reader asks for it,
lest the numbers that it waits behind are removed and nobody can tell whether any of its events
went with them. Not more often, as every move costs Spark a batch."""


@dataclass(frozen=True)
class _Readable:
    connection: Connection
    name: str
    fail_on_loss: bool

    def client(self) -> Client:
        return self.connection.client()

    def find(self, client: Client, place: Place) -> int:
        """The number after which to read, if reading starts at a place."""
        if isinstance(place, int):
            return max(place - 1, 0)
        return self.first(client) if place == "earliest" else self.last(client)

    def first(self, client: Client) -> int:
        """The number before the oldest that there is."""
        raise NotImplementedError

    def last(self, client: Client) -> int:
        """The newest number there is."""
        raise NotImplementedError

    def _lost(self, what: str) -> None:
        if self.fail_on_loss:
            raise SparkError(
                f"{what}; set failOnDataLoss to false to go on with what there is, or start a new "
                "checkpoint"
            )
        log.warning("%s; going on with what there is", what)


class FeedLog(_Readable):
    """The events of a feed."""

    def first(self, client: Client) -> int:
        return max(client.events(self.name, after=0, limit=1).first - 1, 0)

    def last(self, client: Client) -> int:
        return client.events(self.name, after=0, limit=1).last

    def reach(
        self,
        client: Client,
        after: int,
        most: int | None,
        target: int | None,
        *,
        move_on: bool = False,
    ) -> int:
        """How far to read from `after`: `most` events at the most, and not past `target`.

        Without anything new this is `after` itself, unless it is time to `move_on`. Numbers before
        the next event are skipped: a quiet feed among busy ones does not give empty batches.
        """
        page = client.events(self.name, after=after, limit=1)
        if page.last < after:
            self._lost(self._restored_error(page.last, after))
            return page.last
        last = page.last if target is None else min(page.last, max(target, after))
        if not page.events or page.events[0].sequence > last:
            end = last if move_on or last - after >= _IDLE else after
        else:
            end = last if most is None else min(last, page.events[0].sequence - 1 + most)
        if end > after and self._is_removed(client, after, page.first):
            self._lost(self._removal_error(after, page.first))
        return end

    def check(self, client: Client, after: int, through: int) -> None:
        """Raise an error, or log it, unless all that was in the range is still there."""
        page = client.events(self.name, after=through, limit=1)
        if page.last < through:
            self._lost(self._restored_error(page.last, through))
        elif self._is_removed(client, after, page.first):
            self._lost(self._removal_error(after, page.first))

    def _is_removed(self, client: Client, after: int, first: int) -> bool:
        """May events after a number be gone, if the oldest of the feed is `first`?

        That tells nothing if the feed was quiet before. But retention takes the oldest of all
        feeds first: as long as any feed has something older, nothing newer is gone.
        """
        if first <= after + 1:
            return False
        with suppress(ClientError):
            for feed in client.feeds():
                with suppress(ClientError):  # one that this key may not read
                    if client.events(feed.name, after=0, limit=1).first <= after + 1:
                        return False
        return True

    def batches(
        self, client: Client, schema: pa.Schema, after: int, through: int
    ) -> Iterator[pa.RecordBatch]:
        """The events of a range, in order."""
        while after < through:
            page = client.events(self.name, after=after, limit=_PAGE, through=through)
            if not page.events:
                return
            yield event_batch(schema, page.events)
            after = page.events[-1].sequence

    def acknowledge(self, client: Client, through: int) -> None:
        """Do nothing: a feed keeps no record of its readers."""

    def _removal_error(self, after: int, first: int) -> str:
        return (
            f"feed {self.name!r}: events after {after} were to be read, but the log starts at "
            f"{first}: retention has removed what was before it"
        )

    def _restored_error(self, last: int, wanted: int) -> str:
        return (
            f"feed {self.name!r}: the log ends at {last}, before {wanted}, which was there once: "
            "this is another broker, or one that was restored from a backup"
        )


@dataclass(frozen=True)
class Inbox(_Readable):
    """The notifications of a subscriber. What is acknowledged may be removed at any time."""

    acknowledging: bool

    def first(self, client: Client) -> int:
        return client.subscriber(self.name).cursor

    def last(self, client: Client) -> int:
        return self.reach(client, self.first(client), None, None)

    def reach(
        self,
        client: Client,
        after: int,
        most: int | None,
        target: int | None,
        *,
        move_on: bool = False,
    ) -> int:
        """How far to read from `after`: `most` notifications at the most, and not past `target`.

        An inbox has no need to move on: what it lost is counted.
        """
        for page in self._pages(client, after, target, most):
            after = page[-1].sequence
        return after

    def _pages(
        self, client: Client, after: int, through: int | None, most: int | None = None
    ) -> Iterator[list[Notification]]:
        """The notifications after a number, page by page, up to a number and `most` of them."""
        left = math.inf if most is None else most
        while left > 0 and (through is None or after < through):
            limit = int(min(_PAGE, left))
            found = client.notifications(self.name, after=after, limit=limit).notifications
            kept = [one for one in found if through is None or one.sequence <= through]
            if kept:
                yield kept
                after = kept[-1].sequence
                left -= len(kept)
            if not found or len(kept) < len(found):
                return

    def check(self, client: Client, after: int, through: int) -> None:
        """Raise an error, or log it, unless all that was in the range is still there."""
        subscriber = client.subscriber(self.name)
        if subscriber.dropped_through > after:
            self._lost(
                f"subscriber {self.name!r}: notifications after {after} were to be read, but up to "
                f"{subscriber.dropped_through} some were dropped: they had waited too long"
            )
        elif subscriber.cursor > after:
            self._lost(
                f"subscriber {self.name!r}: notifications after {after} were to be read, but "
                f"somebody has acknowledged up to {subscriber.cursor}, which is removed then"
            )

    def batches(
        self, client: Client, schema: pa.Schema, after: int, through: int
    ) -> Iterator[pa.RecordBatch]:
        """The notifications of a range, in order."""
        for page in self._pages(client, after, through):
            yield notification_batch(schema, page)

    def acknowledge(self, client: Client, through: int) -> None:
        """Acknowledge the notifications up to a number, if the options say so."""
        if self.acknowledging:
            client.acknowledge(self.name, through)
