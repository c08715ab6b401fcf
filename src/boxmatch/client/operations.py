"""What can be asked of a broker.

Operations are generators of requests (see `boxmatch.client.exchange`), so that one text serves
clients that block and clients that are awaited.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
)

from msgspec import UNSET, UnsetType

from boxmatch.client.batches import BATCH, parts
from boxmatch.client.documents import (
    dialects_by_id,
    filter_json,
    join_receipts,
    number_among_all,
    read_receipt,
    regions_json,
    retention_json,
    schema_json,
    start_json,
)
from boxmatch.client.exchange import Operation, Request, ask, operation, path
from boxmatch.client.subscriber_operations import SubscriberOperations
from boxmatch.errors import ClientError
from boxmatch.wire import requests, responses
from boxmatch.wire.responses import (
    DryRun,
    EventPage,
    Feed,
    Publication,
    Receipt,
    Subscription,
)

if TYPE_CHECKING:
    from boxmatch.model.explanation import Explanation
    from boxmatch.model.schema import Schema

_PAGE = 1_000
_FILTERS_AT_ONCE = 1_000
_COMPILING = 120.0
"""Seconds. The first state feed on a machine waits until its kernels are compiled."""

_SUBSCRIPTIONS = "/subscribers/{}/subscriptions"
_SUBSCRIPTION = f"{_SUBSCRIPTIONS}/{{}}"
_PUBLICATION = "/feeds/{}/publications/{}"

Filter = str | Mapping[str, Any]
Retention = Mapping[Literal["days", "bytes", "events"], float]


class Operations(SubscriberOperations):
    """What can be asked of a broker: the methods of both clients."""

    def __init_subclass__(cls, *, awaited: bool | None = None) -> None:
        super().__init_subclass__()
        if awaited is not None:
            for name, one in inspect.getmembers_static(Operations):
                if isinstance(one, operation):
                    setattr(cls, name, one.method(awaited=awaited))

    # Feeds

    @operation
    def create_feed(
        self,
        name: str,
        schema: Schema | Mapping[str, Any] | None = None,
        *,
        spaces: Mapping[str, Schema | Mapping[str, Any]] | None = None,
        unknown: Literal["refuse", "carry"] = "refuse",
        leave: bool = True,
        retention: Retention | None = None,
    ) -> Operation[Feed]:
        """Make a feed: of events with a `schema`, or a state feed with named `spaces`.

        With neither, events may have any structure. For the `retention` see `retain_feed`. Not
        asked again if the connection breaks before the answer: the feed may be there by then.
        """
        if schema is not None and spaces is not None:
            raise ClientError("a feed of events has a schema, a state feed has spaces: give one")
        wanted = requests.NewFeed(
            name=name,
            kind="events" if spaces is None else "state",
            schema=None if schema is None else schema_json(schema),
            spaces=None if spaces is None else {n: schema_json(one) for n, one in spaces.items()},
            unknown=unknown,
            leave=leave,
            retention=retention_json(retention),
        )
        wait = 0.0 if spaces is None else _COMPILING
        return ask(Feed, "POST /feeds", body=wanted, again=False, wait=wait)

    @operation
    def feeds(self) -> Operation[list[Feed]]:
        """All feeds that the key may see."""
        found = yield from ask(responses.Feeds, "GET /feeds")
        return found.feeds

    @operation
    def feed(self, name: str) -> Operation[Feed]:
        """One feed."""
        return ask(Feed, "GET /feeds/{}", name)

    @operation
    def extend_feed(self, name: str, attributes: Mapping[str, Any]) -> Operation[Feed]:
        """Give a feed's schema more attributes."""
        body = requests.FeedChange(attributes=schema_json(attributes))
        return ask(Feed, "PATCH /feeds/{}", name, body=body, again=False)

    @operation
    def retain_feed(self, name: str, retention: Retention | None) -> Operation[Feed]:
        """Keep the log of a feed for so many `days`, up to so many `bytes`, or the newest `events`;
        what is not named as the broker keeps all feeds, and with None all of it.
        """
        body = requests.FeedChange(retention=retention_json(retention))
        return ask(Feed, "PATCH /feeds/{}", name, body=body)

    @operation
    def drop_feed(self, name: str) -> Operation[None]:
        """Delete a feed with its log, its subscriptions and what is still to be delivered of it."""
        return ask(NoneType, "DELETE /feeds/{}", name)

    # Events

    @operation
    def publish(
        self,
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
                        path=path("/feeds/{}/events", feed),
                        query={} if wait == "durable" else {"wait": wait},
                        body=part.body(),
                        content_type=part.content_type,
                        key=name,
                    )
                except ClientError as error:
                    if error.status != 413 or part.count < 2:
                        raise number_among_all(error, done.count) from None
                    first, second = part.halves()  # the key has smaller limits than usual
                    waiting += [(second, name + "b"), (first, name + "a")]
                    continue
                receipt = read_receipt(answer.read(Receipt))
                done = join_receipts(done, receipt)
                if on_receipt is not None:
                    on_receipt(receipt)
        return done

    @operation
    def events(
        self, feed: str, *, after: int = 0, limit: int = _PAGE, through: int | None = None
    ) -> Operation[EventPage]:
        """Read the log of a feed: events with numbers above `after`, up to `through`."""
        query = {"after": after, "limit": limit, "through": through}
        return ask(EventPage, "GET /feeds/{}/events", feed, query=query)

    # Subscriptions

    @operation
    def subscribe(
        self,
        subscriber: str,
        id: str,
        feed: str,
        filter: Filter | None = None,
        *,
        dialect: str | None = None,
        regions: Mapping[str, Mapping[str, Any]] | None = None,
        region_filter: str | None = None,
        ttl: float | None = None,
        exact: bool = False,
        replay_from: int | datetime | str | None = None,
    ) -> Operation[Subscription]:
        """Make or replace a subscription: by a `filter` of events, or `regions` of a state feed.

        A filter is SQL, or of another `dialect`; filters that are JSON may be mappings, too. With
        `replay_from`, events of the log are delivered from that number or time on; see
        `replay_events`.
        """
        wanted = requests.NewSubscription(
            feed=feed,
            filter=filter_json(filter, dialect),
            dialect=dialect,
            regions=None if regions is None else regions_json(regions),
            region_filter=region_filter,
            ttl=ttl,
            exact=exact,
            replay_from=start_json(replay_from),
        )
        return ask(Subscription, f"PUT {_SUBSCRIPTION}", subscriber, id, body=wanted)

    @operation
    def subscribe_many(
        self,
        subscriber: str,
        feed: str,
        filters: Mapping[str, Filter],
        *,
        dialect: str | Mapping[str, str | None] | None = None,
        replay_from: int | datetime | str | None = None,
    ) -> Operation[int]:
        """Make or replace many subscriptions to a feed of events, by filters under their ids.

        All are of one `dialect`, or each of that under its id; those without one are SQL. Returns
        how many. A thousand go in one request, of which all are taken or none. With `replay_from`,
        events of the log are delivered from that number or time on; see `replay_events`.
        """
        dialects = dialects_by_id(filters, dialect)
        listed = list(filters.items())
        for start in range(0, len(listed), _FILTERS_AT_ONCE):
            part = listed[start : start + _FILTERS_AT_ONCE]
            own: dict[str, str | None] = {id: dialects[id] for id, _ in part if id in dialects}
            body = requests.ManyWanted(
                feed=feed,
                filters={id: filter_json(one, dialects.get(id)) for id, one in part},
                dialect=dialect if isinstance(dialect, str) else own or None,
                replay_from=start_json(replay_from),
            )
            yield from ask(NoneType, f"POST {_SUBSCRIPTIONS}", subscriber, body=body)
        return len(listed)

    @operation
    def unsubscribe(self, subscriber: str, id: str) -> Operation[None]:
        """Delete a subscription. What it has matched before is delivered still."""
        return ask(NoneType, f"DELETE {_SUBSCRIPTION}", subscriber, id)

    @operation
    def subscription(self, subscriber: str, id: str) -> Operation[Subscription]:
        """One subscription."""
        return ask(Subscription, f"GET {_SUBSCRIPTION}", subscriber, id)

    @operation
    def subscriptions(
        self, subscriber: str, *, feed: str | None = None
    ) -> Operation[list[Subscription]]:
        """All subscriptions of a subscriber, in order of their ids."""
        found: list[Subscription] = []
        after = ""
        while True:
            query = {"after": after or None, "limit": _PAGE, "feed": feed}
            page = yield from ask(
                responses.Subscriptions, f"GET {_SUBSCRIPTIONS}", subscriber, query=query
            )
            found += page.subscriptions
            if len(page.subscriptions) < _PAGE:
                return found
            after = found[-1].id

    @operation
    def dry_run(
        self, feed: str, filter: Filter, *, dialect: str | None = None
    ) -> Operation[DryRun]:
        """How many of a feed's last events a filter would have wanted; None for keys that may not
        read the feed.
        """
        body = requests.DryRunQuestion(filter=filter_json(filter, dialect), dialect=dialect)
        return ask(DryRun, "POST /feeds/{}/dry-run", feed, body=body)

    @operation
    def explain(
        self,
        feed: str,
        *,
        event: Mapping[str, Any] | None = None,
        sequence: int | None = None,
        filter: Filter | None = None,
        dialect: str | None = None,
        subscriber: str | None = None,
        subscription: str | None = None,
    ) -> Operation[Explanation]:
        """Why an event (itself, or its number) is wanted or not by a filter or a subscription."""
        wanted = requests.Question(
            event=None if event is None else dict(event),
            sequence=sequence,
            filter=filter_json(filter, dialect),
            dialect=dialect,
            subscriber=subscriber,
            subscription=subscription,
        )
        found = yield from ask(responses.Explanation, "POST /feeds/{}/explain", feed, body=wanted)
        return found.of(subscription or "filter")

    # State feeds

    @operation
    def put_publication(
        self,
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
        wanted = requests.NewPublication(regions=regions_json(regions), filter=filter, ttl=ttl)
        where = f"PUT {_PUBLICATION}"
        return read_receipt((yield from ask(Receipt, where, feed, id, body=wanted)))

    @operation
    def patch_publication(
        self,
        feed: str,
        id: str,
        regions: Mapping[str, Mapping[str, Any] | None] | None = None,
        *,
        filter: str | UnsetType | None = UNSET,
        ttl: float | UnsetType | None = UNSET,
    ) -> Operation[Receipt]:
        """Change a publication in what is named: None takes a region away, or frees a dimension."""
        wanted = requests.PublicationChange(
            regions=None if regions is None else regions_json(regions), filter=filter, ttl=ttl
        )
        where = f"PATCH {_PUBLICATION}"
        return read_receipt((yield from ask(Receipt, where, feed, id, body=wanted)))

    @operation
    def retract(self, feed: str, id: str) -> Operation[None]:
        """Take a publication back."""
        return ask(NoneType, f"DELETE {_PUBLICATION}", feed, id)

    @operation
    def publication(self, feed: str, id: str) -> Operation[Publication]:
        """What is published under an id."""
        return ask(Publication, f"GET {_PUBLICATION}", feed, id)
