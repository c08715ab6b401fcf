"""Posts shared notifications to a webhook: several requests at a time, in no particular order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from boxmatch.broker.delivery.shared_inbox import SharedStream
from boxmatch.broker.delivery.webhook_requests import WebhookRequest, split_requests
from boxmatch.broker.delivery.webhook_targets import KEEP_ALIVE
from boxmatch.broker.store.rows import Notification

if TYPE_CHECKING:
    from boxmatch.broker.delivery.webhook_sender import WebhookWorker

_log = logging.getLogger("boxmatch.broker.webhooks")

LANES: Final = 8
"""Requests of one webhook that are under way at a time."""


class WebhookLanes:
    """Carries what one webhook gets of the notifications that its subscriber shares.

    What is answered 2xx is acknowledged, all else is rejected and comes again later. Whether that
    is too often is for the inbox to say. Once a request failed, its notifications are posted one by
    one, so that one that is never taken does not take the others with it.
    """

    def __init__(self, worker: WebhookWorker, stream: SharedStream) -> None:
        self._worker = worker
        self._stream = stream
        stream.window = LANES * worker.webhook.batch
        stream.lease_seconds = math.inf  # the timeout of the request counts
        self._connections = [worker.sender.connection(worker.webhook) for _ in range(LANES)]
        self._lanes: set[asyncio.Task[None]] = set()
        self._failures = 0
        """In a row."""
        self._gone = False

    async def run(self) -> bool:
        """Until the worker has to leave or the stream ends; False if the receiver is gone."""
        taking: asyncio.Task[list[Notification]] | None = None
        try:
            while not self._worker.leaving and not self._gone:
                taking = taking or await self._begin_to_take()
                waiting = {*self._lanes} if taking is None else {*self._lanes, taking}
                idle = None if self._lanes else KEEP_ALIVE
                done, _ = await asyncio.wait(
                    waiting, timeout=idle, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    await self._disconnect()
                self._end_lanes()
                if taking is not None and taking.done():
                    notifications, taking = taking.result(), None
                    if not notifications:
                        break
                    self._lanes.add(asyncio.create_task(self._carry(notifications)))
                    self._worker.posting = True
            while self._lanes:
                await asyncio.wait(self._lanes, return_when=asyncio.FIRST_COMPLETED)
                self._end_lanes()
            return not self._gone
        finally:
            tasks = [*self._lanes, *([] if taking is None else [taking])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._worker.posting = False
            await self._disconnect()

    async def _begin_to_take(self) -> asyncio.Task[list[Notification]] | None:
        """Take more, if there is a lane for it: one alone while nothing is taken any more."""
        if self._failures >= LANES:
            if self._lanes:
                return None
            sender = self._worker.sender
            await sender.sleep(sender.back_off(self._failures - LANES + 1))
        elif len(self._lanes) == LANES:
            return None
        return asyncio.create_task(self._stream.take(self._worker.webhook.batch))

    def _end_lanes(self) -> None:
        """Leave out those that have ended; raises what they did."""
        ended = {lane for lane in self._lanes if lane.done()}
        self._lanes -= ended
        self._worker.posting = bool(self._lanes)
        for lane in ended:
            lane.result()

    async def _carry(self, notifications: Sequence[Notification]) -> None:
        connection = self._connections.pop()
        try:
            for request in self._requests(notifications):
                if self._gone or self._worker.leaving:
                    return  # closing the stream gives the rest back
                attempt = request.notifications[0].deliveries
                failure = await self._worker.post(request, connection, attempt)
                if failure is None:
                    self._took(request)
                    continue
                await connection.disconnect()
                self._worker.error = failure.reason
                if failure.gone:
                    self._gone = True
                    return
                self._failed(request, failure.reason, failure.retry_after)
        finally:
            self._connections.append(connection)

    def _requests(self, notifications: Sequence[Notification]) -> Iterator[WebhookRequest]:
        form = self._worker.webhook.cloudevents
        yield from split_requests([one for one in notifications if one.deliveries == 1], form)
        for one in notifications:
            if one.deliveries > 1:
                yield from split_requests([one], form)

    def _took(self, request: WebhookRequest) -> None:
        self._stream.acknowledge([one.sequence for one in request.notifications])
        self._failures = 0
        self._worker.error = None
        self._worker.sender.report(self._worker.subscriber, "delivered")
        self._worker.sender.on_taken(request.notifications)

    def _failed(self, request: WebhookRequest, reason: str, retry_after: float) -> None:
        sender, subscriber = self._worker.sender, self._worker.subscriber
        if self._failures == 0:  # the others would fill the log
            _log.warning("webhook of %s: %s; trying again", subscriber, reason)
        self._failures += 1
        delay = sender.back_off(request.notifications[0].deliveries, retry_after)
        self._stream.reject([one.sequence for one in request.notifications], reason, delay)
        sender.report(subscriber, "failed")

    async def _disconnect(self) -> None:
        for connection in self._connections:
            await connection.disconnect()
