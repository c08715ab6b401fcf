"""What one feed of a broker notices of work on another, and how long a start takes.

A process publishes single events to a quiet feed, one after another, while something is done to a
busy one; the longest it waits for an answer is what the other's work costs.
"""

from __future__ import annotations

import http.client
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from boxmatch.broker.feeds.index_files import FOLDER
from boxmatch_bench.answers import FailedError
from boxmatch_bench.broker.processes import Server, Tell
from boxmatch_bench.options import BrokerOptions, IsolationOptions
from boxmatch_bench.timing import Figures, spread_ms

_SCHEMA: Final = {"symbol": "string", "price": "float", "volume": "int", "title": "string"}
_PAUSE: Final = 0.003
_AROUND: Final = 0.5
"""Seconds of publishing before the work begins, and after it has ended."""
_PUT: Final = 2_000
_LARGE: Final = 10
"""Requests with events that the feed has which is dropped, and that nobody reads."""

Work = Callable[[], object]


def measure(options: IsolationOptions, folder: Path, tell: Tell) -> Iterator[Figures]:
    """A row for each kind of work, then one for each kind of start."""
    head = {"bench": "isolation", "options": asdict(options)}
    data, broker = folder / "data", BrokerOptions(sync=options.sync)
    with Server(data, broker) as server, closing(_Api(server.port)) as api:
        tell("loading")
        _prepare(api, options)
        for name, work in _cases(api, options).items():
            if options.only in name:
                tell(name)
                seconds, waits = _beside(server.port, work)
                answers = spread_ms(waits)
                yield head | {
                    "case": name, "seconds": seconds, "requests": len(waits), "answer_ms": answers
                }  # fmt: skip
    for name in ("start with the files of indexes", "start without them"):
        if options.only in name:
            tell(name)
            if name == "start without them":
                shutil.rmtree(data / FOLDER, ignore_errors=True)
            began = time.perf_counter()
            with Server(data, broker) as server:
                seconds = time.perf_counter() - began
                subscriptions = orjson.loads(server.ask("/feeds/busy"))["subscriptions"]
            yield head | {"case": name, "seconds": seconds, "subscriptions": subscriptions}


class _Api:
    """Requests, one after another, that must succeed."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def close(self) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, value: Any = None) -> bytes:
        body = value if isinstance(value, bytes) else orjson.dumps(value)
        self._connection.request(method, path, body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise FailedError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return text


def _prepare(api: _Api, options: IsolationOptions) -> None:
    for name in ("quiet", "busy", "slow", "large"):
        api("POST", "/feeds", {"name": name, "schema": _SCHEMA})
    api("PUT", "/subscribers/quiet/subscriptions/a", {"feed": "quiet", "filter": "price < 30"})
    slow = {f"r{n}": f"title RLIKE 'a.*{n}.*b{n % 7}'" for n in range(300)}
    api("POST", "/subscribers/slow/subscriptions", {"feed": "slow", "filters": slow})
    for first in range(0, options.subscriptions, _PUT):
        many = range(first, min(first + _PUT, options.subscriptions))
        filters = {f"m{n}": _filter_of_many_boxes(n) for n in many}
        api("POST", "/subscribers/busy/subscriptions", {"feed": "busy", "filters": filters})
        filters = {f"l{n}": f"symbol = 'S{n % 100}' AND volume >= {n}" for n in many}
        path = f"/subscribers/large{first}/subscriptions"
        api("POST", path, {"feed": "large", "filters": filters})
    ticks = _ticks(options.events)
    for _ in range(_LARGE):
        api("POST", "/feeds/large/events", ticks)


def _ticks(count: int) -> bytes:
    return orjson.dumps(
        [{"symbol": f"S{n % 100}", "price": n % 50 + 0.5, "volume": n} for n in range(count)]
    )


def _filter_of_many_boxes(n: int) -> str:
    prices = ", ".join(str(n % 97 + 3 * i) for i in range(12))
    volumes = ", ".join(str(7 * i + n % 13) for i in range(6))
    return f"price IN ({prices}) AND volume NOT IN ({volumes})"


def _cases(api: _Api, options: IsolationOptions) -> dict[str, Work]:
    """Work on the feeds that are not quiet."""
    count, half = options.events, options.subscriptions // 2
    filters = {
        f"b{n}": f"symbol = 'S{n % 500}' AND price < {n} AND volume BETWEEN {n % 50} AND {n}"
        for n in range(half)
    }
    bulk = orjson.dumps({"feed": "busy", "filters": filters})
    ticks = _ticks(count)
    texts = orjson.dumps([{"title": "a" * 50 + str(n) + "b3" * 20} for n in range(count // 2)])
    question = {"filter": "price < 10 OR title RLIKE 'a.*b'", "recent": 50}
    return {
        "nothing": lambda: time.sleep(options.seconds),
        "extend the schema": lambda: api(
            "PATCH", "/feeds/busy", {"attributes": {"venue": "string"}}
        ),
        "subscribe many": lambda: api("POST", "/subscribers/b/subscriptions", bulk),
        "replace many": lambda: api("POST", "/subscribers/b/subscriptions", bulk),
        "publish many": lambda: api("POST", "/feeds/busy/events", ticks),
        "slow filters": lambda: api("POST", "/feeds/slow/events", texts),
        "dry run": lambda: api("POST", "/feeds/busy/dry-run", question),
        "trace": lambda: api("POST", "/feeds/busy/trace", {"event": {"price": 3.0}, "limit": 50}),
        "read the log": lambda: api("GET", "/feeds/busy/events?limit=10000"),
        "list subscriptions": lambda: api("GET", "/subscribers/b/subscriptions?limit=1000"),
        "drop a feed": lambda: api("DELETE", "/feeds/slow"),
        "drop a large feed": lambda: api("DELETE", "/feeds/large"),
    }


def _beside(port: int, work: Work) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]]:
    """How long some work takes, and what each request of the quiet feed waits meanwhile."""
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=_publish, args=(port, other), daemon=True)
    process.start()
    try:
        mine.recv()  # it publishes
        time.sleep(_AROUND)
        began = time.time()
        work()
        seconds = time.time() - began
        time.sleep(_AROUND)
        mine.send(None)
        sent, waits = mine.recv()
    finally:
        process.join(10.0)
        process.kill()
        mine.close()
        other.close()
    return seconds, waits[sent + waits >= began]


def _publish(port: int, pipe: Connection) -> None:
    """Of the other process: publish until told to stop."""
    sent, waits = [], []
    event = orjson.dumps({"price": 5.0, "symbol": "A"})
    with closing(_Api(port)) as api:
        while not pipe.poll():
            sent.append(time.time())
            began = time.perf_counter()
            api("POST", "/feeds/quiet/events", event)
            waits.append(time.perf_counter() - began)
            if len(waits) == 1:
                pipe.send(None)
            time.sleep(_PAUSE)
    pipe.recv()
    pipe.send((np.array(sent), np.array(waits)))
