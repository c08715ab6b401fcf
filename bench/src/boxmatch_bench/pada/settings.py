"""The test bed: subscriptions, arrivals, and how much precision the adjuster may give up."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce.ada_rein import DEFAULT
from boxmatch_bench.reproduce.experiment import scaled

INDEXES: Final = ("rein", "ada-rein", "tile")
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
        """As the broker takes them; None: exact."""
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
    DEFAULT, subscriptions=100_000, attributes=616, event_size=616, width=0.3
)


@dataclass(frozen=True, kw_only=True)
class Bed:
    """The paper's numbers, and what it leaves open."""

    workload: RangeWorkload = _WORKLOAD
    owners: int = 10
    """Subscribers that hold all subscriptions: an event goes to nearly each of them."""
    seconds: int = 30
    load: float = 0.95
    """Average of the arrivals, as a share of what exact matching can carry."""
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
        if not 0 < self.load <= 10:
            raise ValueError(f"load must be above 0 and at most 10, not {self.load}")

    def at(self, scale: float, seed: int, load: float | None = None) -> Bed:
        """The bed with `scale` times the subscriptions; if that is less, times are shorter too."""
        workload = replace(scaled(self.workload, scale), seed=seed)
        share = min(1.0, scale**0.5)
        return replace(
            self,
            workload=workload,
            owners=min(self.owners, workload.subscriptions),
            load=self.load if load is None else load,
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
