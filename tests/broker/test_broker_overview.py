"""What the dashboard shows: feeds and subscribers, to those who may see them; its page."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from broker_server import Callers, RunningBroker
from test_broker_core import events, run, running, ticks, wanted  # in this folder

from boxmatch.broker.access import Keys
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.monitoring.history import HISTORY, MOST_FEEDS
from boxmatch.broker.monitoring.metrics import BUCKETS, STAGES
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Wanted

SCHEMA = {"price": "float"}
GIVEN: dict[str, dict[str, Any]] = {
    "admin": {"admin": True},
    "publisher": {"publish": ["mine"]},
    "reader": {"read": ["mine"]},
    "ann": {"subscribe": ["ann"]},
    "all": {"subscribe": ["*"], "read": ["*"]},
    "nobody": {"subscribe": ["nobody"], "publish": ["nothing"]},
}


class Watched(Callers):
    """A broker with keys, two feeds and two subscribers."""

    def overview(self, role: str) -> dict[str, Any]:
        answer = self.call(role, "GET", "/overview")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def feed(self, name: str) -> dict[str, Any]:
        [found] = [one for one in self.overview("admin")["feeds"] if one["name"] == name]
        return dict(found)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    data = tmp_path_factory.mktemp("watched") / "data"
    data.mkdir()
    with Keys.open(data) as keys:
        texts = {role: keys.create(role, **given)[1] for role, given in GIVEN.items()}
    with RunningBroker(data) as broker:
        watched = Watched(broker, texts)
        with watched.http:
            for feed in ("mine", "theirs"):
                body = {"name": feed, "schema": SCHEMA}
                assert watched.call("admin", "POST", "/feeds", body).status_code == 201
            for subscriber, id, feed, filter in (
                ("ann", "often", "mine", "price > 0"),
                ("ann", "once", "mine", "price = 3"),
                ("ann", "never", "mine", "price < 0"),
                ("bob", "hidden", "mine", "price > 1"),
                ("bob", "silent", "mine", "price < -1"),
                ("bob", "other", "theirs", "price > 0"),
            ):
                path = f"/subscribers/{subscriber}/subscriptions/{id}"
                body = {"feed": feed, "filter": filter}
                assert watched.call("admin", "PUT", path, body).status_code == 200
            rows = [{"price": price} for price in (1, 2, 3)]
            for feed in ("mine", "theirs"):
                path = f"/feeds/{feed}/events"
                assert watched.call("admin", "POST", path, rows).status_code == 200
            watched.call("ann", "GET", "/subscribers/ann/notifications")
            yield watched


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_numbers_of_a_feed(watched: Watched) -> None:
    told = watched.overview("admin")
    assert told["started"] < told["at"] <= time.time() + 1
    assert told["buckets"] == list(BUCKETS)
    mine = watched.feed("mine")
    expected = {
        "kind": "events", "index": "tile", "adaptive": None, "subscriptions": 5, "waiting": 0,
        "rate": 0.0, "received": 3, "matched": 3, "matches": 6, "committed": 3, "delivered": 3,
        "last_sequence": 3,
    }  # fmt: skip
    assert {name: mine[name] for name in expected} == expected
    assert list(mine["stages"]) == list(STAGES)
    assert {len(counts) for counts in mine["stages"].values()} == {len(BUCKETS) + 1}
    # One request was one batch; three notifications were handed out.
    assert [sum(mine["stages"][stage]) for stage in STAGES] == [1, 1, 1, 3]
    theirs = watched.feed("theirs")
    assert (theirs["received"], theirs["delivered"]) == (3, 0)
    whole = told["broker"]
    assert whole["queue"]["most_events"] > whole["queue"]["events"] == 0
    assert whole["delivered"] == {"socket": 0, "sse": 0, "poll": 3, "webhook": 0}
    assert whole["storage_bytes"] > 0
    assert whole["dropped"] == 0
    assert (whole["failure"], whole["lacking_bytes"]) == (None, 0)


def test_what_a_key_sees(watched: Watched) -> None:
    seen = {
        role: (
            [one["name"] for one in told["feeds"]],
            {one["subscriber"] for one in told["subscribers"]},
            told["subscriber_count"],
            told["broker"] is not None,
        )
        for role in GIVEN
        for told in [watched.overview(role)]
    }
    assert seen == {
        "admin": (["mine", "theirs"], {"ann", "bob"}, 2, True),
        "publisher": (["mine"], set(), 0, False),
        "reader": (["mine"], set(), 0, False),
        "ann": ([], {"ann"}, 1, False),
        "all": (["mine", "theirs"], {"ann", "bob"}, 2, False),
        "nobody": ([], set(), 0, False),
    }
    for role in ("publisher", "reader", "ann", "nobody"):
        for path in ("/overview", "/overview/history"):
            assert not re.search("bob|theirs|hidden", watched.call(role, "GET", path).text)
    assert watched.overview("ann")["roles"] == {
        "admin": False, "publish": [], "read": [], "subscribe": ["ann"], "subscribe_to": ["*"],
    }  # fmt: skip
    assert watched.overview("all")["roles"]["subscribe"] == ["*"]


def test_the_history_fills(watched: Watched) -> None:
    def samples(role: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = watched.call(role, "GET", "/overview/history").json()[
            "samples"
        ]
        return found

    wait_until(lambda: len(samples("admin")) >= 2)
    found = samples("admin")
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    newest = {one["name"]: one for one in found[-1]["feeds"]}
    assert set(newest) >= {"mine", "theirs"}
    now = watched.feed("mine")
    assert newest["mine"] == {name: now[name] for name in newest["mine"]}
    assert {one["name"] for one in samples("reader")[-1]["feeds"]} == {"mine"}
    assert samples("ann")[-1]["feeds"] == []


def test_subscribers(watched: Watched) -> None:
    hook = {"url": "https://example.com/hook", "paused": True}
    assert watched.call("admin", "PUT", "/subscribers/bob/webhook", hook).status_code == 200

    def bob() -> dict[str, Any]:
        [found] = [
            one for one in watched.overview("admin")["subscribers"] if one["subscriber"] == "bob"
        ]
        return dict(found)

    expected = {
        "subscriber": "bob", "backlog": 5, "falls_behind": False, "sessions": 0, "delivered": 0,
        "dropped": 0,
        "subscriptions": 3, "webhook": "paused", "dead_letters": 0, "last_error": None,
        "mode": "cursor", "in_flight": 0, "redelivered": 0, "replayed": None,
    }  # fmt: skip
    wait_until(lambda: bob() == expected)  # it is counted now and then
    assert watched.overview("admin")["subscribers"][0]["subscriber"] == "bob"
    assert watched.overview("ann")["subscribers"][0]["webhook"] is None


def ranked(watched: Watched, role: str, query: str = "") -> tuple[list[str], int, int]:
    answer = watched.call(role, "GET", f"/feeds/mine/subscriptions{query}")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return [one["id"] for one in told["subscriptions"]], told["count"], told["dead"]


def test_the_busiest_and_the_dead(watched: Watched) -> None:
    assert ranked(watched, "admin") == (["often", "hidden", "once"], 5, 2)
    assert ranked(watched, "admin", "?limit=1") == (["often"], 5, 2)
    assert ranked(watched, "admin", "?order=dead") == (["never", "silent"], 5, 2)
    assert ranked(watched, "admin", "?order=dead&limit=1") == (["never"], 5, 2)
    assert ranked(watched, "all") == (["often", "hidden", "once"], 5, 2)
    assert ranked(watched, "ann") == (["often", "once"], 3, 1)
    assert ranked(watched, "ann", "?order=dead") == (["never"], 3, 1)
    assert ranked(watched, "nobody") == ([], 0, 0)
    answer = watched.call("admin", "GET", "/feeds/mine/subscriptions?limit=1").json()
    [often] = answer["subscriptions"]
    assert often.pop("created") < time.time() + 1
    assert often == {
        "subscriber": "ann", "id": "often", "filter": "price > 0", "dialect": None,
        "exact": False, "matches": 3,
    }  # fmt: skip
    for role in ("publisher", "reader"):
        assert watched.call(role, "GET", "/feeds/mine/subscriptions").status_code == 403
        assert watched.call(role, "GET", "/feeds/none/subscriptions").status_code == 403
    assert watched.call("admin", "GET", "/feeds/none/subscriptions").status_code == 404
    for query in ("order=best", "limit=0", "limit=101"):
        answer = watched.call("admin", "GET", f"/feeds/mine/subscriptions?{query}")
        assert answer.status_code == 422


def test_a_feed_that_was_dropped_is_forgotten(watched: Watched) -> None:
    def make() -> None:
        body = {"name": "brief", "schema": SCHEMA}
        assert watched.call("admin", "POST", "/feeds", body).status_code == 201

    make()
    watched.call("admin", "POST", "/feeds/brief/events", {"price": 1})
    history = "/overview/history"
    wait_until(lambda: "brief" in watched.call("admin", "GET", history).text)
    assert watched.call("admin", "DELETE", "/feeds/brief").status_code == 204
    for path in ("/overview", history, "/metrics"):
        assert '"brief"' not in watched.call("admin", "GET", path).text
    make()
    assert (watched.feed("brief")["received"], watched.feed("brief")["committed"]) == (0, 0)
    watched.call("admin", "DELETE", "/feeds/brief")


# The page


def test_the_page_and_its_files(watched: Watched) -> None:
    page = watched.http.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert "https://" not in page.text
    folder = Path(__file__).parents[2] / "src" / "boxmatch" / "broker" / "dashboard"
    names = [one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()]
    assert "index.html" in names
    kinds = {
        ".html": "text/html", ".css": "text/css", ".js": "text/javascript",
        ".svg": "image/svg+xml", ".png": "image/png", ".txt": "text/plain",
    }  # fmt: skip
    for name in names:
        answer = watched.http.get(f"/dashboard/{name}")
        assert answer.status_code == 200, name
        assert answer.content == (folder / name).read_bytes()
        assert answer.headers["content-type"].startswith(kinds[Path(name).suffix])
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        same = watched.http.get(
            f"/dashboard/{name}", headers={"if-none-match": answer.headers["etag"]}
        )
        assert (same.status_code, same.content) == (304, b"")


@pytest.mark.parametrize(
    "name",
    [
        *("", "x.js", "vendor", "vendor/", "../broker.py", "..%2fbroker.py", "%2e%2e/broker.py"),
        *("vendor/../index.html", "vendor%2f..%2findex.html", "/etc/passwd", "index.html%00"),
        *("INDEX.HTML", "./index.html", ".%2findex.html", "index.html/"),
    ],
)
def test_nothing_else_is_served(watched: Watched, name: str) -> None:
    # httpx would tidy up the path before it is sent.
    url = watched.http.base_url
    with contextlib.closing(HTTPConnection(url.host, url.port, timeout=30)) as connection:
        connection.request("GET", f"/dashboard/{name}")
        assert connection.getresponse().status == 404


def test_the_page_is_read_only(watched: Watched) -> None:
    for path in ("/", "/dashboard/index.html"):
        for method in ("POST", "PUT", "DELETE"):
            assert watched.http.request(method, path).status_code == 405


# Without a network


def test_a_backlog_grows_by_its_history_not_by_its_size() -> None:
    def falls_behind(*backlogs: int) -> bool:
        """With three counts in a span."""
        subscriber = Subscriber(1, "ann")
        for number, backlog in enumerate(backlogs):
            subscriber.count_backlog(backlog, new_span=number % 3 == 0)
        return subscriber.falls_behind

    assert falls_behind(*range(1, 13))
    assert falls_behind(*[1, 5, 9, 4, 8, 12, 7, 11, 15, 10, 14, 18])  # read in batches too small
    assert not falls_behind(*range(1, 10))  # not for long
    assert not falls_behind(*[1_000_000] * 20)
    assert not falls_behind(*range(1_000_000, 999_980, -1))
    assert not falls_behind(*[1, 5, 9, 2, 6, 10, 1, 5, 9, 3, 7, 11])  # read in batches
    assert not falls_behind(*range(1, 13), 0, *range(1, 7))


def test_events_wait_until_they_are_durable(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.feeds.create(ticks("idle"))
            gate = threading.Event()
            feed = broker.directory.feed("ticks").feed
            broker.pipeline.call_soon(feed, lambda: gate.wait(30) and None)
            publishing = [
                asyncio.create_task(
                    broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * count))
                )
                for count in (2, 3)
            ]
            wrong = asyncio.create_task(broker.pipeline.publish("ticks", events({"price": "x"})))
            while broker.feeds.get("ticks").waiting < 6:
                await asyncio.sleep(0.001)
            shown = {one.name: one for one in broker.history.feeds(lambda name: True)}
            assert (shown["ticks"].waiting, shown["idle"].waiting) == (6, 0)
            assert shown["ticks"].received == 6
            gate.set()
            await asyncio.gather(*publishing, wrong, return_exceptions=True)
            assert wrong.exception() is not None
            assert broker.feeds.get("ticks").waiting == 0
            await broker.pipeline.publish("ticks", events({"price": 1.0}), key="once")
            await broker.pipeline.publish("ticks", events({"price": 1.0}), key="once")
            assert broker.feeds.get("ticks").waiting == 0

    run(main)


def test_the_history_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            watching = broker.history
            names = [f"f{number:02}" for number in range(MOST_FEEDS + 5)]
            for name in names:
                await broker.feeds.create(ticks(name))
            for name in names[-3:]:
                broker.metrics.events_received(name, 10)
            for _ in range(HISTORY + 10):
                watching.sample()
            assert len(watching._samples) == HISTORY
            _, feeds = watching._samples[-1]
            assert len(feeds) == MOST_FEEDS
            assert set(names[-3:]) <= set(feeds)
            for name in names[:5]:  # others become the busier ones
                broker.metrics.events_received(name, 10)
            watching.sample()
            assert {*names[:5], *names[-3:]} <= set(watching._samples[-1][1])
            none = watching.history(lambda name: False)
            assert len(none) == HISTORY
            assert not any(sample.feeds for sample in none)

    run(main)


def test_a_state_feed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            spaces = {"plane": Schema({"x": "int"})}
            await broker.feeds.create(FeedSpec(name="places", kind="state", spaces=spaces))
            regions = {"region": {"x": (0, 9)}}
            wants = Wanted(feed="places", regions={"region": {"x": [0, 9]}})
            await broker.subscriptions.put("ann", "near", wants)
            await broker.state.put_publication("places", "p", regions=regions)
            [shown] = broker.history.feeds(lambda name: True)
            assert (shown.kind, shown.publications, shown.committed) == ("state", 1, 1)
            found = await broker.subscriptions.top("places", None, "busiest", 5)
            assert [(one.id, one.matches) for one in found.subscriptions] == [("near", 1)]

    run(main)


def test_subscriptions_that_come_and_go_are_ranked(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            many = {f"s{number:03}": wanted(f"price > {number}") for number in range(100)}
            await broker.subscriptions.put_many("ann", many)
            await broker.subscriptions.put_many("bob", {"b": wanted("price > 0")})
            await broker.pipeline.publish("ticks", events({"price": 50.5}, {"price": 2.5}))
            for number in (0, 1, 60):
                await broker.subscriptions.delete("ann", f"s{number:03}")
            found = await broker.subscriptions.top("ticks", None, "busiest", 3)
            assert [(one.id, one.matches) for one in found.subscriptions] == [
                ("s002", 2), ("b", 2), ("s003", 1),
            ]  # fmt: skip
            assert (found.total, found.dead) == (98, 48)
            await broker.subscriptions.put("bob", "new", wanted("price < 0"))
            found = await broker.subscriptions.top("ticks", ["bob"], "dead", 3)
            assert [one.id for one in found.subscriptions] == ["new"]
            assert (found.total, found.dead) == (2, 1)

    run(main)


def test_a_summary_is_made_for_all_who_ask(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            sums: list[int] = []
            before = broker.history._sum_up

            def counted(*given: Any) -> Any:
                sums.append(1)
                return before(*given)

            broker.history._sum_up = counted  # type: ignore[method-assign]
            broker.history._summary = None
            told = await asyncio.gather(*(broker.history.summary() for _ in range(20)))
            assert len(sums) == 1
            assert {id(one) for one in told} == {id(told[0])}
            assert told[0].subscriber_count == 1

    run(main)
