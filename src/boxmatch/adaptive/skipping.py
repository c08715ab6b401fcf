"""Predicate skipping: which attributes need not be checked, given a tolerated rate of errors.

Leaving predicates out can only add matches, never lose one. Rare attributes go first: skipping
them touches the fewest subscriptions. (PSAM, Algorithm 1 in the Ada-REIN paper.)

How many may go is where we differ from the paper. Its Theorem 1 takes the power of the mean number
of predicates left per box, where the mean of the powers is what one measures, and that is more
(Jensen): with w = 0.5 and a rate of 0.1 we measured 0.138. The paper's own Table II does not follow
it either: at 0.01 %, 1 % and 5 % its column Y has 93, 9,138 and 48,856 predicates of a million
boxes, which is what the linear count Y (1 / w - 1) / n allows (100, 10,000, 50,000), not
Theorem 1 (144, 14,355, 70,389). The linear count in turn is a bound only if no box loses two
predicates: w ** -j - 1 is more than j (1 / w - 1). The two plans here hold without that proviso.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from boxmatch.adaptive.excess import Excess, rarest_first
from boxmatch.arrays import BoolArray, Float64Array, Int64Array

_USED = 0.95
"""How much of a rate is used up: a bound in expectation is exceeded by chance every other time."""


def is_rate(value: object) -> bool:
    """Whether this is a rate of false matches that can be tolerated: from 0 up to, but not, 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 <= float(value) < 1


@dataclass(frozen=True, eq=False)
class SkipPlan:
    """The attributes in the order in which they are skipped, and what each step leads to.

    Made once; then any rate is answered in O(d), so that events may differ in theirs.
    """

    rank: Int64Array
    """The place of each attribute in the order."""
    rates: Float64Array
    """By place: false matches for each true one, at most, once all up to here are skipped."""

    @classmethod
    def of_excess(cls, frequency: Int64Array, excess: Excess) -> SkipPlan:
        """From what skipping adds, counted box by box: a bound whatever occurs together.

        See `Excess` for why the sum over the skipped attributes bounds what they add together.
        Where the excess speaks of several cases the bound holds in each of them.
        """
        order = rarest_first(frequency)
        added = np.cumsum(np.maximum(excess.added[:, order], 0.0), axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(added > 0, added / np.maximum(excess.true, 0.0)[:, None], 0.0)
        return cls(_ranks(order), rates.max(axis=0))

    @classmethod
    def of_frequency(cls, frequency: Int64Array, boxes: int, selectivity: float) -> SkipPlan:
        """From frequencies alone: a bound if boxes choose attributes independently of each other.

        A box that constrains attribute a with probability f / n matches 1 / w times as often
        without it, so all boxes together match Π (1 + f / n (1 / w - 1)) times as often, a factor
        for each skipped attribute: the mean of a product of independent factors. (Where boxes draw
        a fixed number of attributes uniformly, the mean is smaller still: Hoeffding.)
        """
        if not 0 <= selectivity <= 1:
            raise ValueError(f"selectivity is a share of events, not {selectivity!r}")
        order = rarest_first(frequency)
        if boxes == 0:
            return cls(_ranks(order), np.full(len(order), np.inf))
        gain = 1 / max(selectivity, 1e-12) - 1
        with np.errstate(over="ignore"):
            rates = np.expm1(np.cumsum(np.log1p(frequency[order] / boxes * gain)))
        return cls(_ranks(order), rates)

    def skipped(self, rate: float) -> BoolArray:
        """Marks the attributes to skip so that at most `rate` false matches come with a true one.

        Rates are expectations: over many events, the false matches divided by the true ones. A
        twentieth is left for chance, so that what is measured stays within as well.
        """
        marks: BoolArray = self.rank < self._within(rate)
        return marks

    def expected(self, rate: float) -> float:
        """The false matches to expect for each true one, at most, with `skipped(rate)`."""
        within = self._within(rate)
        return float(self.rates[within - 1]) if within else 0.0

    def _within(self, rate: float) -> int:
        """How many attributes of the order are skipped."""
        if rate <= 0:
            return 0
        return int(np.searchsorted(self.rates, _USED * rate, side="right"))


def choose_skipped(frequency: Int64Array, boxes: int, selectivity: float, rate: float) -> BoolArray:
    """The attributes to skip so that at most `rate` false matches come with each true one.

    `frequency` counts the predicates of each attribute (also those of none are skipped),
    `selectivity` (w in the paper) is the share of events that satisfy a predicate. A bound as
    `SkipPlan.of_frequency` says; where the boxes are at hand, `SkipPlan.of_excess` is a safer one.
    """
    return SkipPlan.of_frequency(frequency, boxes, selectivity).skipped(rate)


def _ranks(order: Int64Array) -> Int64Array:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
