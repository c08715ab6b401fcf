"""The bucket of subscriptions, read in the order in which it was written.

A reader asks any replica for what comes after the last sequence that it knows (batches of direct
gets), so there is no consumer that a server could lose. To learn how far it has to read, it writes
a marker of its own and takes the sequence that the write is acknowledged with: all that was
acknowledged before has a smaller one, whoever leads the stream. Asking for the last sequence would
be answered, for a moment, also by a server that was suspended and does not know yet that another
one leads.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import nats.errors
import nats.js.errors

from boxmatch.errors import RouteError
from boxmatch.nats.names import Names

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

MARKER_SECONDS: Final = 3600
"""After which the marker of a worker that is gone disappears."""
DELETED_SECONDS: Final = 30 * 86_400
"""How long the bucket remembers that a subscription was removed."""

_BATCH: Final = 5_000
_PATIENCE: Final = 2.0
"""Seconds to wait for a message before another replica is asked."""
_WRONG_LAST_SEQUENCE: Final = 10071
_STREAM_FULL: Final = 10077
TRANSIENT: Final = (
    TimeoutError,  # also that of nats-py
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
    nats.js.errors.ServerError,
)
"""Errors that pass: nobody leads, or the connection is down."""


class Change(NamedTuple):
    """A key that was written, or removed."""

    key: str
    value: bytes | None
    revision: int


class ReloadError(RouteError):
    """What is known of the bucket cannot be brought up to date: read it again from the start."""


class BucketReader:
    """Follows the bucket of a route. For one task at a time."""

    def __init__(
        self,
        connection: Client,
        js: JetStreamContext,
        names: Names,
        worker: str,
        *,
        on_error: Callable[[str, object], None],
        revision: int = 0,
    ) -> None:
        self._connection = connection
        self._js = js
        self._names = names
        self._marker = names.marker(worker)
        self._on_error = on_error
        self.revision = revision
        """All changes up to this sequence were handed out."""
        self.created = ""
        """When the bucket was: another one of the same name counts from 1 again."""
        self._marked: int | None = None
        self._moved: float | None = None

    async def open(self) -> None:
        """Find the bucket. `RouteError`: there is none."""
        self.created = await self._find()

    async def catch_up(self) -> AsyncIterator[list[Change]]:
        """All changes that were acknowledged before this was called, in order and in parts, and
        later ones maybe. Tries until it succeeds; `RouteError`: the bucket is gone.
        """
        now = time.monotonic()
        if self._moved is not None and now - self._moved > DELETED_SECONDS / 2:
            raise ReloadError("this worker slept for so long that removals may be forgotten")
        target = await self._mark()
        pause = 0.001
        while self.revision < target:
            changes = await self.read()
            if changes:
                yield changes
            else:  # a replica that is behind, or none
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.25)
        self._moved = now

    async def read(self) -> list[Change]:
        """The next changes that a replica has; none if it has none, or does not answer."""
        changes: list[Change] = []
        try:
            await self._read_batch(changes)
        except TRANSIENT as error:
            if not changes:
                await self._bear(error)
        return changes

    async def _mark(self) -> int:
        """A sequence after those of all that is acknowledged."""
        while True:
            headers = {"Nats-TTL": f"{MARKER_SECONDS}s"}
            if self._marked is not None:
                headers["Nats-Expected-Last-Subject-Sequence"] = str(self._marked)
            try:
                ack = await self._js.publish(
                    self._marker, b"", stream=self._names.bucket, headers=headers
                )
            except nats.js.errors.APIError as error:
                if error.err_code == _WRONG_LAST_SEQUENCE:
                    # It expired, its acknowledgement was lost, or this is another bucket.
                    self._marked = None
                    await self._check_same()
                elif error.err_code == _STREAM_FULL:
                    # Nobody can subscribe now, either; so what the leader says is as good.
                    self._on_error("bucket-full", error)
                    info = await self._js.stream_info(self._names.bucket)
                    return info.state.last_seq
                else:
                    await self._bear(error)
            except TRANSIENT as error:
                self._marked = None
                await self._bear(error)
            else:
                if ack.seq <= self.revision:
                    raise ReloadError("the bucket of subscriptions is another one")
                self._marked = ack.seq
                return ack.seq

    async def note(self, subject: str, text: str) -> bool:
        """Write a key that is not there, for as long as a marker; False if it is there.

        If the bucket is full, nothing is written.
        """
        headers = {"Nats-TTL": f"{MARKER_SECONDS}s", "Nats-Expected-Last-Subject-Sequence": "0"}
        while True:
            try:
                await self._js.publish(
                    subject, text.encode(), stream=self._names.bucket, headers=headers
                )
            except nats.js.errors.APIError as error:
                if error.err_code == _WRONG_LAST_SEQUENCE:
                    return await self._holds(subject, text)  # an acknowledgement may be lost
                if error.err_code == _STREAM_FULL:
                    self._on_error("bucket-full", error)
                    return True
                await self._bear(error)
            except TRANSIENT as error:
                await self._bear(error)
            else:
                return True

    async def _holds(self, subject: str, text: str) -> bool:
        while True:
            try:
                found = await self._js.get_msg(self._names.bucket, subject=subject)
            except nats.js.errors.NotFoundError:
                return False
            except TRANSIENT as error:
                await self._bear(error)
            else:
                return found.data == text.encode()

    async def erase(self, subject: str) -> None:
        """Remove a key that `note` has written."""
        while True:
            try:
                await self._js.purge_stream(self._names.bucket, subject=subject)
            except (*TRANSIENT, nats.js.errors.APIError) as error:
                await self._bear(error)
            else:
                return

    async def _bear(self, error: Exception) -> None:
        """Go on after an error that may pass; `RouteError` if the bucket is gone."""
        self._on_error("bucket", error)
        await asyncio.sleep(0.1)
        await self._check_same()

    async def _check_same(self) -> None:
        try:
            if await self._find() != self.created:
                raise ReloadError("the bucket of subscriptions was made anew")
        except TRANSIENT:
            pass  # nobody leads at the moment

    async def _find(self) -> str:
        try:
            info = await self._js.stream_info(self._names.bucket)
        except nats.js.errors.NotFoundError:
            raise RouteError(
                f"there is no route {self._names.route!r}: boxmatch route init makes one"
            ) from None
        return info.created.isoformat() if info.created else ""

    async def _read_batch(self, changes: list[Change]) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        last = 0

        async def receive(message: Msg) -> None:  # `next_msg` would make a task for each
            nonlocal last
            if ended.done():
                return
            headers: dict[str, Any] = message.headers or {}
            status = headers.get("Status")
            if status == "503":
                ended.set_exception(nats.errors.NoRespondersError())
            elif status in ("204", "404"):  # the end, or there was nothing
                ended.set_result(None)
            elif status is not None:
                ended.set_exception(RouteError(f"the bucket cannot be read: status {status}"))
            elif int(headers["Nats-Last-Sequence"]) != last:
                ended.set_result(None)  # one was lost on the way: ask again from here
            else:
                self.revision = last = int(headers["Nats-Sequence"])
                changes.append(self._change(message, headers, last))

        inbox = self._connection.new_inbox()
        answers = await self._connection.subscribe(inbox, cb=receive, pending_msgs_limit=2 * _BATCH)
        try:
            asked = {
                "seq": self.revision + 1,
                "batch": _BATCH,
                "next_by_subj": f"{self._names.keys}>",
            }
            subject = f"$JS.API.DIRECT.GET.{self._names.bucket}"
            await self._connection.publish(subject, json.dumps(asked).encode(), reply=inbox)
            known = -1
            while not ended.done():
                if len(changes) == known:
                    raise nats.errors.TimeoutError
                known = len(changes)
                await asyncio.wait([ended], timeout=_PATIENCE)
            ended.result()
        finally:
            ended.cancel()  # what comes now is not wanted
            await answers.unsubscribe()

    def _change(self, message: Msg, headers: dict[str, Any], revision: int) -> Change:
        key = headers["Nats-Subject"].removeprefix(self._names.keys)
        gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
        return Change(key, None if gone else message.data, revision)
