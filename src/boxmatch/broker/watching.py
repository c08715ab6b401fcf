"""What there is to see of a running broker: as it is now, and over the last minutes.

Everything is counted from the start on, so that whoever looks takes differences, and nothing is
kept for each of them.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import orjson
import structlog

from boxmatch.broker.core import Core
from boxmatch.broker.feeds.adapting import in_effect
from boxmatch.broker.messages import FeedInfo, OwnerInfo
from boxmatch.broker.metrics import Metrics
from boxmatch.broker.owners import Owner
from boxmatch.broker.posting import Posting
from boxmatch.broker.store import Sizes

HISTORY: Final = 300
"""Samples that are kept, one a second."""
MOST_FEEDS: Final = 20
"""The busiest, in each sample."""
MOST_OWNERS: Final = 50
_EVERY: Final = 1.0
_FRESH: Final = 0.9
"""Seconds for which what is added up over all owners will do."""
_SIZES_FRESH: Final = 10.0
"""To count what is on disk takes longer."""
_FADING: Final = 0.98
"""What of a feed's activity still counts a second later."""

log = structlog.get_logger(__name__)


class Summary(NamedTuple):
    """What is added up over all owners."""

    sessions: int
    backlog: int
    owners: list[dict[str, Any]]
    """Those with errors first, then those that most waits for, then the busiest."""
    owner_count: int
    sizes: Sizes


