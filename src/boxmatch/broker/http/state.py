"""Routes for state feeds: publications stay, and change."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec import UNSET

from boxmatch.broker.feeds.state_feed import regions_from_json, regions_to_json
from boxmatch.broker.http.authentication import Name, Publisher, Viewer
from boxmatch.broker.http.bodies import read_request
from boxmatch.broker.http.filters import check_filter, named_regions
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, gives, takes
from boxmatch.wire import answers, requests

router = APIRouter(tags=["state"])


@router.put(
    "/feeds/{feed}/publications/{id}",
    responses=gives(answers.Receipt, 404, 409, body=True),
    openapi_extra=takes(requests.NewPublication),
)
async def put_publication(feed: Name, id: Name, request: Request, caller: Publisher) -> Response:
    """Publish, or put other regions in the place of all that were there."""
    asked = await read_request(request, requests.NewPublication, caller.limits.body_bytes)
    regions = named_regions(asked.region, asked.regions)
    if regions is None:
        raise Problem(422, "body", "give a region, or regions by name")
    check_filter(asked.filter, caller.limits)
    caller.context.meter.take_events(caller.grant, 1)
    receipt = await caller.broker.state.put_publication(
        feed, id, regions=regions_from_json(regions), filter=asked.filter, ttl=asked.ttl
    )
    return answer(receipt)


@router.patch(
    "/feeds/{feed}/publications/{id}",
    responses=gives(answers.Receipt, 404, 409, body=True),
    openapi_extra=takes(requests.PublicationChange),
)
async def patch_publication(feed: Name, id: Name, request: Request, caller: Publisher) -> Response:
    """Change some of it. A region that is null goes, a dimension that is null becomes free; what
    is not named stays as it is.
    """
    asked = await read_request(request, requests.PublicationChange, caller.limits.body_bytes)
    given = {"filter": asked.filter, "ttl": asked.ttl}
    changes: dict[str, Any] = {name: one for name, one in given.items() if one is not UNSET}
    check_filter(asked.filter, caller.limits)
    regions = named_regions(asked.region, asked.regions)
    caller.context.meter.take_events(caller.grant, 1)
    receipt = await caller.broker.state.patch_publication(
        feed, id, regions=regions_from_json(regions or {}), **changes
    )
    return answer(receipt)


@router.get(
    "/feeds/{feed}/publications/{id}",
    responses=gives(answers.Publication, 404, 409),
)
async def show_publication(feed: Name, id: Name, caller: Viewer) -> Response:
    """A publication as it is now."""
    found = caller.broker.state.publication(feed, id)
    regions = regions_to_json(found.regions)
    return answer(answers.Publication(id=id, regions=regions, filter=found.filter))


@router.delete(
    "/feeds/{feed}/publications/{id}",
    responses=gives(answers.Receipt, 404, 409),
)
async def retract(feed: Name, id: Name, caller: Publisher) -> Response:
    """Take a publication back."""
    caller.context.meter.take_events(caller.grant, 1)
    return answer(await caller.broker.state.retract(feed, id))
