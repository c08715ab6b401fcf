"""Posts subscribers' notifications to their webhooks: in order, signed, tried again, never lost.

One worker (a task) per subscriber posts one batch at a time and goes on when it was taken (2xx) or
is among the dead letters. Only then is it acknowledged; whatever happens before that, the
notifications are still in the inbox and are posted again. A receiver may therefore get a
notification twice, with the same sequence number. What a subscriber shares goes by
`WebhookLanes` instead.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, NamedTuple, Protocol

import httpx

from boxmatch import __version__
from boxmatch.broker.delivery.shared_inbox import SharedStream
from boxmatch.broker.delivery.webhook_lanes import WebhookLanes
from boxmatch.broker.delivery.webhook_requests import (
    WebhookRequest,
    delivery_body,
    requests_of_letter,
    split_requests,
)
from boxmatch.broker.delivery.webhook_targets import (
    KEEP_ALIVE,
    Resolver,
    SystemResolver,
    Webhook,
    WebhookConnection,
    WebhookTarget,
)
from boxmatch.broker.store.rows import DeadLetter, Notification
from boxmatch.errors import BoxmatchError, BrokerError, TargetError
from boxmatch.wire.http import retry_after
from boxmatch.wire.signatures import HEADER, sign

_log = logging.getLogger("boxmatch.broker.webhooks")

Outcome = Literal["delivered", "failed", "dead", "paused"]
"""Of a batch that was taken, of one attempt, of a batch that was given up, of a webhook."""

SHORTEST, LONGEST = 1.0, 300.0
"""Seconds between two attempts."""
SLOW = 1.0
"""Seconds after which an answer counts as slow."""


class Failure(NamedTuple):
    """Why a request was not taken."""

    reason: str
    retry_after: float = 0.0
    gone: bool = False
    """The receiver wants no more at all."""


class NotificationSource(Protocol):
    """A subscriber's notifications as they come."""

    async def take(self, most: int) -> list[Notification]:
        """At least one, unless the stream has ended."""


