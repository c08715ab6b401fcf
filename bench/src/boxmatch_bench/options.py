"""What the benchmarks can be told; the annotated fields are the options of their commands.

Nothing here needs more than Typer, so that help is there at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from typer import Option

COMPETITORS: Final = ("scan", "numpy", "numpy-int32", "duckdb")
Plan = Literal["auto", "replicated", "sharded"]

PADA: Final = {
    "pada-rates": (
        "Rates",
        "What skipping gains in the engine alone, by rate and size of batch",
    ),
    "pada-fluctuation": (
        "Figure 5",
        "The adjuster in a broker, under a load that fluctuates",
    ),
    "pada-overload": (
        "Overload",
        "Twice what exact matching carries for a minute, then nothing",
    ),
}
"""Experiments of the adjuster: figure and title of each. They are not among `all`: they load the
whole machine for a quarter of an hour."""


def _check(options: object, least: float, *names: str) -> None:
    """Raise `ValueError` for the first of these that is less."""
    for name in names:
        value = getattr(options, name)
        if value < least:
            if least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
            raise ValueError(f"{name} must not be negative, but is {value}")


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Parameters of a workload that replace those of a preset, where they are given."""

    subscriptions: Annotated[int | None, Option(help="Subscriptions.")] = None
    attributes: Annotated[int | None, Option(help="Attributes of the schema (d).")] = None
    predicates: Annotated[int | None, Option(help="Predicates per subscription (k).")] = None
    event_size: Annotated[int | None, Option(help="Attributes per event.")] = None
    width: Annotated[float | None, Option(help="Width of a range, 0 to 1 (w).")] = None
    domain: Annotated[int | None, Option(help="Largest value; values start at 1.")] = None
    values: Annotated[str | None, Option(help="Distribution: uniform, normal, pareto or zipf.")] = (
        None
    )
    value_alpha: Annotated[float | None, Option(help="Skew of pareto and zipf values.")] = None
    attribute_choice: Annotated[
        str | None, Option(help="How attributes are chosen: uniform or zipf.")
    ] = None
    attribute_alpha: Annotated[float | None, Option(help="Skew of zipf attributes.")] = None
    event_file: Annotated[
        Path | None,
        Option(
            "--events",
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Text file with one event per line: numbers from 0 to the domain, separated by "
            "commas, tabs or spaces. Subscriptions are generated to fit.",
        ),
    ] = None
    seed: Annotated[int | None, Option(help="Seed of the workload.")] = None

    @property
    def given(self) -> Mapping[str, Any]:
        """By name."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class MatcherOptions:
    """What is the same for all settings of a run."""

    events: Annotated[int, Option("--event-count", help="Events to measure in batches.")] = 2_000
    batch: Annotated[int, Option(help="Events per batch.")] = 500
    single: Annotated[int, Option(help="Events to match one by one.")] = 2_000
    repeats: Annotated[int, Option(help="Repeats; batch times are the best.")] = 5
    threads: Annotated[int, Option(help="Threads for batches.")] = 1
    check: Annotated[int, Option(help="Events to compare with scan, id by id.")] = 20
    device: Annotated[
        str, Option(help="Where batches are matched: cpu, cuda, cuda:N (another card) or auto.")
    ] = "cpu"
    index: str = "tile"
    index_options: dict[str, Any] = field(default_factory=dict)
    competitors: tuple[str, ...] = COMPETITORS
    competitor_seconds: float = 3.0

    def __post_init__(self) -> None:
        _check(self, 1, "events", "batch", "repeats", "threads")
        _check(self, 0, "single", "check")
        for name in self.competitors:
            if name not in COMPETITORS:
                raise ValueError(f"no competitor {name!r}; there are {', '.join(COMPETITORS)}")


@dataclass(frozen=True, kw_only=True)
class BrokerLoad:
    """What a broker holds, and who is connected to it."""

    subscriptions: Annotated[int, Option(min=1, help="Subscriptions.")] = 100_000
    subscribers: Annotated[int, Option(min=1, help="Connected subscribers.")] = 1_000
    attributes: Annotated[int, Option(min=1, help="Attributes per event.")] = 20
    predicates: Annotated[int, Option(min=1, help="Ranges per subscription.")] = 5
    width: Annotated[float, Option(help="Width of a range, as a share of the domain.")] = 0.1
    seed: Annotated[int, Option(help="Seed of the workload.")] = 1


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """The load, and how the broker is run."""

    seconds: Annotated[float, Option(help="Seconds of batches at full speed; 0 to skip.")] = 20.0
    batch: Annotated[int, Option(help="Events per batch.")] = 100
    publishers: Annotated[int, Option(help="Concurrent publishers.")] = 8
    latency_seconds: Annotated[float, Option(help="Seconds of single events; 0 to skip.")] = 20.0
    rate: Annotated[float, Option(help="Single events per second.")] = 1_000.0
    connections: int = 128
    """Single events under way at a time."""
    unread_seconds: Annotated[
        float,
        Option(
            "--unread",
            metavar="SECONDS",
            help="Seconds of batches while no subscriber is connected, and as many to a feed "
            "without subscriptions, in turn and three times; 0 to skip.",
        ),
    ] = 2.0
    compare_seconds: Annotated[
        float,
        Option(
            "--compare",
            metavar="SECONDS",
            help="Seconds of each closed loop, which the broker, SQLite and NATS JetStream (if "
            "nats-server and nats-py are installed) go through; 0 to skip.",
        ),
    ] = 3.0
    soak_seconds: Annotated[
        float,
        Option("--soak", metavar="SECONDS", help="Seconds of soak test, which watches memory."),
    ] = 0.0
    soak_rate: Annotated[float, Option(help="Events per second of the soak test.")] = 5_000.0
    warmup_seconds: Annotated[float, Option("--warmup", help="Warm-up in seconds.")] = 3.0
    pool: Annotated[int, Option(help="Distinct events, published repeatedly in whole batches.")] = (
        100_000
    )
    acknowledge: int = 20
    """A subscriber acknowledges after so many notifications, and when a phase ends."""
    put: Annotated[int, Option(help="Subscriptions per request.")] = 100
    loaders: int = 64
    """Such requests under way at a time."""
    sync: Annotated[Literal["full", "normal"], Option(help="As in boxmatch serve.")] = "full"

    def __post_init__(self) -> None:
        _check(
            self, 1, "batch", "publishers", "connections", "pool", "acknowledge", "put", "loaders"
        )
        for name in ("rate", "soak_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        _check(self, 0, "seconds", "latency_seconds", "compare_seconds")
        _check(self, 0, "soak_seconds", "warmup_seconds", "unread_seconds")
        if self.pool % self.batch:
            raise ValueError(
                f"the pool of {self.pool} events must be whole batches of {self.batch}"
            )
        if self.sync not in ("full", "normal"):
            raise ValueError(f"sync is one of full, normal, not {self.sync!r}")


@dataclass(frozen=True, kw_only=True)
class IsolationOptions:
    """How much the busy feed has, and how the broker is run."""

    subscriptions: Annotated[int, Option(help="Subscriptions of the busy feed.")] = 20_000
    events: Annotated[int, Option(help="Events in one of its requests.")] = 50_000
    seconds: Annotated[float, Option(help="Seconds without any work.")] = 5.0
    only: Annotated[str, Option(metavar="TEXT", help="Work with this in its name.")] = ""
    sync: Annotated[Literal["full", "normal"], Option(help="As in boxmatch serve.")] = "full"

    def __post_init__(self) -> None:
        _check(self, 2, "subscriptions", "events")
        _check(self, 0, "seconds")
        if self.sync not in ("full", "normal"):
            raise ValueError(f"sync is one of full, normal, not {self.sync!r}")


@dataclass(frozen=True, kw_only=True)
class WaitOptions:
    """Which calls are watched, how often, and on how much."""

    scale: Annotated[float, Option(help="Size of everything; at 1, a million subscriptions.")] = 1.0
    rounds: Annotated[int, Option(help="Rounds, after a first that is not measured.")] = 3
    only: Annotated[str, Option(metavar="TEXT", help="Calls with this in their name.")] = ""
    seed: Annotated[int, Option(help="Seed of the data.")] = 1

    def __post_init__(self) -> None:
        _check(self, 1, "rounds")
        if self.scale <= 0:
            raise ValueError(f"scale must be positive, not {self.scale}")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """How much there is, and how fast it changes."""

    subscriptions: Annotated[int, Option(min=1, help="Subscriptions.")] = 1_000_000
    rate: Annotated[float, Option(help="Subscribes, and as many unsubscribes, a second.")] = 1_000.0
    seconds: Annotated[float, Option(help="Seconds without changes, and as many beside.")] = 60.0

    def __post_init__(self) -> None:
        for name in ("rate", "seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.rate * self.seconds > self.subscriptions:
            raise ValueError("there are fewer subscriptions than would be removed")


@dataclass(frozen=True, kw_only=True)
class RouteOptions:
    """How much a route has to do."""

    subscriptions: Annotated[int, Option(help="Subscriptions.")] = 100_000
    width: Annotated[float, Option(help="Width of their ranges; 0.1 gives one match.")] = 0.1
    events: Annotated[int, Option(help="Events that wait.")] = 50_000
    batch: Annotated[int, Option(help="Messages that are fetched together.")] = 500
    seconds: Annotated[float, Option(help="Seconds at half of the load.")] = 15.0

    def __post_init__(self) -> None:
        _check(self, 1, "subscriptions", "events", "batch")
        _check(self, 0.1, "seconds")
        if not 0 < self.width <= 1:
            raise ValueError(f"width must be between 0 and 1, not {self.width}")


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """What is the same for all settings of a run."""

    master: Annotated[str, Option(help="Spark master; the engine alone uses as many threads.")] = (
        "local[2]"
    )
    driver_memory: Annotated[str, Option(help="Memory of Spark's JVM.")] = "2g"
    shards: Annotated[
        int | None, Option(help="Shards of the index; chosen by build_index by default.")
    ] = None
    plan: Annotated[Plan, Option(help="replicated, sharded or auto.")] = "replicated"
    repeats: Annotated[int, Option(help="Repeats; times are the best.")] = 3
    batch: Annotated[int, Option(help="Events per batch of the engine alone.")] = 16_384
    sql_sample: Annotated[int, Option(help="Events for the join in Spark SQL; 0 to skip.")] = 100
    sql_subscriptions: Annotated[
        int, Option(help="Maximum subscriptions for that join; beyond, its time is scaled.")
    ] = 1_000_000
    check: Annotated[int, Option(help="Events to compare with scan, id by id.")] = 20

    def __post_init__(self) -> None:
        if self.plan not in get_args(Plan):
            raise ValueError(f"plan is one of {', '.join(get_args(Plan))}, not {self.plan!r}")
        if self.shards is not None and self.shards < 1:
            raise ValueError(f"shards must be at least 1, not {self.shards}")
        _check(self, 1, "repeats", "batch", "sql_subscriptions")
        _check(self, 0, "sql_sample", "check")
        if self.cores < 1:
            raise ValueError(f"master must have at least one core, not {self.master!r}")

    @property
    def cores(self) -> int:
        """Tasks that Spark runs at once, and threads that the engine alone gets."""
        found = re.fullmatch(r"local\[(\d+)\]|local-cluster\[(\d+),(\d+),\d+\]", self.master)
        if not found:
            raise ValueError(
                f"master must say how many cores there are, local[N] or local-cluster[N,CORES,MB], "
                f"so that the engine alone gets as many; not {self.master!r}"
            )
        local, machines, each = found.groups()
        return int(local) if local else int(machines) * int(each)
