"""CloudEvents 1.0: what may stand in one, and how it is written as JSON and as headers of HTTP.

https://github.com/cloudevents/spec. An event here is the object of its JSON format, with `data` or
`data_base64` beside the attributes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, unquote

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from boxmatch.wire.codec import faults
from boxmatch.wire.http import JSON
from boxmatch.wire.responses import Fault

HEADER: Final = "ce-"
"""What names of attributes begin with where they are headers."""
SUBPROTOCOL: Final = "cloudevents.json"
"""Of a WebSocket whose messages are CloudEvents."""

_URI: Final = r"([A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"

Text = Annotated[str, Meta(min_length=1, extra={"otherwise": "must be text that is not empty"})]


class CloudEvent(Struct, frozen=True, kw_only=True):
    """A CloudEvent in the JSON format. Extensions are further fields, whose names consist of a to z
    and 0 to 9, with text, whole numbers of 32 bits or booleans.
    """

    specversion: Annotated[Literal["1.0"], Meta(extra={"otherwise": "must be 1.0"})]
    id: Annotated[Text, Meta(description="With `source`, the same for the same event.")]
    source: Annotated[
        str,
        Meta(
            pattern=f"^{_URI}+$", extra={"otherwise": "must be a URI or a part of one (RFC 3986)"}
        ),
    ]
    type: Text
    subject: Text | UnsetType = UNSET
    time: (
        Annotated[
            str,
            Meta(
                pattern=_TIME,
                description="RFC 3339",
                extra={"otherwise": "must be a time as in 2026-03-01T09:30:00Z (RFC 3339)"},
            ),
        ]
        | UnsetType
    ) = UNSET
    datacontenttype: (
        Annotated[
            str,
            Meta(
                pattern=rf"^{_TOKEN}/{_TOKEN}[ \t]*(;[ -~]*)?$",
                description="JSON, if it is not given.",
                extra={"otherwise": "must be a media type"},
            ),
        ]
        | UnsetType
    ) = UNSET
    dataschema: (
        Annotated[
            str,
            Meta(
                pattern=rf"^[A-Za-z][A-Za-z0-9+.\-]*:{_URI}*$",
                extra={"otherwise": "must be a URI with its scheme (RFC 3986)"},
            ),
        ]
        | UnsetType
    ) = UNSET
    data: Annotated[Any, Meta(description="Of another type than JSON, text.")] | UnsetType = UNSET
    data_base64: Annotated[str, Meta(description="Instead of `data`: bytes.")] | UnsetType = UNSET


DATA: Final = frozenset({"data", "data_base64"})
ATTRIBUTES: Final = frozenset(CloudEvent.__struct_fields__) - DATA
"""Those that the specification names; all others are extensions."""

EXTENSION_FEED: Final = "boxmatchfeed"
EXTENSION_SEQUENCE: Final = "boxmatchsequence"
EXTENSION_MATCHED: Final = "boxmatchmatched"
"""The ids of the subscriptions, with commas between them."""
EXTENSION_RATE: Final = "boxmatchrate"
EXTENSION_DELIVERIES: Final = "boxmatchdeliveries"
"""Of false matches that was tolerated, if it was not 0."""

_NAME = re.compile("[a-z0-9]+")
_LAST_OF_PLANES: Final = "".join(
    chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF)
)
_FORBIDDEN = re.compile(f"[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_LAST_OF_PLANES}]")
_MOST_INTEGER: Final = 1 << 31
_SECONDS_ON = re.compile(r":60(?=\.|[Zz+-])|\.[0-9]+")

_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s;"]*)', re.IGNORECASE)
_CODECS: Final = {"utf-8": "utf-8", "us-ascii": "ascii", "iso-8859-1": "latin-1"}
"""Charsets of text that is read. Others are bytes."""

_PRINTABLE: Final = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
"""What is not percent-encoded in headers, beside letters, digits and `_.-~`."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_NO_CODE = re.compile("%(?![0-9A-Fa-f]{2})")


# What an event may say


def is_cloudevent(event: object) -> bool:
    """Whether something out of JSON is a whole CloudEvent."""
    if not isinstance(event, dict) or event.get("specversion") != "1.0":
        return False
    return next(event_faults(event), None) is None


def event_faults(event: Mapping[str, Any], place: str = "body") -> Iterator[Fault]:
    """Every place where an event is not as the specification has it."""
    found = [*faults(event, CloudEvent, place), *_attribute_faults(event, place)]
    yield from found or _data_faults(event, place)


