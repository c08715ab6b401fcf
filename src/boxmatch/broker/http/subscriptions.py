"""Routes for subscriptions and their subscribers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch.broker.http import shapes
from boxmatch.broker.http.authentication import Admin, AsSubscriber, Caller, Name, check_name
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.filters import checked_filter, checked_text, named_regions
from boxmatch.broker.http.responses import answer, problems, takes
from boxmatch.broker.http.webhooks import webhook_json
from boxmatch.broker.messages import SubscriberInfo, SubscriptionInfo, Wanted
from boxmatch.errors import LimitError
from boxmatch.wire.http import NAME_PATTERN

AfterName = Annotated[str, Query(pattern=f"^$|{NAME_PATTERN}", max_length=128)]
Limit = Annotated[int, Query(ge=1, le=1_000)]

router = APIRouter(tags=["subscriptions"])


@router.put(
    "/subscribers/{subscriber}/subscriptions/{id}",
    response_model=shapes.Subscription,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.Wanted),
)
async def put_subscription(
    subscriber: Name, id: Name, request: Request, caller: AsSubscriber
) -> Response:
    """Make a subscription, or put another in its place. It counts for all events that are
    published after the answer.
    """
    asked = await read_model(request, shapes.Wanted, caller.limits.body_bytes)
    wanted = Wanted(
        feed=asked.feed,
        filter=None if asked.filter is None else checked_filter(asked.filter, caller.limits),
        regions=named_regions(asked.region, asked.regions),
        region_filter=checked_text(asked.region_filter, caller.limits),
        ttl=asked.ttl,
        exact=asked.exact,
    )
    _check_room(subscriber, [id], caller)
    return answer(_subscription_json(await caller.broker.subscriptions.put(subscriber, id, wanted)))


@router.post(
    "/subscribers/{subscriber}/subscriptions",
    response_model=shapes.Counted,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.ManyWanted),
)
async def put_subscriptions(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Make or replace many subscriptions to one feed of events, by filters under their ids: all of
    them, or with an error none.
    """
    asked = await read_model(request, shapes.ManyWanted, caller.limits.body_bytes)
    wanted = {
        id: Wanted(feed=asked.feed, filter=checked_filter(filter, caller.limits))
        for id, filter in asked.filters.items()
    }
    for id in wanted:
        check_name("subscription", id)
    _check_room(subscriber, wanted, caller)
    return answer({"count": len(await caller.broker.subscriptions.put_many(subscriber, wanted))})


def _check_room(subscriber: str, ids: Collection[str], caller: Caller) -> None:
    """The broker sees to its own limit; that of the key may be lower."""
    most = caller.limits.subscriptions
    known = caller.broker.subscribers.get(subscriber).subscriptions
    there = len(known)
    if most >= caller.context.settings.limits.subscriptions or there + len(ids) <= most:
        return
    new = sum(id not in known for id in ids)  # to put another in its place is fine
    if new and there + new > most:
        raise LimitError(f"a subscriber has at most {most:,} subscriptions")


@router.get(
    "/subscribers/{subscriber}/subscriptions/{id}",
    response_model=shapes.Subscription,
    responses=problems(404),
)
async def show_subscription(subscriber: Name, id: Name, caller: AsSubscriber) -> Response:
    """A subscription as it is stored."""
    return answer(_subscription_json(caller.broker.subscriptions.get(subscriber, id)))


@router.delete(
    "/subscribers/{subscriber}/subscriptions/{id}", status_code=204, responses=problems(404)
)
async def delete_subscription(subscriber: Name, id: Name, caller: AsSubscriber) -> Response:
    """Drop a subscription. Notifications that it was the reason for are still delivered."""
    await caller.broker.subscriptions.delete(subscriber, id)
    return Response(status_code=204)


@router.get(
    "/subscribers/{subscriber}/subscriptions",
    response_model=shapes.Subscriptions,
    responses=problems(404),
)
async def list_subscriptions(
    subscriber: Name,
    caller: AsSubscriber,
    after: AfterName = "",
    limit: Limit = 100,
    feed: AfterName = "",
) -> Response:
    """The subscriptions of a subscriber by id, a page at a time; `next` is null at the end."""
    found = caller.broker.subscriptions.list(
        subscriber, after=after, limit=limit, feed=feed or None
    )
    return answer(
        {
            "subscriptions": [_subscription_json(one) for one in found],
            "next": found[-1].id if len(found) == limit else None,
        }
    )


@router.get("/subscribers/{subscriber}", response_model=shapes.Subscriber, responses=problems(404))
async def show_subscriber(subscriber: Name, caller: AsSubscriber) -> Response:
    """Where a subscriber stands: its cursor, what waits for it and what was dropped."""
    return answer(_subscriber_json(await caller.broker.subscribers.describe(subscriber)))


@router.get("/subscribers", response_model=shapes.Subscribers, responses=problems())
async def list_subscribers(caller: Admin, after: AfterName = "", limit: Limit = 100) -> Response:
    """All subscribers by name, a page at a time."""
    found = await caller.broker.subscribers.list(after=after, limit=limit)
    return answer(
        {
            "subscribers": [_subscriber_json(one) for one in found],
            "next": found[-1].subscriber if len(found) == limit else None,
        }
    )


def _subscription_json(one: SubscriptionInfo) -> dict[str, Any]:
    return {
        "subscriber": one.subscriber,
        "id": one.id,
        "feed": one.wanted.feed,
        "filter": one.wanted.filter,
        "regions": one.wanted.regions,
        "region_filter": one.wanted.region_filter,
        "ttl": one.wanted.ttl,
        "exact": one.wanted.exact,
        "created": one.created,
        "updated": one.updated,
        "matches": one.matches,
    }


def _subscriber_json(one: SubscriberInfo) -> dict[str, Any]:
    webhook = None if one.webhook is None else webhook_json(one.webhook, one.last_error)
    return {
        "subscriber": one.subscriber,
        "cursor": one.cursor,
        "backlog": one.backlog,
        "dropped": one.dropped,
        "dropped_through": one.dropped_through,
        "subscriptions": one.subscriptions,
        "sessions": one.sessions,
        "delivered": one.delivered,
        "dead_letters": one.dead_letters,
        "last_error": one.last_error,
        "feeds": one.feeds,
        "webhook": webhook,
    }
