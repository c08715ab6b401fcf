"""Who may do what: every route with every role, on a real server with keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from broker_server import RunningBroker
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from boxmatch.broker.access import Keys

SCHEMA = {"price": "float"}
GIVEN = {
    "admin": {"admin": True},
    "publisher": {"publish": ["mine"]},
    "reader": {"read": ["mine"]},
    "subscriber": {"subscribe": ["ann"]},
    "others": {"publish": ["theirs"], "read": ["theirs"], "subscribe": ["bob"]},
    "slow": {"publish": ["mine"], "subscribe": ["slow"]},
    "short": {"subscribe": ["short"]},
}


class Guarded(NamedTuple):
    broker: RunningBroker
    keys: dict[str, str]
    http: httpx.Client

    def call(self, role: str | None, method: str, path: str, **more: Any) -> httpx.Response:
        key = self.keys.get(role or "", role)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        headers |= more.pop("headers", {})
        return self.http.request(method, path, headers=headers, **more)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    data.mkdir()
    texts = {}
    limits = {
        "slow": {"events_per_second": 10.0},
        "short": {"subscriptions": 2, "filter_bytes": 50, "body_bytes": 200},
    }
    with Keys.open(data) as keys:
        for role, given in GIVEN.items():
            texts[role] = keys.create(role, **given, limits=limits.get(role))[1]  # type: ignore[arg-type]
    with (
        RunningBroker(data) as broker,
        httpx.Client(base_url=broker.url, timeout=30) as http,
    ):
        guarded = Guarded(broker, texts, http)
        for feed in ("mine", "theirs"):
            made = guarded.call("admin", "POST", "/feeds", json={"name": feed, "schema": SCHEMA})
            assert made.status_code == 201, made.text
        wanted = {"feed": "mine", "filter": "price < 3"}
        guarded.call("admin", "PUT", "/subscribers/ann/subscriptions/s", json=wanted)
        yield guarded


EVERYONE = {"publisher", "reader", "subscriber", "others"}
WANTED = {"feed": "mine", "filter": "price < 3"}
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    # Method, path, body, and who may, apart from the admin.
    ("POST", "/feeds", {"name": "mine", "schema": SCHEMA}, set()),
    ("GET", "/feeds/mine", None, {"publisher", "reader"}),
    ("PATCH", "/feeds/mine", {"attributes": {"price": "int"}}, set()),
    ("DELETE", "/feeds/nowhere", None, set()),
    ("PUT", "/feeds/mine/adaptive", {"maximum": 0.01}, set()),
    ("DELETE", "/feeds/mine/adaptive", None, set()),
    ("POST", "/feeds/mine/events", {"price": 1}, {"publisher"}),
    ("GET", "/feeds/mine/events", None, {"reader"}),
    ("POST", "/feeds/mine/dry-run", {"filter": "price < 1"}, {"publisher", "reader", "subscriber"}),
    (
        "POST", "/feeds/mine/explain", {"event": {}, "filter": "price < 1"},
        {"publisher", "reader", "subscriber"},
    ),
    ("POST", "/feeds/mine/explain", {"sequence": 1, "filter": "price < 1"}, {"reader"}),
    (
        "POST", "/feeds/mine/explain", {"event": {}, "subscriber": "ann", "subscription": "s"},
        {"subscriber"},
    ),
    ("PUT", "/feeds/mine/publications/p", {"region": {"price": 1}}, {"publisher"}),
    ("PATCH", "/feeds/mine/publications/p", {"region": {"price": 1}}, {"publisher"}),
    ("GET", "/feeds/mine/publications/p", None, {"publisher", "reader"}),
    ("DELETE", "/feeds/mine/publications/p", None, {"publisher"}),
    ("GET", "/subscribers", None, set()),
    ("GET", "/subscribers/ann", None, {"subscriber"}),
    ("PUT", "/subscribers/ann/subscriptions/s", WANTED, {"subscriber"}),
    ("GET", "/subscribers/ann/subscriptions/s", None, {"subscriber"}),
    ("DELETE", "/subscribers/ann/subscriptions/none", None, {"subscriber"}),
    ("GET", "/subscribers/ann/subscriptions", None, {"subscriber"}),
    (
        "POST", "/subscribers/ann/subscriptions",
        {"feed": "mine", "filters": {"many": "price < 9"}}, {"subscriber"},
    ),
    ("GET", "/subscribers/ann/notifications", None, {"subscriber"}),
    ("POST", "/subscribers/ann/acknowledge", {"sequence": 0}, {"subscriber"}),
    ("PUT", "/subscribers/ann/sharing", {}, {"subscriber"}),
    ("POST", "/subscribers/ann/reject", {"sequences": [1]}, {"subscriber"}),
    ("POST", "/subscribers/ann/extend", {"sequences": [1]}, {"subscriber"}),
    ("DELETE", "/subscribers/ann/sharing", None, {"subscriber"}),
    ("POST", "/subscribers/ann/replay", {"from": 1, "feed": "mine"}, {"subscriber"}),
    ("DELETE", "/subscribers/ann/replay", None, {"subscriber"}),
    ("PUT", "/subscribers/ann/webhook", {"url": "ftp"}, {"subscriber"}),
    ("GET", "/subscribers/ann/webhook", None, {"subscriber"}),
    ("DELETE", "/subscribers/ann/webhook", None, {"subscriber"}),
    ("GET", "/subscribers/ann/dead-letters", None, {"subscriber"}),
    ("POST", "/subscribers/ann/dead-letters/replay", {}, {"subscriber"}),
    ("DELETE", "/subscribers/ann/dead-letters", None, {"subscriber"}),
    ("GET", "/metrics", None, set()),
    ("GET", "/overview", None, EVERYONE),
    ("GET", "/overview/history", None, EVERYONE),
    ("GET", "/feeds/mine/subscriptions", None, {"subscriber", "others"}),
    ("POST", "/feeds/mine/trace", {"event": {"price": 1}}, EVERYONE),
    ("POST", "/feeds/mine/trace", {"event": {"price": 1}, "publish": True}, {"publisher"}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "allowed"), ROUTES)
def test_every_route_with_every_role(
    guarded: Guarded, method: str, path: str, body: Any, allowed: set[str]
) -> None:
    for role in ("admin", "publisher", "reader", "subscriber", "others"):
        if path == "/feeds/mine/explain" and role == "others" and "subscriber" not in body:
            continue  # may ask about filters, as all who subscribe; see below
        answer = guarded.call(role, method, path, json=body)
        if role == "others" and path == "/feeds/mine/dry-run":
            assert answer.json()["examples"] == []
        elif role == "admin" or role in allowed:
            assert answer.status_code not in (401, 403), (role, answer.text)
            assert answer.status_code < 500
        else:
            assert answer.status_code == 403, (role, answer.text)
            assert answer.json()["type"] == "urn:boxmatch:problem:forbidden"
    for wrong in (None, "nonsense", "bm_aaaaaaaa_" + "x" * 43, guarded.keys["admin"][:-1] + "~"):
        answer = guarded.call(wrong, method, path, json=body)
        assert answer.status_code == 401, answer.text
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"


def test_all_documented_routes_are_in_the_table(guarded: Guarded) -> None:
    described = guarded.call(None, "GET", "/openapi.json").json()["paths"]
    known = {(method, _template(path, described)) for method, path, _, _ in ROUTES}
    every = {(method.upper(), path) for path, one in described.items() for method in one}
    free = {("GET", path) for path in ("/healthz", "/readyz", "/feeds")}
    assert every - known - free == {("GET", "/subscribers/{subscriber}/notifications/stream")}
    for _, path in free - {("GET", "/feeds")}:
        assert guarded.call(None, "GET", path).status_code == 200


def _template(path: str, known: dict[str, Any]) -> str:
    parts = path.split("/")
    for template in known:
        wanted = template.split("/")
        if len(wanted) == len(parts) and all(
            one == two or one.startswith("{") for one, two in zip(wanted, parts, strict=True)
        ):
            return template
    raise AssertionError(path)


def test_what_others_have_looks_as_if_it_were_not_there(guarded: Guarded) -> None:
    def told(path: str, name: str) -> tuple[int, str]:
        answer = guarded.call("others", "GET", path.replace("NAME", name))
        return answer.status_code, answer.text.replace(name, "NAME")

    for path in (
        "/subscribers/NAME",
        "/subscribers/NAME/subscriptions/s",
        "/subscribers/NAME/notifications",
    ):
        assert told(path, "ann") == told(path, "nobody")
    for path in ("/feeds/NAME", "/feeds/NAME/events"):
        assert told(path, "mine") == told(path, "nothing")
    about = {"event": {}, "subscriber": "ann", "subscription": "s"}
    unknown = {**about, "subscription": "none"}
    answers = [
        guarded.call("others", "POST", "/feeds/mine/explain", json=one) for one in (about, unknown)
    ]
    assert answers[0].status_code == 403
    assert answers[0].text == answers[1].text


def test_a_key_sees_the_feeds_that_it_is_for(guarded: Guarded) -> None:
    def seen(role: str) -> list[str]:
        feeds = guarded.call(role, "GET", "/feeds").json()["feeds"]
        return sorted(one["name"] for one in feeds)

    assert seen("admin") == ["mine", "theirs"]
    assert seen("publisher") == seen("reader") == ["mine"]
    assert seen("subscriber") == []


def test_subscribers_do_not_read_the_log_by_trying_filters(guarded: Guarded) -> None:
    guarded.call("publisher", "POST", "/feeds/mine/events", json={"price": 1})
    ask = {"filter": "price < 5", "recent": 3}
    tried = guarded.call("subscriber", "POST", "/feeds/mine/dry-run", json=ask).json()
    assert tried["matches"] is tried["events"] is None  # values could be bisected by counts
    assert tried["examples"] == tried["recent"] == []
    assert tried["boxes"] == [[{"attribute": "price", "wanted": "price < 5", "cost": "box"}]]
    tried = guarded.call("reader", "POST", "/feeds/mine/dry-run", json=ask).json()
    assert 0 < tried["matches"] <= tried["events"]
    assert tried["examples"]
    assert tried["recent"]


def test_rates_and_sizes_of_a_key(guarded: Guarded) -> None:
    events = [{"price": 1}] * 10
    assert guarded.call("slow", "POST", "/feeds/mine/events", json=events).status_code == 200
    refused = guarded.call("slow", "POST", "/feeds/mine/events", json=events)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["type"] == "urn:boxmatch:problem:rate-limit"

    def put(id: str, text: str) -> httpx.Response:
        wanted = {"feed": "mine", "filter": text}
        return guarded.call("short", "PUT", f"/subscribers/short/subscriptions/{id}", json=wanted)

    assert put("a", "price < 1").status_code == put("b", "price < 1").status_code == 200
    assert put("a", "price < 2").status_code == 200  # in the place of another
    assert put("c", "price < 1").json()["type"] == "urn:boxmatch:problem:limit"
    assert put("a", "price < 1 OR " * 4 + "price < 2").json()["type"].endswith("filter-size")
    assert put("a", "price < 1 OR " * 30 + "price < 2").json()["type"].endswith("body-size")


def test_other_schemes_are_refused(guarded: Guarded) -> None:
    for header in ("Basic YTpi", "Bearer", "Bearer x", guarded.keys["admin"]):
        answer = guarded.call(None, "GET", "/feeds", headers={"authorization": header})
        assert answer.status_code == 401, header


def test_a_socket_takes_its_key_from_the_header(guarded: Guarded) -> None:
    url = guarded.broker.socket_url + "/subscribers/ann/notifications/socket"
    for role, status in (("others", 403), ("publisher", 403), ("nonsense", 401)):
        key = guarded.keys.get(role, role)
        with pytest.raises(InvalidStatus) as caught:
            connect(url, additional_headers={"authorization": f"Bearer {key}"})
        assert caught.value.response.status_code == status
        assert b"urn:boxmatch:problem" in (caught.value.response.body or b"")
    headers = {"authorization": f"Bearer {guarded.keys['subscriber']}"}
    with connect(url, additional_headers=headers) as socket:
        assert '"ready"' in str(socket.recv(5))


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ('{"type":"hello","key":"nonsense"}', "unauthorized"),
        ('{"type":"hello","key":5}', "unauthorized"),
        ('{"type":"acknowledge","sequence":0}', "unauthorized"),
        ("OTHERS", "forbidden"),
        ("not json", "message"),
        (b"{}", "message"),
    ],
)
def test_a_socket_with_a_wrong_hello_is_closed(
    guarded: Guarded, hello: str | bytes, code: str
) -> None:
    if hello == "OTHERS":
        hello = f'{{"type":"hello","key":"{guarded.keys["others"]}"}}'
    with connect(guarded.broker.socket_url + "/subscribers/ann/notifications/socket") as socket:
        socket.send(hello)
        assert f'"code":"{code}"' in str(socket.recv(5))
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(5)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1008


def test_a_socket_takes_its_key_from_a_hello(guarded: Guarded) -> None:
    with connect(guarded.broker.socket_url + "/subscribers/ann/notifications/socket") as socket:
        socket.send(f'{{"type":"hello","key":"{guarded.keys["subscriber"]}"}}')
        assert '"ready"' in str(socket.recv(5))


def test_a_revoked_key_hears_no_more(guarded: Guarded) -> None:
    with Keys.open(guarded.broker.data) as keys:
        grant, text = keys.create("brief", subscribe=["eve"])
        wait_until(lambda: guarded.call(text, "GET", "/subscribers/eve").status_code == 200)
        wanted = {"feed": "mine", "filter": "price > 70"}
        guarded.call(text, "PUT", "/subscribers/eve/subscriptions/s", json=wanted)
        headers = {"authorization": f"Bearer {text}"}
        url = guarded.broker.socket_url + "/subscribers/eve/notifications/socket"
        with connect(url, additional_headers=headers) as socket:
            assert '"ready"' in str(socket.recv(5))
            keys.revoke(grant.id)
            wait_until(lambda: guarded.call(text, "GET", "/subscribers/eve").status_code == 401)
            guarded.call("publisher", "POST", "/feeds/mine/events", json={"price": 71})
            assert '"code":"unauthorized"' in str(socket.recv(5))
            with pytest.raises(ConnectionClosed):
                socket.recv(5)


def wait_until(condition: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