def _attribute_faults(event: Mapping[str, Any], place: str) -> Iterator[Fault]:
    for name, value in event.items():
        if name in DATA:
            continue
        at = f"{place}/{name}"
        if name not in ATTRIBUTES and not _NAME.fullmatch(name):
            yield Fault(at, "names of attributes consist of a to z and 0 to 9")
        elif isinstance(value, str):
            forbidden = _find_forbidden(value)
            if forbidden is not None:
                yield Fault(at, f"the character U+{ord(forbidden):04X} is not allowed")
            elif name == "time" and re.search(_TIME, value) and not _is_in_calendar(value):
                yield Fault(at, "there is no such time")
        elif name not in ATTRIBUTES and not _is_value(value):
            yield Fault(at, "must be text, a whole number of 32 bits or a boolean")


def _find_forbidden(text: str) -> str | None:
    if text.isascii() and text.isprintable():  # the usual case, and much quicker
        return None
    found = _FORBIDDEN.search(text)
    return None if found is None else found[0]


def _is_value(value: object) -> bool:
    if type(value) is int:
        return -_MOST_INTEGER <= value < _MOST_INTEGER
    return type(value) is bool


def _is_in_calendar(time: str) -> bool:
    # A second may have the number 60, and any number of digits, which datetime does not know.
    plain = _SECONDS_ON.sub(lambda found: ":59" if found[0] == ":60" else "", time.upper())
    try:
        datetime.fromisoformat(plain)
    except ValueError:
        return False
    return True


def _data_faults(event: Mapping[str, Any], place: str) -> Iterator[Fault]:
    kind = event.get("datacontenttype")
    if "data_base64" in event:
        at = f"{place}/data_base64"
        if "data" in event:
            yield Fault(at, "give data or data_base64, not both")
        elif read_base64(event["data_base64"]) is None:
            yield Fault(at, "is not Base64 (RFC 4648)")
    elif "data" in event and not is_json(kind):
        data, codec = event["data"], codec_of(kind)
        if not isinstance(data, str):
            yield Fault(f"{place}/data", f"must be text, as datacontenttype is {kind!r}")
        elif codec is None or not _can_encode(data, codec):
            yield Fault(f"{place}/data", f"cannot be written as {kind!r}; send data_base64")


def _can_encode(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeError:
        return False
    return True


# Data


def is_json(kind: str | None) -> bool:
    """Whether data of a media type is JSON, as it is if nothing is said."""
    if kind is None:
        return True
    media = kind.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def is_text(kind: str) -> bool:
    """Whether data of a media type is text that is no JSON."""
    media = kind.partition(";")[0].strip().lower()
    return media.startswith("text/") or media.endswith(("/xml", "+xml"))


def codec_of(kind: str | None) -> str | None:
    """How text of a media type is encoded, as Python calls it; None if that is not known here."""
    found = _CHARSET.search(kind or "")
    return "utf-8" if found is None else _CODECS.get(found[1].lower())


def read_base64(text: str) -> bytes | None:
    """The bytes; None if it is no Base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # also for what is not ASCII
        return None


# Binary mode


def decode_header(value: bytes) -> str:
    """The value of an attribute that is a header. `ValueError` says why there is none."""
    if not value.isascii():
        raise ValueError("has a byte that is not ASCII; percent-encode it")
    text = value.decode()
    if '"' in text:
        if '"' in _QUOTED.sub("", text):
            raise ValueError("a double quote is not closed")
        text = _QUOTED.sub(lambda found: _ESCAPED.sub(r"\1", found[1]), text)
    if _NO_CODE.search(text):
        raise ValueError("% is not followed by two hexadecimal digits")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("the percent-encoded bytes are not UTF-8") from None


def binary_form(event: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """A valid event as headers and a body."""
    headers = {
        f"{HEADER}{name}": quote(_canonical(value), safe=_PRINTABLE)
        for name, value in event.items()
        if name not in DATA and name != "datacontenttype"
    }
    kind, body = _body_of(event)
    if kind is not None:
        headers["Content-Type"] = kind
    return headers, body


def _canonical(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _body_of(event: Mapping[str, Any]) -> tuple[str | None, bytes]:
    kind: str | None = event.get("datacontenttype")
    if "data_base64" in event:
        return kind, read_base64(event["data_base64"]) or b""
    if "data" not in event:
        return kind, b""
    data = event["data"]
    if is_json(kind):
        return kind or JSON, orjson.dumps(data)
    return kind, data.encode(codec_of(kind) or "utf-8")


# What the broker adds


def delivery_extensions(
    feed: str, sequence: int, subscriptions: Iterable[str], rate: float, deliveries: int
) -> dict[str, str]:
    """What a notification says beside its event. Sequence numbers are text, as whole numbers of
    CloudEvents have 32 bits.
    """
    said = {
        EXTENSION_FEED: feed,
        EXTENSION_SEQUENCE: str(sequence),
        EXTENSION_MATCHED: ",".join(subscriptions),
    }
    if rate:
        said[EXTENSION_RATE] = f"{rate:g}"
    if deliveries:
        said[EXTENSION_DELIVERIES] = str(deliveries)
    return said
