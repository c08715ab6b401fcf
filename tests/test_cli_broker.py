"""Commands that talk to a broker, with a client that only remembers. With a real one they run in
`tests/broker`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import boxmatch as bm
from boxmatch.cli import remote
from boxmatch.client import DryRun, Feed, Replay, Subscriber, Subscription
from boxmatch.wire.requests import FeedRetention, Sharing
from command_line import Command


class Remembering:
    def __init__(self) -> None:
        self.made: list[Feed] = []
        self.starts: list[int | str | None] = []

    def create_feed(
        self, name: str, schema: bm.Schema | None, *, unknown: str, retention: Any
    ) -> Feed:
        written = json.loads(bm.Schema(schema).to_json())
        kept = retention and FeedRetention(**retention)
        self.made.append(Feed(name=name, schema_json=written, unknown=unknown, retention=kept))
        return self.made[-1]

    def retain_feed(self, name: str, retention: Any) -> Feed:
        schema = {"price": "float"}
        return Feed(
            name=name, schema_json=schema, retention=retention and FeedRetention(**retention)
        )

    def feeds(self) -> list[Feed]:
        return self.made

    def subscribe(
        self,
        subscriber: str,
        id: str,
        feed: str,
        filter: Any,
        *,
        dialect: str | None,
        exact: bool,
        replay_from: int | str | None,
    ) -> Any:
        self.starts.append(replay_from)
        return Subscription(
            subscriber=subscriber, id=id, feed=feed, filter=filter, dialect=dialect, exact=exact
        )

    def dry_run(self, feed: str, filter: Any, *, dialect: str | None) -> Any:
        return DryRun(None, None)

    def replay_events(self, subscriber: str, start: int | str, **chosen: Any) -> Replay:
        self.starts.append(start)
        through = chosen.pop("through") or 99
        return Replay(after=6, through=through, **chosen)

    def share(self, name: str, **settings: Any) -> Subscriber:
        return Subscriber(subscriber=name, cursor=7, sharing=Sharing(**settings), mode="shared")

    def unshare(self, subscriber: str) -> None:
        self.made.clear()

    def subscriber(self, name: str) -> Subscriber:
        return Subscriber(subscriber=name, cursor=7)

    def cancel_replay(self, subscriber: str) -> int:
        return 12


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    found = Remembering()

    @contextmanager
    def connect(url: str, key: str | None, trust: Path | None) -> Iterator[Remembering]:
        yield found

    # In the package, `feeds` is the group of commands.
    for module in (sys.modules["boxmatch.cli.feeds"], remote):
        monkeypatch.setattr(module, "connect", connect)
    return found


def test_feeds(client: Remembering, run_boxmatch: Command, tmp_path: Path) -> None:
    assert run_boxmatch("feeds", "list").out.startswith("There are no feeds yet")
    assert run_boxmatch("feeds", "list", "--json").out == ""
    types = ("--attribute", "price=float", "--attribute", "side=buy|sell")
    done = run_boxmatch("feeds", "create", "ticks", *types)
    assert done == (0, "Created feed ticks with price, side.\n", "")
    path = tmp_path / "schema.json"
    path.write_text(bm.Schema({"at": "timestamp"}).to_json())
    done = run_boxmatch(
        "feeds", "create", "x", "--schema", str(path), "--unknown", "carry", "--json"
    )
    made = json.loads(done.out)
    assert made["schema"] == {"at": "timestamp"}
    assert made["unknown"] == "carry"
    shown = run_boxmatch("feeds", "list").out
    assert "price float, side enum" in shown
    lines = [json.loads(line) for line in run_boxmatch("feeds", "list", "--json").out.splitlines()]
    assert [line["name"] for line in lines] == ["ticks", "x"]
    assert lines[0]["schema"] == {"price": "float", "side": ["buy", "sell"]}


def test_state_feeds_have_spaces(client: Remembering, run_boxmatch: Command) -> None:
    spaces: Any = {"map": {"lat": "float"}, "load": {"tons": "float"}}
    client.made.append(Feed(name="trucks", kind="state", spaces_json=spaces))
    line = json.loads(run_boxmatch("feeds", "list", "--json").out)
    assert line["spaces"] == {"map": {"lat": "float"}, "load": {"tons": "float"}}
    assert "lat float, tons float" in run_boxmatch("feeds", "list").out


def test_subscribe_as_json(client: Remembering, run_boxmatch: Command) -> None:
    done = run_boxmatch("subscribe", "alice", "cheap", "ticks", '{"price": [1, 2]}', "--json")
    assert json.loads(done.out) == {
        "subscriber": "alice",
        "id": "cheap",
        "feed": "ticks",
        "filter": {"price": [1, 2]},
    }


def test_replay(client: Remembering, run_boxmatch: Command) -> None:
    done = run_boxmatch("replay", "alice", "--from", "7")
    assert done == (0, "Replaying to alice from 7 through 99.\n", "")
    narrow = ("--feed", "ticks", "--subscription", "big", "--through", "20")
    done = run_boxmatch("replay", "alice", "--from", "2026-03-01T09:30Z", *narrow, "--json")
    assert json.loads(done.out) == {
        "feed": "ticks", "subscription": "big", "after": 6, "through": 20
    }  # fmt: skip
    run_boxmatch("subscribe", "alice", "big", "ticks", "volume > 5", "--from", "1")
    run_boxmatch("subscribe", "alice", "big", "ticks", "volume > 5")
    assert client.starts == [7, "2026-03-01T09:30Z", 1, None]


def test_replay_is_cancelled(client: Remembering, run_boxmatch: Command) -> None:
    done = run_boxmatch("replay", "alice", "--cancel")
    assert done == (0, "Replay cancelled; alice goes on after 12.\n", "")
    assert json.loads(run_boxmatch("replay", "alice", "--cancel", "--json").out) == {"cursor": 12}
    for wrong in ((), ("--cancel", "--from", "1")):
        done = run_boxmatch("replay", "alice", *wrong)
        assert done.code == 2
        assert "give --from START, or --cancel" in done.err


def test_share(client: Remembering, run_boxmatch: Command) -> None:
    done = run_boxmatch("share", "alice", "--ack-seconds", "90")
    assert done.out == (
        "alice shares its notifications: acknowledged within 90 s, handed out 8 times, "
        "1,000 at a time.\n"
    )
    limits = ("--max-deliveries", "3", "--max-in-flight", "5", "--json")
    assert json.loads(run_boxmatch("share", "alice", *limits).out) == {
        "subscriber": "alice",
        "mode": "shared",
        "sharing": {"ack_seconds": 30.0, "max_deliveries": 3, "max_in_flight": 5},
    }
    done = run_boxmatch("share", "alice", "--cancel")
    assert done == (0, "alice has a cursor; it goes on after 7.\n", "")
    ended = json.loads(run_boxmatch("share", "alice", "--cancel", "--json").out)
    assert ended == {"subscriber": "alice", "mode": "cursor", "sharing": None}
    done = run_boxmatch("share", "alice", "--cancel", "--max-deliveries", "3")
    assert (done.code, "make no sense with --cancel" in done.err) == (2, True)


def test_retention(client: Remembering, run_boxmatch: Command) -> None:
    limits = ("--retention-days", "0.5", "--retention-gb", "0.5", "--retention-events", "9")
    made = json.loads(run_boxmatch("feeds", "create", "ticks", *limits, "--json").out)
    assert made["retention"] == {"days": 0.5, "bytes": 1 << 29, "events": 9}
    done = run_boxmatch("feeds", "retain", "ticks", "--days", "30", "--gb", "2", "--events", "1000")
    assert done == (0, "Feed ticks keeps 30 days, 2 GB, 1,000 events.\n", "")
    done = run_boxmatch("feeds", "retain", "ticks")
    assert done == (0, "Feed ticks has no limits of its own.\n", "")
    changed = json.loads(run_boxmatch("feeds", "retain", "ticks", "--events", "3", "--json").out)
    assert changed["retention"] == {"days": None, "bytes": None, "events": 3}


def test_a_dry_run_with_a_key_that_may_not_read(client: Remembering, run_boxmatch: Command) -> None:
    dry_run = ("subscribe", "alice", "big", "ticks", "volume > 5", "--dry-run")
    assert run_boxmatch(*dry_run).out.startswith("The filter is valid; this key may not read")
    assert json.loads(run_boxmatch(*dry_run, "--json").out)["matches"] is None
