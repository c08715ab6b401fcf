"""What hostile tests share: raw sockets, a look at the memory, and a round that works."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from broker_server import RunningBroker

TRADES = {
    "symbol": "string",
    "price": "float",
    "side": ["buy", "sell"],
    "size": "int",
    "at": "timestamp",
    "ok": "bool",
}
PLACES = {"plane": {"x": "int", "y": "float", "t": "timestamp", "name": "string"}}
ARROW = "application/vnd.apache.arrow.stream"
GROWTH_MIB = 100
"""What a server may have grown by after a module of hostile tests. What is transient does not all
go back to the system, so it is more than what is kept; but one body kept by mistake would show.
"""


def exchange(port: int, *parts: bytes, gap: float = 0.0, seconds: float = 10.0) -> bytes:
    """Send bytes as they are, with pauses between them, and read until the server closes.

    What has come is returned also when the server does not close in time, with `<open>` after it.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
                if gap:
                    connection.settimeout(gap)
                    with contextlib.suppress(TimeoutError):
                        piece = connection.recv(65536)
                        answer += piece
                        if not piece:
                            return answer
        try:
            while True:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                piece = connection.recv(65536)
                if not piece:
                    return answer
                answer += piece
        except TimeoutError:
            return answer + b"<open>"
        except OSError:
            return answer


def status_of(answer: bytes) -> int:
    """The status of a raw answer; 0 if the connection was closed without one."""
    if not answer:
        return 0
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def memory_mib(pid: int) -> float:
    """The resident memory of a process. Skips the test where that cannot be had."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("needs /proc")
    [line] = [one for one in status.read_text().splitlines() if one.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def check_answer(answer: httpx.Response) -> httpx.Response:
    """Every error is a problem, and none of them is the broker's own fault."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        told = answer.json()
        assert told["status"] == answer.status_code
        assert told["title"]
        assert told["detail"]
    return answer


def make_feeds(http: httpx.Client) -> None:
    for name, more in (
        ("trades", {"schema": TRADES}),
        ("loose", {"schema": TRADES, "unknown": "carry"}),
        ("places", {"kind": "state", "spaces": PLACES}),
    ):
        answer = http.post("/feeds", json={"name": name, **more})
        assert answer.status_code in (201, 409), answer.text


def arrow_stream(table: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue().to_pybytes())


def check_round(http: httpx.Client, subscriber: str = "after.all") -> None:
    """The broker is well, and somebody who behaves gets what they want."""
    assert http.get("/healthz").json() == {"status": "ok"}
    make_feeds(http)  # whoever was here may have dropped them
    wanted = {"feed": "trades", "filter": "symbol = 'round'"}
    answer = http.put(f"/subscribers/{subscriber}/subscriptions/round", json=wanted)
    assert answer.status_code == 200, answer.text
    event: dict[str, Any] = {"symbol": "round", "price": 1.5}
    receipt = http.post("/feeds/trades/events", json=event).json()
    stream = arrow_stream(pa.Table.from_pylist([event]))
    again = http.post("/feeds/trades/events", content=stream, headers={"content-type": ARROW})
    told = http.get(f"/subscribers/{subscriber}/notifications", params={"wait": 5}).json()
    assert [(one["sequence"], one["event"]) for one in told["notifications"]] == [
        (receipt["first"], event),
        (again.json()["first"], event),
    ]
    http.post(f"/subscribers/{subscriber}/acknowledge", json={"sequence": told["next"]})


class Siege:
    """What a server was like before hostile tests, to be compared with what it is afterwards.

    The comparison belongs in a test of its own, the last of its module: at the end of a fixture, it
    would pass for a part of whatever test happened to come last.
    """

    def __init__(self, broker: RunningBroker | ImpatientBroker) -> None:
        self._broker = broker
        with httpx.Client(base_url=broker.url, timeout=30) as http:
            check_round(http)
        self._before = memory_mib(broker.pid)

    def check(self) -> None:
        """A round works, memory has not grown, and nothing went wrong inside."""
        with httpx.Client(base_url=self._broker.url, timeout=30) as http:
            check_round(http)
        grown = memory_mib(self._broker.pid) - self._before
        assert grown < GROWTH_MIB, f"{grown:.0f} MiB more than before"
        log = self._broker.log()
        assert "Traceback" not in log, log[-5000:].replace("\\n", "\n")


class ImpatientBroker:
    """A broker that waits for its clients for fractions of a second; see `impatient_server`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._log = data.parent / f"{data.name}.impatient.log"
        self.url = ""

    def __enter__(self) -> ImpatientBroker:
        script = Path(__file__).with_name("impatient_server.py")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(self._data)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env={**os.environ},
            )  # fmt: skip
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        if not self.url:
            self.__exit__()
            raise RuntimeError(self.log())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def log(self) -> str:
        return self._log.read_text(errors="replace")
