"""Routes for webhooks, and for what they did not take."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from msgspec.structs import asdict, replace

from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.http.authentication import AsSubscriber, Name
from boxmatch.broker.http.bodies import read_request
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, gives, problems, takes
from boxmatch.broker.store.rows import DeadLetter
from boxmatch.wire import answers, requests
from boxmatch.wire.codec import stored
from boxmatch.wire.http import MOST_SEQUENCE

Number = Annotated[int, Query(ge=0, le=MOST_SEQUENCE)]

router = APIRouter(tags=["webhooks"])


@router.put(
    "/subscribers/{subscriber}/webhook",
    responses=gives(answers.Webhook, body=True),
    openapi_extra=takes(requests.NewWebhook),
)
async def put_webhook(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Have the subscriber's notifications posted to an address. A secret is only shown in this
    answer, and only if the broker made it.
    """
    asked = await read_request(request, requests.NewWebhook, caller.limits.body_bytes)
    made = None if asked.secret is not None else secrets.token_urlsafe(32)
    webhook = Webhook(**asdict(replace(asked, secret=asked.secret or made)))
    await caller.broker.webhooks.put(subscriber, webhook)
    return answer(replace(webhook.described(), made_secret=made))


@router.get("/subscribers/{subscriber}/webhook", responses=gives(answers.Webhook, 404))
async def show_webhook(subscriber: Name, caller: AsSubscriber) -> Response:
    """The subscriber's webhook, without its secret."""
    webhook = caller.broker.webhooks.describe(subscriber)
    if webhook is None:
        raise _no_webhook(subscriber)
    return answer(webhook)


@router.delete("/subscribers/{subscriber}/webhook", status_code=204, responses=problems(404))
async def delete_webhook(subscriber: Name, caller: AsSubscriber) -> Response:
    """Post no more."""
    if caller.broker.webhooks.get(subscriber) is None:
        raise _no_webhook(subscriber)
    await caller.broker.webhooks.delete(subscriber)
    return Response(status_code=204)


@router.get(
    "/subscribers/{subscriber}/dead-letters",
    responses=gives(answers.DeadLetters),
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
    return answer(answers.DeadLetters([_letter(one) for one in letters], following))


@router.post(
    "/subscribers/{subscriber}/dead-letters/replay",
    responses=gives(answers.Replayed, 404, 409, body=True),
    openapi_extra=takes(requests.Numbers),
)
async def replay(subscriber: Name, request: Request, caller: AsSubscriber) -> Response:
    """Try dead letters again."""
    asked = await read_request(request, requests.Numbers, caller.limits.body_bytes)
    return answer(answers.Replayed(await caller.broker.webhooks.replay(subscriber, asked.numbers)))


@router.delete("/subscribers/{subscriber}/dead-letters", responses=gives(answers.Discarded))
async def discard(
    subscriber: Name,
    caller: AsSubscriber,
    number: Annotated[list[Number], Query(max_length=1_000)] = [],  # noqa: B006  # never changed
) -> Response:
    """Forget dead letters: those of a `number`, which may be given several times, or all."""
    return answer(
        answers.Discarded(await caller.broker.webhooks.discard(subscriber, number or None))
    )


def _no_webhook(subscriber: str) -> Problem:
    return Problem(404, "unknown-webhook", f"subscriber {subscriber!r} has no webhook")


def _letter(one: DeadLetter) -> answers.DeadLetter:
    return answers.DeadLetter(
        number=one.number,
        first=one.first,
        last=one.last,
        attempts=one.attempts,
        reason=one.reason,
        at=one.at,
        body=stored(one.body),
    )
