"""Messages on their way in and out: events of a message, notifications, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import orjson

from boxmatch.engine.ids import IdArray
from boxmatch.errors import RouteError
from boxmatch.model.schema import Schema
from boxmatch.nats.names import Names, decode_token
from boxmatch.nats.settings import MEDIA_TYPES, FeedSettings
from boxmatch.wire.event_bodies import Events, read_events

if TYPE_CHECKING:
    from nats.aio.msg import Msg

MOST_EVENTS: Final = 50_000
"""Of a message."""
_MOST_BYTES: Final = 64 << 20
_MOST_REASON: Final = 500


class Notification(msgspec.Struct, frozen=True):
    """An event that a subscriber's subscriptions want."""

    feed: str
    stream: str
    """That has the event."""
    sequence: int
    """Of the event's message in that stream."""
    index: int
    """Of the event in its message."""
    at: float
    """When the message was stored, in seconds since 1970."""
    subscriptions: tuple[str, ...]
    revision: int
    """Of the bucket: all subscriptions that were acknowledged up to it were matched."""
    event: dict[str, Any]


_decoder: Final = msgspec.json.Decoder(Notification)


def read_notification(data: bytes) -> Notification:
    """A notification out of a message. `RouteError`: it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RouteError(f"this is no notification: {error}") from None


class Outgoing(NamedTuple):
    """A message to be stored once."""

    subject: str
    id: str
    """By which JetStream knows one that it has already; none if that is empty."""
    data: bytes
    headers: Mapping[str, str] = {}  # nobody changes it


class Source(NamedTuple):
    """Where a message comes from."""

    stream: str
    incarnation: str
    """Which stream of this name: when it was made."""
    sequence: int
    at: float
    """When it was stored, in seconds since 1970."""
    deliveries: int
    """How many times it was delivered, with this one."""

    @property
    def id(self) -> str:
        return f"{self.stream}@{self.incarnation}/{self.sequence}"


class FeedSubjects:
    """Which feed a subject is of."""

    def __init__(self, names: Names, feeds: Mapping[str, FeedSettings]) -> None:
        self.of_feed = {name: feed.subject or names.feed(name) for name, feed in feeds.items()}
        self._exact = {subject: name for name, subject in self.of_feed.items()}
        self._patterns = [
            (subject.split("."), name)
            for name, subject in self.of_feed.items()
            if "*" in subject or ">" in subject
        ]

    def feed_of(self, subject: str) -> str | None:
        """The feed, or None."""
        found = self._exact.get(subject)
        if found is not None or not self._patterns:
            return found
        tokens = subject.split(".")
        return next((name for pattern, name in self._patterns if _fits(tokens, pattern)), None)


def _fits(tokens: list[str], pattern: list[str]) -> bool:
    if pattern[-1] == ">":
        pattern = pattern[:-1]
        if len(tokens) <= len(pattern):
            return False
        tokens = tokens[: len(pattern)]
    return len(tokens) == len(pattern) and all(
        wanted in ("*", token) for token, wanted in zip(tokens, pattern, strict=True)
    )


def read_message(message: Msg, feed: FeedSettings, schema: Schema) -> Events:
    """The events of a message. Raises a `Problem` that says what is wrong with it."""
    headers = message.headers
    if not headers:
        media_type, pairs = MEDIA_TYPES[feed.format], []
    else:
        pairs = [(name.lower(), value) for name, value in headers.items()]
        said = next((value for name, value in pairs if name == "content-type"), None)
        media_type = (said or MEDIA_TYPES[feed.format]).partition(";")[0].strip().lower()
        if media_type.startswith("application/cloudevents") or _is_binary(pairs):
            from boxmatch.wire.cloudevent_bodies import read_cloudevents

            encoded = [(name.encode(), value.encode()) for name, value in pairs]
            return read_cloudevents(message.data, encoded, media_type, schema, most=MOST_EVENTS)
    if media_type.startswith("application/cloudevents"):
        from boxmatch.wire.cloudevent_bodies import read_cloudevents

        return read_cloudevents(message.data, [], media_type, schema, most=MOST_EVENTS)
    return read_events(message.data, media_type, most=MOST_EVENTS, most_bytes=_MOST_BYTES)


def _is_binary(headers: list[tuple[str, str]]) -> bool:
    return any(name.startswith("ce-") for name, _ in headers)


def notifications(
    names: Names,
    feed: str,
    source: Source,
    bodies: Sequence[bytes],
    found: Iterable[IdArray],
    revision: int,
) -> Iterator[Outgoing]:
    """One message for each subscriber and event of a message, whose matches are `found`."""
    id = f"{names.route}/{source.id}"
    head = orjson.dumps({"feed": feed, "stream": source.stream, "sequence": source.sequence})[:-1]
    for index, (body, keys) in enumerate(zip(bodies, found, strict=True)):
        if not len(keys):
            continue
        for subscriber, ids in _by_subscriber(keys):
            data = b'%b,"index":%d,"at":%r,"subscriptions":%b,"revision":%d,"event":%b}' % (
                head, index, source.at, orjson.dumps(ids), revision, body
            )  # fmt: skip
            yield Outgoing(names.out(subscriber), f"{id}.{index}/{subscriber}", data)


def _by_subscriber(keys: IdArray) -> Iterable[tuple[str, list[str]]]:
    """Encoded subscribers, each with the ids of its subscriptions."""
    if len(keys) == 1:
        subscriber, _, name = keys[0].partition(".")
        return ((subscriber, [decode_token(name)]),)
    found: dict[str, list[str]] = {}
    for key in keys:
        subscriber, _, name = key.partition(".")
        found.setdefault(subscriber, []).append(decode_token(name))
    for ids in found.values():
        ids.sort()
    return found.items()


def dead_letter(
    names: Names, feed: str, source: Source, data: bytes, reason: str, about: str = ""
) -> Outgoing:
    """A message that could not be routed, or a notification that could not be stored."""
    headers = {
        "Boxmatch-Reason": _one_line(reason),
        "Boxmatch-Stream": source.stream,
        "Boxmatch-Sequence": str(source.sequence),
    }
    id = f"{names.route}/{source.id}/dead{about and '/'}{about}"
    return Outgoing(names.dead_letters(feed), id, data, headers)


def _one_line(text: str) -> str:
    """As a header can hold it."""
    line = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    line = "".join(one if one.isprintable() else "?" for one in line)
    return line if len(line) <= _MOST_REASON else line[: _MOST_REASON - 1] + "~"


def source_of(message: Msg, incarnation: str) -> Source:
    """Where a message comes from, by the subject that acknowledges it."""
    stream, _, deliveries, sequence, _, at = _delivery(message)
    return Source(stream, incarnation, int(sequence), int(at) / 1e9, int(deliveries))


def deliveries_of(message: Msg) -> int:
    """How many times a message was delivered, with this one."""
    return int(_delivery(message)[2])


def _delivery(message: Msg) -> list[str]:
    # $JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.SEQUENCE_OF_CONSUMER.TIME.PENDING; the longer form
    # has a domain and an account before the stream, and a token at the end.
    parts = message.reply.split(".")
    first = 2 if len(parts) == 9 else 4
    return parts[first : first + 6]
