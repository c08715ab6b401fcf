"""Routes for subscribers: their subscriptions, their webhooks, and what those did not take."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import Annotated

from fastapi import Query
from msgspec.structs import asdict, replace

from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.http.authentication import Admin, AsSubscriber, Caller, Name, check_name
from boxmatch.broker.http.bodies import named_regions
from boxmatch.broker.http.routing import Router
from boxmatch.broker.store.rows import DeadLetter
from boxmatch.errors import AccessError, LimitError
from boxmatch.model.dialects.registry import check_dialect
from boxmatch.wire import requests, responses
from boxmatch.wire.codec import stored
from boxmatch.wire.http import MOST_SEQUENCE, NAME_PATTERN
from boxmatch.wire.problems import Problem

AfterName = Annotated[str, Query(pattern=f"^$|{NAME_PATTERN}", max_length=128)]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Number = Annotated[int, Query(ge=0, le=MOST_SEQUENCE)]

router = Router(tags=["subscriptions"])
webhooks = Router(tags=["webhooks"])


@router.serve("PUT /subscribers/{subscriber}/subscriptions/{id}", 404, 409)
async def put_subscription(
    subscriber: Name, id: Name, asked: requests.NewSubscription, caller: AsSubscriber
) -> responses.Subscription:
    """Make a subscription, or put another in its place. It counts for all events that are
    published after the answer, and with `from` for those of the log since that number or time.
    """
    caller.check_change(subscriber, [id], asked.feed)
    caller.check_filter(asked.filter)
    caller.check_filter(asked.region_filter)
    wanted = requests.Wanted(
        feed=asked.feed,
        filter=asked.filter,
        dialect=check_dialect(asked.dialect),
        regions=named_regions(asked.region, asked.regions),
        region_filter=asked.region_filter,
        ttl=asked.ttl,
        exact=asked.exact,
    )
    _check_room(subscriber, [id], caller)
    if asked.replay_from is None:
        return await caller.broker.subscriptions.put(subscriber, id, wanted)
    replays = caller.broker.replays
    # Before there is a subscription without it.
    replays.check(subscriber, asked.feed, asked.replay_from)
    made = await caller.broker.subscriptions.put(subscriber, id, wanted)
    await replays.start(subscriber, asked.replay_from, subscription=id)
    return made


@router.serve("POST /subscribers/{subscriber}/subscriptions", 404, 409)
async def put_subscriptions(
    subscriber: Name, asked: requests.ManyWanted, caller: AsSubscriber
) -> responses.Counted:
    """Make or replace many subscriptions to one feed of events, by filters under their ids: all of
    them, or with an error none.
    """
    caller.check_change(subscriber, asked.filters, asked.feed)
    dialects = _dialects(asked)
    wanted: dict[str, requests.Wanted] = {}
    for id, filter in asked.filters.items():
        check_name("subscription", id)
        caller.check_filter(filter)
        wanted[id] = requests.Wanted(feed=asked.feed, filter=filter, dialect=dialects.get(id))
    _check_room(subscriber, wanted, caller)
    replays = caller.broker.replays
    if asked.replay_from is not None:  # before there are subscriptions that would have to go again
        replays.check(subscriber, asked.feed, asked.replay_from)
    made = await caller.broker.subscriptions.put_many(subscriber, wanted)
    if asked.replay_from is not None:
        await replays.start_some(
            subscriber, asked.replay_from, feed=asked.feed, subscriptions=wanted
        )
    return responses.Counted(len(made))


def _dialects(asked: requests.ManyWanted) -> dict[str, str | None]:
    """The dialects of filters by id; those that are not in it are SQL."""
    if not isinstance(asked.dialect, dict):
        return dict.fromkeys(asked.filters, check_dialect(asked.dialect))
    for id in asked.dialect:
        if id not in asked.filters:
            raise Problem(422, "body", f"there is a dialect for {id!r}, and no filter")
    return {id: check_dialect(one) for id, one in asked.dialect.items()}


def _check_room(subscriber: str, ids: Collection[str], caller: Caller) -> None:
    """The broker sees to its own limit; that of the key may be lower."""
    most = caller.limits.subscriptions
    known = caller.broker.subscribers.get(subscriber).subscriptions
    there = len(known)
    if most >= caller.broker.settings.limits.subscriptions or there + len(ids) <= most:
        return
    new = sum(id not in known for id in ids)  # to put another in its place is fine
    if new and there + new > most:
        raise LimitError(f"a subscriber has at most {most:,} subscriptions")


@router.serve("GET /subscribers/{subscriber}/subscriptions/{id}", 404)
async def show_subscription(
    subscriber: Name, id: Name, caller: AsSubscriber
) -> responses.Subscription:
    """A subscription as it is stored."""
    return caller.subscription(subscriber, id).info()


@router.serve("DELETE /subscribers/{subscriber}/subscriptions/{id}", 404)
async def delete_subscription(subscriber: Name, id: Name, caller: AsSubscriber) -> None:
    """Drop a subscription. Notifications that it was the reason for are still delivered."""
    caller.subscription(subscriber, id)
    await caller.broker.subscriptions.delete(subscriber, id)


@router.serve("GET /subscribers/{subscriber}/subscriptions", 404)
async def list_subscriptions(
    subscriber: Name,
    caller: AsSubscriber,
    after: AfterName = "",
    limit: Limit = 100,
    feed: AfterName = "",
) -> responses.Subscriptions:
    """The subscriptions of a subscriber by id, a page at a time; `next` is null at the end. Only
    those to feeds that the key may subscribe to.
    """
    feeds: Collection[str] | None = caller.grant.subscribed_feeds
    if feed:
        feeds = [feed] if caller.grant.may_subscribe_to(feed) else []
    found = await asyncio.to_thread(
        caller.broker.subscriptions.list, subscriber, after=after, limit=limit, feeds=feeds
    )
    following = found[-1].id if len(found) == limit else None
    return responses.Subscriptions(list(found), following)


@router.serve("GET /subscribers/{subscriber}", 404)
async def show_subscriber(subscriber: Name, caller: AsSubscriber) -> responses.Subscriber:
    """Where a subscriber stands: its cursor, what waits for it and what was dropped. `feeds` has
    those that the key may subscribe to, and `replays` those of them.
    """
    found = await caller.broker.subscribers.describe(subscriber)
    may = caller.grant.may_subscribe_to
    return replace(
        found,
        feeds=[one for one in found.feeds if may(one)],
        replays=[one for one in found.replays if one.feed is None or may(one.feed)],
    )


@router.serve("GET /subscribers")
async def list_subscribers(
    caller: Admin, after: AfterName = "", limit: Limit = 100
) -> responses.Subscribers:
    """All subscribers by name, a page at a time."""
    found = await caller.broker.subscribers.list(after=after, limit=limit)
    following = found[-1].subscriber if len(found) == limit else None
    return responses.Subscribers(list(found), following)


# Sharing


@router.serve("PUT /subscribers/{subscriber}/sharing", 409)
async def share(
    subscriber: Name, asked: requests.Sharing, caller: AsSubscriber
) -> responses.Subscriber:
    """Have the subscriber's notifications shared among its connections, and acknowledged one by
    one. What is not acknowledged stays so, and connections are closed to begin anew.
    """
    await caller.broker.shared.share(subscriber, asked)
    return await show_subscriber(subscriber, caller)


@router.serve("DELETE /subscribers/{subscriber}/sharing")
async def unshare(subscriber: Name, caller: AsSubscriber) -> None:
    """Have a cursor alone again. What was acknowledged after a notification that was not is
    delivered again.
    """
    await caller.broker.shared.unshare(subscriber)


@router.serve("POST /subscribers/{subscriber}/replay", 404, 409)
async def replay(
    subscriber: Name, asked: requests.ReplayQuestion, caller: AsSubscriber
) -> responses.Replay:
    """Deliver events of the log again, matched against the subscriptions as they are now: those
    from a number or a time on. The cursor goes back to there, and readers have to come again.
    """
    if asked.subscription is not None:
        caller.subscription(subscriber, asked.subscription)
    elif asked.feed is not None:
        caller.must("subscribe to", asked.feed)
    elif caller.grant.subscribed_feeds is not None:
        raise AccessError("this key may not subscribe to all feeds: give the one to be replayed")
    begun = await caller.broker.replays.start(
        subscriber,
        asked.replay_from,
        through=asked.through,
        feed=asked.feed,
        subscription=asked.subscription,
    )
    return begun.info()


@router.serve("DELETE /subscribers/{subscriber}/replay")
async def cancel_replay(subscriber: Name, caller: AsSubscriber) -> responses.Cursor:
    """Replay no more. The cursor is again what it was before, or what was acknowledged since."""
    return responses.Cursor(await caller.broker.replays.cancel(subscriber))


# Webhooks


@webhooks.serve("PUT /subscribers/{subscriber}/webhook")
async def put_webhook(
    subscriber: Name, asked: requests.NewWebhook, caller: AsSubscriber
) -> responses.Webhook:
    """Have the subscriber's notifications posted to an address. A secret is only shown in this
    answer, and only if the broker made it.
    """
    made = None if asked.secret is not None else secrets.token_urlsafe(32)
    webhook = Webhook(**asdict(replace(asked, secret=asked.secret or made)))
    await caller.broker.webhooks.put(subscriber, webhook)
    return replace(webhook.described(), made_secret=made)


@webhooks.serve("GET /subscribers/{subscriber}/webhook", 404)
async def show_webhook(subscriber: Name, caller: AsSubscriber) -> responses.Webhook:
    """The subscriber's webhook, without its secret."""
    webhook = caller.broker.webhooks.describe(subscriber)
    if webhook is None:
        raise _no_webhook(subscriber)
    return webhook


