"""How much precision to give up, decided by how long events have to wait (PADA)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Adjuster:
    """Decides on a tolerated rate of false matches, event by event or batch by batch.

    While events wait for `threshold` seconds or longer, and longer than the one before, the rate
    grows by `step`, up to `maximum`; while they wait for less, and less than the one before, it
    shrinks by as much, down to exact. (t_threshold, Δ_F and F_max in the Ada-REIN paper, whose
    values are the defaults.) Nothing is ever missed, whatever the rate.

    Three things are added to the paper's algorithm. Events that are matched together count as so
    many decisions; or the rate would grow by one step for each batch, just when queues are long,
    batches large and few of them done in a second. An event that waits for less than half the
    threshold takes the rate down in any case: under a light load waiting times are all alike, and
    those that are not shorter than the one before would keep the rate up for ever. And the rate is
    kept as a number of steps, so that it comes back to exactly 0.
    """

    threshold: float = 0.005
    step: float = 0.0001
    maximum: float = 0.001
    _steps: int = field(default=0, init=False, repr=False)
    _last: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"threshold must be above 0 seconds, not {self.threshold}")
        if not 0 < self.step <= self.maximum < 1:
            raise ValueError(
                f"step must be above 0 and at most maximum, and that below 1, not {self.step} and "
                f"{self.maximum}"
            )

    @property
    def rate(self) -> float:
        """The rate that was last decided on."""
        return min(self._steps * self.step, self.maximum)

    def decide(self, waited: float, events: int = 1) -> float:
        """The rate to match events at that have waited so many seconds."""
        if waited >= self.threshold:
            if waited >= self._last:
                self._steps = min(self._steps + events, math.ceil(self.maximum / self.step))
        elif waited < self._last or waited < self.threshold / 2:
            self._steps = max(self._steps - events, 0)
        self._last = waited
        return self.rate

    def relax(self) -> None:
        """Exact from here on: there was nothing to do for a while."""
        self._steps, self._last = 0, 0.0
