"""The server and the load generator as processes, and a session that drives both."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np

import boxmatch.broker.server.process  # noqa: F401 - what is missing is noticed here, not in Server
from boxmatch_bench.answers import FailedError
from boxmatch_bench.broker import generator
from boxmatch_bench.broker.deliveries import Truth
from boxmatch_bench.broker.watch import Look, Watch
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting, Schedule

_START: Final = 120.0
_STOP: Final = 60.0
_POLL: Final = 0.1

Progress = Callable[[float, float], None]
"""Done, of how much."""


class Server:
    """`boxmatch serve` on a folder, on any free port."""

    def __init__(self, data: Path, options: BrokerOptions) -> None:
        self._data = data
        self._log = data.parent / f"{data.name}.log"
        address = data / "address.json"  # an old one, if the broker was killed
        address.unlink(missing_ok=True)
        command = [sys.executable, "-m", "boxmatch", "serve", "--data", str(data), "--port", "0"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--sync", options.sync],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid
        try:
            self.port = self._wait_for(address)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for(self, address: Path) -> int:
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise FailedError(f"the broker has ended:\n{self.log()}")
            if address.exists():
                return int(json.loads(address.read_text())["port"])
            time.sleep(0.05)
        raise FailedError(f"the broker is not ready after {_START:.0f} s:\n{self.log()}")

    def log(self) -> str:
        """The last lines of its output."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def ask(self, path: str) -> str:
        """The response to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
        return text


class LoadGenerator:
    """The process that makes the load; see `boxmatch_bench.broker.generator`."""

    def __init__(self, port: int, setting: BrokerSetting, options: BrokerOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=generator.main, args=(other, port, setting, options), daemon=True
        )
        # Ctrl-C goes to every process of a terminal: this one is interrupted, and ends the other.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        other.close()
        self.pid = self._process.pid or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._pipe.send(None)
            self._process.join(_STOP if kind is None else 2.0)
        except OSError:  # it has gone already
            pass
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._pipe.close()

    def call(
        self,
        command: str,
        *arguments: object,
        progress: Progress = lambda done, total: None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run a command there and return its result; `meanwhile` is called now and then."""
        self._pipe.send((command, arguments))
        while True:
            if self._pipe.poll(_POLL):
                try:
                    answer = self._pipe.recv()
                except (EOFError, ConnectionResetError):
                    raise FailedError("the load generator has ended") from None
                if answer[0] == "result":
                    return answer[1]
                if answer[0] == "error":
                    raise FailedError(f"{command}: {answer[1]}")
                progress(answer[1], answer[2])
            meanwhile()


class Tell(Protocol):
    """Reports what is going on, and how much of it is done."""

    def __call__(self, name: str, done: float = 0.0, total: float | None = None) -> None: ...


class Session:
    """A broker, its subscribers and publishers, and the matches that it has to deliver."""

    def __init__(
        self, setting: BrokerSetting, options: BrokerOptions, truth: Truth, data: Path, tell: Tell
    ) -> None:
        self._setting, self._options, self._data = setting, options, data
        self.truth, self.tell = truth, tell
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.tell("starting the broker")
        with self._stack as stack:
            self.server = stack.enter_context(Server(self._data, self._options))
            load = LoadGenerator(self.server.port, self._setting, self._options)
            self._generator = stack.enter_context(load)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def load(self) -> float:
        """Put all subscriptions into the broker; returns how long it took."""
        seconds: float = self.call("loading subscriptions", "load")
        return seconds

    def connect(self) -> float:
        """Connect all subscribers; returns how long it took."""
        counts = np.diff(self.truth.start)
        seconds: float = self.call("connecting subscribers", "connect", counts)
        return seconds

    def publish(
        self, name: str, schedule: Schedule, look: Look, every: float = 1.0
    ) -> tuple[dict[str, Any], Watch]:
        """Publish as scheduled; returns what was sent and received, and the samples."""
        watch = Watch(self.server, self._generator.pid, look, every)
        return self.call(name, "publish", schedule, meanwhile=watch.see), watch

    def call(
        self,
        name: str,
        command: str,
        *arguments: object,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run a command of the load generator."""
        self.tell(name)
        return self._generator.call(
            command,
            *arguments,
            progress=lambda done, total: self.tell(name, done, total),
            meanwhile=meanwhile,
        )
