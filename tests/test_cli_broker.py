"""Commands that talk to a broker, with a client that only remembers. With a real one they run in
`tests/broker`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import boxmatch as bm
from boxmatch.cli import remote
from boxmatch.client import Feed, Subscription
from command_line import Command


class Remembering:
    def __init__(self) -> None:
        self.made: list[Feed] = []

    def create_feed(self, name: str, schema: bm.Schema | None, *, unknown: str) -> Feed:
        written = json.loads(bm.Schema(schema).to_json())
        self.made.append(Feed(name=name, schema_json=written, unknown=unknown))
        return self.made[-1]

    def feeds(self) -> list[Feed]:
        return self.made

    def subscribe(
        self, subscriber: str, id: str, feed: str, filter: Any, *, dialect: str | None, exact: bool
    ) -> Any:
        return Subscription(
            subscriber=subscriber, id=id, feed=feed, filter=filter, dialect=dialect, exact=exact
        )


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    found = Remembering()

    @contextmanager
    def connect(url: str, key: str | None, trust: Path | None) -> Iterator[Remembering]:
        yield found

    monkeypatch.setattr(remote, "connect", connect)
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
