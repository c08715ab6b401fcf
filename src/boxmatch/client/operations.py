"""What can be asked of a broker. Each function here is a method of both clients.

They are generators of requests (see `boxmatch.client.exchange`), so that one text serves clients
that block and clients that are awaited.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from boxmatch.client.batches import BATCH, parts
from boxmatch.client.documents import (
    dumped,
    filter_json,
    given,
    joined,
    list_in,
    placed,
    query_of,
    read_explanation,
    read_feed,
    read_receipt,
    regions_json,
    schema_json,
)
from boxmatch.client.exchange import Operation, Request, path
from boxmatch.client.results import (
    DeadLetter,
    DryRun,
    EventPage,
    Feed,
    LoggedEvent,
    Notification,
    NotificationPage,
    Publication,
    Receipt,
    Subscriber,
    Subscription,
    Webhook,
    read,
)
from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.engine.explain import Explanation
    from boxmatch.model.schema import Schema

_PAGE = 1_000
_COMPILING = 120.0
"""Seconds. The first state feed on a machine waits until its kernels are compiled."""


class Unchanged(Enum):
    """Stands for what is left as it is, where None is a value."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Filter = str | Mapping[str, Any]


# Feeds


def create_feed(
    name: str,
    schema: Schema | Mapping[str, Any] | None = None,
    *,
    spaces: Mapping[str, Schema | Mapping[str, Any]] | None = None,
    unknown: Literal["refuse", "carry"] = "refuse",
    leave: bool = True,
) -> Operation[Feed]:
    """Make a feed: of events with a `schema`, or a state feed with named `spaces`.

    Not asked again if the connection breaks before the answer: the feed may be there by then.
    """
    if (schema is None) == (spaces is None):
        raise ClientError("a feed of events has a schema, a state feed has spaces: give one")
    wanted: dict[str, Any] = {"name": name, "unknown": unknown}
    if schema is not None:
        wanted |= {"kind": "events", "schema": schema_json(schema)}
    else:
        named = {space: schema_json(one) for space, one in (spaces or {}).items()}
        wanted |= {"kind": "state", "spaces": named, "leave": leave}
    answer = yield Request(
        method="POST", path=path("feeds"), body=dumped(wanted), again=False,
        wait=0.0 if spaces is None else _COMPILING,
    )  # fmt: skip
    return read_feed(answer.json())


def feeds() -> Operation[list[Feed]]:
    """All feeds that the key may see."""
    answer = yield Request(method="GET", path=path("feeds"))
    return [read_feed(one) for one in list_in(answer.json(), "feeds")]


def feed(name: str) -> Operation[Feed]:
    """One feed."""
    answer = yield Request(method="GET", path=path("feeds", name))
    return read_feed(answer.json())


def extend_feed(name: str, attributes: Mapping[str, Any]) -> Operation[Feed]:
    """Give a feed's schema more attributes."""
    body = dumped({"attributes": schema_json(attributes)})
    answer = yield Request(method="PATCH", path=path("feeds", name), body=body, again=False)
    return read_feed(answer.json())


def drop_feed(name: str) -> Operation[None]:
    """Delete a feed with its log, its subscriptions and what is still to be delivered of it."""
    yield Request(method="DELETE", path=path("feeds", name))


# Events


def publish(
    feed: str,
    events: Any,
    *,
    key: str | None = None,
    wait: Literal["durable", "received"] = "durable",
    batch: int = BATCH,
    on_receipt: Callable[[Receipt], None] | None = None,
) -> Operation[Receipt]:
    """Publish one event (a dict), an iterable of them, or a table (Arrow, pandas, polars).

    Many events go out in several requests of up to `batch` events, one after the other, each
    tried again under the same idempotency key until the broker has answered. Under a `key` of
    your own the same events can be published again, even by another process, and are stored
    once. `wait="received"` does not wait until they are durable.

    If a later request is refused, the earlier ones stay published: `ClientError.problem` then
    has their number as `published`.
    """
    own = key or uuid.uuid4().hex
    done = Receipt(None, None, 0, wait == "durable", False)
    for number, whole in enumerate(parts(events, batch=batch)):
        waiting = [(whole, own if number == 0 else f"{own}-{number}")]
        while waiting:
            part, name = waiting.pop()
            try:
                answer = yield Request(
                    method="POST",
                    path=path("feeds", feed, "events"),
                    query={} if wait == "durable" else {"wait": wait},
                    body=part.body(),
                    content_type=part.content_type,
                    key=name,
                )
            except ClientError as error:
                if error.status != 413 or part.count < 2:
                    raise placed(error, done.count) from None
                first, second = part.halves()  # the key has smaller limits than usual
                waiting += [(second, name + "b"), (first, name + "a")]
                continue
            receipt = read_receipt(answer)
            done = joined(done, receipt)
            if on_receipt is not None:
                on_receipt(receipt)
    return done


