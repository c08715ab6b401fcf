"""The work of a router over one connection, with the settings of one moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import nats.js.errors

from boxmatch.errors import RouteError
from boxmatch.nats.batches import Batch, BatchMatcher
from boxmatch.nats.bucket import TRANSIENT, BucketReader, Change, ReloadError
from boxmatch.nats.messages import FeedSubjects, dead_letter, deliveries_of, source_of
from boxmatch.nats.publisher import Publisher
from boxmatch.nats.puller import Puller, PullError
from boxmatch.nats.snapshots import Capture, Snapshots
from boxmatch.nats.subscriptions import RouteSubscriptions

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from boxmatch.nats.router import Router
    from boxmatch.nats.settings import RouteSettings

_FETCH_SECONDS: Final = 1.0
_FOLLOW_SECONDS: Final = 1.0
"""How often changes of subscriptions are read while there are no events."""
_LOOK_SECONDS: Final = 5.0
"""How often the server is asked how many messages wait."""
_BULK: Final = 50_000
"""Changes that are taken over together at the start."""

log = logging.getLogger("boxmatch.route")


class Session:
    """Fetches, matches and delivers until the router stops, or something cannot be borne.

    Messages are fetched and matched in one task, and delivered in another; so the next batch is
    matched while one is being stored.
    """

    def __init__(
        self,
        router: Router,
        connection: Client,
        js: JetStreamContext,
        settings: RouteSettings,
        incarnation: str,
        thread: ThreadPoolExecutor,
    ) -> None:
        self._router = router
        self._names = router.names
        self._metrics = router.metrics
        self._connection = connection
        self._js = js
        self._settings = settings
        self._thread = thread
        self._incarnation = incarnation
        self._reader = BucketReader(connection, js, self._names, router.name, on_error=router.fail)
        self._source = (
            settings.stream or self._names.events,
            self._names.consumer(router.shard, settings.shards),
        )
        size = 1 if settings.ordered else router.batch
        self._puller = Puller(connection, *self._source, size)
        self._reading = asyncio.Lock()
        self._publisher = Publisher(connection, router.fail)
        self._matched: asyncio.Queue[Batch | None] = asyncio.Queue(1)
        self._in_hand: set[Batch] = set()
        self._subscriptions = RouteSubscriptions(settings, router.shard)
        self._changes = 0
        """Of subscriptions, since there was a snapshot."""
        self._trial = ""
        """The note on the message that is being matched alone."""

    async def run(self) -> None:
        """Route until the router stops. Raises what cannot be borne."""
        started = time.monotonic()
        await self._load()
        await self._publisher.open()
        try:
            seconds = round(time.monotonic() - started, 3)
            log.info(
                "ready",
                extra={
                    "route": self._names.route,
                    "shard": self._router.shard,
                    "subscriptions": len(self._subscriptions),
                    "revision": self._reader.revision,
                    "seconds": seconds,
                },
            )
            self._router.health.set(None, route=self._names.route, shard=self._router.shard)
            self._router.now_ready()
            await _first_end(
                self._fetch_and_match(),
                self._deliver(),
                self._follow(),
                self._keep_alive(),
                self._look(),
                self._take_snapshots(),
                until=1,
            )
        finally:
            with suppress(nats.errors.Error, TimeoutError):
                await self._give_back()
                await self._publisher.close()

    def close(self) -> None:
        """Remove what the session has on disk."""
        self._subscriptions.close()

    async def _load(self) -> None:
        """All subscriptions: from a snapshot, and what the bucket has since, or all of it."""
        await self._reader.open()
        self._snapshots = Snapshots(
            self._js, self._names, self._settings, self._router.shard, self._reader.created
        )
        known = None
        if not self._router.distrusts_snapshots:
            known = await self._snapshots.load(self._thread)
        if known is not None:
            self._subscriptions = known
        self._reader.revision = self._subscriptions.revision
        self._matcher = BatchMatcher(
            self._names,
            self._settings,
            FeedSubjects(self._names, self._settings.feeds),
            self._incarnation,
            self._subscriptions,
            self._metrics,
        )
        async with self._reading:
            await self._take_over(_BULK)

    def wake(self) -> None:
        """Notice that the router stops."""
        self._puller.wake()

    async def _fetch_and_match(self) -> None:
        puller = self._puller
        await puller.open()
        try:
            while not self._router.is_stopping:
                try:
                    messages = await puller.next(_FETCH_SECONDS)
                except PullError as error:
                    self._router.fail("fetch", error)
                    await self._check_consumer()
                    await asyncio.sleep(0.1)
                    continue
                if not messages:
                    continue
                batches = self._batches(messages)
                self._in_hand.update(batches)
                for batch in batches:
                    await self._match(batch)
        finally:
            with suppress(nats.errors.Error):
                await puller.close()
        await self._matched.put(None)

    def _batches(self, messages: Sequence[Msg]) -> list[Batch]:
        """What is matched together. What was delivered too often is alone, and comes last."""
        most = self._settings.max_deliver
        often = [one for one in messages if deliveries_of(one) > most]
        rest = [one for one in messages if deliveries_of(one) <= most] if often else messages
        parts = [rest, *([one] for one in often)]
        return [Batch(part, self._puller.held) for part in parts if part]

    async def _match(self, batch: Batch) -> None:
        first = source_of(batch.messages[0], self._incarnation)
        if first.deliveries > self._settings.max_deliver:
            # If it ends this worker, its note tells the next one. The number of deliveries does
            # not: it is the same for all messages that a worker has when it ends.
            self._trial = self._names.trial(self._source[1], self._incarnation, first.sequence)
            if not await self._reader.note(self._trial, f"{self._router.name} {first.deliveries}"):
                batch.is_fatal = True
                self._trial = ""
        async with self._reading:
            await self._take_over()
        revision = self._reader.revision
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._matcher.match, batch, revision)
        if self._trial:
            await self._end_trial()
        await self._matched.put(batch)

    async def _end_trial(self) -> None:
        await self._reader.erase(self._trial)
        self._trial = ""

    async def _check_consumer(self) -> None:
        stream, consumer = self._source
        try:
            await self._js.consumer_info(stream, consumer)
        except nats.js.errors.NotFoundError:
            raise RouteError(
                f"the consumer {consumer!r} of stream {stream!r} is gone: boxmatch route init "
                "makes it anew"
            ) from None
        except TRANSIENT:
            pass  # nobody leads at the moment

    async def _deliver(self) -> None:
        """Have notifications stored, then acknowledge their messages; ends with the fetching."""
        while (batch := await self._matched.get()) is not None:
            if time.monotonic() - batch.held > self._settings.ack_seconds:
                # This process was suspended, and others have these messages now.
                self._router.fail("late", "messages were in hand for too long")
                self._in_hand.discard(batch)
                continue
            started = time.monotonic()
            ordered = self._settings.ordered
            done = await self._publisher.publish(batch.outgoing, ordered=ordered)
            for message, reason in done.refused:
                feed, source = batch.origin(message)
                batch.dead.append(dead_letter(self._names, feed, source, b"", reason, message.id))
                self._metrics.dead.labels("too-large").inc()
            if batch.dead:
                await self._publisher.publish(batch.dead)
            for one in batch.messages:
                await self._connection.publish(one.reply)  # which acknowledges it
            self._in_hand.discard(batch)
            self._metrics.notifications.inc(done.stored - done.duplicates)
            self._metrics.duplicates.inc(done.duplicates)
            self._metrics.messages.inc(len(batch.messages))
            self._metrics.seconds.labels("publish").observe(time.monotonic() - started)
            age = time.time() - min(source.at for _, source in batch.origins)
            self._metrics.seconds.labels("end_to_end").observe(max(0.0, age))

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            async with self._reading:
                while changes := await self._reader.read():
                    await self._apply(changes)
                self._tell()

    async def _take_over(self, at_once: int = 0) -> None:
        """All changes of subscriptions until now; at least so many together."""
        gathered: list[Change] = []
        started = time.monotonic()
        async for changes in self._reader.catch_up():
            gathered += changes
            if len(gathered) >= at_once:
                await self._apply(gathered)
                gathered = []
        if gathered:
            await self._apply(gathered)
        self._tell()
        self._metrics.seconds.labels("subscriptions").observe(time.monotonic() - started)

    def _tell(self) -> None:
        known = self._subscriptions
        self._router.health.knows(self._reader.revision, len(known), len(known.refused))

    async def _apply(self, changes: list[Change]) -> None:
        loaded = self._router.is_ready
        if loaded and any(one.key == "route" for one in changes):
            raise ReloadError("the settings of the route were changed")
        if not any(one.key.startswith("sub.") for one in changes):
            return
        loop = asyncio.get_running_loop()
        refused = await loop.run_in_executor(self._thread, self._subscriptions.apply, changes)
        self._changes += len(changes)
        for one in refused:
            self._metrics.errors.labels("filter").inc()
            log.error("%s is no subscription: %s", one.key, one.reason)

    async def _keep_alive(self) -> None:
        """Tell the server that messages are being worked on."""
        while True:
            await asyncio.sleep(self._settings.ack_seconds / 4)
            now = time.monotonic()
            late = now - self._settings.ack_seconds  # those are redelivered already
            if self._puller.waiting and self._puller.held > late:
                self._puller.held = now
                await _want(self._puller.waiting)
            for batch in list(self._in_hand):
                if batch.held > late:
                    batch.held = now
                    await _want(batch.messages)

    async def _look(self) -> None:
        while True:
            with suppress(nats.errors.Error, TimeoutError):
                info = await self._js.consumer_info(*self._source)
                self._metrics.lag.set(info.num_pending or 0)
                self._metrics.in_hand.set(info.num_ack_pending or 0)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _take_snapshots(self) -> None:
        """Write one after many changes, unless another worker of the shard has."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._changes < self._router.snapshot_changes:
                continue
            known = self._snapshots.revision
            if await self._snapshots.newest() == known:
                async with self._reading:
                    capture = await loop.run_in_executor(self._thread, self._capture)
                await self._snapshots.save(capture)
            self._changes = 0

    def _capture(self) -> Capture:
        known = self._subscriptions
        matchers = {name: one.describe() for name, one in known.matchers.items()}
        return Capture(self._reader.revision, matchers, dict(known.refused))

    async def _give_back(self) -> None:
        """Let others have what was not finished at once.

        Without `flush` of nats-py: if its waiting is cut short, the answer ends the reading of the
        connection (2.16).
        """
        for batch in self._in_hand:
            for message in batch.messages:
                await message.nak()
        if self._trial:  # which did not end this worker
            async with asyncio.timeout(2):
                await self._end_trial()


async def _want(messages: Sequence[Msg]) -> None:
    for message in list(messages):
        await message.in_progress()


async def _first_end(*work: Coroutine[Any, Any, None], until: int) -> None:
    """Run all of it until that of this place ends, or one fails; then cancel the others."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        while not tasks[until].done():
            running = [one for one in tasks if not one.done()]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel until they have ended: `asyncio.wait_for`, in nats-py, may lose it before 3.12."""
    running = set(tasks)
    while running:
        for one in running:
            one.cancel()
        done, running = await asyncio.wait(running, timeout=0.1)
        for one in done:
            if not one.cancelled():
                one.exception()  # it was looked at, or the first one counts
