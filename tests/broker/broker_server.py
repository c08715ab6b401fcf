"""A broker as its users run it: a process of its own, real sockets, any free port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

LOG = "server.log"


class RunningBroker:
    """`boxmatch serve` on a folder. It can be stopped or killed, and started again on the same one.

    As a context manager it is started, and at the end stopped if it is still there. What it wrote
    to stderr and stdout is in `log()`; `options` go to the command line as they are.
    """

    def __init__(
        self,
        data: Path,
        options: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        wait_ready: bool = True,
    ) -> None:
        self.data = data
        self.options = list(options)
        self.environment = dict(environment or {})
        self.wait_ready = wait_ready
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = data.parent / f"{data.name}.{LOG}"
        _known.add(self)

    def start(self, timeout: float = 60.0) -> Self:
        """Returns once the broker is ready. `RuntimeError` with its log: it ended before."""
        address = self.data / "address.json"
        address.unlink(missing_ok=True)  # after a SIGKILL the old one is still there
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "boxmatch", "serve", "--data", str(self.data)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", "0", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
            )
        deadline = time.monotonic() + timeout
        try:
            while not self._is_up(address):
                if self._process.poll() is not None:
                    raise RuntimeError(f"ended with {self._process.returncode}:\n{self.log()}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"not ready after {timeout} s:\n{self.log()}")
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 30.0) -> int:
        """Asks it to end (SIGTERM), waits, and returns its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"still there {timeout} s after SIGTERM:\n{self.log()}") from None
        self._process = None
        return code

    def storm(self, *numbers: signal.Signals) -> int:
        """Sends it these signals again and again until it has ended; its exit code."""
        code = storm(self._running(), *numbers)
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """All that it has written, over all starts."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def cpu_seconds(self) -> float:
        """What it has used of the processors, whatever else runs beside it. Linux tells."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def socket_url(self) -> str:
        """`url` for WebSockets."""
        return "ws" + self.url.removeprefix("http")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _is_up(self, address: Path) -> bool:
        with contextlib.suppress(FileNotFoundError, ValueError):  # not there, or not whole yet
            said = json.loads(address.read_text())
            self.url = said["url"]
            # With TLS, whoever calls has to trust the certificate first.
            return not self.wait_ready or self.url.startswith("https") or self._answers()
        return False

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return False


def storm(process: subprocess.Popen[bytes], *numbers: signal.Signals) -> int:
    """Sends a process signals again and again until it has ended; its exit code."""
    deadline = time.monotonic() + 30
    while process.poll() is None:
        for number in numbers:
            process.send_signal(number)
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.001)
    return process.returncode


_known: weakref.WeakSet[RunningBroker] = weakref.WeakSet()


def show_logs(report: pytest.TestReport) -> None:
    """Beside a failure, the end of what the brokers of this process have written."""
    if not report.failed:
        return
    for broker in _known:
        with contextlib.suppress(OSError):  # never started, or its folder is gone
            report.sections.append((f"log of the broker at {broker.url}", broker.log()[-4000:]))


class Callers:
    """Calls a broker with keys, by the names of those who have them."""

    def __init__(self, broker: RunningBroker, keys: dict[str, str]) -> None:
        self.keys = keys
        self.http = httpx.Client(base_url=broker.url, timeout=30)

    def call(self, role: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[role]}"}
        return self.http.request(method, path, json=body, headers=headers)
