"""Routes for state feeds: publications stay, and change."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from boxmatch.broker.feeds.state_feed import regions_from_json, regions_to_json
from boxmatch.broker.http import shapes
from boxmatch.broker.http.authentication import Name, Publisher, Viewer
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.events import receipt_json
from boxmatch.broker.http.filters import checked_text, named_regions
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, answer_bytes, problems, takes

router = APIRouter(tags=["state"])


@router.put(
    "/feeds/{feed}/publications/{id}",
    response_model=shapes.Published,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.NewPublication),
)
async def put_publication(feed: Name, id: Name, request: Request, caller: Publisher) -> Response:
    """Publish, or put other regions in the place of all that were there."""
    asked = await read_model(request, shapes.NewPublication, caller.limits.body_bytes)
    regions = named_regions(asked.region, asked.regions)
    if regions is None:
        raise Problem(422, "body", "give a region, or regions by name")
    checked_text(asked.filter, caller.limits)
    caller.context.meter.take_events(caller.grant, 1)
    receipt = await caller.broker.state.put_publication(
        feed, id, regions=regions_from_json(regions), filter=asked.filter, ttl=asked.ttl
    )
    return answer_bytes(receipt_json(receipt))


@router.patch(
    "/feeds/{feed}/publications/{id}",
    response_model=shapes.Published,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.PublicationChange),
)
async def patch_publication(feed: Name, id: Name, request: Request, caller: Publisher) -> Response:
    """Change some of it. A region that is null goes, a dimension that is null becomes free; what
    is not named stays as it is.
    """
    asked = await read_model(request, shapes.PublicationChange, caller.limits.body_bytes)
    changes: dict[str, Any] = {
        name: getattr(asked, name) for name in ("filter", "ttl") if name in asked.model_fields_set
    }
    checked_text(asked.filter, caller.limits)
    regions = named_regions(asked.region, asked.regions)
    caller.context.meter.take_events(caller.grant, 1)
    receipt = await caller.broker.state.patch_publication(
        feed, id, regions=regions_from_json(regions or {}), **changes
    )
    return answer_bytes(receipt_json(receipt))


@router.get(
    "/feeds/{feed}/publications/{id}",
    response_model=shapes.Publication,
    responses=problems(404, 409),
)
async def show_publication(feed: Name, id: Name, caller: Viewer) -> Response:
    """A publication as it is now."""
    stored = caller.broker.state.publication(feed, id)
    return answer(
        {
            "id": stored.id,
            "regions": regions_to_json(stored.regions),
            "filter": stored.filter,
        }
    )


@router.delete(
    "/feeds/{feed}/publications/{id}",
    response_model=shapes.Published,
    responses=problems(404, 409),
)
async def retract(feed: Name, id: Name, caller: Publisher) -> Response:
    """Take a publication back."""
    caller.context.meter.take_events(caller.grant, 1)
    return answer_bytes(receipt_json(await caller.broker.state.retract(feed, id)))
