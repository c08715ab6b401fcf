"""Routes for the dashboard and for those who run the broker: how it is doing, and what becomes of
an event.

A key sees what it may see elsewhere: feeds that it publishes to or reads, subscribers that it acts
as.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Query
from fastapi.responses import Response

from boxmatch import __version__
from boxmatch.broker.http.authentication import Admin, AnyCaller, Asker, Name, Shared
from boxmatch.broker.http.problems import not_ready
from boxmatch.broker.http.routing import Router
from boxmatch.broker.monitoring.metrics import BUCKETS, CONTENT_TYPE
from boxmatch.broker.subscribers.subscribers import Order
from boxmatch.errors import AccessError
from boxmatch.wire import requests
from boxmatch.wire.event_bodies import Events, dump_json
from boxmatch.wire.overview import (
    History,
    MissedSubscription,
    Overview,
    RankedSubscription,
    RankedSubscriptions,
    Roles,
    SubscriptionBrief,
    Trace,
)
from boxmatch.wire.problems import Problem
from boxmatch.wire.responses import Health, Subscription

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

MOST_SUBSCRIPTIONS: Final = 100
"""In one answer."""

router = Router(tags=["overview"])
operations = Router(tags=["operations"])


@router.serve("GET /overview")
async def overview(caller: AnyCaller) -> Overview:
    """How the broker is doing, as far as the key may see it. All counts are since it started."""
    watching, grant = caller.broker.history, caller.grant
    whole = None
    if grant.subscribers is None:
        summary = await watching.summary()
        subscribers, subscriber_count = summary.subscribers, summary.subscriber_count
        if grant.may_administer():
            whole = watching.broker(summary)
    else:
        subscribers, subscriber_count = watching.subscribers(grant.subscribers)
    return Overview(
        at=watching.now(),
        started=watching.started,
        version=__version__,
        roles=Roles(
            grant.admin,
            sorted(grant.publish),
            sorted(grant.read),
            sorted(grant.subscribe),
            sorted(grant.subscribe_to) if grant.subscribe else [],
        ),
        buckets=BUCKETS,
        broker=whole,
        feeds=watching.feeds(caller.grant.may_see),
        subscribers=subscribers,
        subscriber_count=subscriber_count,
    )


@router.serve("GET /overview/history")
async def history(caller: AnyCaller) -> History:
    """What `feeds` of the overview was in each of the last seconds; of the busiest feeds only."""
    return History(BUCKETS, caller.broker.history.history(caller.grant.may_see))


@router.serve("GET /feeds/{feed}/subscriptions", 404)
async def top_subscriptions(
    feed: Name,
    caller: AnyCaller,
    order: Order = "busiest",
    limit: Annotated[int, Query(ge=1, le=MOST_SUBSCRIPTIONS)] = 20,
) -> RankedSubscriptions:
    """The subscriptions to a feed, of subscribers that the key may act as: those with most matches,
    or without any the oldest.
    """
    subscribers = caller.grant.subscribers
    if not caller.grant.may_subscribe_to(feed):
        raise AccessError(f"this key may not see subscriptions to feed {feed!r}")
    found = await caller.broker.subscriptions.top(feed, subscribers, order, limit)
    shown = [
        RankedSubscription(**_brief(one), matches=one.matches, created=one.created)
        for one in found.subscriptions
    ]
    return RankedSubscriptions(shown, found.total, found.dead)


@router.serve("POST /feeds/{feed}/trace", 404, 409)
async def trace(feed: Name, asked: requests.TraceQuestion, caller: Asker) -> Trace:
    """Who gets an event, and which others come nearest to it; with `publish` it is published too.

    Who may subscribe to the feed is told of its own subscriptions; who only publishes or reads, how
    many there are.
    """
    if asked.publish:
        caller.must("publish", feed)
        caller.take_events()
    subscribers = caller.grant.subscribers
    limit = asked.limit
    if not caller.grant.may_subscribe_to(feed):
        subscribers, limit = None, 0
    found = await caller.broker.preview.trace(
        feed, asked.event, subscribers=subscribers, limit=limit
    )
    sequence = None
    if asked.publish:
        events = Events([asked.event], [dump_json(asked.event, what="the event")])
        sequence = (await caller.broker.pipeline.publish(feed, events)).first
    misses = [
        MissedSubscription(
            **_brief(miss.subscription.info()),
            failed=miss.failed,
            predicates=list(miss.predicates),
        )
        for miss in found.misses
    ]
    gets = [SubscriptionBrief(**_brief(one.info())) for one in found.gets]
    return Trace(sequence, found.rate, found.matched, gets, found.missed, misses)


def _brief(one: Subscription) -> dict[str, Any]:
    return {
        "subscriber": one.subscriber,
        "id": one.id,
        "filter": one.regions if one.filter is None else one.filter,
        "dialect": one.dialect,
        "exact": one.exact,
    }


# For those who run the broker


@operations.serve("GET /healthz", 503, always=())
async def health(shared: Shared) -> Health:
    """Whether the process works. If not, it should be started again."""
    _check_failure(shared.broker)
    return Health("ok")


@operations.serve("GET /readyz", 503, always=())
async def readiness(shared: Shared) -> Health:
    """Whether requests are served: not while the broker starts or stops, nor while nothing can be
    stored. Reading goes on then.
    """
    broker = shared.broker
    _check_failure(broker)
    if not broker.ready:
        raise not_ready(broker)
    if (reason := broker.store.failure) is not None:
        raise Problem(503, "storage", f"nothing can be stored: {reason}")
    return Health("ready")


@operations.serve("GET /metrics", text=("text/plain", "Prometheus' text format."))
async def metrics(caller: Admin) -> Response:
    """Counters, queue depths and latencies. Subscribers are named in it, so it takes an admin's
    key.
    """
    rendered = await asyncio.to_thread(caller.broker.metrics.render)  # it reads the database
    return Response(rendered, media_type=CONTENT_TYPE)


def _check_failure(broker: Broker) -> None:
    if broker.failure is not None:
        raise Problem(503, "failed", broker.failure)
