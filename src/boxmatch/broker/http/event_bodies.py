"""Events as they are sent: one JSON object, an array of them, NDJSON, or an Arrow IPC stream."""

from __future__ import annotations

from typing import Final

import orjson

from boxmatch.broker.feeds.pipeline import Events
from boxmatch.broker.http.bodies import dump_json, load_json
from boxmatch.broker.http.problems import Problem
from boxmatch.wire.http import ARROW, JSON, NDJSON

_LINES: Final = (NDJSON, "application/ndjson", "application/jsonl")

MOST_ARROW_GROWTH: Final = 8
"""Arrow can say much in few bytes (a column of equal values); it is refused when its rows
take more than this many times the bytes that a body may have."""


def read_events(body: bytes, media_type: str, *, most: int, most_bytes: int) -> Events:
    """The events in a body. Raises a `Problem` that says which of them is wrong.

    The bodies that are kept are compact JSON, whatever was sent: one line each.
    """
    if media_type in (JSON, "") or media_type.endswith("+json"):
        return _from_json(body, most)
    if media_type in _LINES:
        return _from_lines(body, most)
    if media_type == ARROW:
        return _from_arrow(body, most, most_bytes)
    known = ", ".join((JSON, NDJSON, ARROW))
    raise Problem(415, "media-type", f"content-type {media_type!r}: send one of {known}")


def _from_json(body: bytes, most: int) -> Events:
    value = load_json(body)
    rows = value if type(value) is list else [value]
    _check_count(len(rows), most)
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise _not_an_event(row, index)
    try:
        return Events(rows, [orjson.dumps(row) for row in rows])
    except TypeError:
        for index, row in enumerate(rows):
            dump_json(row, what="the event", index=index)
        raise


def _from_lines(body: bytes, most: int) -> Events:
    breaks = body.count(b"\n")  # before splitting: megabytes of empty lines are many objects
    if breaks > 2 * most + 1:
        raise Problem(
            413, "events", f"a request has at most {most:,} events; this has {breaks:,} lines"
        )
    # Lines may end in CR LF, which is white space to JSON.
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    _check_count(len(lines), most)
    rows = [
        load_json(line, what=f"line {index + 1}", index=index) for index, line in enumerate(lines)
    ]
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise _not_an_event(row, index)
    return Events(
        rows, [dump_json(row, what="the event", index=index) for index, row in enumerate(rows)]
    )


def _from_arrow(body: bytes, most: int, most_bytes: int) -> Events:
    from boxmatch.broker.http.arrow_bodies import rows_of  # takes long to import

    def check(count: int) -> None:
        _check_count(count, most)

    return rows_of(body, check, most_bytes * MOST_ARROW_GROWTH)


def _check_count(count: int, most: int) -> None:
    if count == 0:
        raise Problem(422, "events", "there are no events in the body")
    if count > most:
        raise Problem(413, "events", f"a request has at most {most:,} events, not {count:,}")


def _not_an_event(value: object, index: int) -> Problem:
    kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
    return Problem(422, "events", f"event {index} is {kind}; an event is an object", index=index)
