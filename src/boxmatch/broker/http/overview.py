"""Routes for the dashboard: how the broker is doing, and what becomes of an event.

A key sees what it may see elsewhere: feeds that it publishes to or reads, subscribers that it acts
as.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch import __version__
from boxmatch.broker.feeds.slots import Order
from boxmatch.broker.http import overview_shapes as shapes
from boxmatch.broker.http.authentication import AnyCaller, Asker, Name
from boxmatch.broker.http.bodies import dump_json, read_model
from boxmatch.broker.http.responses import answer, answer_bytes, problems, takes
from boxmatch.broker.messages import Events, SubscriptionInfo
from boxmatch.broker.monitoring.metrics import BUCKETS
from boxmatch.errors import AccessError

MOST_SUBSCRIPTIONS: Final = 100
"""In one answer."""

router = APIRouter(tags=["overview"])


@router.get("/overview", response_model=shapes.Overview, responses=problems())
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
        {
            "at": watching.now(),
            "started": watching.started,
            "version": __version__,
            "roles": {
                "admin": grant.admin,
                "publish": sorted(grant.publish),
                "read": sorted(grant.read),
                "subscribe": sorted(grant.subscribe),
            },
            "buckets": BUCKETS,
            "broker": whole,
            "feeds": watching.feeds(caller.may_see),
            "subscribers": subscribers,
            "subscriber_count": subscriber_count,
        }
    )


@router.get("/overview/history", response_model=shapes.History, responses=problems())
async def history(caller: AnyCaller) -> Response:
    """What `feeds` of the overview was in each of the last seconds; of the busiest feeds only."""
    samples = caller.broker.history.history(caller.may_see)
    return answer_bytes(b'{"buckets":%b,"samples":%b}' % (orjson.dumps(BUCKETS), samples))


@router.get(
    "/feeds/{feed}/subscriptions",
    response_model=shapes.RankedSubscriptions,
    responses=problems(404),
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
        {**_subscription_json(one), "matches": one.matches, "created": one.created}
        for one in found.subscriptions
    ]
    return answer({"subscriptions": shown, "count": found.total, "dead": found.dead})


@router.post(
    "/feeds/{feed}/trace",
    response_model=shapes.Trace,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.TraceQuestion),
)
async def trace(feed: Name, request: Request, caller: Asker) -> Response:
    """Who gets an event, and which others come nearest to it; with `publish` it is published too.

    Who subscribes is told of its own subscriptions; who only publishes or reads, how many.
    """
    asked = await read_model(request, shapes.TraceQuestion, caller.limits.body_bytes)
    if asked.publish:
        caller.must_publish(feed)
        caller.context.meter.take_events(caller.grant, 1)
    subscribers = caller.grant.subscribers
    limit = asked.limit
    if subscribers is not None and not subscribers:
        subscribers, limit = None, 0
    found = await caller.broker.tracer.trace(
        feed, asked.event, subscribers=subscribers, limit=limit
    )
    sequence = None
    if asked.publish:
        events = Events([asked.event], [dump_json(asked.event, what="the event")])
        sequence = (await caller.broker.pipeline.publish(feed, events)).first
    return answer(
        {
            "sequence": sequence,
            "rate": found.rate,
            "matched": found.matched,
            "gets": [_subscription_json(one.info()) for one in found.gets],
            "missed": found.missed,
            "misses": [
                {
                    **_subscription_json(miss.subscription.info()),
                    "failed": miss.failed,
                    "predicates": [asdict(one) for one in miss.predicates],
                }
                for miss in found.misses
            ],
        }
    )


def _subscription_json(one: SubscriptionInfo) -> dict[str, Any]:
    wanted = one.wanted
    return {
        "subscriber": one.subscriber,
        "id": one.id,
        "filter": wanted.regions if wanted.filter is None else wanted.filter,
        "exact": wanted.exact,
    }
