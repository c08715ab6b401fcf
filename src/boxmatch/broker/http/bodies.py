"""The bodies of requests: read up to a limit, of each and of all together, and JSON without its
loopholes.

JSON is refused where readers disagree about what it says: two values under one name, NaN and
infinities, numbers too large for a double, text that is not UTF-8, nesting without end. Events
come as one JSON object, as an array of them, as NDJSON, or as an Arrow IPC stream.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
import orjson
from fastapi import Request
from starlette.requests import ClientDisconnect

from boxmatch.broker.access.grant import OPEN
from boxmatch.broker.feeds.pipeline import Events
from boxmatch.broker.http.authentication import context_of
from boxmatch.broker.http.problems import MOST_FAULTS, Problem, misplaced
from boxmatch.errors import OverloadError
from boxmatch.kernels.pieces import pieces
from boxmatch.spaces.dimensions import ONLY_REGION
from boxmatch.wire.codec import faults
from boxmatch.wire.http import ARROW, JSON, NDJSON

MOST_DEPTH: Final = 200
"""How deep JSON may be nested; the encoder ends at 254."""

SMALL: Final = 64 * 1024
"""Bodies up to this size are not counted: the server holds as much of every connection anyway."""
LARGE: Final = 128 * 1024
"""Bodies from this size on take milliseconds to decode."""
_ELEMENTS: Final = 64
"""Of an array that are decoded between turns of other threads."""
PATIENCE: Final = 5.0
"""Seconds that a large body waits for others to go."""

ARROW_GROWTH: Final = 8
"""Arrow can say much in few bytes (a column of equal values); it is refused when its rows
take more than this many times the bytes that a body may have."""

T = TypeVar("T")

_LINES: Final = (NDJSON, "application/ndjson", "application/jsonl")
_HELD: Final = "boxmatch.body"
_STRING_OR_NAME: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"(\s*+:)?', re.DOTALL)
_SPACES: Final = (b" ", b"\t", b"\n", b"\r")


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
    has_room = False
    parts: list[bytes] = []
    try:
        async for part in request.stream():
            received += len(part)
            if received > most:
                raise _too_large(most)
            if received > SMALL and not has_room:
                await context_of(request).bodies.take(request.scope, declared, holder)
                has_room = True
            parts.append(part)
    except ClientDisconnect:  # nobody is there to read this
        raise Problem(400, "body", "the body ended early") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> Problem:
    # The rest of the body is not read, so the connection cannot be used again.
    headers = {"Connection": "close"}
    return Problem(413, "body-size", f"a body has at most {most:,} bytes here", headers=headers)


def media_type(request: Request) -> str:
    """What the body is said to be, in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def load_json(body: bytes, *, what: str = "the body", **more: Any) -> Any:
    """The value that JSON stands for. Raises a `Problem` that says where it is not JSON.

    >>> load_json(b'{"price": 3}')
    {'price': 3}
    """
    if not body.strip():
        raise Problem(400, "json", f"{what} is empty; JSON is expected", **more)
    try:
        value = orjson.loads(body) if len(body) <= LARGE else _load_in_pieces(body)
    except orjson.JSONDecodeError as error:
        raise Problem(400, "json", f"{what} is not JSON: {error}", **more) from None
    _check_names(body, value, what, more)
    return value


def _load_in_pieces(body: bytes) -> Any:
    """What is decoded in one call keeps all other threads waiting, so of an array it is the
    elements, in pieces.
    """
    try:
        elements = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return orjson.loads(body)  # it is no array, or orjson says better what is wrong
    values: list[Any] = []
    for piece in pieces(len(elements), _ELEMENTS):
        values += [orjson.loads(memoryview(one)) for one in elements[piece]]
    return values


async def decode(body: bytes, read: Callable[[bytes], T]) -> T:
    """Have a body read: a large one not in the event loop, which others wait for."""
    return read(body) if len(body) <= LARGE else await asyncio.to_thread(read, body)


