"""Routes for the dashboard: how the broker is doing, and what becomes of an event.

A key sees what it may see elsewhere: feeds that it publishes to or reads, subscribers that it acts
as.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch import __version__
from boxmatch.broker.feeds.pipeline import Events
from boxmatch.broker.http.authentication import AnyCaller, Asker, Name
from boxmatch.broker.http.bodies import dump_json, read_request
from boxmatch.broker.http.responses import answer, gives, takes
from boxmatch.broker.monitoring.metrics import BUCKETS
from boxmatch.broker.subscribers.subscribers import Order
from boxmatch.errors import AccessError
from boxmatch.wire import requests
from boxmatch.wire.answers import Subscription
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

MOST_SUBSCRIPTIONS: Final = 100
"""In one answer."""

router = APIRouter(tags=["overview"])


@router.get("/overview", responses=gives(Overview))
async def overview(caller: AnyCaller) -> Response:
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
    return answer(
        Overview(
            at=watching.now(),
            started=watching.started,
            version=__version__,
            roles=Roles(
                grant.admin, sorted(grant.publish), sorted(grant.read), sorted(grant.subscribe)
            ),
            buckets=BUCKETS,
            broker=whole,
            feeds=watching.feeds(caller.may_see),
            subscribers=subscribers,
            subscriber_count=subscriber_count,
        )
    )


@router.get("/overview/history", responses=gives(History))
async def history(caller: AnyCaller) -> Response:
    """What `feeds` of the overview was in each of the last seconds; of the busiest feeds only."""
    return answer(History(BUCKETS, caller.broker.history.history(caller.may_see)))


@router.get(
    "/feeds/{feed}/subscriptions",
    responses=gives(RankedSubscriptions, 404),
)
async def top_subscriptions(
    feed: Name,
    caller: AnyCaller,
    order: Order = "busiest",
    limit: Annotated[int, Query(ge=1, le=MOST_SUBSCRIPTIONS)] = 20,
) -> Response:
    """The subscriptions to a feed, of subscribers that the key may act as: those with most matches,
    or without any the oldest.
    """
    subscribers = caller.grant.subscribers
    if subscribers is not None and not subscribers:
        raise AccessError(f"this key may not see subscriptions to feed {feed!r}")
    found = await caller.broker.subscriptions.top(feed, subscribers, order, limit)
    shown = [
        RankedSubscription(**_brief(one), matches=one.matches, created=one.created)
        for one in found.subscriptions
    ]
    return answer(RankedSubscriptions(shown, found.total, found.dead))


@router.post(
    "/feeds/{feed}/trace",
    responses=gives(Trace, 404, 409, body=True),
    openapi_extra=takes(requests.TraceQuestion),
)
async def trace(feed: Name, request: Request, caller: Asker) -> Response:
    """Who gets an event, and which others come nearest to it; with `publish` it is published too.

    Who subscribes is told of its own subscriptions; who only publishes or reads, how many.
    """
    asked = await read_request(request, requests.TraceQuestion, caller.limits.body_bytes)
    if asked.publish:
        caller.must_publish(feed)
        caller.context.meter.take_events(caller.grant, 1)
    subscribers = caller.grant.subscribers
    limit = asked.limit
    if subscribers is not None and not subscribers:
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
    return answer(Trace(sequence, found.rate, found.matched, gets, found.missed, misses))


def _brief(one: Subscription) -> dict[str, Any]:
    return {
        "subscriber": one.subscriber,
        "id": one.id,
        "filter": one.regions if one.filter is None else one.filter,
        "exact": one.exact,
    }
