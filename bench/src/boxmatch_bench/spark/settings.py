"""What is measured: how many subscriptions and events, and with which options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from boxmatch.workloads import RangeWorkload

Plan = Literal["auto", "replicated", "sharded"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One measurement: the workload has the subscriptions, `events` of its events are matched."""

    preset: str
    workload: RangeWorkload
    events: int

    def __post_init__(self) -> None:
        if self.events < 1 or self.workload.subscriptions < 1:
            raise ValueError("there must be at least one subscription and one event")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is the same for all settings of a run."""

    master: str = "local[2]"
    driver_memory: str = "2g"
    plan: Plan = "replicated"
    shards: int | None = None
    repeats: int = 3
    batch: int = 16_384
    """Events that the engine alone matches at a time."""
    sql_sample: int = 100
    """Events of the join in Spark SQL; 0 leaves it out."""
    sql_subscriptions: int = 1_000_000
    """Subscriptions of that join at the most; the time for more is scaled up from there."""
    check: int = 20
    """Events that are compared with scan, id by id."""

    def __post_init__(self) -> None:
        if self.plan not in get_args(Plan):
            raise ValueError(f"plan is one of {', '.join(get_args(Plan))}, not {self.plan!r}")
        if self.shards is not None and self.shards < 1:
            raise ValueError(f"shards must be at least 1, not {self.shards}")
        for name in ("repeats", "batch", "sql_subscriptions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("sql_sample", "check"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
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


SUBSCRIPTIONS: Final = 1_000_000
EVENTS: Final = 1_000_000

SWEEPS: Final[Mapping[str, tuple[int, ...]]] = {
    "subscriptions": (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "events": (100_000, 300_000, 1_000_000, 3_000_000),
}
"""The numbers of subscriptions, or of events, that a sweep goes through."""


def choose(
    sweeps: Iterable[str], subscriptions: int | None, events: int | None, seed: int
) -> list[Setting]:
    """The settings of sweeps, or the default one: all at HEM's default but for their numbers.

    A number that is given holds for what a sweep does not vary.
    """

    def setting(preset: str, subscriptions: int, events: int) -> Setting:
        workload = RangeWorkload(subscriptions=subscriptions, seed=seed)
        return Setting(preset=preset, workload=workload, events=events)

    standing, arriving = subscriptions or SUBSCRIPTIONS, events or EVENTS
    chosen = []
    for name in sweeps:
        if name not in SWEEPS:
            raise ValueError(f"no sweep {name!r}; there are {', '.join(SWEEPS)}")
        for number in SWEEPS[name]:
            if name == "subscriptions":
                chosen.append(setting(name, number, arriving))
            else:
                chosen.append(setting(name, standing, number))
    return chosen or [setting("default", standing, arriving)]
