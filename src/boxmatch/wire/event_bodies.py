"""Events in the body of a request or of a message, as JSON without its loopholes.

JSON is refused where readers disagree about what it says: two values under one name, NaN and
infinities, numbers too large for a double, text that is not UTF-8, nesting without end. Events
come as one JSON object, as an array of them, as NDJSON, or as an Arrow IPC stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from boxmatch.kernels.pieces import pieces
from boxmatch.wire.http import ARROW, JSON, NDJSON
from boxmatch.wire.problems import Problem

MOST_DEPTH: Final = 200
"""How deep JSON may be nested; the encoder ends at 254."""

LARGE: Final = 128 * 1024
"""Bodies from this size on take milliseconds to decode."""
_ELEMENTS: Final = 64
"""Of an array that are decoded between turns of other threads."""

ARROW_GROWTH: Final = 8
"""Arrow can say much in few bytes (a column of equal values); it is refused when its rows
take more than this many times the bytes that a body may have."""

_LINES: Final = (NDJSON, "application/ndjson", "application/jsonl")
_STRING_OR_NAME: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"(\s*+:)?', re.DOTALL)
_SPACES: Final = (b" ", b"\t", b"\n", b"\r")
_VALUE_BYTES: Final = 64
"""Of a value in a dict, together with its place there."""


class Events(NamedTuple):
    """Events as they came: for the matcher as dicts, for the log as JSON, one each."""

    rows: list[dict[str, Any]]
    bodies: list[bytes]
    keys: Sequence[str] = ()
    """One each, or none: an event whose key the feed has had within a day is not published."""

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        values = sum(map(len, self.rows)) + len(self.keys)
        return sum(map(len, self.bodies)) + _VALUE_BYTES * values


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
    quick = b"\\" not in body and not _has_space_before_colon(body)
    if quick and body.count(b'":') == _shallow_names(value):
        return
    written = sum(1 for one in _STRING_OR_NAME.finditer(body) if one[1] is not None)
    if written != _count_names(value, what, more):
        name = _repeated_name(body)
        raise Problem(400, "json", f"{what} has the name {name!r} twice in one object", **more)


def _has_space_before_colon(body: bytes) -> bool:
    for space in _SPACES:  # noqa: SIM110  # a generator takes longer than what it looks for
        if space in body and space + b":" in body:
            return True
    return False


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


def read_events(body: bytes, media_type: str, *, most: int, most_bytes: int) -> Events:
    """The events in a body. Raises a `Problem` that says which of them is wrong.

    The bodies that are kept are compact JSON, whatever was sent: one line each.
    """
    if media_type == ARROW:
        from boxmatch.wire.arrow_bodies import rows_of  # takes long to import

        return rows_of(body, lambda count: check_count(count, most), most_bytes * ARROW_GROWTH)
    if media_type in (JSON, "") or media_type.endswith("+json"):
        value = load_json(body)
        if type(value) is dict and len(body) <= LARGE:
            return Events([value], [dump_json(value, what="the event", index=0)])
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
