"""What is measured: of a matcher, of a broker, of its adjuster, and on Spark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain, groupby
from typing import Any, Final

import numpy as np

from boxmatch.arrays import Float64Array
from boxmatch.workloads import (
    DialectWorkload,
    EqualityWorkload,
    ExpressionWorkload,
    ListWorkload,
    RangeWorkload,
    RegionWorkload,
    TextWorkload,
)
from boxmatch.workloads.regions import UpdateKind
from boxmatch_bench.cases import Workload
from boxmatch_bench.reproduce import ada_rein_latency, cpp
from boxmatch_bench.reproduce.experiment import scaled

FEED: Final = "bench"
"""The name of the broker's feed."""


# --- a matcher: presets ------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """A published figure, measured in another run: compare only on a similar machine."""

    label: str
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class MatcherSetting:
    """One workload to measure. `updates` is how many subscriptions are added, then removed."""

    preset: str
    workload: Workload
    reference: Reference | None = None
    updates: int = 10_000


def _against_cpp(preset: str, workload: RangeWorkload, updates: int = 10_000) -> MatcherSetting:
    best = cpp.BEST.get(workload)
    reference = None if best is None else Reference("C++", best)
    return MatcherSetting(preset=preset, workload=workload, reference=reference, updates=updates)


def _presets() -> Iterable[MatcherSetting]:
    yield _against_cpp("hem-default", cpp.DEFAULT, 100_000)
    for setting in cpp.BEST:
        yield _against_cpp("cpp", setting)
    for count in (300_000, 1_000_000, 3_000_000):
        yield _against_cpp("subscriptions", replace(cpp.DEFAULT, subscriptions=count))
    few = replace(cpp.DEFAULT, predicates=5, subscriptions=10_000)
    more = replace(cpp.DEFAULT, subscriptions=100_000)
    for name, workload, microseconds in (
        ("equality", EqualityWorkload(), 2.7),
        ("ranges-10k", few, 1_012),
        ("ranges-100k", more, 20_765),
    ):
        reference = Reference("be-tree (C)", microseconds)
        yield MatcherSetting(preset=name, workload=workload, reference=reference)
    # Each next to what it is compared with.
    yield MatcherSetting(preset="expressions", workload=ExpressionWorkload(share=0.0))
    yield MatcherSetting(preset="expressions", workload=ExpressionWorkload())
    yield MatcherSetting(preset="needles", workload=TextWorkload())
    yield MatcherSetting(preset="needles", workload=TextWorkload(categories=0))
    regexes = TextWorkload(subscriptions=10_000, pattern="regex", categories=0)
    yield MatcherSetting(preset="regexes", workload=regexes, updates=1_000)
    yield MatcherSetting(preset="lists", workload=ListWorkload(values=0))
    yield MatcherSetting(preset="lists", workload=ListWorkload())
    yield MatcherSetting(preset="dialects", workload=DialectWorkload())
    operators = DialectWorkload(subscriptions=10_000, rules="operators")
    yield MatcherSetting(preset="dialects", workload=operators, updates=1_000)


PRESETS: Final[Mapping[str, tuple[MatcherSetting, ...]]] = {
    name: tuple(settings) for name, settings in groupby(_presets(), key=lambda one: one.preset)
}
"""Settings by name, the default first."""


def choose_presets(
    presets: Iterable[str], overrides: Mapping[str, Any], updates: int | None = None
) -> list[MatcherSetting]:
    """The settings of `presets` (`all` is all of them) with workload parameters replaced.

    A setting whose parameters were changed loses its reference, which no longer applies. An
    override that a workload does not have is an error, never ignored.
    """
    chosen = []
    for name in presets:
        if name != "all" and name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)} and all")
        for setting in chain(*PRESETS.values()) if name == "all" else PRESETS[name]:
            known = {field.name for field in fields(setting.workload)}
            for parameter in overrides:
                if parameter not in known:
                    raise ValueError(f"the {setting.preset} workload has no {parameter!r} to set")
            workload = replace(setting.workload, **overrides)
            if replace(workload, seed=setting.workload.seed) != setting.workload:
                setting = replace(setting, reference=None)
            chosen.append(
                replace(
                    setting,
                    workload=workload,
                    updates=setting.updates if updates is None else updates,
                )
            )
    return chosen


