"""Routes for feeds: made, shown, extended and dropped; questions about filters on them; and the
publications of state feeds, which stay, and change.
"""

from __future__ import annotations

from typing import Any

import orjson
from msgspec import UNSET, to_builtins

from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.feeds.state_feed import regions_from_json, regions_to_json
from boxmatch.broker.http.authentication import (
    Admin,
    AnyCaller,
    Asker,
    Caller,
    Name,
    Publisher,
    Viewer,
)
from boxmatch.broker.http.bodies import named_regions
from boxmatch.broker.http.events import event_response
from boxmatch.broker.http.routing import Router
from boxmatch.engine.explain import Wanted
from boxmatch.model.dialects.registry import in_dialect
from boxmatch.model.schema import Schema
from boxmatch.wire import requests, responses
from boxmatch.wire.codec import stored
from boxmatch.wire.problems import Problem

router = Router(tags=["feeds"])
publications = Router(tags=["state"])


@router.serve("POST /feeds", 409, status=201)
async def create_feed(asked: requests.NewFeed, caller: Admin) -> responses.Feed:
    """Make a feed: of events, with a schema or without one, or a state feed, with named spaces."""
    spec = FeedSpec(
        name=asked.name,
        kind=asked.kind,
        spaces=_spaces(asked),
        unknown=asked.unknown,
        leave=asked.leave,
        index=asked.index,
        adaptive=asked.adaptive,
        retention=asked.retention,
    )
    return _feed(await caller.broker.feeds.create(spec))


@router.serve("GET /feeds")
async def list_feeds(caller: AnyCaller) -> responses.Feeds:
    """The feeds that the key may publish to or read."""
    feeds = caller.broker.feeds.list()
    return responses.Feeds([_feed(one) for one in feeds if caller.grant.may_see(one.spec.name)])


@router.serve("GET /feeds/{feed}", 404)
async def show_feed(feed: Name, caller: Viewer) -> responses.Feed:
    """A feed and its schema."""
    return _feed(caller.broker.feeds.get(feed))


@router.serve("PATCH /feeds/{feed}", 404, 409)
async def change_feed(feed: Name, asked: requests.FeedChange, caller: Admin) -> responses.Feed:
    """Add attributes to the schema, of which those that are there cannot be changed, or keep the
    log longer or shorter; null: as those of all feeds.
    """
    feeds = caller.broker.feeds
    found = feeds.get(feed)
    if asked.attributes is None and asked.retention is UNSET:
        raise Problem(422, "body", "give attributes, or a retention")
    if asked.attributes is not None:
        found = await feeds.extend(feed, to_builtins(asked.attributes))
    if asked.retention is not UNSET:
        found = await feeds.retain(feed, asked.retention)
    return _feed(found)


@router.serve("PUT /feeds/{feed}/adaptive", 404, 409)
async def adapt_feed(feed: Name, asked: requests.Adaptive, caller: Admin) -> responses.Feed:
    """Let a feed of events tolerate some false matches while events have to wait, and never miss
    one. From now on; notifications say at which rate they were matched.
    """
    return _feed(await caller.broker.feeds.adapt(feed, asked))


@router.serve("DELETE /feeds/{feed}/adaptive", 404, 409)
async def make_exact(feed: Name, caller: Admin) -> responses.Feed:
    """Match exactly from now on, whatever the load."""
    return _feed(await caller.broker.feeds.adapt(feed, None))


@router.serve("DELETE /feeds/{feed}", 404)
async def drop_feed(feed: Name, caller: Admin) -> None:
    """Drop a feed with its log, its subscriptions and the notifications that are still unread."""
    await caller.broker.feeds.drop(feed)


@router.serve("POST /feeds/{feed}/dry-run", 404, 409)
async def dry_run(feed: Name, asked: requests.DryRunQuestion, caller: Asker) -> responses.DryRun:
    """What boxes a filter compiles to and what is checked besides; to keys that may read the feed
    also how many of the latest events it would have matched, and why it wants the `recent` ones or
    not.
    """
    may_read = caller.grant.may_read(feed)
    caller.check_filter(asked.filter)
    filter = in_dialect(asked.filter, asked.dialect)
    result = await caller.broker.preview.dry_run(feed, filter, asked.recent, may_read=may_read)
    recent = [
        responses.RecentEvent(
            one.event.sequence,
            one.event.at,
            stored(one.event.body),
            one.explanation.matched,
            list(one.explanation.predicates),
        )
        for one in result.recent
    ]
    return responses.DryRun(
        result.events if may_read else None,
        result.matches if may_read else None,
        examples=[event_response(one) for one in result.examples],
        boxes=[[_condition(one) for one in box] for box in result.boxes],
        box_count=result.box_count,
        residual=result.compiled.checked,
        cost=result.compiled.cost,
        warning=result.compiled.warning,
        recent=recent,
    )


def _condition(one: Wanted) -> responses.Condition:
    return responses.Condition(one.attribute, one.text, "axis" if one.is_expression else "box")


