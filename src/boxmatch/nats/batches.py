"""Messages that were fetched together: decoded, matched, and turned into notifications."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from boxmatch.errors import BoxmatchError
from boxmatch.nats.messages import (
    FeedSubjects,
    Outgoing,
    Source,
    dead_letter,
    notifications,
    read_message,
    source_of,
)
from boxmatch.nats.monitoring import Metrics
from boxmatch.nats.names import Names
from boxmatch.nats.settings import RouteSettings
from boxmatch.nats.subscriptions import RouteSubscriptions
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.problems import Problem

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = logging.getLogger("boxmatch.route")

_NO_FEED = "unknown"


class _Read(NamedTuple):
    """A message whose events could be read."""

    place: int
    source: Source
    events: Events


class Batch:
    """Messages in hand, and what comes of them."""

    def __init__(self, messages: Sequence[Msg], held: float) -> None:
        self.messages = messages
        self.held = held
        """When the server last heard that they are being worked on."""
        self.is_fatal = False
        """Whether a worker ended while it matched this message alone."""
        self.outgoing: list[Outgoing] = []
        self.dead: list[Outgoing] = []
        self.origins: list[tuple[str, Source]] = []
        """The feed and the source of each message."""

    def origin(self, message: Outgoing) -> tuple[str, Source]:
        """The feed and the source of a notification."""
        # Its id is ROUTE/SOURCE.INDEX/SUBSCRIBER, and there is a slash in the source.
        source = message.id.partition("/")[2].rpartition("/")[0].rpartition(".")[0]
        return next(one for one in self.origins if one[1].id == source)


class BatchMatcher:
    """Matches batches against the subscriptions of a route. For one thread."""

    def __init__(
        self,
        names: Names,
        settings: RouteSettings,
        subjects: FeedSubjects,
        incarnation: str,
        subscriptions: RouteSubscriptions,
        metrics: Metrics,
    ) -> None:
        self._names = names
        self._settings = settings
        self._subjects = subjects
        self._incarnation = incarnation
        self._subscriptions = subscriptions
        self._metrics = metrics

    def match(self, batch: Batch, revision: int) -> None:
        """Fill in what comes of a batch, in the order of its messages."""
        started = time.monotonic()
        by_feed: dict[str, list[_Read]] = {}
        for place, message in enumerate(batch.messages):
            source = source_of(message, self._incarnation)
            if source.deliveries > 1:
                self._metrics.redelivered.inc()
            feed = self._subjects.feed_of(message.subject)
            batch.origins.append((feed or _NO_FEED, source))
            try:
                if batch.is_fatal:
                    raise Problem(
                        422,
                        "max-deliver",
                        f"delivery {source.deliveries}; a worker that matched it alone ended",
                    )
                if feed is None:
                    raise BoxmatchError(f"no feed has the subject {message.subject!r}")
                settings = self._settings.feeds[feed]
                events = read_message(message, settings, self._subscriptions.schema(feed))
            except (Problem, BoxmatchError) as error:
                self._bury(batch, place, source, feed or _NO_FEED, error)
            else:
                by_feed.setdefault(feed, []).append(_Read(place, source, events))
        found: list[list[Outgoing]] = [[] for _ in batch.messages]
        for feed, read in by_feed.items():
            self._match(batch, feed, read, revision, found)
        batch.outgoing = [one for some in found for one in some]
        self._metrics.seconds.labels("match").observe(time.monotonic() - started)

    def _match(
        self,
        batch: Batch,
        feed: str,
        read: list[_Read],
        revision: int,
        found: list[list[Outgoing]],
    ) -> None:
        rows = [row for one in read for row in one.events.rows]
        try:
            result = self._subscriptions.match(feed, rows)
        except Exception as error:
            if len(read) > 1:  # one of them is bad: find it
                middle = len(read) // 2
                self._match(batch, feed, read[:middle], revision, found)
                self._match(batch, feed, read[middle:], revision, found)
                return
            if not isinstance(error, BoxmatchError):
                log.exception("a message of feed %s cannot be matched", feed)
            self._bury(batch, read[0].place, read[0].source, feed, error)
            return
        matches = (ids for _, ids in result)
        for one in read:
            bodies = one.events.bodies
            its = islice(matches, len(bodies))
            found[one.place] = list(
                notifications(self._names, feed, one.source, bodies, its, revision)
            )
        self._metrics.events.labels(feed).inc(len(rows))
        self._metrics.matches.labels(feed).inc(len(result.subscription))

    def _bury(self, batch: Batch, place: int, source: Source, feed: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        data = batch.messages[place].data
        batch.dead.append(dead_letter(self._names, feed, source, data, reason))
        kind = error.kind if isinstance(error, Problem) else type(error).__name__
        self._metrics.dead.labels(kind).inc()
        log.warning("message %d of feed %s is bad: %s", source.sequence, feed, reason)
