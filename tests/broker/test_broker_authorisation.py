"""Who may do what: every route of a real server, with a key of every kind.

A route that is not in the table fails a test, so that nobody forgets to think about it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker
from hostile_client import PLACES, TRADES
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from boxmatch.broker.access import Keys

NOBODY = ("none", "malformed", "unknown", "wrong secret", "revoked", "expired")
"""Those who are told 401, wherever a key is needed."""
ROLES: Mapping[str, Mapping[str, Any]] = {
    "publish": {"publish": ["mine", "places"]},
    "publish other": {"publish": ["other"]},
    "read": {"read": ["mine", "places"]},
    "read other": {"read": ["other"]},
    "subscribe": {"subscribe": ["ann"]},
    "subscribe other": {"subscribe": ["bob"]},
    "subscribe to": {"subscribe": ["ann"], "subscribe_to": ["mine", "places"]},
    "subscribe elsewhere": {"subscribe": ["ann"], "subscribe_to": ["other"]},
    "admin": {"admin": True},
}
ALL = frozenset(ROLES)
PUBLISH = frozenset({"publish", "admin"})
READ = frozenset({"read", "admin"})
SEE = PUBLISH | READ
# Who subscribes may try filters in the feeds that it may subscribe to, whoever it acts as.
ASK = SEE | {"subscribe", "subscribe other", "subscribe to"}
OWN = frozenset({"subscribe", "subscribe to", "subscribe elsewhere", "admin"})
WANT = OWN - {"subscribe elsewhere"}
HIDDEN = {"subscribe elsewhere": 404}
ADMIN = frozenset({"admin"})
EVERYONE = ALL | set(NOBODY)


@dataclass(frozen=True)
class Route:
    """Who may, and what they are told then; all others are told 403, or 401 without a key."""

    may: frozenset[str]
    status: int = 200
    body: Any = None
    query: str = ""
    feed: str = "mine"
    own: Mapping[str, int] = field(default_factory=dict)
    """Roles that are told something else."""


HOOK = {"url": "https://hooks.example.com/a", "paused": True}
TABLE: Mapping[tuple[str, str], Route] = {
    ("GET", "/feeds"): Route(ALL),
    ("POST", "/feeds"): Route(ADMIN, 409, {"name": "mine", "schema": TRADES}),
    ("GET", "/feeds/{feed}"): Route(SEE),
    ("PATCH", "/feeds/{feed}"): Route(ADMIN, 422, {"attributes": {"price": "int"}}),
    ("DELETE", "/feeds/{feed}"): Route(ADMIN, 204, feed="spare"),
    ("PUT", "/feeds/{feed}/adaptive"): Route(ADMIN, body={"maximum": 0.01}),
    ("DELETE", "/feeds/{feed}/adaptive"): Route(ADMIN),
    ("POST", "/feeds/{feed}/events"): Route(PUBLISH, body={"price": 1}),
    ("GET", "/feeds/{feed}/events"): Route(READ),
    ("POST", "/feeds/{feed}/dry-run"): Route(ASK, body={"filter": "price < 1"}),
    ("POST", "/feeds/{feed}/explain"): Route(ASK, body={"event": {}, "filter": "price < 1"}),
    ("PUT", "/feeds/{feed}/publications/{id}"): Route(
        PUBLISH, body={"region": {"x": 1}}, feed="places"
    ),
    ("PATCH", "/feeds/{feed}/publications/{id}"): Route(
        PUBLISH, body={"region": {"x": 2}}, feed="places"
    ),
    ("GET", "/feeds/{feed}/publications/{id}"): Route(SEE, feed="places"),
    ("DELETE", "/feeds/{feed}/publications/{id}"): Route(
        PUBLISH, feed="places", own={"admin": 404}  # the first has taken it back
    ),
    ("GET", "/subscribers"): Route(ADMIN),
    ("GET", "/subscribers/{subscriber}"): Route(OWN),
    ("GET", "/subscribers/{subscriber}/subscriptions"): Route(OWN),
    ("POST", "/subscribers/{subscriber}/subscriptions"): Route(
        WANT, body={"feed": "mine", "filters": {"y": "price < 1"}}
    ),
    ("PUT", "/subscribers/{subscriber}/subscriptions/{id}"): Route(
        WANT, body={"feed": "mine", "filter": "price < 1"}
    ),
    ("GET", "/subscribers/{subscriber}/subscriptions/{id}"): Route(OWN, own=HIDDEN),
    ("DELETE", "/subscribers/{subscriber}/subscriptions/{id}"): Route(
        OWN, 204, own={**HIDDEN, "subscribe to": 404, "admin": 404}
    ),
    ("GET", "/subscribers/{subscriber}/notifications"): Route(OWN),
    ("GET", "/subscribers/{subscriber}/notifications/stream"): Route(OWN),
    ("POST", "/subscribers/{subscriber}/acknowledge"): Route(OWN, body={"sequence": 0}),
    ("PUT", "/subscribers/{subscriber}/sharing"): Route(OWN, body={}),
    ("POST", "/subscribers/{subscriber}/reject"): Route(OWN, body={"sequences": [1]}),
    ("POST", "/subscribers/{subscriber}/extend"): Route(OWN, body={"sequences": [1]}),
    ("DELETE", "/subscribers/{subscriber}/sharing"): Route(OWN, 204),
    ("POST", "/subscribers/{subscriber}/replay"): Route(WANT, body={"from": 1, "feed": "mine"}),
    ("DELETE", "/subscribers/{subscriber}/replay"): Route(OWN),
    ("PUT", "/subscribers/{subscriber}/webhook"): Route(OWN, body=HOOK),
    ("GET", "/subscribers/{subscriber}/webhook"): Route(OWN),
    ("POST", "/subscribers/{subscriber}/dead-letters/replay"): Route(OWN, body={}),
    ("GET", "/subscribers/{subscriber}/dead-letters"): Route(OWN),
    ("DELETE", "/subscribers/{subscriber}/dead-letters"): Route(OWN),
    ("DELETE", "/subscribers/{subscriber}/webhook"): Route(
        OWN, 204, own=dict.fromkeys(("subscribe to", "subscribe elsewhere", "admin"), 404)
    ),
    ("GET", "/healthz"): Route(EVERYONE),
    ("GET", "/readyz"): Route(EVERYONE),
    ("GET", "/metrics"): Route(ADMIN),
    ("GET", "/overview"): Route(ALL),
    ("GET", "/overview/history"): Route(ALL),
    ("GET", "/feeds/{feed}/subscriptions"): Route(WANT | {"subscribe other"}),
    ("POST", "/feeds/{feed}/trace"): Route(ASK, body={"event": {"price": 1}}),
}  # fmt: skip
UNLISTED = (
    "/",
    "/dashboard/index.html",
    "/openapi.json",
    "/docs",
    "/docs/start.js",
    "/docs/swagger-ui.css",
)
"""What is not in the document, and open to all: it says nothing about this broker."""


class Guarded:
    """A broker with keys of all kinds, all that it answered, and all keys that were sent."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.answers: list[str] = []
        self.secrets: list[str] = []
        self.keys: dict[str, str | None] = {"none": None, "malformed": "key"}
        self.keys["unknown"] = f"bm_22222222_{'a' * 43}"
        self._store = Keys.open(broker.data)
        for role, granted in ROLES.items():
            self.keys[role] = self.make(role, **granted)
        self.keys["wrong secret"] = f"{str(self.keys['admin'])[:12]}{'b' * 43}"
        self.keys["revoked"] = self.make("revoked", admin=True)
        self.revoke("revoked")
        self.keys["expired"] = self.make("expired", admin=True, expires=time.time() + 0.2)
        self.http = httpx.Client(base_url=broker.url, timeout=120)
        self.http.event_hooks["response"] = [self._keep]
        time.sleep(1.0)  # the broker notices new keys within a second

    def _keep(self, answer: httpx.Response) -> None:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
            self.answers.append(answer.text)

    def make(self, label: str, **granted: Any) -> str:
        _, text = self._store.create(label, **granted)
        self.secrets.append(text.removeprefix("bm_")[9:])
        return text

    def revoke(self, role: str) -> None:
        self._store.revoke(str(self.keys[role]))

    def headers(self, role: str) -> dict[str, str]:
        key = self.keys[role]
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def call(self, role: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = self.headers(role)
        with self.http.stream(method, path, json=body, headers=headers) as answer:
            return answer  # its body was read, unless it has no end

    def close(self) -> None:
        self.http.close()
        self._store.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    data.mkdir()
    options = ["--log-requests", "--log-level", "debug"]
    with Keys.open(data) as keys:
        keys.create("the first", admin=True)  # so that the broker never was open
    with RunningBroker(data, options) as broker:
        guarded = Guarded(broker)
        with contextlib.closing(guarded):
            for name in ("mine", "other", "spare"):
                feed = {"name": name, "schema": TRADES}
                assert guarded.call("admin", "POST", "/feeds", feed).status_code == 201
            feed = {"name": "places", "kind": "state", "spaces": PLACES}
            assert guarded.call("admin", "POST", "/feeds", feed).status_code == 201
            for subscriber in ("ann", "bob"):
                wanted = {"feed": "mine", "filter": "price < 0"}
                path = f"/subscribers/{subscriber}/subscriptions/kept"
                assert guarded.call("admin", "PUT", path, wanted).status_code == 200
            yield guarded


def test_every_route_is_in_the_table(guarded: Guarded) -> None:
    paths = guarded.http.get("/openapi.json").json()["paths"]
    described = {(method.upper(), path) for path, all in paths.items() for method in all}
    assert described == set(TABLE)


def _prepare(guarded: Guarded) -> None:
    """What the routes are about is there, whatever was done before."""
    for path in (
        "/feeds/{feed}/publications/{id}",
        "/subscribers/{subscriber}/subscriptions/{id}",
        "/subscribers/{subscriber}/webhook",
    ):
        url = path.format(feed="places", subscriber="ann", id="x")
        assert guarded.call("admin", "PUT", url, TABLE["PUT", path].body).status_code == 200
    guarded.call("admin", "POST", "/feeds", {"name": "spare", "schema": TRADES})


@pytest.mark.parametrize(("method", "path"), TABLE.keys(), ids=map(" ".join, TABLE))
def test_who_may(guarded: Guarded, method: str, path: str) -> None:
    route = TABLE[method, path]
    _prepare(guarded)
    # In the order of the roles, and admin last: what some may do once is then still there.
    url = path.format(feed=route.feed, subscriber="ann", id="x")
    told = {role: guarded.call(role, method, url, route.body) for role in (*NOBODY, *ROLES)}
    expected = {
        role: route.own.get(role, route.status)
        if role in route.may
        else 401
        if role in NOBODY
        else 403
        for role in told
    }
    assert {role: answer.status_code for role, answer in told.items()} == expected
    for role, answer in told.items():
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
        if role not in route.may:  # what is asked for is not told either
            assert set(answer.json()) == {"type", "title", "status", "detail"}


@pytest.mark.parametrize("path", UNLISTED)
def test_what_is_open_to_all(guarded: Guarded, path: str) -> None:
    for role in (*NOBODY, *ROLES):
        assert guarded.call(role, "GET", path).status_code == 200


def test_other_methods_and_paths_tell_nothing(guarded: Guarded) -> None:
    for _, path in TABLE:
        url = path.format(feed="mine", subscriber="ann", id="kept")
        for method in ("PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"):
            if (method, path) not in TABLE:
                assert guarded.call("none", method, url).status_code == 405
    for path in (
        "/dashboard",
        "/dashboard/x.js",
        "/admin",
        "/keys",
        "/feeds/mine/keys",
        "/subscribers/ann/keys",
        "/redoc",
    ):
        assert guarded.call("admin", "GET", path).status_code == 404


def test_feeds_that_a_key_may_not_see_are_not_listed(guarded: Guarded) -> None:
    for role, seen in (
        ("publish", {"mine", "places"}),
        ("read other", {"other"}),
        ("subscribe", set()),
    ):
        listed = guarded.call(role, "GET", "/feeds").json()["feeds"]
        assert {one["name"] for one in listed} == seen


OWNED = [(method, path) for method, path in TABLE if "{subscriber}" in path]
FED = [(method, path) for method, path in TABLE if "{feed}" in path]


def same(guarded: Guarded, ask: Callable[[str], httpx.Response], *names: str) -> None:
    """What is said of one name is what is said of the other, but for the name."""
    told = []
    for name in names:
        answer = ask(name)
        headers = [one for one in answer.headers if one != "date"]
        told.append((answer.status_code, headers, answer.text.replace(name, "NAME")))
    assert told[0] == told[1]
    assert told[0][0] == 403


@pytest.mark.parametrize(("method", "path"), OWNED, ids=map(" ".join, OWNED))
def test_other_subscribers_look_the_same_whether_they_exist(
    guarded: Guarded, method: str, path: str
) -> None:
    body = TABLE[method, path].body
    for role in ("subscribe other", "publish", "read"):
        for id in ("kept", "none"):
            same(
                guarded,
                lambda name: guarded.call(role, method, path.format(subscriber=name, id=id), body),  # noqa: B023
                "ann",
                "zoe",
            )


@pytest.mark.parametrize(("method", "path"), FED, ids=map(" ".join, FED))
def test_other_feeds_look_the_same_whether_they_exist(
    guarded: Guarded, method: str, path: str
) -> None:
    body = TABLE[method, path].body
    for role in ("publish other", "read other", "subscribe elsewhere"):
        same(
            guarded,
            lambda feed: guarded.call(role, method, path.format(feed=feed, id="x"), body),  # noqa: B023
            "mine",
            "gone",
        )


def test_explain_tells_nothing_of_others(guarded: Guarded) -> None:
    def ask(role: str, **asked: Any) -> httpx.Response:
        return guarded.call(role, "POST", "/feeds/mine/explain", {"event": {}, **asked})

    same(
        guarded,
        lambda subscriber: ask("subscribe other", subscriber=subscriber, subscription="kept"),
        "ann",
        "zoe",
    )
    same(
        guarded,
        lambda id: ask("subscribe other", subscriber="ann", subscription=id),
        "kept",
        "none",
    )
    # Who may not read the log may not ask about what is in it, nor whether it is.
    for number in (1, 10**6):
        asked = {"sequence": number, "filter": "price < 1"}
        answer = guarded.call("subscribe", "POST", "/feeds/mine/explain", asked)
        assert answer.status_code == 403
    examples = {}
    guarded.call("publish", "POST", "/feeds/mine/events", {"price": 7.25})
    for role in ("subscribe", "publish", "read"):
        answer = guarded.call(role, "POST", "/feeds/mine/dry-run", {"filter": "price = 7.25"})
        told = answer.json()
        examples[role] = (len(told["examples"]), told["matches"])
    assert examples == {"subscribe": (0, None), "publish": (0, None), "read": (1, 1)}


# WebSockets


def open_socket(
    guarded: Guarded, role: str, subscriber: str = "ann", *, hello: bool = False
) -> Any:
    """`ready`, the status with which the handshake was refused, or the error and close code."""
    url = f"{guarded.broker.socket_url}/subscribers/{subscriber}/notifications/socket"
    headers = {} if hello else guarded.headers(role)
    try:
        with connect(url, additional_headers=headers, open_timeout=10) as socket:
            if hello:
                socket.send(json.dumps({"type": "hello", "key": guarded.keys[role]}))
            message = json.loads(socket.recv(10))
            if message["type"] == "ready":
                return "ready"
            guarded.answers.append(json.dumps(message))
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(10)
            assert closed.value.rcvd is not None
            return message["code"], message["message"], closed.value.rcvd.code
    except InvalidStatus as refused:
        answer = refused.response
    body = bytes(answer.body or b"").decode()
    guarded.answers.append(body)
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, json.loads(body)["detail"]


def test_who_may_open_a_socket(guarded: Guarded) -> None:
    for role in (*NOBODY, *ROLES):
        if role == "none":
            continue  # it is given a moment to say hello
        told = open_socket(guarded, role)
        expected = 401 if role in NOBODY else 403
        assert told == "ready" if role in OWN else told[0] == expected, role
        told = open_socket(guarded, role, hello=True)
        code = "unauthorized" if role in NOBODY else "forbidden"
        assert told == "ready" if role in OWN else (told[0], told[2]) == (code, 1008), role


def test_sockets_of_others_look_the_same_whether_they_exist(guarded: Guarded) -> None:
    for hello in (False, True):
        told = [
            str(open_socket(guarded, "subscribe other", subscriber, hello=hello)).replace(
                subscriber, "NAME"
            )
            for subscriber in ("ann", "zoe")
        ]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    "first",
    [
        '{"type":"acknowledge","sequence":1}', '{"type":"hello"}', '{"type":"hello","key":null}',
        '{"type":"hello","key":["a"]}', "[]", "", b"\x00",
        '{"type":"hello","key":"' + "x" * 9000 + '"}',
    ],
)  # fmt: skip
def test_a_socket_without_a_key_gets_nowhere(guarded: Guarded, first: str | bytes) -> None:
    with connect(f"{guarded.broker.socket_url}/subscribers/ann/notifications/socket") as socket:
        socket.send(first)
        message = json.loads(socket.recv(10))
        assert message["type"] == "error"
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


