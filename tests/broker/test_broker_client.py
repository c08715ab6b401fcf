"""Both clients against a broker that does as it is told, over real sockets."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from scripted_broker import ScriptedBroker, notification, problem, scripted_broker
from starlette.responses import JSONResponse, Response

import boxmatch.client
from boxmatch import Interval, Schema
from boxmatch.broker.feeds.event_feed import filter_of
from boxmatch.client import AsyncClient, Client
from boxmatch.client.operations import Operations, operation
from boxmatch.errors import ClientError
from boxmatch.model.filters import compile_filter
from boxmatch.wire.requests import Wanted

RECEIPT = {"first": 1, "last": 1, "count": 1, "durable": True, "repeated": False}


@pytest.fixture(scope="module")
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as one:
        yield one


@pytest.fixture
def fake(broker: ScriptedBroker) -> ScriptedBroker:
    broker.forget()
    return broker


@pytest.fixture(params=["blocking", "asynchronous"])
def call(request: pytest.FixtureRequest, fake: ScriptedBroker) -> Any:
    """Calls one method of a client: `call("publish", "ticks", {…})`."""

    def blocking(method: str, *args: Any, **kwargs: Any) -> Any:
        with Client(fake.url, "bm_key", timeout=5, retry_seconds=5) as client:
            return getattr(client, method)(*args, **kwargs)

    def asynchronous(method: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            async with AsyncClient(fake.url, "bm_key", timeout=5, retry_seconds=5) as client:
                return await getattr(client, method)(*args, **kwargs)

        return asyncio.run(run())

    return {"blocking": blocking, "asynchronous": asynchronous}[request.param]


def test_publish(fake: ScriptedBroker, call: Any) -> None:
    fake.answer("POST", "/feeds/ticks/events", JSONResponse(RECEIPT))
    receipt = call("publish", "ticks", [{"price": 1}, {"price": 2.5}])
    assert (receipt.first, receipt.durable, receipt.repeated) == (1, True, False)
    (got,) = fake.requests
    assert got.events() == [{"price": 1}, {"price": 2.5}]
    assert got.headers["authorization"] == "Bearer bm_key"
    assert got.headers["content-type"] == "application/x-ndjson"
    assert got.headers["idempotency-key"]
    assert got.headers["user-agent"].startswith("boxmatch/")


def test_a_table_is_published_as_arrow(fake: ScriptedBroker, call: Any) -> None:
    fake.answer("POST", "/feeds/ticks/events", JSONResponse(RECEIPT))
    call("publish", "ticks", pa.table({"price": [1.0, 2.0]}))
    (got,) = fake.requests
    assert got.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(got.body).read_all().to_pydict() == {"price": [1.0, 2.0]}


def test_a_long_list_is_cut(fake: ScriptedBroker, call: Any) -> None:
    fake.answer("POST", "/feeds/ticks/events", JSONResponse(RECEIPT | {"count": 5000}))
    call("publish", "ticks", [{"n": n} for n in range(12_000)])
    assert [len(got.events()) for got in fake.requests] == [5000, 5000, 2000]
    assert len({got.headers["idempotency-key"] for got in fake.requests}) == 3


def test_a_connection_that_breaks_before_the_answer(fake: ScriptedBroker, call: Any) -> None:
    broken = ConnectionError()
    answers = broken, broken, problem(503, "busy"), JSONResponse(RECEIPT | {"repeated": True})
    fake.answer("POST", "/feeds/ticks/events", *answers)
    assert call("publish", "ticks", {"price": 1}).repeated
    assert len(fake.requests) == 4
    assert len({got.headers["idempotency-key"] for got in fake.requests}) == 1


def test_retry_after(fake: ScriptedBroker, call: Any) -> None:
    busy = problem(429, "slowly", headers={"Retry-After": "0.6"})
    fake.answer("GET", "/feeds", busy, JSONResponse({"feeds": []}))
    began = time.monotonic()
    assert call("feeds") == []
    assert 0.6 <= time.monotonic() - began < 5


def test_a_refusal_has_the_problem(fake: ScriptedBroker, call: Any) -> None:
    fake.answer("PUT", "/subscribers/o/subscriptions/s", problem(422, "no such thing", position=7))
    with pytest.raises(ClientError, match=r"^no such thing \(HTTP 422\)$") as caught:
        call("subscribe", "o", "s", "ticks", "price <")
    assert caught.value.status == 422
    assert caught.value.problem["position"] == 7
    assert len(fake.requests) == 1


def test_nobody_there(call: Any, fake: ScriptedBroker) -> None:
    with Client("http://127.0.0.1:9", retry_seconds=0.3) as client:
        with pytest.raises(ClientError, match="no answer") as caught:
            client.feeds()
        assert caught.value.status is None


def test_feeds(fake: ScriptedBroker, call: Any) -> None:
    events = {"name": "ticks", "kind": "events", "schema": {"price": "float"}, "new": "field"}
    state = {"name": "cars", "kind": "state", "spaces": {"road": {"x": "int"}}, "leave": False}
    fake.answer("GET", "/feeds", JSONResponse({"feeds": [events, state]}))
    ticks, cars = call("feeds")
    assert ticks.schema == Schema({"price": "float"})
    assert cars.spaces == {"road": Schema({"x": "int"})}
    assert not cars.leave
    fake.answer("POST", "/feeds", JSONResponse(events, 201))
    call("create_feed", "ticks", Schema({"price": "float", "side": ["buy", "sell"]}))
    call("create_feed", "ticks", {"price": {"type": "float", "domain": [0, 1]}}, unknown="carry")
    call("create_feed", "cars", spaces={"road": {"x": "int"}}, leave=False)
    assert [got.json() for got in fake.requests[1:]] == [
        {
            "name": "ticks",
            "schema": {"price": "float", "side": ["buy", "sell"]},
        },
        {
            "name": "ticks",
            "schema": {"price": {"type": "float", "domain": [0, 1]}},
            "unknown": "carry",
        },
        {
            "name": "cars",
            "kind": "state",
            "spaces": {"road": {"x": "int"}},
            "leave": False,
        },
    ]
    fake.answer("PATCH", "/feeds/ticks", JSONResponse(events))
    call("extend_feed", "ticks", {"size": "int"})
    assert fake.requests[-1].json() == {"attributes": {"size": "int"}}
    fake.answer("DELETE", "/feeds/ticks", Response(status_code=204))
    assert call("drop_feed", "ticks") is None
    call("create_feed", "ticks")
    assert fake.requests[-1].json() == {"name": "ticks"}
    with pytest.raises(ClientError, match="give one"):
        call("create_feed", "ticks", {"price": "float"}, spaces={"road": {"x": "int"}})


def test_the_log(fake: ScriptedBroker, call: Any) -> None:
    page = {
        "events": [{"sequence": 4, "at": 1.5, "event": {"price": 1}}],
        "next": 4,
        "last": 9,
        "first": 2,
    }
    fake.answer("GET", "/feeds/ticks/events", JSONResponse(page))
    found = call("events", "ticks", after=3, limit=10, through=8)
    assert fake.requests[0].query == {"after": "3", "limit": "10", "through": "8"}
    assert found.events[0].event == {"price": 1}
    assert (found.next, found.last, found.first) == (4, 9, 2)


def test_subscriptions(fake: ScriptedBroker, call: Any) -> None:
    stored = {"subscriber": "o", "id": "s", "feed": "ticks", "filter": "price < 3", "matches": 4}
    fake.answer("PUT", "/subscribers/o/subscriptions/s", JSONResponse(stored))
    made = call("subscribe", "o", "s", "ticks", "price < 3")
    assert (made.filter, made.matches) == ("price < 3", 4)
    assert fake.requests[0].json() == {"feed": "ticks", "filter": "price < 3"}
    call("subscribe", "o", "s", "cars", regions={"road": {"x": (1, None), "y": 3}}, ttl=5.0)
    assert fake.requests[1].json() == {
        "feed": "cars",
        "regions": {"road": {"x": {"low": 1, "high": None}, "y": 3}},
        "ttl": 5.0,
    }
    fake.answer("POST", "/subscribers/o/subscriptions", JSONResponse({"count": 1000}))
    fake.answer("POST", "/subscribers/o/subscriptions", JSONResponse({"count": 1}))
    many = {f"s{n}": f"price < {n}" for n in range(1_001)}
    assert call("subscribe_many", "o", "ticks", many) == 1_001
    assert fake.requests[-1].json() == {"feed": "ticks", "filters": {"s1000": "price < 1000"}}
    pages = [
        {"subscriptions": [stored | {"id": f"s{n:04}"} for n in range(start, stop)], "next": None}
        for start, stop in ((0, 1000), (1000, 1003))
    ]
    fake.answer("GET", "/subscribers/o/subscriptions", *map(JSONResponse, pages))
    assert len(call("subscriptions", "o", feed="ticks")) == 1003
    assert fake.requests[-1].query == {"after": "s0999", "limit": "1000", "feed": "ticks"}


def test_filters_mean_the_same_as_elsewhere(fake: ScriptedBroker, call: Any) -> None:
    stored = {"subscriber": "o", "id": "s", "feed": "ticks", "filter": None, "matches": 0}
    fake.answer("PUT", "/subscribers/o/subscriptions/s", JSONResponse(stored))
    fake.answer("POST", "/subscribers/o/subscriptions", JSONResponse({"count": 1}))
    fake.answer(
        "POST", "/feeds/ticks/dry-run", JSONResponse({"events": 0, "matches": 0, "examples": []})
    )
    explained = {"matched": False, "alternatives": []}
    fake.answer("POST", "/feeds/ticks/explain", JSONResponse(explained))
    open_end = Interval(20, 30, high_open=True)
    plain = {"c": ["x", None], "e": None, "f": 3, "g": {"low": 1}}
    wanted = {"a": (20, 30), "b": (None, None), "d": {"x"}, "h": open_end, **plain}
    schema = Schema({name: "string" if name in "cd" else "int" for name in wanted})
    call("subscribe", "o", "s", "ticks", wanted)
    call("subscribe_many", "o", "ticks", {"s": wanted})
    call("dry_run", "ticks", wanted)
    call("explain", "ticks", event={}, filter=wanted)
    sent = [request.json() for request in fake.requests]
    for filter in (sent[0]["filter"], sent[1]["filters"]["s"], *(s["filter"] for s in sent[2:])):
        assert filter.items() >= plain.items()
        received = filter_of(Wanted(feed="ticks", filter=filter))
        assert compile_filter(schema, received) == compile_filter(schema, wanted)
    with pytest.raises(ClientError, match=r"'a': \(1, 2, 3\) is not a range"):
        call("subscribe", "o", "s", "ticks", {"a": (1, 2, 3)})


def test_dialects_go_with_the_filters_of_a_request(fake: ScriptedBroker, call: Any) -> None:
    stored = {"subscriber": "o", "id": "s", "feed": "f", "filter": {}, "dialect": "sns"}
    fake.answer("PUT", "/subscribers/o/subscriptions/s", JSONResponse(stored))
    assert call("subscribe", "o", "s", "f", {"a": ["x"]}, dialect="sns").dialect == "sns"
    assert fake.requests[-1].json() == {"feed": "f", "filter": {"a": ["x"]}, "dialect": "sns"}
    fake.answer("POST", "/subscribers/o/subscriptions", JSONResponse({"count": 1}))
    many = {f"s{n}": "a = 'x'" for n in range(1_001)} | {"s1000": {"a": (1, 2)}}
    dialects = {"s0": "jms", "s1": None, "s999": "cesql"}
    call("subscribe_many", "o", "f", many, dialect=dialects)
    first, second = (request.json() for request in fake.requests[-2:])
    assert first["dialect"] == {"s0": "jms", "s999": "cesql"}
    # SQL: a range, and no list of values.
    assert second == {"feed": "f", "filters": {"s1000": {"a": {"low": 1, "high": 2}}}}
    call("subscribe_many", "o", "f", {"p": {"a": [1, 2]}}, dialect="sns-body")
    assert fake.requests[-1].json() == {
        "feed": "f", "filters": {"p": {"a": [1, 2]}}, "dialect": "sns-body"
    }  # fmt: skip
    with pytest.raises(ClientError, match="a dialect for 'y'"):
        call("subscribe_many", "o", "f", {"x": "a"}, dialect={"y": "jms"})
    with pytest.raises(ClientError, match="cannot be said in JSON"):
        call("subscribe", "o", "s", "f", {"a": [2**70]}, dialect="eventbridge")


def test_dry_run_and_explain(fake: ScriptedBroker, call: Any) -> None:
    examples = [{"sequence": 4, "at": 1.5, "event": {"price": 1}}]
    tried = {"events": 100, "matches": 7, "examples": examples}
    fake.answer("POST", "/feeds/ticks/dry-run", JSONResponse(tried))
    found = call("dry_run", "ticks", {"price": {"high": 3}})
    assert (found.events, found.matches, found.examples[0].sequence) == (100, 7, 4)
    predicate = {"attribute": "price", "wanted": "price < 3", "got": 1, "satisfied": True}
    explained = {"matched": True, "never": False, "alternatives": [[predicate]], "text": "…"}
    fake.answer("POST", "/feeds/ticks/explain", JSONResponse(explained))
    why = call("explain", "ticks", event={"price": 1}, subscriber="o", subscription="s")
    assert why
    assert str(why) == "'s' matches\n  ✓ price < 3   got 1"
    assert fake.requests[-1].json() == {
        "event": {"price": 1},
        "subscriber": "o",
        "subscription": "s",
    }


def test_polling(fake: ScriptedBroker, call: Any) -> None:
    change = {"kind": "enter", "publication": "p", "regions": {}}
    told = [notification(3), notification(5, change=change, event=None)]
    page = {"notifications": told, "cursor": 2, "next": 5, "dropped": 1}
    fake.answer("GET", "/subscribers/o/notifications", JSONResponse(page))
    found = call("notifications", "o", after=2, limit=10, wait=0.5)
    assert fake.requests[0].query == {"after": "2", "limit": "10", "wait": "0.5"}
    assert [one.sequence for one in found.notifications] == [3, 5]
    assert found.notifications[0].subscriptions == ("cheap",)
    assert found.notifications[0].body == {"price": 3}
    assert found.notifications[0].time.isoformat() == "2023-11-14T22:13:20.500000+00:00"
    assert found.notifications[1].body == change
    assert (found.cursor, found.next, found.dropped) == (2, 5, 1)
    fake.answer("POST", "/subscribers/o/acknowledge", JSONResponse({"cursor": 5}))
    assert call("acknowledge", "o", 5) == 5
    assert fake.requests[-1].json() == {"sequence": 5}


def test_publications(fake: ScriptedBroker, call: Any) -> None:
    for method in ("PUT", "PATCH"):
        fake.answer(method, "/feeds/cars/publications/p", JSONResponse(RECEIPT))
    region = {"x": Interval(1, 2, high_open=True), "y": (3, 4), "z": 5}
    assert call("put_publication", "cars", "p", {"road": region}, ttl=60.0).first == 1
    open_end = {"low": 1, "high": 2, "low_open": False, "high_open": True}
    expected: Any = {
        "regions": {"road": {"x": open_end, "y": {"low": 3, "high": 4}, "z": 5}},
        "ttl": 60.0,
    }
    assert fake.requests[-1].json() == expected
    call("patch_publication", "cars", "p", {"road": {"x": 1}, "air": None}, filter=None)
    expected = {"regions": {"road": {"x": 1}, "air": None}, "filter": None}
    assert fake.requests[-1].json() == expected
    fake.answer("DELETE", "/feeds/cars/publications/p", Response(status_code=204))
    assert call("retract", "cars", "p") is None
    stored = {"id": "p", "regions": {"road": {"x": 1}}, "filter": None}
    fake.answer("GET", "/feeds/cars/publications/p", JSONResponse(stored))
    assert call("publication", "cars", "p").regions == {"road": {"x": 1}}


def test_nan_is_not_sent_as_null(fake: ScriptedBroker, call: Any) -> None:
    """Null frees a dimension, and in a filter it is an absent attribute."""
    nan = float("nan")
    for name, *arguments in (
        ("put_publication", "cars", "p", {"road": {"x": nan}}),
        ("patch_publication", "cars", "p", {"road": {"x": (0, nan)}}),
        ("subscribe", "o", "s", "ticks", {"x": nan}),
        ("dry_run", "ticks", {"x": [1, nan]}),
    ):
        with pytest.raises(ClientError, match=r"'(x|low|high)' is nan, which has no place"):
            call(name, *arguments)
    with pytest.raises(ClientError, match="infinite, which JSON cannot say"):
        call("patch_publication", "cars", "p", {"road": {"x": float("inf")}})
    assert not fake.requests


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_is_not_copied(kind: Any, way: Any) -> None:
    with pytest.raises(ClientError, match="cannot be copied or pickled: make another"):
        way(kind("http://127.0.0.1:1"))


def test_webhooks(fake: ScriptedBroker, call: Any) -> None:
    hook = {"url": "https://a.example/", "timeout": 1, "attempts": 2, "batch": 3, "paused": False}
    fake.answer("PUT", "/subscribers/o/webhook", JSONResponse(hook | {"secret": "made"}))
    assert call("put_webhook", "o", "https://a.example/").secret == "made"
    fake.answer("GET", "/subscribers/o/webhook", JSONResponse(hook))
    assert call("webhook", "o").secret is None
    letter = {"number": 1, "first": 2, "last": 3, "attempts": 4, "reason": "r", "at": 5.0}
    fake.answer("GET", "/subscribers/o/dead-letters", JSONResponse({"dead_letters": [letter]}))
    assert call("dead_letters", "o")[0].reason == "r"
    fake.answer("POST", "/subscribers/o/dead-letters/replay", JSONResponse({"replayed": 1}))
    assert call("replay", "o", [1]) == 1
    assert call("replay", "o") == 1
    assert [got.json() for got in fake.requests[-2:]] == [{"numbers": [1]}, {}]


def test_threads_share_a_client(fake: ScriptedBroker) -> None:
    fake.answer("POST", "/feeds/ticks/events", JSONResponse(RECEIPT))
    with Client(fake.url) as client:
        threads = [
            threading.Thread(target=client.publish, args=("ticks", {"n": n})) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got.events()[0]["n"] for got in fake.requests) == list(range(8))


def test_a_closed_client_says_so(fake: ScriptedBroker) -> None:
    client = Client(fake.url)
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.feeds()


@pytest.mark.parametrize("key", ["a\nb", "é"])
def test_a_key_that_cannot_be_sent(key: str) -> None:
    with pytest.raises(ClientError, match="the key"):
        Client("http://127.0.0.1:9", key)


def test_both_clients_have_all_operations() -> None:
    known = inspect.getmembers_static(Operations)
    wanted = {name: one.ask for name, one in known if isinstance(one, operation)}
    for client in (Client, AsyncClient):
        assert wanted.keys() | {"close", "listen", "work"} == {
            n for n in dir(client) if n[0] != "_"
        }
        for name, ask in wanted.items():
            method = getattr(client, name)
            ours, theirs = inspect.signature(method), inspect.signature(ask)
            assert ours.parameters == theirs.parameters
            assert theirs.return_annotation.startswith("Operation[")
            assert inspect.iscoroutinefunction(method) == (client is AsyncClient)
            assert method.__doc__
    assert str(inspect.signature(Client.feed)) == "(self, name: 'str') -> 'Feed'"
    for name in ("listen", "work"):
        blocking, awaited = (inspect.signature(getattr(one, name)) for one in (Client, AsyncClient))
        assert blocking.parameters == awaited.parameters


def test_exported_names_are_there_and_the_import_is_cheap() -> None:
    for name in boxmatch.client.__all__:
        assert getattr(boxmatch.client, name)
    with pytest.raises(AttributeError):
        _ = boxmatch.client.Nothing
    script = "import sys, boxmatch.client; print({'httpx', 'websockets', 'numpy'} & {*sys.modules})"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
