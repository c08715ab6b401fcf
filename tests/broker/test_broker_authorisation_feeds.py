"""Permissions by feed: every combination of them, on every route that depends on a feed, is
compared with a rule that is written down here anew.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import httpx
import pytest
from broker_server import RunningBroker
from hostile_client import PLACES, TRADES
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from boxmatch.broker.access import Keys

FEEDS = ("mine", "area", "gone")
"""Of events, of state, and one that is not there."""
Named = tuple[str, ...]


class Given(NamedTuple):
    """What a key is made with. All who subscribe do it as ann."""

    publish: Named = ()
    read: Named = ()
    subscribe_to: Named | None = ()
    """None: not restricted. Empty: the key has no subscriber."""

    def create(self, keys: Keys) -> str:
        subscriber = () if self.subscribe_to == () else ("ann",)
        feeds = self.subscribe_to or None
        names = {"publish": self.publish, "read": self.read, "subscribe": subscriber}
        return keys.create("x", **names, subscribe_to=feeds)[1]

    def may(self, what: str, feed: str) -> bool:
        names: Named = ("*",) if getattr(self, what) is None else getattr(self, what)
        return feed in names or "*" in names


SOME: tuple[Named, ...] = ((), ("mine",), ("*",))
GIVEN = [
    Given(*one)
    for one in itertools.product(SOME, SOME, ((), ("mine",), ("area", "gone"), ("*",), None))
    if one != ((), (), ())
]


class Asked(NamedTuple):
    """A request about a feed, and whether a key may make it: with False it is forbidden, and with
    None told that there is no such subscription.
    """

    method: str
    path: str
    may: Callable[[Given, str], bool | None]
    body: Callable[[str], Any] = lambda _: None


def subscribes(key: Given, feed: str) -> bool:
    return key.may("subscribe_to", feed)


def sees(key: Given, feed: str) -> bool:
    return key.may("publish", feed) or key.may("read", feed)


def asks(key: Given, feed: str) -> bool:
    return sees(key, feed) or subscribes(key, feed)


def finds(key: Given, feed: str) -> bool | None:
    """Its own stored subscription to the feed."""
    if key.subscribe_to == ():
        return False
    return subscribes(key, feed) or None


def wanted(feed: str) -> dict[str, Any]:
    if feed == "area":
        return {"feed": feed, "region": {"x": [0, 1]}}
    return {"feed": feed, "filter": "price < 0"}


ROUTES: Mapping[str, Asked] = {
    "feed": Asked("GET", "/feeds/{feed}", sees),
    "publish": Asked(
        "POST", "/feeds/{feed}/events",
        lambda key, feed: key.may("publish", feed), lambda _: {"price": 1},
    ),
    "log": Asked("GET", "/feeds/{feed}/events", lambda key, feed: key.may("read", feed)),
    "retract": Asked(
        "DELETE", "/feeds/{feed}/publications/none", lambda key, feed: key.may("publish", feed)
    ),
    "publication": Asked("GET", "/feeds/{feed}/publications/none", sees),
    "dry run": Asked("POST", "/feeds/{feed}/dry-run", asks, lambda _: {"filter": "price < 1"}),
    "explain": Asked(
        "POST", "/feeds/{feed}/explain", asks, lambda _: {"event": {}, "filter": "price < 1"}
    ),
    "explain an event": Asked(
        "POST", "/feeds/{feed}/explain",
        lambda key, feed: key.may("read", feed), lambda _: {"sequence": 1, "filter": "price < 1"},
    ),
    "explain a subscription": Asked(
        "POST", "/feeds/{feed}/explain",
        lambda key, feed: asks(key, feed) and finds(key, feed),
        lambda feed: {"event": {}, "subscriber": "ann", "subscription": f"to-{feed}"},
    ),
    "trace": Asked("POST", "/feeds/{feed}/trace", asks, lambda _: {"event": {"price": 1}}),
    "publish and trace": Asked(
        "POST", "/feeds/{feed}/trace",
        lambda key, feed: key.may("publish", feed),
        lambda _: {"event": {"price": 1}, "publish": True},
    ),
    "top subscriptions": Asked("GET", "/feeds/{feed}/subscriptions", subscribes),
    "subscribe": Asked("PUT", "/subscribers/ann/subscriptions/to-{feed}", subscribes, wanted),
    "subscribe anew": Asked("PUT", "/subscribers/ann/subscriptions/x-{feed}", subscribes, wanted),
    "subscribe to many": Asked(
        "POST", "/subscribers/ann/subscriptions", subscribes,
        lambda feed: {"feed": feed, "filters": {f"to-{feed}": "price < 0"}},
    ),
    "take the place of one to another feed": Asked(
        "PUT", "/subscribers/ann/subscriptions/to-area",
        lambda key, feed: subscribes(key, feed) and subscribes(key, "area"), wanted,
    ),
    "take the place of many": Asked(
        "POST", "/subscribers/ann/subscriptions",
        lambda key, feed: subscribes(key, feed) and subscribes(key, "mine"),
        lambda feed: {"feed": feed, "filters": {"new": "price < 0", "to-mine": "price < 0"}},
    ),
    "subscription": Asked("GET", "/subscribers/ann/subscriptions/to-{feed}", finds),
    "replay a feed": Asked(
        "POST", "/subscribers/ann/replay", subscribes, lambda feed: {"from": 1, "feed": feed}
    ),
    "replay a subscription": Asked(
        "POST", "/subscribers/ann/replay", finds,
        lambda feed: {"from": 1, "subscription": f"to-{feed}"},
    ),
    "unsubscribe": Asked("DELETE", "/subscribers/ann/subscriptions/to-{feed}", finds),
}  # fmt: skip


class Guarded:
    """A broker with a key for each combination, and ann's subscriptions to all feeds."""

    def __init__(self, broker: RunningBroker, keys: Mapping[Given | str, str]) -> None:
        self.broker = broker
        self.keys = keys
        self.http = httpx.Client(base_url=broker.url, timeout=120)

    def call(self, who: Given | str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys.get(who, who)}"}
        return self.http.request(method, path, json=body, headers=headers)

    def prepare(self) -> None:
        """Ann has one subscription to each feed, and no others."""
        self.call("admin", "DELETE", "/subscribers/ann/subscriptions/new")
        for feed in ("mine", "area"):
            self.call("admin", "DELETE", f"/subscribers/ann/subscriptions/x-{feed}")
            path = f"/subscribers/ann/subscriptions/to-{feed}"
            assert self.call("admin", "PUT", path, wanted(feed)).status_code == 200


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("feeds") / "data"
    with Keys.open(data) as keys:
        made: dict[Given | str, str] = {given: given.create(keys) for given in GIVEN}
        made["admin"] = keys.create("admin", admin=True)[1]
    with RunningBroker(data) as broker:
        guarded = Guarded(broker, made)
        with contextlib.closing(guarded.http):
            for feed in (
                {"name": "mine", "schema": TRADES},
                {"name": "area", "kind": "state", "spaces": {"area": PLACES[next(iter(PLACES))]}},
            ):
                made_feed = guarded.call("admin", "POST", "/feeds", feed)
                assert made_feed.status_code == 201, made_feed.text
            guarded.prepare()
            guarded.call("admin", "POST", "/feeds/mine/events", {"price": 1})
            yield guarded