def events(
    feed: str, *, after: int = 0, limit: int = _PAGE, through: int | None = None
) -> Operation[EventPage]:
    """Read the log of a feed: events with numbers above `after`, up to `through`."""
    query = query_of(after=after, limit=limit, through=through)
    answer = yield Request(method="GET", path=path("feeds", feed, "events"), query=query)
    page = answer.json()
    found = [LoggedEvent.read(one) for one in list_in(page, "events")]
    return EventPage(found, page["next"], page["last"], page["first"])


# Subscriptions


def subscribe(
    subscriber: str,
    id: str,
    feed: str,
    filter: Filter | None = None,
    *,
    regions: Mapping[str, Mapping[str, Any]] | None = None,
    region_filter: str | None = None,
    ttl: float | None = None,
    exact: bool = False,
) -> Operation[Subscription]:
    """Make or replace a subscription: by a `filter` of events, or by `regions` of a state feed."""
    wanted = {
        "feed": feed,
        "filter": filter_json(filter),
        "regions": None if regions is None else regions_json(regions),
        "region_filter": region_filter,
        "ttl": ttl,
        "exact": exact or None,
    }
    answer = yield Request(
        method="PUT",
        path=path("subscribers", subscriber, "subscriptions", id),
        body=dumped(given(wanted)),
    )
    return read(Subscription, answer.json())


_FILTERS_AT_ONCE = 1_000


def subscribe_many(subscriber: str, feed: str, filters: Mapping[str, Filter]) -> Operation[int]:
    """Make or replace many subscriptions to a feed of events, by filters under their ids.

    Returns how many. A thousand go in one request, of which all are taken or none.
    """
    listed = list(filters.items())
    for start in range(0, len(listed), _FILTERS_AT_ONCE):
        some = {id: filter_json(one) for id, one in listed[start : start + _FILTERS_AT_ONCE]}
        yield Request(
            method="POST",
            path=path("subscribers", subscriber, "subscriptions"),
            body=dumped({"feed": feed, "filters": some}),
        )
    return len(listed)


def unsubscribe(subscriber: str, id: str) -> Operation[None]:
    """Delete a subscription. What it has matched before is delivered still."""
    yield Request(method="DELETE", path=path("subscribers", subscriber, "subscriptions", id))


def subscription(subscriber: str, id: str) -> Operation[Subscription]:
    """One subscription."""
    answer = yield Request(method="GET", path=path("subscribers", subscriber, "subscriptions", id))
    return read(Subscription, answer.json())


def subscriptions(subscriber: str, *, feed: str | None = None) -> Operation[list[Subscription]]:
    """All subscriptions of a subscriber, in order of their ids."""
    found: list[Subscription] = []
    after = ""
    while True:
        query = query_of(after=after or None, limit=_PAGE, feed=feed)
        answer = yield Request(
            method="GET", path=path("subscribers", subscriber, "subscriptions"), query=query
        )
        page = list_in(answer.json(), "subscriptions")
        found += [read(Subscription, one) for one in page]
        if len(page) < _PAGE:
            return found
        after = found[-1].id


def dry_run(feed: str, filter: Filter) -> Operation[DryRun]:
    """How many of a feed's last events a filter would have wanted."""
    body = dumped({"filter": filter_json(filter)})
    answer = yield Request(method="POST", path=path("feeds", feed, "dry-run"), body=body)
    found = answer.json()
    examples = [LoggedEvent.read(one) for one in found.get("examples", ())]
    return read(DryRun, found | {"examples": examples})


def explain(
    feed: str,
    *,
    event: Mapping[str, Any] | None = None,
    sequence: int | None = None,
    filter: Filter | None = None,
    subscriber: str | None = None,
    subscription: str | None = None,
) -> Operation[Explanation]:
    """Why an event (itself, or its number) is wanted or not by a filter or a subscription."""
    wanted = {
        "event": event,
        "sequence": sequence,
        "filter": filter_json(filter),
        "subscriber": subscriber,
        "subscription": subscription,
    }
    body = dumped(given(wanted))
    answer = yield Request(method="POST", path=path("feeds", feed, "explain"), body=body)
    return read_explanation(answer.json(), subscription or "filter")


# Subscribers and their notifications


def subscriber(name: str) -> Operation[Subscriber]:
    """What the broker knows of a subscriber."""
    answer = yield Request(method="GET", path=path("subscribers", name))
    return read(Subscriber, answer.json())