class Watching:
    """Numbers of feeds and owners. In the event loop, for as long as the broker runs."""

    def __init__(self, core: Core, metrics: Metrics, posting: Posting) -> None:
        self.started = core.clock()
        self._core = core
        self._metrics = metrics
        self._posting = posting
        self._samples: deque[tuple[float, dict[str, bytes]]] = deque(maxlen=HISTORY)
        self._totals: dict[str, int] = {}
        self._activity: dict[str, float] = {}
        self._summing = asyncio.Lock()
        self._summary: tuple[float, Summary] | None = None
        self._sizes: tuple[float, Sizes] | None = None
        self._task = asyncio.create_task(self._sample_all())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # As it is now

    def now(self) -> float:
        return self._core.clock()

    def feeds(self, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Every feed that somebody may see."""
        entries = self._core.directory.feeds()
        return [self._feed(entry.info()) for entry in entries if sees(entry.feed.spec.name)]

    def _feed(self, info: FeedInfo) -> dict[str, Any]:
        spec = info.spec
        adaptive = in_effect(spec)
        return {
            "kind": spec.kind,
            "index": spec.index,
            "adaptive": None if adaptive is None else asdict(adaptive),
            "subscriptions": info.subscriptions,
            "publications": info.publications,
            "last_sequence": info.last_sequence,
            **self._moving(info),
        }

    def _moving(self, info: FeedInfo) -> dict[str, Any]:
        """What charts are made of."""
        counts = self._metrics.counts(info.spec.name)
        if info.spec.kind == "state":  # its operations are not counted, but what they tell
            counts = counts._replace(committed=info.events)
        return {
            "name": info.spec.name,
            "rate": info.rate,
            "sampled_matches": info.sampled_matches,
            "sampled_false": info.sampled_false,
            "waiting": info.waiting,
            **counts._asdict(),
        }

    def broker(self, summary: Summary) -> dict[str, Any]:
        """The broker as a whole."""
        flow, settings = self._core.flow, self._core.settings
        return {
            "queue": {
                "events": flow.events,
                "bytes": flow.nbytes,
                "most_events": settings.queue_events,
                "most_bytes": settings.queue_bytes,
            },
            "sessions": summary.sessions,
            "delivered": self._metrics.delivered_by_way(),
            "dropped": self._metrics.dropped_notes,
            "refused": self._metrics.refused_by_reason(),
            "storage_bytes": summary.sizes.nbytes,
            "log_bytes": summary.sizes.log_bytes,
            "backlog": summary.backlog,
        }

    async def summary(self) -> Summary:
        """Added up at most once a second, whoever asks, and not in the event loop."""
        async with self._summing:
            now = time.monotonic()
            if self._summary is None or now - self._summary[0] > _FRESH:
                known = self._core.directory.known()
                self._summary = now, await asyncio.to_thread(self._sum_up, known, now)
            return self._summary[1]

    def _sum_up(self, known: list[Owner], now: float) -> Summary:
        owners = [owner for owner in known if owner.number]  # the others only listen
        if self._sizes is None or now - self._sizes[0] > _SIZES_FRESH:
            self._sizes = now, self._core.store.sizes()
        return Summary(
            sum(len(owner.streams) for owner in known),
            sum(owner.backlog for owner in owners),
            self._ranked(owners),
            len(owners),
            self._sizes[1],
        )

    async def described(self, owners: Sequence[Owner]) -> list[OwnerInfo]:
        """All about some owners; what waits for them is counted on disk."""
        store, numbers = self._core.store, [owner.number for owner in owners]
        backlogs = await asyncio.to_thread(store.backlogs, numbers)
        letters = await asyncio.to_thread(store.dead_letter_counts, numbers)
        return [
            self._described(owner, backlogs.get(owner.number, 0), letters.get(owner.number, 0))
            for owner in owners
        ]

    def _described(self, owner: Owner, backlog: int, dead_letters: int) -> OwnerInfo:
        feeds = {one.wanted.feed for one in owner.subscriptions.values()}
        return OwnerInfo(
            owner=owner.name,
            cursor=owner.cursor,
            backlog=backlog,
            dropped=owner.dropped,
            dropped_through=owner.dropped_through,
            subscriptions=len(owner.subscriptions),
            sessions=len(owner.streams),
            delivered=owner.delivered,
            webhook=self._posting.webhook(owner.name),
            dead_letters=dead_letters,
            last_error=self._posting.last_error(owner.name),
            feeds=sorted(feeds),
        )

    def owners(self, names: Collection[str]) -> tuple[list[dict[str, Any]], int]:
        """Some owners by name, the first of them by rank, and how many there are."""
        known = [owner for name in names if (owner := self._core.directory.owner(name))]
        return self._ranked(known), len(known)

    def _ranked(self, owners: Iterable[Owner]) -> list[dict[str, Any]]:
        failing = self._posting.failing()

        def rank(owner: Owner) -> tuple[bool, int, int, int, str]:
            failed = owner.dead_letters > 0 or owner.name in failing
            return failed, owner.backlog, owner.dropped, owner.delivered, owner.name

        return [self._brief(owner) for owner in heapq.nlargest(MOST_OWNERS, owners, key=rank)]

    def _brief(self, owner: Owner) -> dict[str, Any]:
        webhook = self._posting.webhook(owner.name)
        return {
            "owner": owner.name,
            "backlog": owner.backlog,
            "sessions": len(owner.streams),
            "delivered": owner.delivered,
            "dropped": owner.dropped,
            "subscriptions": len(owner.subscriptions),
            "webhook": webhook and ("paused" if webhook.paused else "active"),
            "dead_letters": owner.dead_letters,
            "last_error": self._posting.last_error(owner.name),
        }

    # Over the last minutes

    def history(self, sees: Callable[[str], bool]) -> bytes:
        """The samples, as a JSON array, with the feeds that somebody may see."""
        samples = []
        for at, feeds in self._samples:
            seen = b",".join(text for name, text in feeds.items() if sees(name))
            samples.append(b'{"at":%b,"feeds":[%b]}' % (orjson.dumps(at), seen))
        return b"[%b]" % b",".join(samples)

    def forget_feed(self, name: str) -> None:
        """A feed was dropped: another of this name has nothing to do with it."""
        for _, feeds in self._samples:
            feeds.pop(name, None)
        self._totals.pop(name, None)
        self._activity.pop(name, None)

    def sample(self) -> None:
        """Keep the numbers of the busiest feeds."""
        entries = {entry.feed.spec.name: entry for entry in self._core.directory.feeds()}
        totals = self._metrics.activity()
        self._activity = {
            name: self._activity.get(name, 0.0) * _FADING
            + totals.get(name, 0)
            - self._totals.get(name, 0)
            for name in entries
        }
        self._totals = totals
        busiest = heapq.nlargest(MOST_FEEDS, entries, key=self._activity.__getitem__)
        feeds = {name: orjson.dumps(self._moving(entries[name].info())) for name in sorted(busiest)}
        self._samples.append((self._core.clock(), feeds))

    async def _sample_all(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                self.sample()
            except Exception:  # a gap in a chart is no reason to end
                log.exception("a sample is missing")
