from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from boxmatch import Schema
from boxmatch.broker.access import Keys
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.recipients import Recipients
from command_line import Command

_BATCHES = 30
_EVENTS = 100


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a broker leaves behind: 3,000 events, a subscriber who has read a third, a key."""

    def fill(transaction: StoreTransaction) -> None:
        feed = transaction.put_feed(FeedSpec(name="ticks", spaces={"ticks": Schema({"x": "int"})}))
        subscriber = transaction.put_subscriber("bob")
        transaction.put_subscription(subscriber, "all", feed, b'{"feed": "ticks"}', 1.0)
        for number in range(_BATCHES):
            bodies = [b'{"x": %d}' % (number * _EVENTS + place) for place in range(_EVENTS)]
            inbox = {subscriber: [(place, ["all"]) for place in range(_EVENTS)]}
            transaction.append(feed, 1.0, bodies, Recipients.of(inbox))

    with Store.open(tmp_path) as store:
        store.write(fill).result()
        [subscriber] = store.reader.subscribers()
        store.write(lambda transaction: transaction.move_cursor(subscriber.number, 1000)).result()
    with Keys.open(tmp_path) as keys:
        keys.create("x", admin=True)
        gone, _ = keys.create("y", admin=True)
        keys.revoke(gone.id)
    return tmp_path


def test_all_is_well(run_boxmatch: Command, data: Path) -> None:
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 0
    assert done.err == ""
    assert "feed ticks: 3,000 events, 1 subscriptions" in done.out
    assert (
        "1 subscribers with 2,000 notifications waiting, 1 keys, sequence numbers 1 to 3,000"
        in done.out
    )
    assert done.out.endswith("No damage found.\n")


def test_json(run_boxmatch: Command, data: Path) -> None:
    done = run_boxmatch("admin", "check", "--data", str(data), "--json")
    found = json.loads(done.out)
    assert found.pop("nbytes").keys() == {"broker.sqlite", "keys.sqlite"}
    assert found == {
        "problems": [],
        "feeds": [
            {
                "name": "ticks",
                "kind": "events",
                "events": 3000,
                "subscriptions": 1,
                "publications": 0,
            }
        ],
        "subscribers": 1,
        "waiting": 2000,
        "first_sequence": 1,
        "next_sequence": 3001,
        "keys": 1,
    }


def test_a_broker_that_runs_is_left_alone(run_boxmatch: Command, data: Path) -> None:
    with Store.open(data):
        done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 2
    assert "is running: stop it first" in done.err
    assert run_boxmatch("admin", "check", "--data", str(data)).code == 0


def test_no_broker_there(run_boxmatch: Command, tmp_path: Path) -> None:
    done = run_boxmatch("admin", "check", "--data", str(tmp_path / "typo"))
    assert done.code == 2
    assert "holds no broker" in done.err
    assert not (tmp_path / "typo").exists()


def test_of_a_new_broker(run_boxmatch: Command, tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    assert "an empty log" in run_boxmatch("admin", "check", "--data", str(tmp_path)).out


def test_without_keys(run_boxmatch: Command, data: Path) -> None:
    (data / "keys.sqlite").unlink()
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 0
    assert " 0 keys," in done.out
    assert not (data / "keys.sqlite").exists()


def test_a_batch_that_is_not_as_it_was_written(run_boxmatch: Command, data: Path) -> None:
    with closing(sqlite3.connect(data / "broker.sqlite")) as connection:
        connection.execute("UPDATE batch SET payload = zeroblob(length(payload)) WHERE first = 101")
        connection.commit()
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 1
    assert "feed ticks: 2,900 events" in done.out
    assert "damaged: broker.sqlite: batch 101 is damaged" in done.err
    assert "No damage found" not in done.out


def test_reports_that_make_no_sense(run_boxmatch: Command, data: Path) -> None:
    path = data / "broker.sqlite"
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = b"\xa5" * 20_000
    path.write_bytes(content)
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 1
    assert "damaged: broker.sqlite" in done.err
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["broker.sqlite", "keys.sqlite"])
def test_files_that_are_no_databases(run_boxmatch: Command, data: Path, name: str) -> None:
    (data / name).write_bytes(b"something else" * 1000)
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 1
    assert f"damaged: {name}" in done.err


def test_keys_of_another_format(run_boxmatch: Command, data: Path) -> None:
    with closing(sqlite3.connect(data / "keys.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 9")
    done = run_boxmatch("admin", "check", "--data", str(data))
    assert done.code == 1
    assert "has format 9" in done.err