class WebhookSender:
    """All webhooks of a broker. To be used in one event loop.

    `dead_letter` has to have stored the letter when it returns: the notifications are acknowledged
    next.
    """

    def __init__(
        self,
        *,
        open_stream: Callable[[str], AbstractAsyncContextManager[NotificationSource]],
        acknowledge: Callable[[str, int], Awaitable[object]],
        dead_letter: Callable[[str, int, int, int, str, bytes], Awaitable[object]],
        allow_private: bool = False,
        on_result: Callable[[str, str], None] = lambda subscriber, outcome: None,
        on_taken: Callable[[Sequence[Notification]], None] = lambda notifications: None,
        requests: int = 64,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.open_stream = open_stream
        self.acknowledge = acknowledge
        self.dead_letter = dead_letter
        self.sleep = sleep
        self._allow_private = allow_private
        self._on_result = on_result
        self.on_taken = on_taken
        self._own_resolver = SystemResolver(requests)  # without threads until it is asked
        self._resolve = resolve or self._own_resolver
        self._tls = tls
        self._clock = clock
        self._jitter = jitter
        self._slots = asyncio.Semaphore(requests)
        # Receivers that are slow or failing hold a slot for long; half stays for the others.
        self._trouble_slots = asyncio.Semaphore(max(1, requests // 2))
        self._workers: dict[str, WebhookWorker] = {}
        self._closed = False

    def start(self, subscriber: str, webhook: Webhook) -> None:
        """Post the subscriber's notifications from its cursor on; takes the place of an earlier
        webhook.

        A paused one is not posted to. A URL that is not allowed shows in `last_error`.
        """
        if self._closed:
            raise BrokerError("the webhooks are closed")
        before: set[asyncio.Task[None]] = set()
        if (old := self._workers.get(subscriber)) is not None:
            # Two at once would break the order, so the new one waits for all earlier ones.
            old.task.cancel()
            before = {task for task in (*old.before, old.task) if not task.done()}
        self._workers[subscriber] = WebhookWorker(self, subscriber, webhook, before)

    async def stop(self, subscriber: str) -> None:
        """Post no more for this subscriber. A request under way is cut off, not acknowledged."""
        if (worker := self._workers.get(subscriber)) is None:
            return
        worker.task.cancel()
        await asyncio.wait({worker.task, *worker.before})
        if self._workers.get(subscriber) is worker:
            del self._workers[subscriber]

    async def close(self, *, grace: float = 0.0) -> None:
        """Stop all. Requests under way have `grace` seconds to be answered and acknowledged."""
        self._closed = True
        workers = list(self._workers.values())
        for worker in workers:
            worker.leaving = True
            if grace <= 0 or not worker.posting:
                worker.task.cancel()
        if tasks := {task for worker in workers for task in (worker.task, *worker.before)}:
            _, late = await asyncio.wait(tasks, timeout=grace if grace > 0 else None)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._workers.clear()
        self._own_resolver.close()

    def last_error(self, subscriber: str) -> str | None:
        """What went wrong since something was last taken."""
        worker = self._workers.get(subscriber)
        return None if worker is None else worker.error

    def is_gone(self, subscriber: str) -> bool:
        """Whether the receiver wants no more at all."""
        worker = self._workers.get(subscriber)
        return worker is not None and worker.gone

    async def repost(self, subscriber: str, webhook: Webhook, letter: DeadLetter) -> str | None:
        """Post a dead letter once more, in the form that the webhook has now. None if it was taken,
        otherwise why not.
        """
        connection = self.connection(webhook)
        failure: Failure | None = None
        try:
            async with self.slot(troubled=True):
                for again in requests_of_letter(letter, webhook.cloudevents):
                    failure = await self.post(connection, webhook, again, letter.attempts + 1)
                    if failure is not None:
                        break
                    if again.notifications:
                        self.on_taken(again.notifications)
        finally:
            await connection.disconnect()
        self.report(subscriber, "delivered" if failure is None else "failed")
        return None if failure is None else failure.reason

    # For the workers.

    def connection(self, webhook: Webhook) -> WebhookConnection:
        target = WebhookTarget.parse(webhook.url, allow_private=self._allow_private)
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # reads many certificates: once, if at all
        return WebhookConnection(
            target, resolve=self._resolve, tls=self._tls, allow_private=self._allow_private
        )

    @asynccontextmanager
    async def slot(self, *, troubled: bool) -> AsyncIterator[None]:
        """One of the requests that may be under way at once."""
        if troubled:
            async with self._trouble_slots, self._slots:
                yield
        else:
            async with self._slots:
                yield

    async def post(
        self, connection: WebhookConnection, webhook: Webhook, request: WebhookRequest, attempt: int
    ) -> Failure | None:
        """Post once. None if it was taken: a 2xx, and the answer complete, all within the timeout.

        Of an answer that does not end, as much as is read of it has to come in time.
        """
        headers = {
            **request.headers,
            "User-Agent": f"boxmatch/{__version__}",
            "Boxmatch-First": str(request.first),
            "Boxmatch-Last": str(request.last),
            "Boxmatch-Attempt": str(attempt),
            HEADER: sign(webhook.secret, request.body, self._clock()),
        }
        try:
            async with asyncio.timeout(webhook.timeout):
                answer = await connection.post(request.body, headers, turn=attempt - 1)
        except TargetError as error:
            return Failure(str(error))
        except TimeoutError:
            return Failure(f"no complete answer within {webhook.timeout:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            return Failure(f"{type(error).__name__}: {error}".rstrip(": "))
        if 200 <= answer.status < 300:
            return None
        if answer.status == 410:
            return Failure("answered 410: gone, paused until it is set again", gone=True)
        redirect = ": redirects are not followed" if 300 <= answer.status < 400 else ""
        wait = retry_after(answer.headers, self._clock()) or 0.0
        return Failure(f"answered {answer.status}{redirect}", retry_after=wait)

    def back_off(self, failures: int, asked: float = 0.0) -> float:
        """Seconds to wait: twice as long each time, and not all subscribers at the same moment."""
        ceiling = min(LONGEST, 2 * SHORTEST * 2.0 ** min(failures - 1, 32))
        return max(ceiling / 2 * (1 + self._jitter()), min(asked, LONGEST))

    def report(self, subscriber: str, outcome: Outcome) -> None:
        try:
            self._on_result(subscriber, outcome)
        except Exception:  # counting must not get in the way of delivering
            _log.exception("on_result failed for %s", subscriber)


class WebhookWorker:
    """Carries the notifications of one subscriber."""

    def __init__(
        self,
        sender: WebhookSender,
        subscriber: str,
        webhook: Webhook,
        before: set[asyncio.Task[None]],
    ) -> None:
        self.before = before
        self.error: str | None = None
        self.gone = False
        """The receiver wants no more."""
        self.posting = False
        """A request is under way, or what came of it is being stored."""
        self.leaving = False
        """To end after the request that is under way."""
        self.sender = sender
        self.subscriber = subscriber
        self.webhook = webhook
        self._troubled = False
        self._failures = 0
        self.task = asyncio.get_running_loop().create_task(
            self._run(), name=f"webhook {subscriber}"
        )

    async def _run(self) -> None:
        if self.before:
            await asyncio.wait(self.before)
        if self.webhook.paused:
            return
        try:
            connection = self.sender.connection(self.webhook)
        except TargetError as error:
            # Giving the notifications up for this would be rash: it may be allowed again.
            self._pause(str(error))
            return
        try:
            while not self.leaving:
                try:
                    async with self.sender.open_stream(self.subscriber) as stream:
                        self.gone = not await self._carry(stream, connection)
                    if self.gone:
                        self._pause(self.error or "gone")
                        return
                except Exception as error:  # a worker that ends unseen delivers nothing any more
                    self.error = f"{type(error).__name__}: {error}"
                    known = isinstance(error, BoxmatchError)
                    _log.warning("webhook of %s: %s", self.subscriber, error, exc_info=not known)
                self.posting = False
                self._failures += 1
                if not self.leaving:
                    await self.sender.sleep(self.sender.back_off(self._failures))
        finally:
            await connection.disconnect()

    def _pause(self, reason: str) -> None:
        self.error = reason
        _log.warning("webhook of %s is paused: %s", self.subscriber, reason)
        self.sender.report(self.subscriber, "paused")

    async def _carry(self, stream: NotificationSource, connection: WebhookConnection) -> bool:
        """Deliver until it has to leave or the stream ends; False if the receiver is gone."""
        if isinstance(stream, SharedStream):
            return await WebhookLanes(self, stream).run()
        while not self.leaving and (notifications := await self._take(stream, connection)):
            for request in split_requests(notifications, self.webhook.cloudevents):
                if not await self._deliver(request, connection):
                    return False
                if self.leaving:
                    break
        return True

    async def _take(
        self, stream: NotificationSource, connection: WebhookConnection
    ) -> list[Notification]:
        taking = asyncio.ensure_future(stream.take(self.webhook.batch))
        try:
            # Thousands of subscribers with nothing to post would each hold a connection.
            done, _ = await asyncio.wait({taking}, timeout=KEEP_ALIVE)
            if not done:
                await connection.disconnect()
            return await taking
        finally:
            if not taking.done():
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)

    async def _deliver(self, request: WebhookRequest, connection: WebhookConnection) -> bool:
        """Until it is taken or dead. False if the receiver is gone; then it is neither."""
        sender, subscriber = self.sender, self.subscriber
        attempts = max(1, self.webhook.attempts)
        for attempt in range(1, attempts + 1):
            failure = await self.post(request, connection, attempt)
            if failure is None:
                await self._settle(lambda: sender.acknowledge(subscriber, request.last))
                self.posting = False
                self.error, self._failures = None, 0
                sender.report(subscriber, "delivered")
                sender.on_taken(request.notifications)
                return True
            self.error = failure.reason
            if failure.gone:
                self.posting = False
                return False
            sender.report(subscriber, "failed")
            await connection.disconnect()
            if attempt < attempts:
                if attempt == 1:  # the others would fill the log
                    _log.warning("webhook of %s: %s; trying again", subscriber, failure.reason)
                self.posting = False
                if self.leaving:
                    return True
                await sender.sleep(sender.back_off(attempt, failure.retry_after))
        reason = self.error or ""
        letter = delivery_body(request.notifications)
        await self._settle(
            lambda: sender.dead_letter(subscriber, *request[:2], attempts, reason, letter)
        )
        await self._settle(lambda: sender.acknowledge(subscriber, request.last))
        self.posting = False
        _log.warning("webhook of %s: dead letter %d-%d: %s", subscriber, *request[:2], reason)
        sender.report(subscriber, "dead")
        return True

    async def post(
        self, request: WebhookRequest, connection: WebhookConnection, attempt: int
    ) -> Failure | None:
        """Post once, when it is this worker's turn."""
        now = asyncio.get_running_loop().time
        async with self.sender.slot(troubled=self._troubled):
            self.posting = True
            begun = now()
            failure = await self.sender.post(connection, self.webhook, request, attempt)
        self._troubled = failure is not None or now() - begun > SLOW
        return failure

    async def _settle(self, act: Callable[[], Awaitable[object]]) -> None:
        """Store what came of a request: to its end when it has to stop, again if it fails.

        The receiver has the notifications; posting them again would not help a disk that is full.
        """
        failures = 0
        while True:
            acting = asyncio.ensure_future(act())
            try:
                await asyncio.shield(acting)
            except asyncio.CancelledError:
                await asyncio.gather(acting, return_exceptions=True)
                raise
            except BoxmatchError as error:
                failures += 1
                self.error = f"not stored: {error}"
                _log.warning("webhook of %s: %s", self.subscriber, self.error)
                if self.leaving:
                    raise
                await self.sender.sleep(self.sender.back_off(failures))
            else:
                return
