"""The short way of an event that is alone: matched without a batch, committed by the thread that
matched it, answered by one write, and nothing left behind.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from small_server import Application
from test_broker_core import events, running, ticks, wanted
from uvicorn.protocols.utils import ClientDisconnected
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN

from boxmatch.broker.feeds.event_feed import EventFeed, compile_wanted
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.server.middleware import Middleware
from boxmatch.broker.server.protocols import QuietSocketProtocol, TimeoutProtocol
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.recipients import Recipients
from boxmatch.broker.subscribers.subscribers import Subscriber, Subscription
from boxmatch.errors import BoxmatchError, StorageError

# --- Matching ------------------------------------------------------------------------------------


def feed_of(filters: list[str], **options: Any) -> EventFeed:
    """A feed with these filters, every third of which wants to be exact."""
    feed = EventFeed(ticks(**options), 1)
    for number, text in enumerate(filters):
        one = wanted(text)
        one = type(one)(feed="ticks", filter=text, exact=number % 3 == 0)
        new = Subscription(Subscriber(1, "ann"), f"s{number}", one, 0.0, 0.0)
        feed.put([new], [None], [compile_wanted(feed.spec, one)], feed.spec.schema)
    return feed


@pytest.mark.parametrize("index", ["tile", "rein", "ada-rein"])
def test_an_event_alone_has_the_matches_that_it_has_among_others(index: str) -> None:
    rng = np.random.default_rng(5)
    names = ["IBM", "SAP", "KO"]
    filters = [
        f"price > {rng.integers(100)} AND (symbol = '{names[place % 3]}' OR volume < {place})"
        for place in range(60)
    ]
    filters += ["symbol LIKE '%A%'", "price > 20 OR volume > 20", "price IS NULL"]
    feed = feed_of(filters, index=index)
    rows: list[dict[str, Any]] = [
        {"symbol": names[rng.integers(3)], "price": float(rng.integers(120)), "volume": place}
        for place in range(80)
    ]
    rows += [{}, {"volume": 3}]
    together = feed.match(rows)
    found = 0
    for place, row in enumerate(rows):
        alone = feed.match([row])
        expected = together.slots[together.event == place]
        assert sorted(alone.slots.tolist()) == sorted(expected.tolist())
        assert alone.counts.tolist() == [len(expected)]
        assert alone.event.tolist() == [0] * len(expected)
        assert alone.slots.dtype == together.slots.dtype
        found += len(expected)
    assert found > 500


def test_an_event_alone_is_refused_as_among_others() -> None:
    feed = feed_of(["price > 1"])
    good, bad = {"price": 2.0}, {"price": "dear"}
    said = []
    for rows in ([bad], [bad, good]):
        with pytest.raises(BoxmatchError) as refused:
            feed.match(rows)
        said.append((str(refused.value), getattr(refused.value, "row", None)))
    assert said[0] == said[1]
    assert said[0][1] == 0


# --- Committing ----------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", pace=0.0) as opened:
        yield opened


class Writes:
    """Changes that put subscribers, who committed them, and in which order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.order: list[str] = []
        self.results: dict[str, object] = {}
        self.threads: dict[str, str] = {}

    def enqueue(
        self, name: str, *, here: bool, before: Callable[[], object] = lambda: None
    ) -> None:
        def change(transaction: StoreTransaction) -> int:
            before()
            self.order.append(name)
            return transaction.put_subscriber(name)

        def done(result: object) -> None:
            self.results[name] = result
            self.threads[name] = threading.current_thread().name

        self._store.enqueue(change, done, here=here)

    def stored(self) -> list[str]:
        """Those that are on disk once all that was queued is."""
        self._store.write(lambda transaction: None).result(30)
        return [row.name for row in self._store.reader.subscribers()]


def idle(store: Store) -> None:
    """Return once the writer thread waits for changes."""
    store.write(lambda transaction: None).result(30)
    while store._writer._awaited != 1:
        pass


def test_a_lone_change_is_committed_by_who_brings_it(store: Store) -> None:
    writes = Writes(store)
    here = threading.current_thread().name
    for name in ("a", "b"):
        idle(store)
        writes.enqueue(name, here=True)
        assert writes.threads[name] == here
    writes.enqueue("c", here=False)
    assert writes.stored() == ["a", "b", "c"]
    assert writes.threads["c"] != here


def test_a_change_that_is_not_alone_waits_for_its_turn(store: Store) -> None:
    writes = Writes(store)
    begun, release = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert release.wait(30)

    writes.enqueue("first", here=False, before=hold)
    assert begun.wait(30)
    writes.enqueue("second", here=True)  # returns, though the first is not done
    assert not writes.threads
    release.set()
    assert writes.stored() == writes.order == ["first", "second"]
    assert threading.current_thread().name not in writes.threads.values()


def test_what_comes_during_a_commit_elsewhere_comes_after_it(store: Store) -> None:
    writes = Writes(store)
    begun, release = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert release.wait(30)

    idle(store)
    caller = threading.Thread(
        target=writes.enqueue, args=["first"], kwargs={"here": True, "before": hold}, name="caller"
    )
    caller.start()
    assert begun.wait(30)
    for number, here in enumerate((True, False, True)):
        writes.enqueue(f"later {number}", here=here)
    assert not writes.threads
    release.set()
    caller.join(30)
    assert writes.stored() == writes.order == ["first", "later 0", "later 1", "later 2"]
    assert writes.threads["first"] == "caller"


def test_a_lone_change_that_raises_has_done_nothing(store: Store) -> None:
    writes = Writes(store)

    def fail() -> None:
        raise ValueError("no")

    idle(store)
    writes.enqueue("bad", here=True, before=fail)
    assert isinstance(writes.results["bad"], ValueError)
    writes.enqueue("good", here=True)
    assert writes.stored() == ["good"]


