"""Messages of a durable consumer, asked for in batches while others are being worked on.

What has come when somebody asks is a batch: one message while there are few, many under load. (The
`fetch` of nats-py waits for each message in a task of its own.)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import nats.errors

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_EXPIRES: Final = 2.0
"""Seconds after which the server forgets a request: by then a new leader has none, either."""
_GRACE: Final = 1.0
_REPLIES: Final = ("404", "408", "409")
"""Of a request that is at an end: nothing there, too late, or the server changes its mind."""


class PullError(nats.errors.Error):
    """The consumer does not answer: it has no leader, or is gone."""


class Puller:
    """Pulls messages from one consumer. For one task."""

    def __init__(self, connection: Client, stream: str, consumer: str, batch: int) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._batch = batch
        self._inbox = connection.new_inbox()
        self._messages: list[Msg] = []
        self._changed = asyncio.Event()
        self._asked = 0
        """Messages that a request may still bring."""
        self._expires = 0.0
        self._problem: str | None = None
        self._woken = False
        self._subscription: Subscription | None = None
        self.held = 0.0
        """When the server last heard that messages which wait here are wanted."""

    @property
    def waiting(self) -> Sequence[Msg]:
        """Messages that nobody has taken yet."""
        return self._messages

    async def open(self) -> None:
        self._subscription = await self._connection.subscribe(self._inbox, cb=self._receive)

    async def close(self) -> None:
        """Ask for no more; gives back what nobody has taken."""
        if self._subscription is not None and not self._connection.is_closed:
            # What is on its way comes before the end of the draining. That waits for a pong, and if
            # it were cut short, the pong would end the reading of the connection (nats-py 2.16).
            draining = asyncio.ensure_future(
                self._subscription.drain()  # type: ignore[no-untyped-call]
            )
            with suppress(TimeoutError, nats.errors.Error):
                async with asyncio.timeout(_GRACE):
                    await asyncio.shield(draining)
            for message in self.discard():
                await message.nak()

    def discard(self) -> list[Msg]:
        """Forget what nobody has taken."""
        found, self._messages = self._messages, []
        return found

    async def next(self, seconds: float) -> list[Msg]:
        """The messages that have come; waits so long for the first. `PullError`: ask later."""
        end = time.monotonic() + seconds
        while not self._messages:
            await self._ask()
            left = end - time.monotonic()
            if left <= 0:
                return []
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
            if self._woken:
                self._woken = False
                return []
            if self._problem is not None:
                said, self._problem = self._problem, None
                raise PullError(said)
        found = self.discard()
        await self._ask()
        return found

    def wake(self) -> None:
        """Have `next` return, though nothing has come."""
        self._woken = True
        self._changed.set()

    async def _ask(self) -> None:
        now = time.monotonic()
        if self._asked and now < self._expires + _GRACE:
            return
        self._asked, self._expires = self._batch, now + _EXPIRES
        request = {"batch": self._batch, "expires": round(_EXPIRES * 1e9)}
        await self._connection.publish(
            self._subject, json.dumps(request).encode(), reply=self._inbox
        )

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is not None and not message.reply:
            if status == "100":
                return
            self._asked = 0
            said = str((message.headers or {}).get("Description", ""))
            if status not in _REPLIES or "Deleted" in said:
                self._problem = f"status {status} {said.strip()}".strip()
        else:
            if not self._messages:
                self.held = time.monotonic()
            self._messages.append(message)
            self._asked = max(0, self._asked - 1)
        self._changed.set()
