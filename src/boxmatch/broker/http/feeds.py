"""Routes for feeds: made, shown, extended and dropped; and questions about filters on them."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec import UNSET, to_builtins

from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.http.authentication import Admin, AnyCaller, Asker, Caller, Name, Viewer
from boxmatch.broker.http.bodies import read_request
from boxmatch.broker.http.events import event_answer
from boxmatch.broker.http.filters import check_filter
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, gives, problems, takes
from boxmatch.model.schema import Schema
from boxmatch.wire import answers, requests
from boxmatch.wire.codec import stored

router = APIRouter(tags=["feeds"])


@router.post(
    "/feeds",
    status_code=201,
    responses=gives(answers.Feed, 409, body=True, status=201),
    openapi_extra=takes(requests.NewFeed),
)
async def create_feed(request: Request, caller: Admin) -> Response:
    """Make a feed: of events, with a schema, or a state feed, with named spaces."""
    wanted = await read_request(request, requests.NewFeed, caller.limits.body_bytes)
    spec = FeedSpec(
        name=wanted.name,
        kind=wanted.kind,
        spaces=_spaces(wanted),
        unknown=wanted.unknown,
        leave=wanted.leave,
        index=wanted.index,
        adaptive=wanted.adaptive,
    )
    return answer(_feed(await caller.broker.feeds.create(spec)), 201)


@router.get("/feeds", responses=gives(answers.Feeds))
async def list_feeds(caller: AnyCaller) -> Response:
    """The feeds that the key may publish to or read."""
    feeds = caller.broker.feeds.list()
    return answer(answers.Feeds([_feed(one) for one in feeds if caller.may_see(one.spec.name)]))


@router.get("/feeds/{feed}", responses=gives(answers.Feed, 404))
async def show_feed(feed: Name, caller: Viewer) -> Response:
    """A feed and its schema."""
    return answer(_feed(caller.broker.feeds.get(feed)))


@router.patch(
    "/feeds/{feed}",
    responses=gives(answers.Feed, 404, 409, body=True),
    openapi_extra=takes(requests.MoreAttributes),
)
async def extend_feed(feed: Name, request: Request, caller: Admin) -> Response:
    """Add attributes to the schema. Those that are there cannot be changed."""
    wanted = await read_request(request, requests.MoreAttributes, caller.limits.body_bytes)
    attributes = to_builtins(wanted.attributes)
    return answer(_feed(await caller.broker.feeds.extend(feed, attributes)))


@router.put(
    "/feeds/{feed}/adaptive",
    responses=gives(answers.Feed, 404, 409, body=True),
    openapi_extra=takes(requests.Adaptive),
)
async def adapt_feed(feed: Name, request: Request, caller: Admin) -> Response:
    """Let a feed of events tolerate some false matches while events have to wait, and never miss
    one. From now on; notifications say at which rate they were matched.
    """
    wanted = await read_request(request, requests.Adaptive, caller.limits.body_bytes)
    return answer(_feed(await caller.broker.feeds.adapt(feed, wanted)))


@router.delete("/feeds/{feed}/adaptive", responses=gives(answers.Feed, 404, 409))
async def make_exact(feed: Name, caller: Admin) -> Response:
    """Match exactly from now on, whatever the load."""
    return answer(_feed(await caller.broker.feeds.adapt(feed, None)))


@router.delete("/feeds/{feed}", status_code=204, responses=problems(404))
async def drop_feed(feed: Name, caller: Admin) -> Response:
    """Drop a feed with its log, its subscriptions and the notifications that are still unread."""
    await caller.broker.feeds.drop(feed)
    return Response(status_code=204)


@router.post(
    "/feeds/{feed}/dry-run",
    responses=gives(answers.DryRun, 404, 409, body=True),
    openapi_extra=takes(requests.DryRunQuestion),
)
async def dry_run(feed: Name, request: Request, caller: Asker) -> Response:
    """How many of the latest events a filter would have matched, what boxes it compiles to, and
    why it wants the `recent` ones or not.
    """
    asked = await read_request(request, requests.DryRunQuestion, caller.limits.body_bytes)
    # Events of the past are shown to those who may read the log.
    may_read = caller.grant.may_read(feed)
    check_filter(asked.filter, caller.limits)
    recent_count = asked.recent if may_read else 0
    result = await caller.broker.preview.dry_run(feed, asked.filter, recent_count)
    recent = [
        answers.RecentEvent(
            one.event.sequence,
            one.event.at,
            stored(one.event.body),
            one.explanation.matched,
            list(one.explanation.predicates),
        )
        for one in result.recent
    ]
    return answer(
        answers.DryRun(
            result.events,
            result.matches,
            examples=[event_answer(one) for one in result.examples] if may_read else [],
            boxes=[[answers.Condition(*one) for one in box] for box in result.boxes],
            box_count=result.box_count,
            recent=recent,
        )
    )


@router.post(
    "/feeds/{feed}/explain",
    responses=gives(answers.Explanation, 404, 409, body=True),
    openapi_extra=takes(requests.Question),
)
async def explain(feed: Name, request: Request, caller: Asker) -> Response:
    """Why an event does or does not match: `event` or `sequence`, and `filter` or `subscriber` with
    `subscription`.
    """
    asked = await read_request(request, requests.Question, caller.limits.body_bytes)
    _check_question(feed, asked, caller)
    check_filter(asked.filter, caller.limits)
    explanation = await caller.broker.preview.explain(
        feed,
        event=asked.event,
        sequence=asked.sequence,
        filter=asked.filter,
        subscriber=asked.subscriber,
        subscription=asked.subscription,
    )
    return answer(
        answers.Explanation(
            explanation.matched, explanation.alternatives, explanation.never, str(explanation)
        )
    )


def _check_question(feed: str, asked: requests.Question, caller: Caller) -> None:
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


def _spaces(wanted: requests.NewFeed) -> dict[str, Schema]:
    spaces = wanted.spaces if wanted.schema is None else {wanted.name: wanted.schema}
    if spaces is None or (wanted.schema is not None and wanted.spaces is not None):
        raise Problem(422, "body", "give a schema, or for a state feed spaces")
    if wanted.spaces is not None and wanted.kind == "events":
        raise Problem(422, "body", "a feed of events has a schema; spaces are for state feeds")
    return {name: Schema(to_builtins(one)) for name, one in spaces.items()}


def _feed(feed: FeedInfo) -> answers.Feed:
    spec = feed.spec
    spaces = {name: orjson.loads(one.to_json()) for name, one in spec.spaces.items()}
    return answers.Feed(
        name=spec.name,
        kind=spec.kind,
        schema_json=spaces[spec.name] if spec.kind == "events" else UNSET,
        spaces_json=spaces if spec.kind == "state" else UNSET,
        unknown=spec.unknown,
        leave=spec.leave,
        index=spec.index,
        adaptive=spec.adaptive,
        rate=feed.rate,
        sampled_matches=feed.sampled_matches,
        sampled_false=feed.sampled_false,
        subscriptions=feed.subscriptions,
        publications=feed.publications,
        events=feed.events,
        matches=feed.matches,
        last_sequence=feed.last_sequence,
    )
