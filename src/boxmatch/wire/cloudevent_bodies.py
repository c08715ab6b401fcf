"""CloudEvents in requests: binary, structured and batched, as events of a feed.

What is stored, matched and delivered is the object of the JSON format, in whatever mode it came:
attributes under their names, fields of the data under `data`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from boxmatch.model.documents import ROOT
from boxmatch.model.schema import Schema
from boxmatch.wire.cloudevents import (
    ATTRIBUTES,
    DATA,
    HEADER,
    codec_of,
    decode_header,
    event_faults,
    is_json,
    is_text,
    read_base64,
)
from boxmatch.wire.event_bodies import Events, check_count, dump_json, load_json
from boxmatch.wire.http import CLOUDEVENT, CLOUDEVENTS
from boxmatch.wire.problems import MOST_FAULTS, Problem, faulty
from boxmatch.wire.responses import Fault

Headers = Sequence[tuple[bytes, bytes]]
"""With names in lower case."""

_PREFIX: Final = HEADER.encode()
_INTEGER = re.compile("-?(0|[1-9][0-9]{0,9})")
_NUMBERS: Final = ("int", "float", "decimal")
_BOOLEANS: Final = {"true": True, "false": False}
_NEVER_UNKNOWN: Final = ATTRIBUTES | {"data_base64"}


def are_cloudevents(headers: Headers, media_type: str) -> bool:
    """Whether a request has CloudEvents; in binary mode any header of theirs says so."""
    if media_type.startswith("application/cloudevents"):
        return True
    return any(name.startswith(_PREFIX) for name, _ in headers)


def read_cloudevents(
    body: bytes, headers: Headers, media_type: str, schema: Schema, *, most: int
) -> Events:
    """The events of a request to a feed with this schema. Raises a `Problem` that says which of
    them is wrong, and where.
    """
    if media_type == CLOUDEVENT:
        found = [_structured(load_json(body), "body")]
    elif media_type == CLOUDEVENTS:
        found = list(_batched(load_json(body), most))
    elif media_type.startswith("application/cloudevents"):
        raise Problem(
            415, "media-type", f"content-type {media_type!r}: send {CLOUDEVENT} or {CLOUDEVENTS}"
        )
    else:
        found = [_binary(body, headers)]
    for event in found:
        _read_types(event, schema)
    return Events(
        [_as_row(event, schema) for event in found],
        [dump_json(event, what="the event", index=index) for index, event in enumerate(found)],
        list(map(_key_of, found)),
    )


def _batched(value: Any, most: int) -> Iterator[dict[str, Any]]:
    if type(value) is not list:
        raise faulty(400, "cloudevent", [Fault("body", "a batch is an array")])
    if value:  # an empty one is nothing to do
        check_count(len(value), most)
    for index, event in enumerate(value):
        yield _structured(event, f"body/{index}", index=index)


def _structured(value: Any, place: str, **more: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise faulty(400, "cloudevent", [Fault(place, "an event is an object")], **more)
    # To the specification, an attribute that is null is not there.
    event = {name: one for name, one in value.items() if one is not None or name in DATA}
    _check(event_faults(event, place), **more)
    kind = event.get("datacontenttype")
    if "data_base64" in event and kind is not None and is_json(kind):
        data = read_base64(event.pop("data_base64")) or b""
        event["data"] = load_json(data, what=f"{place}/data_base64", **more)
    return event


def _binary(body: bytes, headers: Headers) -> dict[str, Any]:
    unread: list[Fault] = []
    event: dict[str, Any] = dict(_attributes(headers, unread))
    kind = dict(headers).get(b"content-type")
    if kind is not None:
        event["datacontenttype"] = kind.decode("latin-1")
    faults = [Fault(_header(one.place), one.message) for one in event_faults(event, "")]
    places = {one.place for one in unread}  # which are not missing
    _check([*unread, *(one for one in faults if one.place not in places)])
    if body:  # without one there is no data
        _put_data(event, body)
    return event


def _attributes(headers: Headers, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in headers:
        if not name.startswith(_PREFIX):
            continue
        attribute = name[len(_PREFIX) :].decode("latin-1")
        place = f"header.{HEADER}{attribute}"
        if attribute in seen:
            faults.append(Fault(place, "is there twice"))
        elif attribute == "datacontenttype" or attribute in DATA:
            faults.append(Fault(place, "the body is the data, and Content-Type its type"))
        else:
            try:
                yield attribute, decode_header(value)
            except ValueError as error:
                faults.append(Fault(place, str(error)))
        seen.add(attribute)


def _header(place: str) -> str:
    name = place.removeprefix("/")
    return "header.content-type" if name == "datacontenttype" else f"header.{HEADER}{name}"


def _put_data(event: dict[str, Any], body: bytes) -> None:
    """What is neither JSON nor text that can be read is kept as bytes."""
    kind = event.get("datacontenttype")
    if kind is not None and is_json(kind):
        event["data"] = load_json(body)
        return
    codec = codec_of(kind) if kind is not None and is_text(kind) else None
    try:
        if codec is not None:
            event["data"] = body.decode(codec)
            return
    except UnicodeDecodeError:
        pass
    event["data_base64"] = base64.b64encode(body).decode()


def _check(faults: Iterable[Fault], **more: Any) -> None:
    found = list(islice(faults, MOST_FAULTS))
    if found:
        raise faulty(400, "cloudevent", found, **more)


def _read_types(event: dict[str, Any], schema: Schema) -> None:
    """Attributes that came as text, as all do in headers, and are numbers or booleans to the feed.

    `data` is not looked into: its values have their types in any mode.
    """
    for name, value in event.items():
        if type(value) is str and name not in DATA and name in schema.index:
            kind = schema[name].type
            if kind in _NUMBERS and _INTEGER.fullmatch(value):
                event[name] = int(value)
            elif kind == "bool":
                event[name] = _BOOLEANS.get(value, value)


def _as_row(event: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """What is matched. Attributes of the specification are no mistakes where the feed has no such
    name; extensions and data may be.
    """
    is_open = ROOT in schema
    return {
        name: value
        for name, value in event.items()
        if is_open or name in schema.index or name not in _NEVER_UNKNOWN
    }


def _key_of(event: Mapping[str, Any]) -> str:
    """The same for the same event. A URI has no space, and nor has a key that publishers choose."""
    said = f"{event['source']} {event['id']}".encode()
    return f" {hashlib.sha256(said).hexdigest()}"
