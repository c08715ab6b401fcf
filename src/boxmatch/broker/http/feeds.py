"""Routes for feeds: made, shown, extended and dropped; and questions about filters on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from boxmatch.broker.http import shapes
from boxmatch.broker.http.authentication import Admin, AnyCaller, Asker, Caller, Name, Viewer
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.filters import checked_filter
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, problems, takes
from boxmatch.broker.messages import Adaptive, FeedInfo, FeedSpec
from boxmatch.broker.store import LoggedEvent
from boxmatch.model.explanation import Explanation
from boxmatch.model.schema import Schema

router = APIRouter(tags=["feeds"])


@router.post(
    "/feeds",
    status_code=201,
    response_model=shapes.Feed,
    responses=problems(409, body=True),
    openapi_extra=takes(shapes.NewFeed),
)
async def create_feed(request: Request, caller: Admin) -> Response:
    """Make a feed: of events, with a schema, or a state feed, with named spaces."""
    wanted = await read_model(request, shapes.NewFeed, caller.limits.body_bytes)
    spaces = _spaces(wanted)
    spec = FeedSpec(
        name=wanted.name,
        kind=wanted.kind,
        spaces={name: _schema(attributes) for name, attributes in spaces.items()},
        unknown=wanted.unknown,
        leave=wanted.leave,
        index=wanted.index,
        adaptive=None if wanted.adaptive is None else _adaptive(wanted.adaptive),
    )
    return answer(feed_json(await caller.broker.feeds.create(spec)), 201)


@router.get("/feeds", response_model=shapes.Feeds, responses=problems())
async def list_feeds(caller: AnyCaller) -> Response:
    """The feeds that the key may publish to or read."""
    feeds = caller.broker.feeds.list()
    return answer({"feeds": [feed_json(one) for one in feeds if caller.may_see(one.spec.name)]})


@router.get("/feeds/{feed}", response_model=shapes.Feed, responses=problems(404))
async def show_feed(feed: Name, caller: Viewer) -> Response:
    """A feed and its schema."""
    return answer(feed_json(caller.broker.feeds.get(feed)))


@router.patch(
    "/feeds/{feed}",
    response_model=shapes.Feed,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.MoreAttributes),
)
async def extend_feed(feed: Name, request: Request, caller: Admin) -> Response:
    """Add attributes to the schema. Those that are there cannot be changed."""
    wanted = await read_model(request, shapes.MoreAttributes, caller.limits.body_bytes)
    attributes = {name: _attribute(spec) for name, spec in wanted.attributes.items()}
    return answer(feed_json(await caller.broker.feeds.extend(feed, attributes)))


@router.put(
    "/feeds/{feed}/adaptive",
    response_model=shapes.Feed,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.AdaptiveSpec),
)
async def adapt_feed(feed: Name, request: Request, caller: Admin) -> Response:
    """Let a feed of events tolerate some false matches while events have to wait, and never miss
    one. From now on; notifications say at which rate they were matched.
    """
    wanted = await read_model(request, shapes.AdaptiveSpec, caller.limits.body_bytes)
    return answer(feed_json(await caller.broker.feeds.adapt(feed, _adaptive(wanted))))


@router.delete("/feeds/{feed}/adaptive", response_model=shapes.Feed, responses=problems(404, 409))
async def make_exact(feed: Name, caller: Admin) -> Response:
    """Match exactly from now on, whatever the load."""
    return answer(feed_json(await caller.broker.feeds.adapt(feed, None)))


def _adaptive(wanted: shapes.AdaptiveSpec) -> Adaptive:
    return Adaptive(threshold=wanted.threshold, step=wanted.step, maximum=wanted.maximum)


@router.delete("/feeds/{feed}", status_code=204, responses=problems(404))
async def drop_feed(feed: Name, caller: Admin) -> Response:
    """Drop a feed with its log, its subscriptions and the notifications that are still unread."""
    await caller.broker.feeds.drop(feed)
    return Response(status_code=204)


@router.post(
    "/feeds/{feed}/dry-run",
    response_model=shapes.DryRun,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.DryRunQuestion),
)
async def dry_run(feed: Name, request: Request, caller: Asker) -> Response:
    """How many of the latest events a filter would have matched, what boxes it compiles to, and
    why it wants the `recent` ones or not.
    """
    asked = await read_model(request, shapes.DryRunQuestion, caller.limits.body_bytes)
    # Events of the past are shown to those who may read the log.
    may_read = caller.grant.may_read(feed)
    filter = checked_filter(asked.filter, caller.limits)
    result = await caller.broker.preview.dry_run(feed, filter, asked.recent if may_read else 0)
    return answer(
        {
            "events": result.events,
            "matches": result.matches,
            "examples": [_event_json(one) for one in result.examples] if may_read else [],
            "boxes": [
                [{"attribute": name, "wanted": wanted} for name, wanted in box]
                for box in result.boxes
            ],
            "box_count": result.box_count,
            "recent": [
                {
                    **_event_json(one.event),
                    "matches": one.explanation.matched,
                    "predicates": [asdict(each) for each in one.explanation.predicates],
                }
                for one in result.recent
            ],
        }
    )


def _event_json(one: LoggedEvent) -> dict[str, Any]:
    return {"sequence": one.sequence, "at": one.at, "event": orjson.Fragment(one.body)}


@router.post(
    "/feeds/{feed}/explain",
    response_model=shapes.Explanation,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.Question),
)
async def explain(feed: Name, request: Request, caller: Asker) -> Response:
    """Why an event does or does not match: `event` or `sequence`, and `filter` or `subscriber` with
    `subscription`.
    """
    asked = await read_model(request, shapes.Question, caller.limits.body_bytes)
    _check_question(feed, asked, caller)
    explanation = await caller.broker.preview.explain(
        feed,
        event=asked.event,
        sequence=asked.sequence,
        filter=None if asked.filter is None else checked_filter(asked.filter, caller.limits),
        subscriber=asked.subscriber,
        subscription=asked.subscription,
    )
    return answer(_explanation_json(explanation))


def _check_question(feed: str, asked: shapes.Question, caller: Caller) -> None:
    if (asked.event is None) == (asked.sequence is None):
        raise Problem(422, "body", "give an event, or the sequence number of one")
    stored = asked.subscriber is not None and asked.subscription is not None
    half = (asked.subscriber is None) != (asked.subscription is None)
    if half or stored == (asked.filter is not None):
        raise Problem(422, "body", "give a filter, or a subscriber and one of its subscriptions")
    if asked.subscriber is not None:
        caller.must_subscribe(asked.subscriber)
    if asked.sequence is not None:
        caller.must_read(feed)


def _spaces(wanted: shapes.NewFeed) -> dict[str, Any]:
    if (wanted.schema_ is None) == (wanted.spaces is None):
        raise Problem(422, "body", "give a schema, or for a state feed spaces")
    if wanted.schema_ is not None:
        return {wanted.name: wanted.schema_}
    if wanted.kind == "events":
        raise Problem(422, "body", "a feed of events has a schema; spaces are for state feeds")
    return dict(wanted.spaces or {})


def _schema(attributes: Any) -> Schema:
    return Schema({name: _attribute(spec) for name, spec in attributes.items()})


def _attribute(spec: Any) -> Any:
    if not isinstance(spec, shapes.AttributeSpec):
        return spec
    return spec.model_dump(exclude_none=True)


def feed_json(feed: FeedInfo) -> dict[str, Any]:
    spec = feed.spec
    if spec.kind == "events":
        made_of: dict[str, Any] = {"schema": _schema_json(spec.schema)}
    else:
        spaces = {name: _schema_json(one) for name, one in spec.spaces.items()}
        made_of = {"spaces": spaces}
    return {
        "name": spec.name,
        "kind": spec.kind,
        **made_of,
        "unknown": spec.unknown,
        "leave": spec.leave,
        "index": spec.index,
        "adaptive": None if spec.adaptive is None else asdict(spec.adaptive),
        "rate": feed.rate,
        "sampled_matches": feed.sampled_matches,
        "sampled_false": feed.sampled_false,
        "subscriptions": feed.subscriptions,
        "publications": feed.publications,
        "events": feed.events,
        "matches": feed.matches,
        "last_sequence": feed.last_sequence,
    }


def _schema_json(schema: Schema) -> Any:
    return orjson.loads(schema.to_json())


def _explanation_json(explanation: Explanation) -> dict[str, Any]:
    return {
        "matched": explanation.matched,
        "never": explanation.never,
        "alternatives": [[asdict(one) for one in all_of] for all_of in explanation.alternatives],
        "text": str(explanation),
    }
