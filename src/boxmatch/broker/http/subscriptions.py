"""Routes for subscriptions and their subscribers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from msgspec.structs import replace

from boxmatch.broker.http.authentication import Admin, AsSubscriber, Caller, Name, check_name
from boxmatch.broker.http.bodies import read_request
from boxmatch.broker.http.filters import check_filter, named_regions
from boxmatch.broker.http.responses import answer, gives, problems, takes
from boxmatch.errors import LimitError
from boxmatch.wire import answers, requests
from boxmatch.wire.http import NAME_PATTERN

AfterName = Annotated[str, Query(pattern=f"^$|{NAME_PATTERN}", max_length=128)]
Limit = Annotated[int, Query(ge=1, le=1_000)]

router = APIRouter(tags=["subscriptions"])


@router.put(
    "/subscribers/{subscriber}/subscriptions/{id}",
    responses=gives(answers.Subscription, 404, 409, body=True),
    openapi_extra=takes(requests.Wanted),
)
async def put_subscription(
    subscriber: Name, id: Name, request: Request, caller: AsSubscriber
) -> Response:
    """Make a subscription, or put another in its place. It counts for all events that are
    published after the answer.
    """
    asked = await read_request(request, requests.Wanted, caller.limits.body_bytes)
    check_filter(asked.filter, caller.limits)
    check_filter(asked.region_filter, caller.limits)
    wanted = replace(asked, region=None, regions=named_regions(asked.region, asked.regions))
    _check_room(subscriber, [id], caller)
    return answer(await caller.broker.subscriptions.put(subscriber, id, wanted))


@router.post(
    "/subscribers/{subscriber}/subscriptions",
    responses=gives(answers.Counted, 404, 409, body=True),
    openapi_extra=takes(requests.ManyWanted),
)
async def put_subscriptions(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Make or replace many subscriptions to one feed of events, by filters under their ids: all of
    them, or with an error none.
    """
    asked = await read_request(request, requests.ManyWanted, caller.limits.body_bytes)
    for id, filter in asked.filters.items():
        check_name("subscription", id)
        check_filter(filter, caller.limits)
    wanted = {
        id: requests.Wanted(feed=asked.feed, filter=filter) for id, filter in asked.filters.items()
    }
    _check_room(subscriber, wanted, caller)
    made = await caller.broker.subscriptions.put_many(subscriber, wanted)
    return answer(answers.Counted(len(made)))


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
    responses=gives(answers.Subscription, 404),
)
async def show_subscription(subscriber: Name, id: Name, caller: AsSubscriber) -> Response:
    """A subscription as it is stored."""
    return answer(caller.broker.subscriptions.get(subscriber, id))


@router.delete(
    "/subscribers/{subscriber}/subscriptions/{id}", status_code=204, responses=problems(404)
)
async def delete_subscription(subscriber: Name, id: Name, caller: AsSubscriber) -> Response:
    """Drop a subscription. Notifications that it was the reason for are still delivered."""
    await caller.broker.subscriptions.delete(subscriber, id)
    return Response(status_code=204)


@router.get(
    "/subscribers/{subscriber}/subscriptions",
    responses=gives(answers.Subscriptions, 404),
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
    following = found[-1].id if len(found) == limit else None
    return answer(answers.Subscriptions(list(found), following))


@router.get("/subscribers/{subscriber}", responses=gives(answers.Subscriber, 404))
async def show_subscriber(subscriber: Name, caller: AsSubscriber) -> Response:
    """Where a subscriber stands: its cursor, what waits for it and what was dropped."""
    return answer(await caller.broker.subscribers.describe(subscriber))


@router.get("/subscribers", responses=gives(answers.Subscribers))
async def list_subscribers(caller: Admin, after: AfterName = "", limit: Limit = 100) -> Response:
    """All subscribers by name, a page at a time."""
    found = await caller.broker.subscribers.list(after=after, limit=limit)
    following = found[-1].subscriber if len(found) == limit else None
    return answer(answers.Subscribers(list(found), following))
