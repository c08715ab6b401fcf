"""The two processes of the benchmark, and what the system says about them."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from boxmatch_bench.answers import FailedError
from boxmatch_bench.broker import generator
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting

_START: Final = 120.0
_STOP: Final = 60.0
_POLL: Final = 0.1
_STAGE: Final = re.compile(r"^boxmatch_stage_seconds_(count|sum)\{([^}]*)\} (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r'stage="(\w+)"')

Progress = Callable[[float, float], None]
"""Done, of how much."""


class Usage(NamedTuple):
    """What a process has used so far, and holds."""

    cpu: float
    """Seconds, of all its threads."""
    resident: int
    private: int
    """Of it not files (RssAnon): heap, stacks, arrays."""
    written: int
    """Bytes handed to the disk since it started."""


def usage(process: int) -> Usage | None:
    """None where the system does not tell simply, or the process has gone."""
    folder = Path("/proc") / str(process)
    try:
        # The name, in parentheses, may have anything in it.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if line
        )
        io = dict(line.split(":", 1) for line in (folder / "io").read_text().splitlines())
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return Usage(
        (int(fields[11]) + int(fields[12])) / ticks,
        1024 * int(status["VmRSS"].split()[0]),
        1024 * int(status["RssAnon"].split()[0]),
        int(io["write_bytes"]),
    )


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """The end of what it has written."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def ask(self, path: str) -> str:
        """What it answers to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def stages(self) -> dict[str, tuple[float, float]]:
        """How often and how long each stage of an event's way took, since the start."""
        found: dict[str, list[float]] = {}
        for kind, labels, value in _STAGE.findall(self.ask("/metrics")):
            name = _LABEL.search(labels)
            if name is not None:  # of all feeds together
                place = 0 if kind == "count" else 1
                found.setdefault(name[1], [0.0, 0.0])[place] += float(value)
        return {name: (count, total) for name, (count, total) in found.items()}


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """Have a command carried out; `meanwhile` is called now and then."""
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
