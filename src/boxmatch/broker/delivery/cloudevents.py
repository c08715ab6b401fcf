"""Notifications as CloudEvents: an event that is one as it was published, any other inside of one.

Extensions say what a notification says beside its event.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from boxmatch.broker.store.rows import Notification
from boxmatch.wire.cloudevents import binary_form, delivery_extensions, is_cloudevent
from boxmatch.wire.codec import encode, stored
from boxmatch.wire.http import JSON


def to_json(notification: Notification) -> bytes:
    """In structured mode."""
    published = _published(notification)
    if published is not None:
        return orjson.dumps(published)
    return encode({**_wrapping(notification), "data": stored(notification.body)})


def to_binary(notification: Notification) -> tuple[Mapping[str, str], bytes]:
    """In binary mode: headers and a body."""
    published = _published(notification)
    if published is not None:
        return binary_form(published)
    headers, _ = binary_form(_wrapping(notification))
    return headers, notification.body


def to_batch(parts: list[bytes]) -> bytes:
    """Several in structured mode, in batched mode."""
    return b"[%b]" % b",".join(parts)


def _published(notification: Notification) -> dict[str, Any] | None:
    """The event with the extensions, if it is a CloudEvent."""
    if b'"specversion"' not in notification.body:
        return None
    event: dict[str, Any] = orjson.loads(notification.body)
    return event | _extensions(notification) if is_cloudevent(event) else None


def _wrapping(notification: Notification) -> dict[str, Any]:
    """The attributes of the CloudEvent in which an event or a change of state goes out."""
    feed, sequence = notification.feed, notification.sequence
    event = {
        "specversion": "1.0",
        "id": f"{feed}/{sequence}",
        "source": f"/feeds/{feed}",
        "type": "boxmatch.event",
        "time": datetime.fromtimestamp(notification.at, UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": JSON,
    }
    if notification.kind == "state":
        change = orjson.loads(notification.body)
        event |= {"type": f"boxmatch.{change['kind']}", "subject": change["publication"]}
    return event | _extensions(notification)


def _extensions(notification: Notification) -> dict[str, str]:
    return delivery_extensions(
        notification.feed,
        notification.sequence,
        notification.subscriptions,
        notification.rate,
        notification.deliveries,
    )
