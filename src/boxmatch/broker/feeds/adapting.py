"""How much precision a feed gives up at the moment, and how much of it shows."""

from __future__ import annotations

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.broker.feeds.slots import Int64Array
from boxmatch.broker.messages import Adaptive
from boxmatch.errors import BrokerError

SAMPLE = 16
"""Events of a batch that are matched again, exactly."""
_EVERY = 16
"""Batches of which one is looked at again."""


class Adapting:
    """The adjuster of a feed, if it has one, and what was measured of its effect.

    In the matching thread, but for reading.
    """

    def __init__(self, adaptive: Adaptive | None) -> None:
        self._adjuster: Adjuster | None = None
        if adaptive is not None:
            try:
                self._adjuster = Adjuster(adaptive.threshold, adaptive.step, adaptive.maximum)
            except ValueError as error:
                raise BrokerError(str(error)) from None
        self._batches = 0
        self.matches = 0
        """Found at a rate above 0, and looked at again."""
        self.false = 0

    @property
    def rate(self) -> float:
        """The rate that was last decided on."""
        return 0.0 if self._adjuster is None else self._adjuster.rate

    def decide(self, waited: float) -> float:
        """The rate for events that have waited so many seconds."""
        return 0.0 if self._adjuster is None else self._adjuster.decide(waited)

    def is_to_sample(self) -> bool:
        """Whether this batch, matched at a rate above 0, is to be looked at again."""
        self._batches += 1
        return self._batches % _EVERY == 1

    def sampled(self, found: Int64Array, exact: Int64Array) -> None:
        """Matches of some events, and how many there really are."""
        self.matches += int(found.sum())
        self.false += int((found - exact).sum())
