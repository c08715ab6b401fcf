"""An event is traced: who gets it, and why not the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import Callers, RunningBroker
from test_broker_core import events, run, running, ticks, wanted  # in this folder

import boxmatch as bm
from boxmatch.broker.access import Keys
from boxmatch.wire.requests import Adaptive, Wanted

SCHEMA = {"symbol": "string", "price": "float"}
FILTERS = {
    ("ann", "cheap"): "price < 20",
    ("ann", "ibm"): "symbol = 'IBM' AND price > 100",
    ("bob", "any"): "symbol = 'IBM' OR price > 500",
    ("bob", "dear"): "symbol = 'T' AND price > 100",
}
EVENT = {"symbol": "IBM", "price": 30.0}
GIVEN: dict[str, dict[str, Any]] = {
    "admin": {"admin": True},
    "publisher": {"publish": ["ticks"]},
    "reader": {"read": ["ticks"]},
    "ann": {"subscribe": ["ann"]},
    "both": {"publish": ["ticks"], "subscribe": ["bob"]},
    "all": {"subscribe": ["*"]},
    "nobody": {"subscribe": ["nobody"]},
}


class Traced(Callers):
    """A broker with keys, a feed, and a few subscriptions to it."""

    def trace(self, role: str, **asked: Any) -> httpx.Response:
        return self.call(role, "POST", "/feeds/ticks/trace", {"event": EVENT, **asked})


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    data = tmp_path_factory.mktemp("traced") / "data"
    data.mkdir()
    with Keys.open(data) as keys:
        texts = {role: keys.create(role, **given)[1] for role, given in GIVEN.items()}
    with RunningBroker(data) as broker:
        traced = Traced(broker, texts)
        with traced.http:
            feed = {"name": "ticks", "schema": SCHEMA}
            assert traced.call("admin", "POST", "/feeds", feed).status_code == 201
            state = {"name": "places", "kind": "state", "spaces": {"plane": {"x": "int"}}}
            assert traced.call("admin", "POST", "/feeds", state).status_code == 201
            for (subscriber, id), filter in FILTERS.items():
                path = f"/subscribers/{subscriber}/subscriptions/{id}"
                body = {"feed": "ticks", "filter": filter, "exact": id == "ibm"}
                assert traced.call("admin", "PUT", path, body).status_code == 200
            yield traced


def names(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["subscriber"], one["id"]) for one in found]


def test_who_gets_it_and_why_not_the_others(traced: Traced) -> None:
    told = traced.trace("admin").json()
    assert (told["sequence"], told["rate"]) == (None, 0.0)
    assert (told["matched"], told["missed"]) == (1, 3)
    assert told["gets"] == [
        {
            "subscriber": "bob",
            "id": "any",
            "filter": FILTERS["bob", "any"],
            "dialect": None,
            "exact": False,
        }
    ]
    assert names(told["misses"]) == [("ann", "ibm"), ("ann", "cheap"), ("bob", "dear")]
    assert [one["failed"] for one in told["misses"]] == [1, 1, 2]
    nearest = told["misses"][0]
    assert nearest["filter"] == FILTERS["ann", "ibm"]
    assert nearest["exact"] is True
    assert nearest["predicates"] == [
        {"attribute": "symbol", "wanted": "symbol = 'IBM'", "got": "IBM", "satisfied": True,
         "residual": False},
        {"attribute": "price", "wanted": "price > 100", "got": 30.0, "satisfied": False,
         "residual": False},
    ]  # fmt: skip
    told = traced.trace("admin", limit=1).json()
    assert (told["matched"], told["missed"]) == (1, 3)
    assert names(told["misses"]) == [("ann", "ibm")]
    told = traced.trace("admin", event={}, limit=0).json()
    assert (told["matched"], told["missed"]) == (0, 4)
    assert told["gets"] == told["misses"] == []


def test_a_subscriber_hears_of_its_own(traced: Traced) -> None:
    told = traced.trace("ann")
    assert "bob" not in told.text
    assert "dear" not in told.text
    assert (told.json()["matched"], told.json()["missed"]) == (0, 2)
    assert names(told.json()["misses"]) == [("ann", "ibm"), ("ann", "cheap")]
    told = traced.trace("nobody")
    assert told.json() == {
        "sequence": None, "rate": 0.0, "matched": 0, "gets": [], "missed": 0, "misses": [],
    }  # fmt: skip
    assert traced.trace("all").json() == traced.trace("admin").json()


def test_who_publishes_or_reads_hears_how_many(traced: Traced) -> None:
    for role in ("publisher", "reader"):
        told = traced.trace(role).json()
        assert (told["matched"], told["missed"]) == (1, 3)
        assert told["gets"] == told["misses"] == []
    told = traced.trace("both").json()  # who subscribes too, of its own
    assert names(told["gets"] + told["misses"]) == [("bob", "any"), ("bob", "dear")]
    assert (told["matched"], told["missed"]) == (1, 1)


def test_publishing_takes_the_right_to(traced: Traced) -> None:
    before = traced.call("admin", "GET", "/feeds/ticks").json()
    for role in ("ann", "reader", "nobody", "all"):
        refused = traced.trace(role, publish=True)
        assert refused.status_code == 403
        assert "may not publish" in refused.json()["detail"]
    traced.trace("publisher")
    assert traced.call("admin", "GET", "/feeds/ticks").json() == before
    told = traced.trace("publisher", publish=True).json()
    assert told["sequence"] > before["last_sequence"]
    assert told["matched"] == 1
    [notification] = traced.call("both", "GET", "/subscribers/bob/notifications").json()[
        "notifications"
    ]
    assert (notification["sequence"], notification["event"]) == (told["sequence"], EVENT)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"event": {"price": "dear"}}, 422, "value"),
        ({"event": {"prize": 1}}, 422, "invalid"),
        ({"event": [1]}, 422, "body"),
        ({"event": {}, "limit": 101}, 422, "body"),
        ({"event": {}, "limit": -1}, 422, "body"),
        ({"event": {}, "publish": "yes"}, 422, "body"),
        ({"event": {}, "wait": True}, 422, "body"),
        ({}, 422, "body"),
    ],
)
def test_what_is_refused(traced: Traced, body: Any, status: int, kind: str) -> None:
    for publish in ({}, {"publish": True}):
        answer = traced.call("admin", "POST", "/feeds/ticks/trace", {**publish, **body})
        assert answer.status_code == status, answer.text
        assert answer.json()["type"] == f"urn:boxmatch:problem:{kind}"
    assert traced.call("admin", "POST", "/feeds/ticks/trace", None).status_code == 400


def test_other_feeds(traced: Traced) -> None:
    body = {"event": {"x": 1}}
    assert traced.call("admin", "POST", "/feeds/none/trace", body).status_code == 404
    told = traced.call("admin", "POST", "/feeds/places/trace", body)
    assert (told.status_code, told.json()["type"]) == (409, "urn:boxmatch:problem:conflict")
    for feed in ("places", "none"):
        told = traced.call("publisher", "POST", f"/feeds/{feed}/trace", body)
        assert told.status_code == 403


# Without a network


def test_a_trace_agrees_with_what_is_delivered(tmp_path: Path) -> None:
    filters = {str(n): f"price BETWEEN {n} AND {n + 5} OR volume = {n}" for n in range(40)}

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks(adaptive=Adaptive(maximum=0.5)))
            for subscriber, exact in (("ann", False), ("bob", True)):
                many = {
                    id: Wanted(feed="ticks", filter=text, exact=exact)
                    for id, text in filters.items()
                }
                await broker.subscriptions.put_many(subscriber, many)
            await broker.subscriptions.delete("ann", "7")
            await broker.subscriptions.put("bob", "8", wanted("price = 1000"))
            row = {"price": 9.5, "volume": 30}
            found = await broker.preview.trace("ticks", row, subscribers=None, limit=100)
            await broker.pipeline.publish("ticks", events(row))
            for subscriber in ("ann", "bob"):
                [notification] = await broker.notifications.poll(subscriber, after=0, limit=10)
                gets = [one.id for one in found.gets if one.subscriber.name == subscriber]
                assert sorted(gets) == sorted(notification.subscriptions)
            assert found.matched == len(found.gets)
            assert found.missed == 79 - found.matched == len(found.misses)
            mine = await broker.preview.trace(
                "ticks", row, subscribers=["bob", "unknown"], limit=100
            )
            assert mine.gets == [one for one in found.gets if one.subscriber.name == "bob"]
            assert mine.matched + mine.missed == 40
            assert {one.subscription.subscriber.name for one in mine.misses} == {"bob"}

    run(main)


def test_a_number_that_changes_hands_meanwhile_is_shown_to_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "secret", wanted("price < 20"))
            await broker.subscriptions.put("bob", "own", wanted("price < 30"))
            feed = broker.directory.feed("ticks").feed
            nearest, loop = feed.matcher.nearest, asyncio.get_running_loop()

            async def swap() -> None:
                await broker.subscriptions.delete("ann", "secret")
                await broker.subscriptions.put("bob", "later", wanted("price < 50"))

            def interrupted(*given: Any, **more: Any) -> Any:
                found = nearest(*given, **more)
                asyncio.run_coroutine_threadsafe(swap(), loop).result(30)
                return found

            feed.matcher.nearest = interrupted  # type: ignore[method-assign]
            found = await broker.preview.trace("ticks", {"price": 25.0}, subscribers=None, limit=10)
            assert feed.slots.subscriptions[0] is not None
            assert feed.slots.subscriptions[0].id == "later"  # in the place of "secret"
            assert [one.id for one in found.gets] == ["own"]
            assert found.misses == []

    run(main)


def test_matching_goes_on_while_an_event_is_traced(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            feed = broker.directory.feed("ticks").feed
            nearest, loop = feed.matcher.nearest, asyncio.get_running_loop()

            def slow(*given: Any, **more: Any) -> Any:
                published = broker.pipeline.publish("ticks", events({"price": 1.0}))
                assert asyncio.run_coroutine_threadsafe(published, loop).result(30).durable
                return nearest(*given, **more)

            feed.matcher.nearest = slow  # type: ignore[method-assign]
            found = await broker.preview.trace("ticks", {"price": 1.0}, subscribers=None, limit=1)
            assert found.matched == 1
            assert broker.store.next_sequence - 1 == 1

    run(main)


def test_attributes_that_are_carried(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks(unknown="carry"))
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            found = await broker.preview.trace(
                "ticks", {"price": 1.0, "x": [1]}, subscribers=None, limit=1
            )
            assert found.matched == 1
            await broker.feeds.create(ticks("strict"))
            with pytest.raises(bm.EventError, match="'x'"):
                await broker.preview.trace("strict", {"x": 1}, subscribers=None, limit=1)

    run(main)