@router.serve("POST /feeds/{feed}/explain", 404, 409)
async def explain(feed: Name, asked: requests.Question, caller: Asker) -> responses.Explanation:
    """Why an event does or does not match: `event` or `sequence`, and `filter` or `subscriber` with
    `subscription`.
    """
    _check_question(feed, asked, caller)
    caller.check_filter(asked.filter)
    found = await caller.broker.preview.explain(
        feed,
        event=asked.event,
        sequence=asked.sequence,
        filter=None if asked.filter is None else in_dialect(asked.filter, asked.dialect),
        subscriber=asked.subscriber,
        subscription=asked.subscription,
    )
    return responses.Explanation(found.matched, found.alternatives, found.never, str(found))


def _check_question(feed: str, asked: requests.Question, caller: Caller) -> None:
    if (asked.event is None) == (asked.sequence is None):
        raise Problem(422, "body", "give an event, or the sequence number of one")
    stored = asked.subscriber is not None and asked.subscription is not None
    half = (asked.subscriber is None) != (asked.subscription is None)
    if half or stored == (asked.filter is not None):
        raise Problem(422, "body", "give a filter, or a subscriber and one of its subscriptions")
    if asked.dialect is not None and asked.filter is None:
        raise Problem(422, "body", "a dialect is that of a filter: give both")
    if asked.subscriber is not None:
        caller.must("subscribe", asked.subscriber)
        caller.subscription(asked.subscriber, asked.subscription or "")
    if asked.sequence is not None:
        caller.must("read", feed)


def _spaces(asked: requests.NewFeed) -> dict[str, Schema]:
    spaces = asked.spaces if asked.schema is None else {asked.name: asked.schema}
    if asked.schema is not None and asked.spaces is not None:
        raise Problem(422, "body", "give a schema, or for a state feed spaces")
    if asked.spaces is not None and asked.kind == "events":
        raise Problem(422, "body", "a feed of events has a schema; spaces are for state feeds")
    if spaces is None and asked.kind == "state":
        raise Problem(422, "body", "a state feed needs spaces, whose dimensions have types")
    if spaces is None:
        return {asked.name: Schema()}
    return {name: Schema(to_builtins(one)) for name, one in spaces.items()}


def _feed(feed: FeedInfo) -> responses.Feed:
    spec = feed.spec
    spaces = {name: orjson.loads(one.to_json()) for name, one in spec.spaces.items()}
    return responses.Feed(
        name=spec.name,
        kind=spec.kind,
        schema_json=spaces[spec.name] if spec.kind == "events" else UNSET,
        spaces_json=spaces if spec.kind == "state" else UNSET,
        unknown=spec.unknown,
        leave=spec.leave,
        index=spec.index,
        adaptive=spec.adaptive,
        retention=spec.retention,
        rate=feed.rate,
        sampled_matches=feed.sampled_matches,
        sampled_false=feed.sampled_false,
        subscriptions=feed.subscriptions,
        publications=feed.publications,
        events=feed.events,
        matches=feed.matches,
        last_sequence=feed.last_sequence,
    )


# Publications of state feeds


@publications.serve("PUT /feeds/{feed}/publications/{id}", 404, 409)
async def put_publication(
    feed: Name, id: Name, asked: requests.NewPublication, caller: Publisher
) -> responses.Receipt:
    """Publish, or put other regions in the place of all that were there."""
    regions = named_regions(asked.region, asked.regions)
    if regions is None:
        raise Problem(422, "body", "give a region, or regions by name")
    caller.check_filter(asked.filter)
    caller.take_events()
    return await caller.broker.state.put_publication(
        feed, id, regions=regions_from_json(regions), filter=asked.filter, ttl=asked.ttl
    )


@publications.serve("PATCH /feeds/{feed}/publications/{id}", 404, 409)
async def patch_publication(
    feed: Name, id: Name, asked: requests.PublicationChange, caller: Publisher
) -> responses.Receipt:
    """Change some of it. A region that is null goes, a dimension that is null becomes free; what
    is not named stays as it is.
    """
    given = {"filter": asked.filter, "ttl": asked.ttl}
    changes: dict[str, Any] = {name: one for name, one in given.items() if one is not UNSET}
    caller.check_filter(asked.filter)
    regions = named_regions(asked.region, asked.regions)
    caller.take_events()
    return await caller.broker.state.patch_publication(
        feed, id, regions=regions_from_json(regions or {}), **changes
    )


@publications.serve("GET /feeds/{feed}/publications/{id}", 404, 409)
async def show_publication(feed: Name, id: Name, caller: Viewer) -> responses.Publication:
    """A publication as it is now."""
    found = caller.broker.state.publication(feed, id)
    regions = regions_to_json(found.regions)
    return responses.Publication(id=id, regions=regions, filter=found.region_filter)


@publications.serve("DELETE /feeds/{feed}/publications/{id}", 404, 409)
async def retract(feed: Name, id: Name, caller: Publisher) -> responses.Receipt:
    """Take a publication back."""
    caller.take_events()
    return await caller.broker.state.retract(feed, id)
