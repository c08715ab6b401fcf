"""The server process: what is started and stopped in which order, and signals.

Starting: keys, certificate, port and the database are looked at first, since that is quick; then
the server listens, and while the data are read everybody but probes is asked to come again.
Stopping: no new connections, WebSockets are closed (1012, "service restart"), reads are ended,
writes are finished, and then the broker writes what is queued. A signal while the data are read
ends the process as it ends any other, since nothing was taken in yet; from then on it stops in this
order, however many come.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from boxmatch import __version__
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.server.middleware import Middleware
from boxmatch.broker.server.protocols import QuietSocketProtocol, TimeoutProtocol, Timeouts
from boxmatch.broker.server.sockets import (
    ADDRESS,
    Listening,
    bind,
    draft_address,
    listening_error,
    load_certificate,
    publish_address,
    raise_file_limit,
    tls_context,
)
from boxmatch.errors import BrokerError
from boxmatch.logs import LogSettings, configure_logs
from boxmatch.storage.folders import write_problem

if TYPE_CHECKING:
    from boxmatch.broker.access import Keys
    from boxmatch.broker.broker import Broker
    from boxmatch.broker.settings import Settings

_SWITCH = 0.0005
"""Seconds after which a thread that computes in Python lets another one go on. An event passes
through three threads several times; with Python's 5 ms it would wait each time for one that is busy
with something else.
"""
_STOPS = (signal.SIGINT, signal.SIGTERM)
_RENEWALS = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # there is none on Windows


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What concerns the process, not the broker in it."""

    logs: LogSettings = field(default_factory=LogSettings)
    timeouts: Timeouts = field(default_factory=Timeouts)
    connections: int = 10_000
    """At most so many at a time; fewer if the system allows fewer open files."""
    ping_seconds: float = 20.0
    """How often a WebSocket is asked whether somebody is there, and how long it may take."""
    socket_message_bytes: int = 64 * 1024
    """Of what a subscriber sends: acknowledgements."""