# Keys that end while they are in use


def test_a_revoked_key_hears_no_more(guarded: Guarded) -> None:
    key = guarded.keys["leaving"] = guarded.make("leaving", subscribe=["lea"])
    time.sleep(1.0)
    wanted = {"feed": "mine", "filter": "price = 5"}
    put = guarded.call("leaving", "PUT", "/subscribers/lea/subscriptions/s", wanted)
    assert put.status_code == 200
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{guarded.broker.socket_url}/subscribers/lea/notifications/socket"
    with (
        connect(url, additional_headers=headers) as socket,
        guarded.http.stream(
            "GET", "/subscribers/lea/notifications/stream", headers=headers
        ) as stream,
    ):
        lines = stream.iter_lines()
        assert json.loads(socket.recv(10))["type"] == "ready"
        assert next(lines) == ": ready"
        guarded.call("admin", "POST", "/feeds/mine/events", {"price": 5})
        assert json.loads(socket.recv(10))["type"] == "notifications"
        assert next(line for line in lines if line.startswith("data:"))
        guarded.revoke("leaving")
        time.sleep(1.0)
        guarded.call("admin", "POST", "/feeds/mine/events", {"price": 5})
        assert json.loads(socket.recv(10))["code"] == "unauthorized"
        assert [line for line in lines if line.startswith("data:")] == []  # and it ends
    assert guarded.call("leaving", "GET", "/subscribers/lea/notifications").status_code == 401


