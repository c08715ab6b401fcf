"""Routes for webhooks, and for what they did not take."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch.broker.http import shapes
from boxmatch.broker.http.authentication import AsSubscriber, Name
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, problems, takes
from boxmatch.broker.messages import DeadLetter, Webhook
from boxmatch.wire.http import MOST_SEQUENCE

Number = Annotated[int, Query(ge=0, le=MOST_SEQUENCE)]

router = APIRouter(tags=["webhooks"])


@router.put(
    "/subscribers/{subscriber}/webhook",
    response_model=shapes.Webhook,
    responses=problems(body=True),
    openapi_extra=takes(shapes.WebhookSpec),
)
async def put_webhook(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Have the subscriber's notifications posted to an address. A secret is only shown in this
    answer, and only if the broker made it.
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
    await caller.broker.webhooks.put(subscriber, webhook)
    return answer({**webhook_json(webhook, None), "secret": made})


@router.get(
    "/subscribers/{subscriber}/webhook", response_model=shapes.Webhook, responses=problems(404)
)
async def show_webhook(subscriber: Name, caller: AsSubscriber) -> Response:
    """The subscriber's webhook, without its secret."""
    webhook = caller.broker.webhooks.get(subscriber)
    if webhook is None:
        raise _no_webhook(subscriber)
    return answer(webhook_json(webhook, caller.broker.webhooks.last_error(subscriber)))


@router.delete("/subscribers/{subscriber}/webhook", status_code=204, responses=problems(404))
async def delete_webhook(subscriber: Name, caller: AsSubscriber) -> Response:
    """Post no more."""
    if caller.broker.webhooks.get(subscriber) is None:
        raise _no_webhook(subscriber)
    await caller.broker.webhooks.delete(subscriber)
    return Response(status_code=204)


@router.get(
    "/subscribers/{subscriber}/dead-letters",
    response_model=shapes.DeadLetters,
    responses=problems(),
)
async def list_dead_letters(
    subscriber: Name,
    caller: AsSubscriber,
    after: Number = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """What the webhook did not take in all its attempts, oldest first."""
    letters = await caller.broker.webhooks.dead_letters(subscriber, after, limit)
    following = letters[-1].number if len(letters) == limit else None
    return answer({"dead_letters": [_letter_json(one) for one in letters], "next": following})


@router.post(
    "/subscribers/{subscriber}/dead-letters/replay",
    response_model=shapes.Replayed,
    responses=problems(404, 409, body=True),
    openapi_extra=takes(shapes.Numbers),
)
async def replay(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Try dead letters again."""
    asked = await read_model(request, shapes.Numbers, caller.limits.body_bytes)
    return answer({"replayed": await caller.broker.webhooks.replay(subscriber, asked.numbers)})


@router.delete(
    "/subscribers/{subscriber}/dead-letters", response_model=shapes.Discarded, responses=problems()
)
async def discard(
    subscriber: Name,
    caller: AsSubscriber,
    number: Annotated[list[Number], Query(max_length=1_000)] = [],  # noqa: B006  # never changed
) -> Response:
    """Forget dead letters: those of a `number`, which may be given several times, or all."""
    return answer({"discarded": await caller.broker.webhooks.discard(subscriber, number or None)})


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


def _no_webhook(subscriber: str) -> Problem:
    return Problem(404, "unknown-webhook", f"subscriber {subscriber!r} has no webhook")


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
