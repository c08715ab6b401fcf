"""What is measured: how many subscriptions, how many subscribers, and the load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from boxmatch.engine.database import Sync
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.broker.publishing import Float64Array, Schedule

FEED: Final = "bench"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Subscriptions are dealt out to the subscribers in turn: row i belongs to i modulo those."""

    workload: RangeWorkload
    subscribers: int = 1_000
    index: str = "tile"
    """The feed's."""

    def __post_init__(self) -> None:
        if self.workload.event_size != self.workload.attributes:
            raise ValueError("events must have all attributes")
        if not 1 <= self.subscribers <= self.workload.subscriptions:
            raise ValueError("there must be a subscriber, and a subscription for each")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The load, and how the broker is run."""

    seconds: float = 20.0
    """Of publishing in batches, as fast as it goes."""
    batch: int = 100
    publishers: int = 8
    """Batches under way at a time."""
    latency_seconds: float = 20.0
    rate: float = 1_000.0
    """Single events a second when latency is measured."""
    connections: int = 128
    """Single events under way at a time."""
    soak_seconds: float = 0.0
    soak_rate: float = 5_000.0
    """Events a second, in batches, while memory is watched."""
    warmup_seconds: float = 3.0
    pool: int = 100_000
    """Different events; they are published again and again in this order."""
    acknowledge: int = 20
    """A subscriber acknowledges after so many notes, and when a phase ends."""
    put: int = 100
    """Subscriptions in one request while they are loaded."""
    loaders: int = 64
    """Such requests under way at a time."""
    sync: Sync = "full"

    def __post_init__(self) -> None:
        counts = ("batch", "publishers", "connections", "pool", "acknowledge", "put", "loaders")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("rate", "soak_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("seconds", "latency_seconds", "soak_seconds", "warmup_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.pool % self.batch:
            raise ValueError(
                f"the pool of {self.pool} events must be whole batches of {self.batch}"
            )
        if self.sync not in get_args(Sync):
            raise ValueError(f"sync is one of {', '.join(get_args(Sync))}, not {self.sync!r}")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one phase publishes: requests of `batch` events, at a rate or as fast as it goes."""

    seconds: float
    batch: int
    connections: int
    rate: float | None = None
    """Events a second, sent when they are due whatever became of those before; None: each
    connection sends again when it is answered."""

    def schedule(self) -> Schedule:
        """The same, request by request. At a rate, what is late is still sent."""
        moments: Float64Array | None = None
        seconds = self.seconds
        if self.rate is not None:
            interval = self.batch / self.rate
            moments = interval * np.arange(math.ceil(self.seconds / interval), dtype=np.float64)
            moments, seconds = moments[moments < self.seconds], float("inf")
        return Schedule(
            moments=moments,
            batch=self.batch,
            connections=self.connections,
            opened=self.connections,
            seconds=seconds,
            retry=False,
        )


def owner_name(number: int) -> str:
    """A subscriber's name."""
    return f"owner{number}"