@webhooks.serve("DELETE /subscribers/{subscriber}/webhook", 404)
async def delete_webhook(subscriber: Name, caller: AsSubscriber) -> None:
    """Post no more."""
    if caller.broker.webhooks.get(subscriber) is None:
        raise _no_webhook(subscriber)
    await caller.broker.webhooks.delete(subscriber)


@webhooks.serve("GET /subscribers/{subscriber}/dead-letters")
async def list_dead_letters(
    subscriber: Name,
    caller: AsSubscriber,
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> responses.DeadLetters:
    """What the webhook did not take in all its attempts, or was handed out too often, oldest
    first.
    """
    letters = await caller.broker.webhooks.dead_letters(subscriber, after, limit)
    following = letters[-1].number if len(letters) == limit else None
    return responses.DeadLetters([_letter(one) for one in letters], following)


@webhooks.serve("POST /subscribers/{subscriber}/dead-letters/replay", 404, 409)
async def replay_dead_letters(
    subscriber: Name, asked: requests.Numbers, caller: AsSubscriber
) -> responses.Replayed:
    """Try dead letters again: post them, or hand them out to those who share the notifications.
    Then they are dead letters until they are acknowledged, and those that are too many for now
    are left out.
    """
    broker = caller.broker
    shared = broker.subscribers.get(subscriber).shared is not None
    letters = broker.shared if shared else broker.webhooks
    return responses.Replayed(await letters.replay(subscriber, asked.numbers))


@webhooks.serve("DELETE /subscribers/{subscriber}/dead-letters")
async def discard(
    subscriber: Name,
    caller: AsSubscriber,
    number: Annotated[list[Number], Query(max_length=1_000)] = [],  # noqa: B006  # never changed
) -> responses.Discarded:
    """Forget dead letters: those of a `number`, which may be given several times, or all."""
    caller.broker.shared.discard(subscriber, number or None)
    return responses.Discarded(await caller.broker.webhooks.discard(subscriber, number or None))


def _no_webhook(subscriber: str) -> Problem:
    return Problem(404, "unknown-webhook", f"subscriber {subscriber!r} has no webhook")


def _letter(one: DeadLetter) -> responses.DeadLetter:
    return responses.DeadLetter(
        number=one.number,
        first=one.first,
        last=one.last,
        attempts=one.attempts,
        reason=one.reason,
        at=one.at,
        body=stored(one.body),
    )
