"""The accounts of the guide to routes: what their users may do, and what the server refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import nats
import nats.errors
import pytest
from jetstream import PATIENCE, READER, running, until_true
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from boxmatch.errors import RouteError
from boxmatch.nats import Router, read_notification, subscribe
from boxmatch.nats.local import LocalServer
from boxmatch.nats.routes import create_route
from boxmatch.nats.settings import FeedSettings, RouteSettings

GUIDE = Path(__file__).parents[2] / "docs" / "route.md"
TICKS = RouteSettings(feeds={"ticks": FeedSettings(schema={"price": "float"})})

Attempt = Callable[[Client], Awaitable[object]]

FORBIDDEN: dict[str, Attempt] = {
    "write a filter of bob": lambda client: subscribe(client, "bob", "cheap", "price < 30"),
    "write a filter of anybody": lambda client: subscribe(client, "*", "cheap", "price < 30"),
    "write the settings": lambda client: client.jetstream().publish("$KV.boxmatch.route", b"{}"),
    "read by a consumer of bob": lambda client: _next(client, "bob", 2),
    "read by a consumer of her own": lambda client: client.jetstream().add_consumer(
        "boxmatch-out", READER, filter_subject="boxmatch.out.bob"
    ),
    "read a message of the stream": lambda client: client.jetstream().get_msg("boxmatch-out", 1),
    "read a filter of bob": lambda client: client.jetstream().get_last_msg(
        "KV_boxmatch", "$KV.boxmatch.sub.bob.dear", direct=True
    ),
    "make a stream of what bob gets": lambda client: client.jetstream().add_stream(
        StreamConfig("spy", subjects=["boxmatch.out.bob"])
    ),
    "write to bob": lambda client: client.jetstream().publish("boxmatch.out.bob", b"{}"),
}


def test_what_the_accounts_of_the_guide_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [accounts] = re.findall(r"```hcl\n# accounts.conf\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    config = tmp_path / "accounts.conf"
    config.write_text(accounts)
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error))

    async def connect(user: str, password: str) -> Client:
        return await nats.connect(
            server.url,
            user=user,
            password=password,
            inbox_prefix=f"_INBOX_{user}",
            error_cb=note,
        )

    async def test() -> None:
        router = await connect("router", "secret-1")
        js = router.jetstream()
        await create_route(js, "boxmatch", TICKS)
        for name in ("alice", "bob"):
            await js.add_consumer(
                "boxmatch-out",
                durable_name=name,
                filter_subject=f"boxmatch.out.{name}",
                ack_policy="explicit",
            )
        await subscribe(router, "bob", "dear", "price > 20")
        alice, shop = await connect("alice", "secret-3"), await connect("shop", "secret-2")
        async with running(Router(router)):
            await subscribe(alice, "alice", "cheap", "price < 30")
            await shop.jetstream().publish("boxmatch.in.ticks", b'{"price": 24.5}')
            message = await _next(alice, "alice")
            await message.ack_sync()
            assert read_notification(message.data).subscriptions == ("cheap",)
            assert refused == []
            # All at once, and not for long, since a client waits for answers that do not come.
            for one in (alice, shop):
                monkeypatch.setattr(one, "jetstream", partial(one.jetstream, timeout=2))
            attempts = [attempt(one) for one in (alice, shop) for attempt in FORBIDDEN.values()]
            ends = await asyncio.gather(*attempts, return_exceptions=True)
            for what, end in zip(list(FORBIDDEN) * 2, ends, strict=True):
                assert isinstance(end, (nats.errors.Error, RouteError, TimeoutError)), what
            assert len(refused) >= len(attempts)
            assert all("permissions violation" in reason.lower() for reason in refused)
            for subject in ("boxmatch.out.bob", "boxmatch.in.>", "_INBOX_router.>", ">"):
                refused.clear()
                await alice.subscribe(subject)
                await until_true(lambda: refused)
            found = await _next(router, "bob")
            assert read_notification(found.data).subscriptions == ("dear",)
        for client in (alice, shop, router):
            await client.close()

    with LocalServer(tmp_path / "data", config=config) as server:
        asyncio.run(test())


async def _next(client: Client, consumer: str, seconds: float = PATIENCE) -> Msg:
    pull = await client.jetstream().pull_subscribe_bind(consumer, stream="boxmatch-out")
    [message] = await pull.fetch(1, timeout=seconds)
    return message
