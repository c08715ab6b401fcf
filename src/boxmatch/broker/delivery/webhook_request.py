"""What one request to a webhook carries, and what may come of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from boxmatch.broker.store.rows import Notification
from boxmatch.wire import answers
from boxmatch.wire.codec import encode, stored
from boxmatch.wire.requests import NewWebhook

MAX_BODY = 1 << 20
"""Bytes of one request. A single notification may be larger: then it goes alone."""


class Webhook(NewWebhook, frozen=True, kw_only=True):
    """Where a subscriber's notifications are posted to."""

    secret: str

    def described(self, last_error: str | None = None) -> answers.Webhook:
        """What others may know of it: all but the secret."""
        return answers.Webhook(
            url=self.url,
            timeout=self.timeout,
            attempts=self.attempts,
            batch=self.batch,
            paused=self.paused,
            last_error=last_error,
        )


class WebhookRequest(NamedTuple):
    """Notifications as they are posted; the same bytes at every attempt."""

    first: int
    last: int
    body: bytes
    notifications: Sequence[Notification] = ()


class Failure(NamedTuple):
    """Why a letter was not taken."""

    reason: str
    retry_after: float = 0.0
    gone: bool = False
    """The receiver wants no more at all."""


def letters(notifications: Iterable[Notification]) -> Iterator[WebhookRequest]:
    """Cut notifications into requests that are not too large, in order."""
    parts: list[bytes] = []
    within: list[Notification] = []
    size = 0
    for notification in notifications:
        part = notification.to_json()
        if parts and size + len(part) > MAX_BODY:
            yield _letter(within, parts)
            parts, within, size = [], [], 0
        parts.append(part)
        within.append(notification)
        size += len(part)
    if parts:
        yield _letter(within, parts)


def _letter(notifications: Sequence[Notification], parts: list[bytes]) -> WebhookRequest:
    body = encode(answers.Delivery([stored(part) for part in parts]))
    return WebhookRequest(
        notifications[0].sequence, notifications[-1].sequence, body, notifications
    )
