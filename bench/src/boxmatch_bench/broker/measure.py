"""How a broker is measured: load, connect, and the phases, each checked and each a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from boxmatch_bench.answers import FailedError
from boxmatch_bench.broker.alternatives import BUSY, closed_loops, measure_alternatives
from boxmatch_bench.broker.deliveries import compare, find_truth
from boxmatch_bench.broker.processes import Session, Tell
from boxmatch_bench.broker.unread import measure_unread
from boxmatch_bench.broker.watch import Usage, disk, held, stages, thirds, usage
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting, Schedule
from boxmatch_bench.timing import Figures, spread_ms

_LOADED: Final = "bench.json"
"""In the broker's folder: which subscriptions it holds."""


def measure(
    setting: BrokerSetting, options: BrokerOptions, folder: Path, tell: Tell
) -> Iterator[Figures]:
    """Run all phases on a broker in `folder`; a row for each as soon as it is done.

    A folder that has the subscriptions from an earlier run is used as it is. Raises
    `MismatchError` when something else was delivered than the engine says, and
    `FailedError` when nothing was.
    """
    data = folder / "data"
    marker, mark = data / _LOADED, json.dumps([asdict(setting.workload), setting.subscribers])
    loaded = marker.exists()
    if loaded and marker.read_text() != mark:
        raise FailedError(f"{data} holds other subscriptions, from another run")
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
    with Session(setting, options, truth, data, tell) as session:
        before = usage(session.server.pid)
        seconds = None if loaded else session.load()
        marker.write_text(mark)
        if options.unread_seconds and not loaded:
            yield head | measure_unread(session, setting, options)
        yield head | _connect(session, setting.workload.subscriptions, seconds, before)
        phases = _phases(options)
        for phase, load in phases.items():
            if load["seconds"]:
                row = _run(session, phase, load)
                if phase != "warming up":
                    yield head | row
                if phase == BUSY and options.latency_seconds:
                    half = phases["latency"] | {"rate": row["events_per_second"] / 2}
                    yield head | _run(session, f"half of {phase}", half)
    if options.compare_seconds:
        for row in measure_alternatives(setting.workload, options, folder, tell):
            yield head | row


def _connect(
    session: Session, subscriptions: int, seconds: float | None, before: Usage | None
) -> Figures:
    """Connect subscribers, whose subscriptions were loaded in so many seconds."""
    connected = session.connect()
    after = usage(session.server.pid)
    return {
        "phase": "load",
        "seconds": seconds,
        "per_second": seconds and subscriptions / seconds,
        "connect_seconds": connected,
        "private_before": before and before.private,
        "private_after": after and after.private,
        "resident_after": after and after.resident,
    }


def _phases(options: BrokerOptions) -> dict[str, Any]:
    """What each phase publishes, as `Schedule.steady` takes it."""
    batches = {"batch": options.batch, "connections": options.publishers}
    single = {"batch": 1, "connections": options.connections}
    return {
        "warming up": {"seconds": options.warmup_seconds, "rate": None, **batches},
        "throughput": {"seconds": options.seconds, "rate": None, **batches},
        "latency": {"seconds": options.latency_seconds, "rate": options.rate, **single},
        **closed_loops(options),
        "soak": {"seconds": options.soak_seconds, "rate": options.soak_rate, **batches},
    }


def _run(session: Session, phase: str, load: dict[str, Any]) -> Figures:
    stages_before = stages(session.server)
    result, watch = session.publish(phase, Schedule.steady(**load), held)
    began, published = result["began"], result["published"]
    ended = max(published["answered"].max(), result["received"]["time"].max(initial=0.0))
    seconds = ended - began
    watched: Figures = {"stages": _means(stages_before, stages(session.server))}
    for name, (before, after) in watch.used().items():
        watched[f"{name}_cores"] = (after.cpu - before.cpu) / seconds
        if name == "server":
            watched["written_bytes"] = after.written - before.written
            watched["memory"] = watch.memory()
    session.tell(f"{phase}: comparing", 1.0, 1.0)
    compared = compare(session.truth, result, load["batch"])
    events = len(compared.counted.true)
    if phase == "soak":
        arrived = result["received"]["time"]
        watched["thirds"] = thirds(began, ended, watch.samples, arrived, compared.delays)
    return {
        "phase": phase,
        "load": load,
        "events": events,
        "matches": int(compared.matches.sum()),
        "notifications": result["notifications"],
        "seconds": seconds,
        "events_per_second": events / seconds,
        "delivery_ms": spread_ms(np.repeat(compared.delays, compared.matches)),
        "answer_ms": spread_ms(published["answered"] - published["due"]),
        "sent_late_ms": spread_ms(published["sent"] - published["due"]),
        **watched,
    }


def _means(
    before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]
) -> dict[str, Figures]:
    """Count and mean of each stage between two readings."""
    made = {}
    for name, (count, total) in after.items():
        count_before, total_before = before.get(name, (0.0, 0.0))
        if count > count_before:
            mean = (total - total_before) / (count - count_before)
            made[name] = {"count": int(count - count_before), "mean_ms": 1e3 * mean}
    return made