@pytest.mark.parametrize("name", ROUTES)
def test_who_may_do_what_in_which_feed(guarded: Guarded, name: str) -> None:
    method, path, may, body = ROUTES[name]

    def ask(who: Given | str, feed: str) -> httpx.Response:
        if name == "unsubscribe":
            guarded.prepare()
        return guarded.call(who, method, path.format(feed=feed), body(feed))

    told, expected = {}, {}
    for feed in FEEDS:
        guarded.prepare()
        allowed = ask("admin", feed).status_code  # or what is wrong with the request
        for key in GIVEN:
            told[key, feed] = ask(key, feed).status_code
            expected[key, feed] = {True: allowed, False: 403, None: 404}[may(key, feed)]
    guarded.prepare()
    assert told == expected
    assert set(expected.values()) >= {403}


def test_what_is_listed(guarded: Guarded) -> None:
    told, expected = {}, {}
    for key in GIVEN:
        feeds = guarded.call(key, "GET", "/feeds").json()["feeds"]
        told["feeds", key] = {one["name"] for one in feeds}
        expected["feeds", key] = {feed for feed in ("mine", "area") if sees(key, feed)}
        if key.subscribe_to == ():
            continue
        mine = [feed for feed in ("area", "mine") if subscribes(key, feed)]
        for feed in (None, *FEEDS):
            path = "/subscribers/ann/subscriptions" + (f"?feed={feed}" if feed else "")
            page = guarded.call(key, "GET", path).json()["subscriptions"]
            told[feed, key] = {one["id"] for one in page}
            expected[feed, key] = {f"to-{one}" for one in mine if feed in (None, one)}
        told["of ann", key] = set(guarded.call(key, "GET", "/subscribers/ann").json()["feeds"])
        expected["of ann", key] = set(mine)
    assert told == expected