def run(
    settings: Settings,
    *,
    options: ServerOptions | None = None,
    on_listening: Callable[[Listening], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `BoxmatchError`: why it cannot be started.

    Afterwards these signals are ignored, as the process is about to end.
    """
    from boxmatch.broker.access import Keys, check_exposure
    from boxmatch.broker.broker import Broker
    from boxmatch.broker.store import Store

    options = options or ServerOptions()
    sys.setswitchinterval(_SWITCH)
    configure_logs(options.logs)
    context = tls_context(settings.certificate, settings.private_key)
    signals = Signals()
    with _private_files(), signals.record(*_RENEWALS):
        _make_folder(settings.data)
        with closing(Keys.open(settings.data, limits=settings.limits)) as keys:
            check_exposure(settings.host, keys, settings.certificate)
            with closing(bind(settings.host, settings.port)) as listener:
                store = Store.open(settings.data, sync=settings.sync)
                broker = Broker(settings, store, Metrics())
                with closing(store), ExitStack() as ready:
                    _die_of_interrupts()
                    main = _run_broker(
                        broker, options, keys, context, listener, signals, ready, on_listening
                    )
                    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                        runner.run(main)
                    signals.ignore()


async def _run_broker(
    broker: Broker,
    options: ServerOptions,
    keys: Keys,
    context: ssl.SSLContext | None,
    listener: socket.socket,
    signals: Signals,
    ready: ExitStack,
    on_listening: Callable[[Listening], None],
) -> None:
    """Serve, and start the broker meanwhile. What is to end with the process goes to `ready`."""
    from boxmatch.broker.http import make_app
    from boxmatch.engine.memory import tune_memory

    log = structlog.get_logger("boxmatch.server")
    settings = broker.settings
    app = make_app(broker, keys)
    _forget_address(settings.data)  # of one that was killed; the data are ours now
    listening = Listening.on(listener, settings.host, tls=context is not None)

    listens, drafted = asyncio.Event(), False

    async def start() -> None:
        await broker.startup.follow(broker.load)
        await listens.wait()
        ready.enter_context(signals.record(*_STOPS))
        tune_memory()
        await broker.start()
        if drafted:
            publish_address(settings.data)
        startup = broker.startup
        steps = {name: round(seconds, 3) for name, seconds in startup.seconds.items()}
        log.info("ready", url=listening.url, seconds=round(startup.elapsed, 3), steps=steps)
        on_listening(listening)

    def started() -> None:
        nonlocal drafted
        try:
            draft_address(settings.data, listening)  # before the log takes what room there is
            drafted = True
        except OSError as error:  # a full disk: deleting what fills it has to be possible
            log.warning("its address could not be written", error=str(error))
        listens.set()
        log.info("listening", url=listening.url, data=str(settings.data), version=__version__)

    serving = asyncio.create_task(
        serve_app(app, broker.metrics, settings, options, context, listener, signals, started)
    )
    starting = asyncio.create_task(start())
    try:
        await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is not None:
            signals.end("the broker cannot be started")
        await serving
        if starting.done():
            starting.result()
    finally:
        if broker.ready:
            _forget_address(settings.data)
            await broker.stop()
        log.info("stopped")


async def serve_app(
    app: ASGIApp,
    metrics: Metrics,
    settings: Settings,
    options: ServerOptions,
    context: ssl.SSLContext | None,
    listener: socket.socket,
    signals: Signals,
    on_started: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until a signal comes. Returns when all that was begun is answered."""
    middleware = Middleware(app, metrics, log_requests=options.logs.requests)
    config = uvicorn.Config(
        middleware,
        http=TimeoutProtocol,
        ws=QuietSocketProtocol,
        ws_max_size=options.socket_message_bytes,
        ws_ping_interval=options.ping_seconds,
        ws_ping_timeout=options.ping_seconds,
        # Notifications are small and many: compressing each costs more than sending it.
        ws_per_message_deflate=False,
        lifespan="off",  # the broker is started and stopped around it, in an order we know
        log_config=None,
        access_log=False,  # it shows query strings; `Middleware` writes its own
        proxy_headers=False,  # anybody could claim to be anybody
        server_header=False,
        timeout_keep_alive=max(1, math.ceil(options.timeouts.idle_seconds)),
        timeout_graceful_shutdown=max(1, math.ceil(settings.shutdown_seconds)),
    )
    if signals.stop is not None:
        return
    server = _Server(config, middleware, options, context, settings, signals, on_started)
    try:
        await server.serve(sockets=[listener])
    except OSError as error:
        if server.started:
            raise
        raise listening_error(error, settings.host, settings.port) from error


class Signals:
    """What the process was asked for by signals: to stop, to hurry, to read the certificate again.

    Handlers only record the signal, and the server looks at that ten times a second; so signals may
    come at any moment, in any number.
    """

    def __init__(self) -> None:
        self.stop: str | None = None
        """The first signal to stop, or another reason."""
        self.renew = False
        self._server: uvicorn.Server | None = None
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def record(self, *numbers: signal.Signals) -> Iterator[None]:
        """Record these signals, and at the end handle them as before."""
        with suppress(ValueError):  # not the main thread
            for number in numbers:
                self._before[number] = signal.signal(number, self._record)
        try:
            yield
        finally:
            for number in numbers:
                if number in self._before:
                    signal.signal(number, self._before.pop(number) or signal.SIG_DFL)

    def end(self, why: str) -> None:
        """Stop the server for a reason of our own."""
        self.stop = self.stop or why
        if self._server is not None:
            self._server.should_exit = True

    def ignore(self) -> None:
        """From now on, also after `record`."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        self._before.clear()

    def attach(self, server: uvicorn.Server) -> None:
        """Have a server stop when that is asked for, or was."""
        self._server = server
        server.should_exit = self.stop is not None

    def _record(self, number: int, _frame: FrameType | None) -> None:
        if number in _RENEWALS:
            self.renew = True
            return
        hurry = self.stop is not None  # the second time: do not wait for connections
        self.end(signal.Signals(number).name)
        if self._server is not None:
            self._server.force_exit = self._server.force_exit or hurry


class _Server(uvicorn.Server):
    """Uvicorn's server, with our signals, and with a look at the clock for slow clients."""

    def __init__(
        self,
        config: uvicorn.Config,
        middleware: Middleware,
        options: ServerOptions,
        context: ssl.SSLContext | None,
        settings: Settings,
        signals: Signals,
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._guard = middleware
        self._timeouts = options.timeouts
        self._context = context
        self._settings = settings
        self._signals = signals
        self._on_started = on_started
        self._log = structlog.get_logger("boxmatch.server")
        # Where the protocols find them: uvicorn makes one for every connection.
        state: Any = self.server_state
        state.timeouts = options.timeouts
        state.most = raise_file_limit(options.connections)
        signals.attach(self)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # As uvicorn does it, except for the handshakes: it would wait a minute for each, without
        # counting them.
        loop = asyncio.get_running_loop()

        def protocol() -> TimeoutProtocol:
            return TimeoutProtocol(self.config, self.server_state, {}, loop)

        self.servers = [
            await loop.create_server(
                protocol,
                sock=one,
                backlog=self.config.backlog,
                ssl=self._context,
                ssl_handshake_timeout=self._timeouts.header_seconds if self._context else None,
            )
            for one in sockets or ()
        ]
        self.started = True
        self._on_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % self._timeouts.ticks == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, TimeoutProtocol | QuietSocketProtocol):
                    connection.check_timeouts()
        if self._signals.renew:
            self._signals.renew = False
            self._renew_certificate()
        return await super().on_tick(counter)

    def _renew_certificate(self) -> None:
        certificate = self._settings.certificate
        if self._context is None or certificate is None:
            return
        try:
            load_certificate(self._context, certificate, self._settings.private_key)
            self._log.info("certificate read again")
        except BrokerError as error:
            self._log.error("certificate not read again", error=str(error))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._log.info("stopping", signal=self._signals.stop)
        self._guard.end_reads()
        await super().shutdown(sockets)
        # Requests that are not waited for any more end as if their clients had left. Otherwise one
        # whose client does not read would be waited for when the event loop is closed.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Uvicorn would raise the signal again once the sockets are closed, before the broker
        # has written what is queued.
        yield


def _die_of_interrupts() -> None:
    """Have Ctrl-C end the process as SIGTERM does, until both are recorded: an exception would have
    to wait for the thread that reads the data.
    """
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _private_files() -> Iterator[None]:
    """What is written is for this user only, also where the directory is open to others."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make_folder(data: Path) -> None:
    if data.exists() and not data.is_dir():
        raise BrokerError(f"{data} is not a directory")
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = write_problem(data) or error.strerror
        raise BrokerError(f"cannot make the directory {data}: {reason}") from error


def _forget_address(data: Path) -> None:
    with suppress(OSError):
        (data / ADDRESS).unlink(missing_ok=True)


def _loop_factory() -> Callable[[], Any] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop
