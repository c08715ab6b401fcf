"""How many messages workers of a route take, and how long one is on its way.

All of it is on this machine: the server, workers, and whoever publishes. Events wait in the stream
before workers may begin, so that nobody publishes meanwhile, and rates are those of the server's
own clock: notifications by the time between the first and the last that it stored.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import nats
import numpy as np
import orjson
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from boxmatch.engine.matcher import Matcher
from boxmatch.nats.local import LocalServer
from boxmatch.nats.messages import Outgoing, read_notification
from boxmatch.nats.names import Names
from boxmatch.nats.publisher import Publisher
from boxmatch.nats.routes import create_route
from boxmatch.nats.settings import FeedSettings, RouteSettings
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.broker.processes import Tell
from boxmatch_bench.options import RouteOptions
from boxmatch_bench.timing import Figures, spread_ms

_NAMES: Final = Names.of("boxmatch")
_SUBSCRIBERS: Final = 1_000
_READY_SECONDS: Final = 600.0
_SETTLE: Final = 20_000
"""Subscriptions for which compaction after loading gets a second, up to five."""
_TICK: Final = 0.002
_READER: Final = ConsumerConfig(ack_policy=AckPolicy.NONE)


def measure(options: RouteOptions, folder: Path, tell: Tell) -> Iterator[Figures]:
    """A row for each kind of workers, then one for the time that a message is on its way."""
    workload = RangeWorkload(
        subscriptions=options.subscriptions, attributes=20, predicates=5, width=options.width
    )
    head = {"bench": "route", "options": asdict(options)}
    rates: dict[str, float] = {}
    for case, workers in (("forward", 1), ("route", 1), ("route", 2), ("forward", 2)):
        tell(f"{case}, {workers} processes")
        with _Bench(options, workload, folder / f"{case}{workers}", workers) as bench:
            figures = asyncio.run(bench.drain(case))
        rates[f"{case} {workers}"] = figures["events_per_s"]
        share = rates[f"{case} {workers}"] / rates[f"forward {workers}"] if workers == 1 else None
        yield head | {"case": case, "workers": workers, "of_forwarding": share, **figures}
    rate = rates["route 1"] / 2
    tell(f"{rate:,.0f} events a second")
    with _Bench(options, workload, folder / "latency", 1) as bench:
        latency = asyncio.run(bench.pace(rate))
    yield head | {"case": "latency", "workers": 1, **latency}


class _Bench:
    """A server and processes."""

    def __init__(
        self, options: RouteOptions, workload: RangeWorkload, folder: Path, workers: int
    ) -> None:
        self._options = options
        self._workload = workload
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[str]] = []
        self._held = ExitStack()

    def __enter__(self) -> _Bench:
        self._server = self._held.enter_context(LocalServer(self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._processes:
            one.kill()
            one.communicate()
        self._held.close()

    async def drain(self, case: str) -> Figures:
        """Let workers take what waits, and look at what they stored."""
        connection = await nats.connect(self._server.url)
        await self._prepare(connection, subscribe=case == "route")
        js = connection.jetstream()
        until = datetime.now(UTC) + timedelta(hours=1)
        await js.pause_consumer(_NAMES.events, "boxmatch", until.isoformat().replace("+00:00", "Z"))
        bodies = [orjson.dumps(one) for one in self._workload.event_dicts(0, self._options.events)]
        await self._publish(connection, [Outgoing(_NAMES.feed("e"), "", one) for one in bodies])
        for _ in range(self._workers):
            self._processes.append(self._start(case))
        for one in self._processes:
            await asyncio.to_thread(_wait_ready, one)
        if case == "route":
            await self._settle()
        before = self._cpu_seconds()
        await js.resume_consumer(_NAMES.events, "boxmatch")
        await self._drained(connection)
        cpu = self._cpu_seconds() - before
        state = await _stream_state(connection, _NAMES.notifications)
        seconds = _seconds(state["last_ts"]) - _seconds(state["first_ts"])
        if case == "route":
            await self._check(connection)
        await connection.close()
        return {
            "events": len(bodies),
            "notifications": state["messages"],
            "seconds": seconds,
            "events_per_s": len(bodies) / seconds,
            "cpu_us_per_event": cpu / len(bodies) * 1e6,
        }

    async def pace(self, rate: float) -> Figures:
        """Publish at a rate; how long notifications take."""
        connection = await nats.connect(self._server.url)
        await self._prepare(connection, subscribe=True)
        self._processes.append(self._start("route"))
        await asyncio.to_thread(_wait_ready, self._processes[0])
        await self._settle()
        count = round(rate * self._options.seconds)
        bodies = [orjson.dumps(one) for one in self._workload.event_dicts(0, count)]
        subject = _NAMES.feed("e")
        started = time.perf_counter()
        sent = 0
        while sent < count:
            due = min(count, round((time.perf_counter() - started) * rate) + 1)
            for body in bodies[sent:due]:
                await connection.publish(subject, body)
            sent = due
            await asyncio.sleep(_TICK)
        published = time.perf_counter() - started
        await connection.flush()
        await self._drained(connection)
        waits = np.array(await self._waits(connection))
        await connection.close()
        return {
            "events": count,
            "rate": rate,
            "events_per_s": count / published,
            "latency_ms": spread_ms(waits),
        }

    def _start(self, case: str) -> subprocess.Popen[str]:
        batch = str(self._options.batch)
        module = {
            "route": ("boxmatch", "route", "run", "--batch", batch, "--server", self._server.url),
            "forward": ("boxmatch_bench.route.forwarder", self._server.url, batch),
        }
        return subprocess.Popen(
            [sys.executable, "-m", *module[case]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    async def _settle(self) -> None:
        await asyncio.sleep(min(5.0, self._options.subscriptions / _SETTLE))

    async def _prepare(self, connection: Client, *, subscribe: bool) -> None:
        schema: dict[str, Any] = {one.name: one.type_name for one in self._workload.schema}
        settings = RouteSettings(feeds={"e": FeedSettings(schema=schema)})
        await create_route(connection.jetstream(), "boxmatch", settings)
        if not subscribe:
            return
        filters = self._workload.filters(0, self._options.subscriptions)
        await self._publish(
            connection,
            [
                Outgoing(_NAMES.subscription(_subscriber(id), str(id)), "", _stored(filter))
                for id, filter in enumerate(filters)
            ],
        )

    async def _publish(self, connection: Client, messages: list[Outgoing]) -> None:
        publisher = Publisher(connection, lambda reason, error: None)
        await publisher.open()
        done = await publisher.publish(messages)
        await publisher.close()
        if done.refused:
            raise FailedError(f"NATS refuses messages: {done.refused[0][1]}")

    async def _drained(self, connection: Client) -> None:
        js = connection.jetstream()
        while True:
            await asyncio.sleep(0.25)
            if any(one.poll() is not None for one in self._processes):
                raise FailedError("a worker has ended")
            info = await js.consumer_info(_NAMES.events, "boxmatch")
            if not info.num_pending and not info.num_ack_pending:
                return

    async def _check(self, connection: Client) -> None:
        """Whole sets: what was stored is what a scan over all subscriptions finds."""
        matcher = Matcher(self._workload.schema, index="scan")
        count = self._options.subscriptions
        matcher.subscribe_many(
            [{"id": id, "filter": one} for id, one in enumerate(self._workload.filters(0, count))]
        )
        events = self._workload.event_dicts(0, self._options.events)
        result = matcher.match_batch(events)
        wanted = Counter(zip((result.event + 1).tolist(), result.subscription, strict=True))
        got: Counter[Any] = Counter()
        for one in await self._read(connection):
            found = read_notification(one.data)
            got.update((found.sequence, int(id)) for id in found.subscriptions)
        if got != wanted:
            raise MismatchError(f"{len(wanted - got)} matches lack, {len(got - wanted)} are wrong")

    async def _waits(self, connection: Client) -> list[float]:
        """From when an event was stored to when its notification was, in seconds."""
        return [
            one.metadata.timestamp.timestamp() - read_notification(one.data).at
            for one in await self._read(connection)
        ]

    async def _read(self, connection: Client) -> list[Any]:
        js = connection.jetstream()
        state = await _stream_state(connection, _NAMES.notifications)
        pull = await js.pull_subscribe("", stream=_NAMES.notifications, config=_READER)
        found: list[Any] = []
        while len(found) < state["messages"]:
            found += await pull.fetch(1000, timeout=10)
        return found

    def _cpu_seconds(self) -> float:
        """That workers have used."""
        total = 0.0
        for one in self._processes:
            try:
                fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return float("nan")
            total += sum(map(int, fields[11:13])) / 100
        return total


def _wait_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    deadline = time.monotonic() + _READY_SECONDS
    said = []
    while time.monotonic() < deadline and (line := process.stdout.readline()):
        said.append(line)
        if '"event": "ready"' in line or line == "ready\n":
            return
    raise FailedError(f"a worker does not start: {''.join(said)[-1000:]}")


def _subscriber(id: int) -> str:
    return f"s{id % _SUBSCRIBERS}"


def _stored(filter: dict[str, tuple[int, int]]) -> bytes:
    ranges = {name: {"low": low, "high": high} for name, (low, high) in filter.items()}
    return orjson.dumps({"feed": "e", "filter": ranges})


async def _stream_state(connection: Client, stream: str) -> dict[str, Any]:
    answer = await connection.request(f"$JS.API.STREAM.INFO.{stream}", timeout=10)
    state: dict[str, Any] = orjson.loads(answer.data)["state"]
    return state


def _seconds(text: str) -> float:
    """Of a time with nanoseconds, since 1970."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return at + (float(f"0.{fraction}") if fraction else 0.0)