def test_pages_have_what_the_key_may_see(guarded: Guarded) -> None:
    """However many there are in between to other feeds."""
    ids = [f"p{number:02}" for number in range(12)]
    for number, id in enumerate(ids):
        feed = "mine" if number % 5 == 0 else "area"
        path = f"/subscribers/ann/subscriptions/{id}"
        assert guarded.call("admin", "PUT", path, wanted(feed)).status_code == 200
    key = next(one for one in GIVEN if one.subscribe_to == ("mine",))
    found, after = [], ""
    while after is not None:
        url = f"/subscribers/ann/subscriptions?limit=2&after={after}"
        page = guarded.call(key, "GET", url).json()
        found += [one["id"] for one in page["subscriptions"]]
        after = page["next"]
    for id in ids:
        guarded.call("admin", "DELETE", f"/subscribers/ann/subscriptions/{id}")
    assert found == ["p00", "p05", "p10", "to-mine"]


def test_who_may_not_subscribe_is_told_how_many_match(guarded: Guarded) -> None:
    """And neither whose they are nor what they want, also if it may act as their subscriber."""
    guarded.prepare()
    told, expected = {}, {}
    for key in GIVEN:
        if asks(key, "mine"):
            asked = {"event": {"price": -1}}
            trace = guarded.call(key, "POST", "/feeds/mine/trace", asked).json()
            told[key] = trace["matched"], [one["id"] for one in trace["gets"]]
            expected[key] = 1, ["to-mine"] if subscribes(key, "mine") else []
    assert told == expected


def test_a_refusal_does_not_name_another_feed(guarded: Guarded) -> None:
    key = next(one for one in GIVEN if one.subscribe_to == ("mine",))
    path = "/subscribers/ann/subscriptions/to-area"
    answers = [
        guarded.call(key, "PUT", path, wanted("mine")),
        guarded.call(key, "GET", path),
        guarded.call(key, "DELETE", path),
    ]
    assert [one.status_code for one in answers] == [403, 404, 404]
    for one in answers:
        assert "area" not in one.text.replace("to-area", "")
    missing = guarded.call(key, "GET", path.replace("to-area", "to-none"))
    assert missing.text.replace("to-none", "to-area") == answers[1].text
    for method in ("PUT", "POST"):
        path = "/subscribers/ann/subscriptions" + ("/new" if method == "PUT" else "")
        texts = set()
        for feed in ("area", "gone"):
            more = {"filters": {"new": ""}} if method == "POST" else {"filter": ""}
            answer = guarded.call(key, method, path, {"feed": feed, **more})
            assert answer.status_code == 403
            texts.add(answer.text.replace(feed, "FEED"))
        assert len(texts) == 1


