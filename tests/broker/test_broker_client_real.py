"""Both clients and the commands against a real broker in a process of its own."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from broker_server import RunningBroker

import boxmatch.client
from boxmatch import Interval
from boxmatch.client import AsyncClient, Client
from boxmatch.errors import ClientError
from command_line import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("client") / "data") as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.url, retry_seconds=20) as one:
        yield one


def test_from_publishing_to_listening(client: Client) -> None:
    made = client.create_feed("ticks", {"symbol": "string", "price": "float"})
    assert made == client.feed("ticks")
    client.subscribe("ann", "cheap", "ticks", "price < 10")
    client.subscribe("ann", "ibm", "ticks", {"symbol": "IBM"})
    receipt = client.publish("ticks", [{"symbol": "IBM", "price": p} for p in (5.0, 20.0)])
    again = client.publish("ticks", {"symbol": "X", "price": 3.0}, key="once")
    repeated = client.publish("ticks", {"symbol": "X", "price": 3.0}, key="once")
    assert (repeated.first, repeated.repeated, again.repeated) == (again.first, True, False)
    client.publish("ticks", pa.table({"symbol": ["X"], "price": [30.0]}))
    client.publish("ticks", pd.DataFrame({"symbol": ["X", "Y"], "price": [float("nan"), 1.0]}))
    with client.listen("ann", idle=5) as notifications:
        found = [next(notifications) for _ in range(4)]
    assert [(n.subscriptions, n.event and n.event["price"]) for n in found] == [
        (("cheap", "ibm"), 5.0),
        (("ibm",), 20.0),
        (("cheap",), 3.0),
        (("cheap",), 1.0),
    ]
    assert found[0].sequence == receipt.first
    # Leaving the block has acknowledged all of them.
    assert client.notifications("ann", wait=0.1).notifications == []
    assert client.subscriber("ann").cursor == found[-1].sequence
    assert [one.id for one in client.subscriptions("ann")] == ["cheap", "ibm"]
    log = client.events("ticks", after=0)
    assert len(log.events) == 6
    client.unsubscribe("ann", "ibm")
    with pytest.raises(ClientError) as caught:
        client.subscription("ann", "ibm")
    assert caught.value.status == 404


def test_decimals(client: Client) -> None:
    """As numbers, as text and from Python: told apart, stored and delivered by all digits."""
    long = "0.3000000000000000001"
    client.create_feed("sums", {"amount": "decimal(10, 2)", "total": "decimal(38, 19)"})
    assert client.feed("sums").schema["total"].type_name == "decimal(38, 19)"
    client.subscribe("bea", "small", "sums", "amount < 0.305 AND total >= 0")
    client.subscribe("bea", "exact", "sums", {"total": long})
    client.publish("sums", {"amount": 0.3, "total": 0.3})
    client.publish("sums", {"amount": "0.31", "total": long})
    client.publish("sums", {"amount": Decimal("0.30"), "total": Decimal(long)})
    client.publish("sums", pa.table({"amount": [Decimal("0.31")], "total": [Decimal(long)]}))
    found = client.notifications("bea", wait=5).notifications
    assert [(one.subscriptions, one.event) for one in found] == [
        (("small",), {"amount": 0.3, "total": 0.3}),
        (("exact",), {"amount": "0.31", "total": long}),
        (("small", "exact"), {"amount": 0.3, "total": long}),
        (("exact",), {"amount": 0.31, "total": long}),
    ]
    with pytest.raises(ClientError, match="has more than the 2 decimal places of a decimal"):
        client.publish("sums", {"amount": 0.301})


def test_asking_about_filters(client: Client) -> None:
    client.create_feed("asked", {"price": "float"})
    client.publish("asked", [{"price": float(p)} for p in range(10)])
    assert client.dry_run("asked", "price < 3").matches == 3
    why = client.explain("asked", event={"price": 5.0}, filter="price < 3")
    assert not why
    assert "✗" in str(why)
    with pytest.raises(ClientError) as caught:
        client.subscribe("bob", "bad", "asked", "price <")
    assert caught.value.status == 422
    assert "position" in caught.value.problem
    with pytest.raises(ClientError) as caught:
        client.publish("asked", [{"price": 1.0}, {"price": "high"}])
    assert caught.value.problem["index"] == 1
    client.extend_feed("asked", {"size": "int"})
    assert "size" in client.feed("asked").schema
    client.drop_feed("asked")
    assert "asked" not in [feed.name for feed in client.feeds()]


def test_an_event_that_is_too_large(client: Client) -> None:
    client.create_feed("large", {"text": "string"})
    with pytest.raises(ClientError) as caught:
        client.publish("large", {"text": "x" * (17 << 20)})
    assert caught.value.status == 413


def test_state(client: Client) -> None:
    client.create_feed("cars", spaces={"road": {"x": "float", "y": "float"}})
    client.subscribe("watch", "centre", "cars", regions={"road": {"x": (0, 10), "y": (0, 10)}})
    client.put_publication("cars", "c1", {"road": {"x": 5.0, "y": Interval(1.0, 2.0)}})
    client.patch_publication("cars", "c1", {"road": {"x": 50.0}})
    assert client.publication("cars", "c1").id == "c1"
    client.retract("cars", "c1")
    page = client.notifications("watch", wait=5)
    assert [notification.body["kind"] for notification in page.notifications] == ["enter", "leave"]
    assert client.acknowledge("watch", page.next) == page.next


def test_a_listener_outlives_the_broker(broker: RunningBroker, client: Client) -> None:
    """Killed and started again under publisher and listener: each notification comes once, in
    order.
    """
    broker.options = ["--port", str(broker.port)]  # the last one given counts
    found: list[int] = []
    client.create_feed("kept", {"n": "int"})
    client.subscribe("kim", "all", "kept", "n >= 0")

    def follow() -> None:
        with client.listen("kim", window=7) as notifications:
            for notification in notifications:
                found.append(notification.body["n"])
                if notification.body["n"] == 39:
                    break

    thread = threading.Thread(target=follow)
    thread.start()
    client.publish("kept", [{"n": n} for n in range(20)], batch=6)
    broker.kill()
    later = [{"n": n} for n in range(20, 40)]
    publisher = threading.Thread(target=client.publish, args=("kept", later))
    publisher.start()  # while nobody is there
    broker.start()
    for one in (publisher, thread):
        one.join(20)
        assert not one.is_alive()
    assert found == list(range(40))
    assert client.notifications("kim").notifications == []


def test_async(broker: RunningBroker) -> None:
    async def run() -> list[int]:
        async with AsyncClient(broker.url) as client:
            await client.create_feed("numbers", {"n": "int"})
            await client.subscribe("eve", "even", "numbers", "n IN (0, 2, 4)")
            publishing = asyncio.create_task(
                client.publish("numbers", [{"n": n} for n in range(6)])
            )
            found = []
            async with client.listen("eve", idle=5) as notifications:
                async for notification in notifications:
                    found.append(notification.body["n"])
                    if len(found) == 3:
                        break
            await publishing
            assert (await client.subscriber("eve")).cursor == notification.sequence
            return found

    assert asyncio.run(run()) == [0, 2, 4]


def test_the_commands(
    broker: RunningBroker,
    client: Client,
    run_boxmatch: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOXMATCH_URL", broker.url)
    attributes = {"symbol": "string", "price": "float", "at": "timestamp", "side": ["buy", "sell"]}
    client.create_feed("files", attributes)
    made = run_boxmatch("subscribe", "joe", "all", "files", "price < 100")
    assert made.code == 0, made.err
    assert made.out == "Subscribed joe/all to files: price < 100\n"

    lines = '{"symbol":"A","price":1.5}\n\n{"symbol":"B","price":2.5}\n'
    (tmp_path / "a.ndjson").write_text(lines)
    (tmp_path / "b.json").write_text('[{"symbol":"C","price":3.5}]')
    (tmp_path / "c.csv").write_text("symbol,price,at,side\n007,4.5,2024-01-02T03:04Z,buy\nE,,,\n")
    table = pa.table({"symbol": ["F"], "price": [5.5]})
    with pa.ipc.new_stream(str(tmp_path / "d.arrows"), table.schema) as stream:
        stream.write_table(table)
    pyarrow.feather.write_feather(table, str(tmp_path / "e.arrow"))
    pyarrow.parquet.write_table(table, str(tmp_path / "f.parquet"))
    counts = {"a.ndjson": 2, "b.json": 1, "c.csv": 2, "d.arrows": 1, "e.arrow": 1, "f.parquet": 1}
    for name, count in counts.items():
        done = run_boxmatch("publish", "files", str(tmp_path / name), "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["count"] == count

    piped = io.TextIOWrapper(io.BytesIO(b'[{"symbol":"G"}]\n{"symbol":"H"}\n'))
    monkeypatch.setattr(sys, "stdin", piped)
    assert run_boxmatch("publish", "files").out.startswith("2 events, sequence numbers ")

    heard = run_boxmatch("listen", "joe", "--count", "7", "--json")
    notifications = [json.loads(line) for line in heard.out.splitlines()]
    assert [notification["event"]["price"] for notification in notifications] == [
        1.5,
        2.5,
        3.5,
        4.5,
        5.5,
        5.5,
        5.5,
    ]
    assert notifications[3]["event"]["symbol"] == "007"
    assert notifications[3]["event"]["side"] == "buy"
    assert client.notifications("joe").notifications == []

    once = [run_boxmatch("publish", "files", str(tmp_path / "b.json"), "--idempotency-key", "k")
            for _ in range(2)]  # fmt: skip
    assert once[1].out.endswith("(already published under this key)\n")
    heard = run_boxmatch("listen", "joe", "--idle", "0.3")
    assert heard.out.endswith('files  all  {"symbol": "C", "price": 3.5}\n')
    assert heard.err == ""
    done = run_boxmatch("listen", "jo", "--idle", "0.1")
    assert done == (0, "", "boxmatch: subscriber 'jo' has no subscriptions yet\n")
    tried = run_boxmatch("subscribe", "joe", "x", "files", '{"symbol": "C"}', "--dry-run")
    assert tried.out == "Matches 2 of the last 11 events\n"


def test_a_command_without_the_client_says_what_is_missing(
    run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("Client", "blocking"):
        monkeypatch.delattr(boxmatch.client, name, raising=False)
    monkeypatch.delitem(sys.modules, "boxmatch.client.blocking", raising=False)
    done = run_boxmatch("listen", "joe")
    assert done.code == 2
    assert "boxmatch[client]" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["publish", "nowhere", "a.json"], "nowhere"),
        (["publish", "nowhere", "a.unknown"], "--format"),
        (["publish", "nowhere", "missing.json"], "No such file"),
        (["publish", "nowhere", "bad.json"], "not JSON"),
        (["publish", "nowhere", "bad.parquet"], "not parquet"),
        (["subscribe", "joe", "x", "nowhere", "{"], "neither SQL nor JSON"),
        (["subscribe", "joe", "x", "nowhere", "a < 3"], "nowhere"),
        (["listen", "../joe"], "cannot be a name"),
    ],
)
def test_mistakes_on_the_command_line(
    broker: RunningBroker,
    run_boxmatch: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("BOXMATCH_URL", broker.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "bad.json").write_text("{]")
    (tmp_path / "bad.parquet").write_text("{]")
    done = run_boxmatch(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