# --- a broker ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BrokerSetting:
    """Subscriptions are dealt out to the subscribers in turn: row i belongs to i modulo those."""

    workload: RangeWorkload
    subscribers: int = 1_000
    index: str = "tile"
    """The index of the feed."""

    def __post_init__(self) -> None:
        if self.workload.event_size != self.workload.attributes:
            raise ValueError("events must have all attributes")
        if not 1 <= self.subscribers <= self.workload.subscriptions:
            raise ValueError("there must be a subscriber, and a subscription for each")


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What is published: request by request, at so many seconds from the start."""

    moments: Float64Array | None
    """None: each connection sends again when it is answered."""
    batch: int = 1
    connections: int = 64
    opened: int = 0
    """Connections that are there before the clock runs; others are opened when they are needed."""
    seconds: float
    """After these no request is sent, be it late or refused before. Those under way are waited
    for."""
    retry: bool = True
    """Whether requests that the broker has no room for are sent again; else they are failures."""

    @classmethod
    def steady(
        cls, *, seconds: float, batch: int, connections: int, rate: float | None = None
    ) -> Schedule:
        """Requests at a rate of events a second, or as fast as it goes.

        At a rate, requests are sent when they are due, whatever became of those before; what is
        late is still sent.
        """
        moments: Float64Array | None = None
        if rate is not None:
            interval = batch / rate
            moments = interval * np.arange(math.ceil(seconds / interval), dtype=np.float64)
            moments = moments[moments < seconds]
        return cls(
            moments=moments,
            batch=batch,
            connections=connections,
            opened=connections,
            seconds=seconds if rate is None else math.inf,
            retry=False,
        )

    @property
    def planned_seconds(self) -> float:
        """How long it takes if nothing is late."""
        last = self.moments[-1] if self.moments is not None and len(self.moments) else self.seconds
        return min(self.seconds, float(last))


def subscriber_name(number: int) -> str:
    """A subscriber's name."""
    return f"subscriber{number}"


# --- a broker whose feed has an adjuster -------------------------------------------------------

INDEXES: Final = ("rein", "tile")
"""With an adjuster, `rein` is Ada-REIN."""
OVERLOADED: Final = ("rein", "tile")

_SHORTEST: Final = 3


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """The adjuster's parameters, under a name; without a maximum there is none."""

    name: str
    threshold: float = 0.005
    step: float = 0.0001
    maximum: float | None = None

    @property
    def request(self) -> dict[str, float] | None:
        """The body of the request to the broker; None for exact matching."""
        if self.maximum is None:
            return None
        return {"threshold": self.threshold, "step": self.step, "maximum": self.maximum}


OFF: Final = Adjustment(name="off")
PAPER: Final = Adjustment(name="up to 0.1 %", maximum=0.001)
"""The paper's parameters."""
MORE: Final = Adjustment(name="up to 5 %", step=0.005, maximum=0.05)
"""The same number of steps, each fifty times as large."""
ADJUSTMENTS: Final = (OFF, PAPER, MORE)


_WORKLOAD: Final = replace(
    ada_rein_latency.DEFAULT, subscriptions=100_000, attributes=616, event_size=616, width=0.3
)


@dataclass(frozen=True, kw_only=True)
class Bed:
    """The paper's numbers, and what it leaves open."""

    workload: RangeWorkload = _WORKLOAD
    subscribers: int = 10
    """Subscribers that hold all subscriptions: an event goes to nearly each of them."""
    seconds: int = 30
    loads: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95)
    """Averages of the arrivals, as shares of what exact matching can carry."""
    repetitions: int = 10
    """Of each load with each adjuster, by turns."""
    fluctuation: float = 7.6757
    """The highest rate of a second, divided by the lowest."""
    pool: int = 4_000
    """Different events."""
    connections: int = 1_000
    capacity_seconds: float = 10.0
    capacity_connections: int = 64
    overload: float = 2.0
    overload_seconds: float = 60.0
    overload_batch: int = 20
    quiet_seconds: float = 60.0
    """How long an overloaded broker is given to become exact again."""

    def __post_init__(self) -> None:
        for load in self.loads:
            if not 0 < load <= 10:
                raise ValueError(f"load must be above 0 and at most 10, not {load}")
        if not 1 <= self.repetitions <= 1_000:
            raise ValueError(f"repetitions must be from 1 to 1,000, not {self.repetitions}")

    def at(
        self,
        scale: float,
        seed: int,
        load: float | None = None,
        repetitions: int | None = None,
    ) -> Bed:
        """The bed with `scale` times the subscriptions; if that is less, times are shorter too."""
        workload = replace(scaled(self.workload, scale), seed=seed)
        share = min(1.0, scale**0.5)
        return replace(
            self,
            workload=workload,
            subscribers=min(self.subscribers, workload.subscriptions),
            loads=self.loads if load is None else (load,),
            repetitions=self.repetitions if repetitions is None else repetitions,
            seconds=max(_SHORTEST, round(share * self.seconds)),
            capacity_seconds=max(1.0, share * self.capacity_seconds),
            overload_seconds=max(2.0, share * self.overload_seconds),
            pool=max(self.overload_batch * 10, round(share * self.pool / 100) * 100),
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """All of it, as it goes into a row."""
        mine = {name: value for name, value in asdict(self).items() if name != "workload"}
        return {"kind": "RangeWorkload", **asdict(self.workload), **mine}


# --- Spark -------------------------------------------------------------------------------------


_HALF: Final = replace(_WORKLOAD, subscriptions=50_000)


@dataclass(frozen=True, kw_only=True)
class Overload:
    """A stream on Spark whose load fluctuates, as in Ada-REIN's Figure 5."""

    workload: RangeWorkload = _HALF
    index: str = "rein"
    seconds: int = 60
    """For which events arrive."""
    load: float = 1.0
    """Average of the arrivals, as a share of what exact matching carries in one large batch."""
    fluctuation: float = 7.6757
    pool: int = 4_000
    """Different events."""
    adjustment: Adjustment = Adjustment(name="up to 5 %", threshold=2.0, step=0.01, maximum=0.05)
    """A batch is one decision, so a step is larger than the paper's."""

    def __post_init__(self) -> None:
        if not 0 < self.load <= 10:
            raise ValueError(f"load must be above 0 and at most 10, not {self.load}")


@dataclass(frozen=True, kw_only=True)
class SparkSetting:
    """One measurement: the workload has the subscriptions, `events` of its events are matched."""

    preset: str
    workload: RangeWorkload
    events: int

    def __post_init__(self) -> None:
        if self.events < 1 or self.workload.subscriptions < 1:
            raise ValueError("there must be at least one subscription and one event")


_SUBSCRIPTIONS: Final = 1_000_000
_EVENTS: Final = 1_000_000

SWEEPS: Final[Mapping[str, tuple[int, ...]]] = {
    "subscriptions": (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "events": (100_000, 300_000, 1_000_000, 3_000_000),
}
"""The numbers of subscriptions, or of events, that a sweep goes through."""


def choose_sweeps(
    sweeps: Iterable[str], subscriptions: int | None, events: int | None, seed: int
) -> list[SparkSetting]:
    """The settings of sweeps, or the default one: all at HEM's default but for their numbers.

    A number that is given holds for what a sweep does not vary.
    """

    def setting(preset: str, subscriptions: int, events: int) -> SparkSetting:
        workload = RangeWorkload(subscriptions=subscriptions, seed=seed)
        return SparkSetting(preset=preset, workload=workload, events=events)

    standing, arriving = subscriptions or _SUBSCRIPTIONS, events or _EVENTS
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


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Publications, followed by so many updates of each: one job on Spark."""

    workload: RegionWorkload
    kind: UpdateKind = "random"
    last: int

    @property
    def rows(self) -> int:
        """Updates in all, of which the publication itself is the first."""
        return self.workload.publications * (1 + self.last)


_EACH: Final = 10


def choose_movement(subscriptions: int | None, updates: int | None, seed: int) -> Movement:
    """Random updates of points in two dimensions; each changes about fifteen matches.

    A subscription has a range in both, which holds 2 % of the values. Each publication has ten
    updates, of which the first adds it.
    """
    number = 300_000 if updates is None else updates
    if number % _EACH:
        raise ValueError(f"each publication has {_EACH} updates: {number:,} is not a multiple")
    workload = RegionWorkload(
        publications=number // _EACH,
        subscriptions=20_000 if subscriptions is None else subscriptions,
        dimensions=2,
        publication_constraints=2,
        subscription_constraints=2,
        values=1_000_000,
        width=0.02,
        seed=seed,
    )
    return Movement(workload=workload, last=_EACH - 1)
