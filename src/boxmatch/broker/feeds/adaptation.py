"""How much precision a feed gives up at the moment, and how much of it shows."""

from __future__ import annotations

import time
from collections.abc import Callable

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.arrays import Int64Array
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.errors import BrokerError
from boxmatch.indexes.registry import index_class
from boxmatch.wire.requests import Adaptive

SAMPLE = 16
"""Events of a batch that are matched again, exactly."""
_EVERY = 64
"""Events of which at most one is matched again: what is looked at must not eat up what is won."""
_IDLE = 0.5
"""Seconds without an event after which a feed is exact, whatever the rate was before."""


def in_effect(spec: FeedSpec) -> Adaptive | None:
    """What a feed gives up under load: nothing, if its index would not be faster for it."""
    capabilities = index_class(spec.index).capabilities
    pays = capabilities.approximate and capabilities.skipping_pays
    return spec.adaptive if pays else None


class Adaptation:
    """The adjuster of a feed, if it has one, and what was measured of its effect.

    In the matching thread, but for reading.
    """

    def __init__(
        self, adaptive: Adaptive | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._adjuster: Adjuster | None = None
        if adaptive is not None:
            try:
                self._adjuster = Adjuster(adaptive.threshold, adaptive.step, adaptive.maximum)
            except ValueError as error:
                raise BrokerError(str(error)) from None
        self._matching = False
        self._ended = clock()
        """When the last batch was matched."""
        self._unseen = SAMPLE * _EVERY
        """Inexact events since some were looked at; at first, as if there had been many."""
        self.matches = 0
        """Found at a rate above 0, and looked at again."""
        self.false = 0

    @property
    def rate(self) -> float:
        """The rate that was last decided on, unless that was long ago."""
        if self._adjuster is None or self._is_idle(self._clock()):
            return 0.0
        return self._adjuster.rate

    def decide(self, waited: float, events: int) -> float:
        """The rate for so many events, of which the first has waited so many seconds."""
        if self._adjuster is None:
            return 0.0
        if self._is_idle(self._clock() - waited):
            self._adjuster.relax()
        self._matching = True
        return self._adjuster.decide(waited, events)

    def end_batch(self) -> None:
        """What was decided on has been done."""
        self._matching = False
        self._ended = self._clock()

    def _is_idle(self, at: float) -> bool:
        """Whether nothing was to be matched for a while before that moment."""
        return not self._matching and at - self._ended > _IDLE

    def is_to_sample(self, events: int) -> bool:
        """Whether some of these events, matched at a rate above 0, are to be looked at again."""
        self._unseen += events
        if self._unseen < _EVERY * min(events, SAMPLE):
            return False
        self._unseen = 0
        return True

    def add_sample(self, found: Int64Array, exact: Int64Array) -> None:
        """Matches of some events, and how many there really are."""
        self.matches += int(found.sum())
        self.false += int((found - exact).sum())