def test_a_change_that_ends_its_thread_elsewhere_ends_the_writer(store: Store) -> None:
    writes = Writes(store)

    def leave() -> None:
        raise SystemExit

    idle(store)
    writes.enqueue("last", here=True, before=leave)
    assert isinstance(writes.results["last"], StorageError)
    store._writer._thread.join(30)
    assert not store.is_alive
    with pytest.raises(StorageError):
        writes.enqueue("too late", here=True)


def test_many_threads_write_at_once_and_all_of_it_is_stored(store: Store) -> None:
    writes = Writes(store)
    count, each = 4, 50

    def write(number: int) -> None:
        for turn in range(each):
            writes.enqueue(f"{number}-{turn:02}", here=(number + turn) % 3 != 0)

    threads = [threading.Thread(target=write, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(writes.stored()) == sorted(writes.order)
    assert len(writes.order) == len(writes.results) == count * each
    for number in range(count):
        mine = [name for name in writes.order if name.startswith(f"{number}-")]
        assert mine == sorted(mine)


def test_publishers_that_are_alone_and_that_are_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price >= 0"))
            numbers = []
            for turn in range(20):
                rows = [events({"price": float(turn)}) for _ in range(1 + turn % 3)]
                receipts = await asyncio.gather(
                    *(broker.pipeline.publish("ticks", one) for one in rows)
                )
                numbers += [receipt.first for receipt in receipts]
            assert numbers == list(range(1, len(numbers) + 1))
            page = await broker.notifications.poll("ann", after=0, limit=100)
            assert [one.sequence for one in page] == numbers

    asyncio.run(asyncio.wait_for(main(), 60))


def test_rows_that_are_read_go_before_the_others_are_put_together(store: Store) -> None:
    from boxmatch.broker.feeds.spec import FeedSpec
    from boxmatch.model.schema import Schema

    spec = FeedSpec(name="f", spaces={"f": Schema({"price": "float"})})
    feed, ann, bob = store.write(
        lambda t: (t.put_feed(spec), t.put_subscriber("ann"), t.put_subscriber("bob"))
    ).result(30)
    for number in range(10):
        who = Recipients.of({ann: [(0, ["a"])], bob: [(0, ["b"])] if number == 2 else []})
        store.write(lambda t, who=who: t.append(feed, 0.0, [b"{}"], who)).result(30)
    store.write(lambda t: t.move_cursor(ann, 6)).result(30)
    store.remove_read()
    assert store.reader.sizes().inbox_rows == 5  # 3, which bob has not read, and 7 to 10
    assert store.reader.backlogs() == {ann: 4, bob: 1}
    assert [one.sequence for one in store.reader.inbox(bob, 0, 9)] == [3]


# --- Answering -----------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A client that notes what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connect(app: Any) -> tuple[TimeoutProtocol, Wire]:
    """A connection to an application, with the middleware that the server has."""
    config = uvicorn.Config(app, http=TimeoutProtocol, lifespan="off", log_config=None)
    config.load()
    protocol, wire = TimeoutProtocol(config, uvicorn.server.ServerState(), {}), Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def exchange(app: Any, *requests: bytes) -> tuple[list[bytes], bool]:
    """What is written, and whether the connection was closed then."""
    protocol, wire = connect(app)
    for request in requests:
        protocol.data_received(request)
        while protocol.cycle is not None and not protocol.cycle.response_complete:
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    return wire.writes, wire.closed


HEAD = b" /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"


@pytest.mark.parametrize(
    ("request_", "writes"),
    [
        (b"POST" + HEAD + b"\r\nhello", 1),
        (b"POST" + HEAD + b"connection: close\r\n\r\nhello", 2),
        (b"POST" + HEAD.replace(b"1.1", b"1.0") + b"\r\nhello", 2),
        (b"HEAD" + HEAD + b"\r\nhello", 2),
        (b"GET /early HTTP/1.1\r\nhost: x\r\n\r\n", 1),
        (b"GET /broken HTTP/1.1\r\nhost: x\r\n\r\n", 2),
    ],
    ids=["POST", "to be closed", "1.0", "HEAD", "early", "broken"],
)
def test_a_response_is_what_uvicorn_writes_in_one_piece(request_: bytes, writes: int) -> None:
    async def main() -> None:
        plain, closes = await exchange(Application(), request_, request_)
        ours, closed = await exchange(Middleware(Application(), Metrics()), request_, request_)
        assert b"".join(ours) == b"".join(plain)
        assert closed == closes
        assert len(ours) == (2 * writes if writes == 1 else len(plain))

    asyncio.run(main())


def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    """A collection stops all threads for milliseconds."""

    async def main() -> None:
        protocol, wire = connect(Middleware(Application(), Metrics()))
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                protocol.data_received(b"POST" + HEAD + b"\r\nhello")
                while not protocol.cycle.response_complete:
                    await asyncio.sleep(0)
            assert gc.collect() < 100
        finally:
            gc.enable()
        assert len(wire.writes) == 100
        protocol.connection_lost(None)

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_a_message_over_a_socket_is_one_frame_of_text(size: int) -> None:
    async def main() -> None:
        socket = object.__new__(QuietSocketProtocol)
        socket.writable = asyncio.Event()
        socket.writable.set()
        socket.transport = Wire()
        socket.close_sent = socket.disconnected = False
        socket.conn = type("Connection", (), {"state": OPEN})()
        text = b"x" * size
        await socket.write_text(text)
        assert socket.transport.writes == [Frame(Opcode.TEXT, text).serialize(mask=False)]
        socket.conn.state = CLOSED
        with pytest.raises(ClientDisconnected):
            await socket.write_text(text)

    asyncio.run(main())
