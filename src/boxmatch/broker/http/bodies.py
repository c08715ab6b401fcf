"""The bodies of requests: read up to a limit, of each and of all together, then decoded.

`wire.event_bodies` says what is read as JSON.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Request

from boxmatch.broker.access.grant import OPEN
from boxmatch.broker.http.authentication import context_of
from boxmatch.errors import OverloadError
from boxmatch.spaces.dimensions import ONLY_REGION
from boxmatch.wire.codec import faults
from boxmatch.wire.event_bodies import LARGE, dump_json, load_json
from boxmatch.wire.http import JSON
from boxmatch.wire.problems import MOST_FAULTS, Problem, misplaced

SMALL: Final = 64 * 1024
"""Bodies up to this size are not counted: the server holds as much of every connection anyway."""
PATIENCE: Final = 5.0
"""Seconds that a large body waits for others to go."""

T = TypeVar("T")

_HELD: Final = "boxmatch.body"


class BodyBudget:
    """Room for the large bodies that are being read, or that wait for their answer.

    Of several keys, one that has a body here already may have another only if it leaves as much
    room to the others as it has then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._held: Counter[str] = Counter()
        """By who holds it."""
        self._freed = asyncio.Event()

    async def take(self, scope: MutableMapping[str, Any], size: int, holder: str) -> None:
        """Room for the body of a request, until `give_back`. `OverloadError`: there is none.

        For the whole of it at once: several with half of it each could wait for each other.
        """
        size = min(size, self._most)  # a key may allow larger ones; then it is one at a time
        try:
            async with asyncio.timeout(PATIENCE):
                while not self._has_room(size, holder):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise OverloadError("there are too many large bodies at once", retry_after=1) from None
        self._free -= size
        self._held[holder] += size
        scope[_HELD] = size, holder

    def _has_room(self, size: int, holder: str) -> bool:
        held = self._held[holder] if holder != OPEN.id else 0
        return size <= self._free and (not held or held + size <= self._free - size)

    def give_back(self, scope: MutableMapping[str, Any]) -> None:
        """The request is answered."""
        size, holder = scope.pop(_HELD, (0, ""))
        if size:
            self._free += size
            self._held[holder] -= size
            if not self._held[holder]:
                del self._held[holder]
            self._freed.set()


async def read_body(request: Request, most: int, holder: str) -> bytes:
    """The whole body, never more than `most` bytes of it in memory. `holder` is the key's id."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise Problem(
            415, "encoding", f"content-encoding {encoding!r} is not accepted; send it plain"
        )
    length = request.headers.get("content-length")
    declared = int(length) if length is not None and length.isdigit() else most
    if length is not None and declared > most:
        raise _too_large(most)
    received = 0
    has_room, is_more = False, True
    parts: list[bytes] = []
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":  # nobody is there to read this
            raise Problem(400, "body", "the body ended early")
        part, is_more = message.get("body", b""), message.get("more_body", False)
        received += len(part)
        if received > most:
            raise _too_large(most)
        if received > SMALL and not has_room:
            await context_of(request).bodies.take(request.scope, declared, holder)
            has_room = True
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> Problem:
    # The rest of the body is not read, so the connection cannot be used again.
    headers = {"Connection": "close"}
    return Problem(413, "body-size", f"a body has at most {most:,} bytes here", headers=headers)


def media_type(request: Request) -> str:
    """What the body is said to be, in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def decode(body: bytes, read: Callable[[bytes], T]) -> T:
    """Have a body read: a large one not in the event loop, which others wait for."""
    return read(body) if len(body) <= LARGE else await asyncio.to_thread(read, body)


async def read_request(request: Request, kind: type[T], most: int, holder: str) -> T:
    """A JSON body of a known shape; every place where it has another one is named.

    Any content type will do but one that says that it is something else.
    """
    said = media_type(request)
    if said and said != JSON and not said.endswith("+json"):
        raise Problem(415, "media-type", f"content-type {said!r}: send application/json")

    def read(body: bytes) -> T:
        value = load_json(body)
        dump_json(value)  # for its depth: error messages may show parts of it
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise misplaced("body", list(islice(faults(value, kind), MOST_FAULTS))) from None

    return await decode(await read_body(request, most, holder), read)


def named_regions(
    region: Mapping[str, Any] | None, regions: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The regions by name, in plain JSON; None if none are given."""
    if region is not None and regions is not None:
        raise Problem(422, "body", "give a region, or regions by name, not both")
    if region is not None:
        regions = {ONLY_REGION: region}
    # Ranges were checked as structs; here and on disk they are what they were in JSON.
    return None if regions is None else msgspec.to_builtins(regions)
