"""How a broker is measured: load, connect, and the phases, each checked and each a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from boxmatch_bench.answers import FailedError
from boxmatch_bench.broker.deliveries import Truth, compare, find_truth
from boxmatch_bench.broker.processes import LoadGenerator, Server, usage
from boxmatch_bench.broker.watch import Watch, disk
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting, Load
from boxmatch_bench.timing import spread_ms

_LOADED: Final = "bench.json"
"""In the broker's folder: which subscriptions it holds."""


class Tell(Protocol):
    """Is told what goes on, and how much of it is done."""

    def __call__(self, name: str, done: float = 0.0, total: float | None = None) -> None: ...


def _nobody(name: str, done: float = 0.0, total: float | None = None) -> None:
    pass


def measure(
    setting: BrokerSetting, options: BrokerOptions, folder: Path, tell: Tell = _nobody
) -> Iterator[dict[str, Any]]:
    """Run all phases on a broker in `folder`; a row for each as soon as it is done.

    A folder that has the subscriptions from an earlier run is used as it is. Raises
    `MismatchError` when something else was delivered than the engine says, and
    `FailedError` when nothing was.
    """
    data = folder / "data"
    loaded = _is_loaded(setting, data)
    tell("matching without a broker")
    truth = find_truth(setting, options)
    head = {
        "bench": "broker",
        "workload": type(setting.workload).__name__,
        "parameters": {**asdict(setting.workload), "subscribers": setting.subscribers},
        "seed": setting.workload.seed,
        "options": asdict(options),
        "matches_per_event": len(truth.subscription) / options.pool,
        "disk": disk(folder),
    }
    tell("starting the broker")
    with ExitStack() as stack:
        server = stack.enter_context(Server(data, options))
        generator = stack.enter_context(LoadGenerator(server.port, setting, options))
        bench = _Bench(setting, options, truth, server, generator, tell)
        row = bench.load(loaded)
        (data / _LOADED).write_text(_mark(setting))
        yield head | row
        for row in bench.phases():
            yield head | row


def _mark(setting: BrokerSetting) -> str:
    return json.dumps([asdict(setting.workload), setting.subscribers])


def _is_loaded(setting: BrokerSetting, data: Path) -> bool:
    marker = data / _LOADED
    if not marker.exists():
        return False
    if marker.read_text() != _mark(setting):
        raise FailedError(f"{data} holds other subscriptions, from another run")
    return True


class _Bench:
    """A broker under load."""

    def __init__(
        self,
        setting: BrokerSetting,
        options: BrokerOptions,
        truth: Truth,
        server: Server,
        generator: LoadGenerator,
        tell: Tell,
    ) -> None:
        self._setting, self._options, self._truth = setting, options, truth
        self._server, self._generator, self._tell = server, generator, tell

    def load(self, loaded: bool) -> dict[str, Any]:
        """Subscriptions into the broker unless they are there, and subscribers to it."""
        before = usage(self._server.pid)
        seconds = None if loaded else self._call("loading subscriptions", "load")
        counts = np.diff(self._truth.start)
        connected = self._call("connecting subscribers", "connect", counts)
        after = usage(self._server.pid)
        return {
            "phase": "load",
            "seconds": seconds,
            "per_second": seconds and self._setting.workload.subscriptions / seconds,
            "connect_seconds": connected,
            "private_before": before and before.private,
            "private_after": after and after.private,
            "resident_after": after and after.resident,
        }

    def phases(self) -> Iterator[dict[str, Any]]:
        options = self._options
        batches = {"batch": options.batch, "connections": options.publishers}
        if options.warmup_seconds:
            self._run("warming up", Load(seconds=options.warmup_seconds, **batches))
        if options.seconds:
            load = Load(seconds=options.seconds, **batches)
            yield self._run("throughput", load)
        if options.latency_seconds:
            load = Load(
                seconds=options.latency_seconds,
                batch=1,
                connections=options.connections,
                rate=options.rate,
            )
            yield self._run("latency", load)
        if options.soak_seconds:
            yield self._run(
                "soak", Load(seconds=options.soak_seconds, rate=options.soak_rate, **batches)
            )

    def _run(self, phase: str, load: Load) -> dict[str, Any]:
        watch = Watch(self._server, self._generator)
        result = self._call(phase, "publish", load.schedule(), meanwhile=watch.see)
        began, published = result["began"], result["published"]
        times = result["received"]["time"]
        ended = max(published["answered"].max(), times.max() if len(times) else 0.0)
        watched = watch.figures(began, ended)
        self._tell(f"{phase}: comparing", 1.0, 1.0)
        compared = compare(self._truth, result, load.batch)
        events = len(compared.counted.true)
        answers = published["answered"] - published["due"]
        return {
            "phase": phase,
            "load": asdict(load),
            "events": events,
            "matches": int(compared.matches.sum()),
            "notifications": result["notifications"],
            "seconds": ended - began,
            "events_per_second": events / (ended - began),
            "delivery_ms": spread_ms(np.repeat(compared.delays, compared.matches)),
            "answer_ms": spread_ms(answers),
            "sent_late_ms": spread_ms(published["sent"] - published["due"]),
            **watched,
        }

    def _call(self, name: str, command: str, *arguments: object, **more: Any) -> Any:
        self._tell(name)
        return self._generator.call(
            command,
            *arguments,
            progress=lambda done, total: self._tell(name, done, total),
            **more,
        )