def test_a_revoked_key_acknowledges_no_more(guarded: Guarded) -> None:
    key = guarded.keys["going"] = guarded.make("going", subscribe=["gus"])
    time.sleep(1.0)
    wanted = {"feed": "mine", "filter": "price = 6"}
    assert (
        guarded.call("going", "PUT", "/subscribers/gus/subscriptions/s", wanted).status_code == 200
    )
    url = f"{guarded.broker.socket_url}/subscribers/gus/notifications/socket"
    with connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        socket.recv(10)
        guarded.call("admin", "POST", "/feeds/mine/events", {"price": 6})
        [notification] = json.loads(socket.recv(10))["notifications"]
        guarded.revoke("going")
        time.sleep(1.0)
        socket.send(json.dumps({"type": "acknowledge", "sequence": notification["sequence"]}))
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            socket.recv(0.5)
    assert (
        guarded.call("admin", "GET", "/subscribers/gus").json()["cursor"] < notification["sequence"]
    )


# Secrets


def test_keys_are_nowhere_but_with_their_holders(guarded: Guarded, tmp_path: Path) -> None:
    """Also when somebody sends one where it does not belong."""
    for role in ("admin", "subscribe", "revoked", "expired"):
        key = str(guarded.keys[role])
        for headers in (
            {"Authorization": f"Basic {key}"}, {"Authorization": key}, {"X-Key": key},
            {"Authorization": f"Bearer {key} {key}"}, {"Idempotency-Key": key},
        ):  # fmt: skip
            guarded.http.get("/subscribers/ann", headers=headers)
            guarded.http.post("/feeds/mine/events", headers=headers, json={})
        guarded.http.get("/subscribers/ann/notifications", params={"key": key, "after": 0})
        guarded.http.get("/subscribers", headers={"Cookie": f"key={key}"})
    open_socket(guarded, "subscribe other", hello=True)
    log = guarded.broker.log()
    assert '"event": "request"' in log  # every request is in it
    said = log + "".join(guarded.answers)
    assert not [secret for secret in guarded.secrets if secret in said]
    files = [one for one in guarded.broker.data.rglob("*") if one.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()
        assert not [secret for secret in guarded.secrets if secret.encode() in content], file