def notifications(
    subscriber: str, *, after: int | None = None, limit: int = 100, wait: float = 0.0
) -> Operation[NotificationPage]:
    """Poll: notifications above `after`, or above the subscriber's cursor, without acknowledging
    them.

    If there are none, the broker waits for one for up to `wait` seconds.
    """
    query = query_of(after=after, limit=limit, wait=wait or None)
    answer = yield Request(
        method="GET", path=path("subscribers", subscriber, "notifications"), query=query, wait=wait
    )
    page = answer.json()
    found = [Notification.read(one) for one in list_in(page, "notifications")]
    return NotificationPage(found, page["cursor"], page["next"], page.get("dropped", 0))


def acknowledge(subscriber: str, sequence: int) -> Operation[int]:
    """Say that all up to this number is done with. Returns the cursor, which never goes back."""
    body = dumped({"sequence": sequence})
    answer = yield Request(
        method="POST", path=path("subscribers", subscriber, "acknowledge"), body=body
    )
    cursor: int = answer.json()["cursor"]
    return cursor


def put_webhook(
    subscriber: str,
    url: str,
    *,
    secret: str | None = None,
    timeout: float = 10.0,
    attempts: int = 8,
    batch: int = 100,
    paused: bool = False,
) -> Operation[Webhook]:
    """Have the subscriber's notifications posted to an address, signed with a secret.

    Without a secret the broker makes one, which only the answer to this call shows.
    """
    wanted = {
        "url": url,
        "secret": secret,
        "timeout": timeout,
        "attempts": attempts,
        "batch": batch,
        "paused": paused,
    }
    where = path("subscribers", subscriber, "webhook")
    answer = yield Request(method="PUT", path=where, body=dumped(given(wanted)))
    return read(Webhook, answer.json())


def webhook(subscriber: str) -> Operation[Webhook]:
    """Where the subscriber's notifications are posted to."""
    answer = yield Request(method="GET", path=path("subscribers", subscriber, "webhook"))
    return read(Webhook, answer.json())


def delete_webhook(subscriber: str) -> Operation[None]:
    """Post no more notifications."""
    yield Request(method="DELETE", path=path("subscribers", subscriber, "webhook"))


def dead_letters(
    subscriber: str, *, after: int = 0, limit: int = 100
) -> Operation[list[DeadLetter]]:
    """What the subscriber's webhook did not take."""
    query = query_of(after=after, limit=limit)
    answer = yield Request(
        method="GET", path=path("subscribers", subscriber, "dead-letters"), query=query
    )
    return [read(DeadLetter, one) for one in list_in(answer.json(), "dead_letters")]


def replay(subscriber: str, numbers: Sequence[int] | None = None) -> Operation[int]:
    """Post dead letters, these or all, to the webhook again. Returns how many."""
    body = dumped({"numbers": None if numbers is None else list(numbers)})
    where = path("subscribers", subscriber, "dead-letters") + "/replay"
    answer = yield Request(method="POST", path=where, body=body, again=False)
    return int(answer.json()["replayed"])


# State feeds


def put_publication(
    feed: str,
    id: str,
    regions: Mapping[str, Mapping[str, Any]],
    *,
    filter: str | None = None,
    ttl: float | None = None,
) -> Operation[Receipt]:
    """Publish, or replace as a whole, what stays until it is retracted.

    `regions` are regions by name; a region has a value or a range (see `Interval`) for each
    dimension that it constrains.
    """
    wanted = {"regions": regions_json(regions), "filter": filter, "ttl": ttl}
    answer = yield Request(
        method="PUT", path=path("feeds", feed, "publications", id), body=dumped(given(wanted))
    )
    return read_receipt(answer)


def patch_publication(
    feed: str,
    id: str,
    regions: Mapping[str, Mapping[str, Any] | None] | None = None,
    *,
    filter: str | Unchanged | None = UNCHANGED,
    ttl: float | Unchanged | None = UNCHANGED,
) -> Operation[Receipt]:
    """Change a publication in what is named: None takes a region away, or frees a dimension."""
    wanted: dict[str, Any] = {"filter": filter, "ttl": ttl}
    wanted = {name: value for name, value in wanted.items() if value is not UNCHANGED}
    if regions is not None:
        wanted["regions"] = regions_json(regions)
    answer = yield Request(
        method="PATCH", path=path("feeds", feed, "publications", id), body=dumped(wanted)
    )
    return read_receipt(answer)


def retract(feed: str, id: str) -> Operation[None]:
    """Take a publication back."""
    yield Request(method="DELETE", path=path("feeds", feed, "publications", id))


def publication(feed: str, id: str) -> Operation[Publication]:
    """What is published under an id."""
    answer = yield Request(method="GET", path=path("feeds", feed, "publications", id))
    return read(Publication, {"id": id} | answer.json())
