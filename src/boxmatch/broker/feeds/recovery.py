"""What a broker has in memory, made again from what it has on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import structlog

from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed, regions_from_json, regions_to_json
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.subscribers import Subscriber, Subscription
from boxmatch.spaces.dimensions import Stored
from boxmatch.wire.codec import encode
from boxmatch.wire.requests import Wanted

Feed = EventFeed | StateFeed

log = structlog.get_logger(__name__)


def recover_subscribers(store: Store) -> dict[int, Subscriber]:
    """Subscribers by number. What they have not read is on disk, however new it is."""
    newest = store.next_sequence - 1
    return {
        row.number: Subscriber(
            row.number,
            row.name,
            cursor=row.cursor,
            stored=row.cursor,
            last=newest,
            dropped=row.dropped,
            dropped_through=row.dropped_through,
        )
        for row in store.reader.subscribers()
    }


def recover_feed(
    store: Store,
    spec: FeedSpec,
    number: int,
    subscribers: dict[int, Subscriber],
    clock: Callable[[], float],
) -> Feed:
    """A feed with its subscriptions; that the subscribers know them too is up to the caller."""
    subscriptions = []
    for row in store.reader.subscriptions(number):
        subscriber = subscribers.get(row.subscriber)
        if subscriber is None:
            log.error("a subscription has no subscriber: damaged", number=row.number, id=row.id)
            continue
        wanted = wanted_from_json(row.wanted)
        subscriptions.append(Subscription(subscriber, row.id, wanted, row.created, row.updated))
    if spec.kind == "events":
        events = EventFeed(spec, number)
        events.load(subscriptions)
        return events
    state = StateFeed(spec, number, clock)
    publications = {
        row.id: publication_from_json(row.id, row.body, row.expires)
        for row in store.reader.members(number)
    }
    state.load(publications, subscriptions)
    return state


def wanted_to_json(wanted: Wanted) -> bytes:
    return encode(wanted)


def wanted_from_json(text: bytes) -> Wanted:
    known: dict[str, Any] = orjson.loads(text)
    return Wanted(**known)


def publication_to_json(stored: Stored) -> bytes:
    return orjson.dumps({"regions": regions_to_json(stored.regions), "filter": stored.filter})


def publication_from_json(publication: str, text: bytes, expires: float | None) -> Stored:
    known = orjson.loads(text)
    return Stored(publication, regions_from_json(known["regions"]), known["filter"], expires)
