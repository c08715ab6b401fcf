"""Three servers, and workers as processes, that can be killed, suspended and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boxmatch.nats.local import find_server


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Process:
    """A program that is started again as it was."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._process: subprocess.Popen[Any] | None = None
        self.suspended = False

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def suspend(self) -> None:
        self._send(signal.SIGSTOP)
        self.suspended = True

    def resume(self) -> None:
        self._send(signal.SIGCONT)
        self.suspended = False

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)


class Cluster:
    """Three servers with JetStream, and so many workers. As a context manager all are ended."""

    def __init__(self, folder: Path, workers: int, route: str) -> None:
        ports = free_ports(6)
        clients, routes = ports[:3], ports[3:]
        self.urls = [f"nats://127.0.0.1:{port}" for port in clients]
        peers = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.servers = []
        for number, (port, inner) in enumerate(zip(clients, routes, strict=True)):
            config = folder / f"server{number}.conf"
            config.write_text(
                f'server_name: s{number}\nlisten: "127.0.0.1:{port}"\n'
                f'jetstream {{ store_dir: "{folder}/data{number}" }}\n'
                f'cluster {{ name: c, listen: "127.0.0.1:{inner}", routes: [{peers}] }}\n'
            )
            command = [find_server(), "-c", str(config)]
            self.servers.append(Process(f"server {number}", command, folder / f"s{number}.log"))
        command = [sys.executable, "-m", "boxmatch", "route", "run", "--route", route]
        command += [word for url in self.urls for word in ("--server", url)]
        self.workers = [
            Process(f"worker {number}", command, folder / f"w{number}.log")
            for number in range(workers)
        ]

    def __enter__(self) -> Cluster:
        for one in self.servers:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self.workers, *self.servers):
            one.resume()
            one.kill()

    def wait_listening(self, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        for url in self.urls:
            port = int(url.rpartition(":")[2])
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1.0).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
