"""Routes for webhooks, and for what they did not take."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch.broker.http import shapes
from boxmatch.broker.http.answers import answer, problems, takes
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.callers import MOST_SEQUENCE, AsOwner, Name
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.messages import DeadLetter, Webhook

Number = Annotated[int, Query(ge=0, le=MOST_SEQUENCE)]

router = APIRouter(tags=["webhooks"])


@router.put(
    "/owners/{owner}/webhook",
    response_model=shapes.Webhook,
    responses=problems(body=True),
    openapi_extra=takes(shapes.WebhookSpec),
)
async def put_webhook(owner: Name, request: Request, caller: AsOwner) -> Response:
    """Have the owner's notes posted to an address. A secret is only shown in this answer, and
    only if the broker made it.
    """
    asked = await read_model(request, shapes.WebhookSpec, caller.limits.body_bytes)
    made = None if asked.secret is not None else secrets.token_urlsafe(32)
    webhook = Webhook(
        url=asked.url,
        secret=asked.secret or made or "",
        timeout=asked.timeout,
        attempts=asked.attempts,
        batch=asked.batch,
        paused=asked.paused,
    )
    await caller.broker.put_webhook(owner, webhook)
    return answer({**webhook_json(webhook, None), "secret": made})


@router.get("/owners/{owner}/webhook", response_model=shapes.Webhook, responses=problems(404))
async def show_webhook(owner: Name, caller: AsOwner) -> Response:
    """The owner's webhook, without its secret."""
    webhook = caller.broker.webhook(owner)
    if webhook is None:
        raise _no_webhook(owner)
    return answer(webhook_json(webhook, caller.broker.webhook_error(owner)))


@router.delete("/owners/{owner}/webhook", status_code=204, responses=problems(404))
async def delete_webhook(owner: Name, caller: AsOwner) -> Response:
    """Post no more."""
    if caller.broker.webhook(owner) is None:
        raise _no_webhook(owner)
    await caller.broker.delete_webhook(owner)
    return Response(status_code=204)


@router.get("/owners/{owner}/dead-letters", response_model=shapes.DeadLetters, responses=problems())
async def list_dead_letters(
    owner: Name,
    caller: AsOwner,
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """What the webhook did not take in all its attempts, oldest first."""
    letters = await caller.broker.dead_letters(owner, after, limit)
    following = letters[-1].number if len(letters) == limit else None
    return answer({"dead_letters": [_letter_json(one) for one in letters], "next": following})


@router.post(
    "/owners/{owner}/dead-letters/replay",
    response_model=shapes.Replayed,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.Numbers),
)
async def replay(owner: Name, request: Request, caller: AsOwner) -> Response:
    """Try dead letters again."""
    asked = await read_model(request, shapes.Numbers, caller.limits.body_bytes)
    return answer({"replayed": await caller.broker.replay(owner, asked.numbers)})


@router.delete(
    "/owners/{owner}/dead-letters", response_model=shapes.Discarded, responses=problems()
)
async def discard(
    owner: Name,
    caller: AsOwner,
    number: Annotated[list[Number], Query(max_length=1_000)] = [],  # noqa: B006  # never changed
) -> Response:
    """Forget dead letters: those of a `number`, which may be given several times, or all."""
    return answer({"discarded": await caller.broker.discard(owner, number or None)})


def webhook_json(webhook: Webhook, last_error: str | None) -> dict[str, Any]:
    """A webhook without its secret."""
    return {
        "url": webhook.url,
        "timeout": webhook.timeout,
        "attempts": webhook.attempts,
        "batch": webhook.batch,
        "paused": webhook.paused,
        "last_error": last_error,
    }


def _no_webhook(owner: str) -> Problem:
    return Problem(404, "unknown-webhook", f"owner {owner!r} has no webhook")


def _letter_json(one: DeadLetter) -> dict[str, Any]:
    return {
        "number": one.number,
        "first": one.first,
        "last": one.last,
        "attempts": one.attempts,
        "reason": one.reason,
        "at": one.at,
        "body": orjson.Fragment(one.body),
    }
