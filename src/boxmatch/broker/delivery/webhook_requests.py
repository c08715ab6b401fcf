"""What is posted to webhooks: notifications as JSON of their own, or CloudEvents in each mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from boxmatch.broker.delivery import cloudevents
from boxmatch.broker.store.rows import DeadLetter, Notification
from boxmatch.wire import responses
from boxmatch.wire.codec import UNREADABLE, encode, stored
from boxmatch.wire.http import CLOUDEVENT, CLOUDEVENTS, JSON
from boxmatch.wire.requests import CloudEventsMode

MAX_BODY = 1 << 20
"""Bytes of one request. A single notification may be larger: then it goes alone."""


class WebhookRequest(NamedTuple):
    """Notifications as they are posted; the same bytes at every attempt."""

    first: int
    last: int
    headers: Mapping[str, str]
    """That say what the body is."""
    body: bytes
    notifications: Sequence[Notification] = ()


def split_requests(
    notifications: Iterable[Notification], form: CloudEventsMode | None = None
) -> Iterator[WebhookRequest]:
    """Cut notifications into requests that are not too large, in order."""
    if form == "binary":
        for one in notifications:
            yield WebhookRequest(one.sequence, one.sequence, *cloudevents.to_binary(one), [one])
        return
    parts: list[bytes] = []
    within: list[Notification] = []
    size = 0
    for notification in notifications:
        part = notification.to_json() if form is None else cloudevents.to_json(notification)
        if parts and (form == "structured" or size + len(part) > MAX_BODY):
            yield _request(within, parts, form)
            parts, within, size = [], [], 0
        parts.append(part)
        within.append(notification)
        size += len(part)
    if parts:
        yield _request(within, parts, form)


def _request(
    notifications: Sequence[Notification], parts: list[bytes], form: CloudEventsMode | None
) -> WebhookRequest:
    if form is None:
        kind, body = JSON, _delivery(parts)
    elif form == "structured":
        kind, (body,) = CLOUDEVENT, parts
    else:
        kind, body = CLOUDEVENTS, cloudevents.to_batch(parts)
    first, last = notifications[0].sequence, notifications[-1].sequence
    return WebhookRequest(first, last, {"Content-Type": kind}, body, notifications)


def delivery_body(notifications: Sequence[Notification]) -> bytes:
    """What is kept of notifications that nobody took, in whatever form they went out."""
    return _delivery([one.to_json() for one in notifications])


def split_letter(letter: DeadLetter) -> list[DeadLetter]:
    """The letter as several, of one notification each."""
    return [
        letter._replace(first=one.sequence, last=one.sequence, body=delivery_body([one]))
        for one in letter.notifications
    ]


def _delivery(parts: list[bytes]) -> bytes:
    return encode(responses.Delivery([stored(part) for part in parts]))


def requests_of_letter(
    letter: DeadLetter, form: CloudEventsMode | None
) -> Iterable[WebhookRequest]:
    """What is posted of a dead letter."""
    try:
        notifications = letter.notifications
    except UNREADABLE:
        if form is not None:
            raise
        notifications = []  # it is posted as it is
    if form is None:
        headers = {"Content-Type": JSON}
        return [WebhookRequest(letter.first, letter.last, headers, letter.body, notifications)]
    return split_requests(notifications, form)