def dump_json(value: Any, *, what: str = "the body", **more: Any) -> bytes:
    """Compact JSON of something that came as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        raise Problem(
            400, "json", f"{what} is nested too deeply; {MOST_DEPTH} levels will do", **more
        ) from None


def _check_names(body: bytes, value: Any, what: str, more: dict[str, Any]) -> None:
    """Refuse two values under one name, of which the parser would keep the last."""
    # Counting is enough: the text has as many names as the value, unless one came twice. The
    # quick count is exact if no string has an escape and no colon has a space before it. Two bytes
    # take 20 times as long to look for as one, and compact JSON has no spaces.
    spaced = any(space in body and space + b":" in body for space in _SPACES)
    quick = b"\\" not in body and not spaced
    if quick and body.count(b'":') == _shallow_names(value):
        return
    written = sum(1 for one in _STRING_OR_NAME.finditer(body) if one[1] is not None)
    if written != _count_names(value, what, more):
        name = _repeated_name(body)
        raise Problem(400, "json", f"{what} has the name {name!r} twice in one object", **more)


def _shallow_names(value: Any) -> int:
    if type(value) is dict:
        return len(value)
    if type(value) is list:
        return sum(len(one) for one in value if type(one) is dict)
    return 0


def _count_names(value: Any, what: str, more: dict[str, Any]) -> int:
    count = 0
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        deeper: list[Any] = []
        for one in level:
            if type(one) is dict:
                count += len(one)
                deeper.extend(one.values())
            elif type(one) is list:
                deeper.extend(one)
        if not deeper:
            return count
        level = [one for one in deeper if type(one) is dict or type(one) is list]
    raise Problem(400, "json", f"{what} is nested more than {MOST_DEPTH} levels deep", **more)


def _repeated_name(body: bytes) -> str:
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                found.append(name)
            names.add(name)

    json.loads(body, object_pairs_hook=look)
    return found[0] if found else "?"


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


def read_events(body: bytes, media_type: str, *, most: int, most_bytes: int) -> Events:
    """The events in a body. Raises a `Problem` that says which of them is wrong.

    The bodies that are kept are compact JSON, whatever was sent: one line each.
    """
    if media_type == ARROW:
        from boxmatch.broker.http.arrow_bodies import rows_of  # takes long to import

        return rows_of(body, lambda count: check_count(count, most), most_bytes * ARROW_GROWTH)
    if media_type in (JSON, "") or media_type.endswith("+json"):
        value = load_json(body)
        rows = value if type(value) is list else [value]
        check_count(len(rows), most)
    elif media_type in _LINES:
        rows = _read_lines(body, most)
    else:
        known = ", ".join((JSON, NDJSON, ARROW))
        raise Problem(415, "media-type", f"content-type {media_type!r}: send one of {known}")
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise _not_an_event(row, index)
    try:
        bodies: list[bytes] = []
        for piece in pieces(len(rows), _ELEMENTS):
            bodies += [orjson.dumps(row) for row in rows[piece]]
        return Events(rows, bodies)
    except TypeError:
        for index, row in enumerate(rows):
            dump_json(row, what="the event", index=index)
        raise


def _read_lines(body: bytes, most: int) -> list[Any]:
    breaks = body.count(b"\n")  # before splitting: megabytes of empty lines are many objects
    if breaks > 2 * most + 1:
        raise Problem(
            413, "events", f"a request has at most {most:,} events; this has {breaks:,} lines"
        )
    # Lines may end in CR LF, which is white space to JSON.
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    check_count(len(lines), most)
    return [
        load_json(line, what=f"line {index + 1}", index=index) for index, line in enumerate(lines)
    ]


def check_count(count: int, most: int) -> None:
    """Refuse a request without events, or with too many."""
    if count == 0:
        raise Problem(422, "events", "there are no events in the body")
    if count > most:
        raise Problem(413, "events", f"a request has at most {most:,} events, not {count:,}")


def _not_an_event(value: object, index: int) -> Problem:
    kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
    return Problem(422, "events", f"event {index} is {kind}; an event is an object", index=index)