def test_a_key_that_loses_a_feed(guarded: Guarded) -> None:
    """Its subscription stays, and is delivered over connections that are open, but is not changed
    any more. Other keys of the subscriber may do so.
    """
    with Keys.open(guarded.broker.data) as keys:
        grant, text = keys.create("loser", subscribe=["lou"], subscribe_to=["mine", "area"])
        _, other = keys.create("other", subscribe=["lou"], subscribe_to=["mine"])
    path = "/subscribers/lou/subscriptions/s"
    body = {"feed": "mine", "filter": "price = 77"}
    assert guarded.call(text, "PUT", path, body).status_code == 200
    headers = {"Authorization": f"Bearer {text}"}
    url = f"{guarded.broker.socket_url}/subscribers/lou/notifications/socket"
    with (
        connect(url, additional_headers=headers) as socket,
        guarded.http.stream("GET", "/subscribers/lou/notifications/stream", headers=headers) as sse,
    ):
        lines = sse.iter_lines()
        assert json.loads(socket.recv(10))["type"] == "ready"
        assert next(lines) == ": ready"
        roles = {"admin": False, "publish": [], "read": [], "subscribe": ["lou"]}
        with closing(sqlite3.connect(guarded.broker.data / "keys.sqlite")) as connection:
            connection.execute(
                "UPDATE key SET roles = ? WHERE id = ?",
                (json.dumps({**roles, "subscribe_to": ["area"]}), grant.id),
            )
            connection.commit()
        time.sleep(1.0)
        told = [
            guarded.call(text, "PUT", path, body).status_code,
            guarded.call(text, "GET", path).status_code,
            guarded.call(text, "DELETE", path).status_code,
        ]
        assert told == [403, 404, 404]
        assert guarded.call(text, "GET", "/subscribers/lou/subscriptions").json() == {
            "subscriptions": [], "next": None,
        }  # fmt: skip
        guarded.call("admin", "POST", "/feeds/mine/events", {"price": 77})
        [sent] = json.loads(socket.recv(10))["notifications"]
        assert sent["subscriptions"] == ["s"]
        assert next(line for line in lines if line.startswith("data:"))
    assert guarded.call(other, "PUT", path, body).status_code == 200
    assert guarded.call(other, "DELETE", path).status_code == 204


def test_a_rotated_key(guarded: Guarded) -> None:
    """Both secrets work until the overlap ends; then connections with the old one are closed, and
    those with the new one stay. Revoking ends both.
    """
    with Keys.open(guarded.broker.data) as keys:
        grant, old = keys.create("turn", subscribe=["tia"])
        body = {"feed": "mine", "filter": "price = 88"}
        path = "/subscribers/tia/subscriptions/s"
        assert guarded.call(old, "PUT", path, body).status_code == 200
        url = f"{guarded.broker.socket_url}/subscribers/tia/notifications/socket"
        with connect(url, additional_headers={"Authorization": f"Bearer {old}"}) as before:
            before.recv(10)
            _, new = keys.rotate(grant.id, 4.0)
            ends = time.monotonic() + 4.0
            with connect(url, additional_headers={"Authorization": f"Bearer {new}"}) as after:
                after.recv(10)
                assert [guarded.call(one, "GET", path).status_code for one in (old, new)] == [
                    200
                ] * 2
                guarded.call("admin", "POST", "/feeds/mine/events", {"price": 88})
                for socket in (before, after):
                    assert json.loads(socket.recv(10))["type"] == "notifications"
                time.sleep(max(ends - time.monotonic(), 0) + 1.0)
                guarded.call("admin", "POST", "/feeds/mine/events", {"price": 88})
                assert json.loads(before.recv(10))["code"] == "unauthorized"
                with pytest.raises(ConnectionClosed):
                    before.recv(10)
                assert json.loads(after.recv(10))["type"] == "notifications"
        told = {one: guarded.call(one, "GET", path) for one in (old, new)}
        assert [told[one].status_code for one in (old, new)] == [401, 200]
        assert "was replaced by another" in told[old].json()["detail"]
        _, newest = keys.rotate(grant.id, 3600)
        for secret in (new, newest):
            assert guarded.call(secret, "GET", path).status_code == 200
        keys.revoke(grant.id)
        time.sleep(1.0)
        for secret in (old, new, newest):
            assert guarded.call(secret, "GET", path).status_code == 401


def test_replays_of_other_feeds_are_hidden(guarded: Guarded) -> None:
    guarded.prepare()
    guarded.call("admin", "DELETE", "/subscribers/ann/replay")
    wanted = {"feed": "mine", "filter": "price < 0", "from": 1}
    guarded.call("admin", "POST", "/feeds/mine/events", {"price": 1})
    answer = guarded.call("admin", "PUT", "/subscribers/ann/subscriptions/to-mine", wanted)
    assert answer.status_code == 200
    for given in GIVEN:
        if given.subscribe_to != ():
            shown = guarded.call(given, "GET", "/subscribers/ann").json()["replays"]
            assert [one["feed"] for one in shown] == ["mine"] * subscribes(given, "mine")
    guarded.call("admin", "DELETE", "/subscribers/ann/replay")
