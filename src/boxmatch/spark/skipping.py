"""What is left unchecked at a rate of false matches, chosen once for all shards of an index.

When a shard is built or changed, its task counts what skipping an attribute would add, over its own
subscriptions. The version of the index holds these sums, some numbers for each attribute. So the
driver can choose for any rate without a job, and all workers skip the same attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxmatch.adaptive.excess import Excess
from boxmatch.adaptive.skipping import SkipPlan, is_rate
from boxmatch.arrays import BoolArray, Float64Array
from boxmatch.errors import SparkError
from boxmatch.indexes.registry import index_class
from boxmatch.model.schema import Schema

if TYPE_CHECKING:
    from boxmatch.engine.matcher import Matcher


class SkipFigures(NamedTuple):
    """What skipping adds, summed over subscriptions: plain numbers, as JSON takes them."""

    frequency: tuple[int, ...]
    """Boxes that constrain each attribute."""
    true: tuple[float, ...]
    """Matches of an event to expect, in each case of how often predicates hold."""
    added: tuple[tuple[float, ...], ...]
    """In each case, the false matches that skipping an attribute adds."""

    @classmethod
    def of_json(cls, found: Sequence[Any]) -> SkipFigures:
        frequency, true, added = found
        return cls(tuple(frequency), tuple(true), tuple(map(tuple, added)))

    @classmethod
    def total(cls, parts: Iterable[SkipFigures], attributes: int) -> SkipFigures:
        """The figures of all parts together."""
        each = list(parts)
        if not each:
            return cls((0,) * attributes, (0.0,), ((0.0,) * attributes,))
        sums = [
            np.sum([getattr(one, name) for one in each], axis=0).tolist()
            for name in ("frequency", "true", "added")
        ]
        return cls.of_json(sums)

    @property
    def plan(self) -> SkipPlan:
        """Which attributes go first, and what that leads to."""
        excess = Excess(np.array(self.true), np.array(self.added))
        return SkipPlan.of_excess(np.array(self.frequency, np.int64), excess)


@dataclass(frozen=True)
class Skipping:
    """What is not checked at a rate of false matches."""

    rate: float
    """False matches for each true one that are tolerated, in expectation over many events."""
    attributes: tuple[str, ...] = ()
    """Those whose predicates are not checked. Without any, matching is exact."""
    expected: float = 0.0
    """False matches for each true one that this leads to, at most, by what is known of events."""
    reason: str = ""
    """Why matching is exact."""

    def __str__(self) -> str:
        if not self.attributes:
            return f"false matches: none, {self.reason}"
        some, more = self.attributes[:_NAMED], len(self.attributes) - _NAMED
        names = ", ".join(some) + (f" and {more:,} more" if more > 0 else "")
        return (
            f"false matches: at most {self.expected:.3%} of the true ones are expected, "
            f"{self.rate:.3%} are allowed; not checked: {names}"
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """What the output says of it, beside the column with what was found."""
        return {
            "max_false_positive_rate": self.rate,
            "expected_false_positive_rate": self.expected,
            "skipped_attributes": list(self.attributes),
        }


_NAMED = 10
"""Attributes that a plan lists by name."""


def check_rate(rate: float | None) -> None:
    """Raise an error unless it is a rate of false matches, or none."""
    if rate is not None and not is_rate(rate):
        raise SparkError(f"max_false_positive_rate must be from 0 up to, but not, 1, not {rate!r}")


def choose(index: str, schema: Schema, figures: SkipFigures | None, rate: float) -> Skipping:
    """What to leave unchecked in an index of this kind, with these figures, at a rate."""
    if rate == 0:
        return Skipping(rate, reason="as asked")
    if not skipping_pays(index):
        return Skipping(
            rate, reason=f"as the index {index!r} is not faster for skipping predicates"
        )
    if figures is None:
        return Skipping(
            rate, reason="as the index has no figures of what skipping adds: build it again"
        )
    plan = figures.plan
    marks = plan.skipped(rate) & (np.array(figures.frequency) > 0)
    if not marks.any():
        return Skipping(rate, reason="as no attribute is rare enough to be skipped")
    return Skipping(rate, tuple(compress(schema.names, marks)), plan.expected(rate))


def skipping_pays(index: str) -> bool:
    """Whether an index of this kind can skip predicates, and is faster for it."""
    capabilities = index_class(index).capabilities
    return capabilities.approximate and capabilities.skipping_pays


def check_selectivity(schema: Schema, shares: Mapping[str, float]) -> None:
    """Raise an error unless these are shares of events, by attributes of the schema."""
    for name, share in shares.items():
        if name not in schema:
            raise SparkError(f"selectivity: there is no attribute {name!r} in the schema")
        if not 0 <= share <= 1:
            raise SparkError(f"selectivity of {name!r} is a share of events, not {share!r}")


def count_figures(
    matchers: Iterable[tuple[Matcher, BoolArray | None]], shares: Mapping[str, float]
) -> SkipFigures | None:
    """On a worker: the figures of a shard, of matchers and which of their rows count.

    `shares` are the selectivities that are known, by attribute; the others are estimated from the
    largest of the matchers.
    """
    each = list(matchers)
    if not each:
        return None  # all of its subscriptions are gone
    largest = max((matcher for matcher, _ in each), key=len)
    cases: Float64Array = largest.estimate_selectivity()
    for position, name in enumerate(largest.schema.names):
        if name in shares:
            cases[:, position] = shares[name]
    parts = []
    for matcher, kept in each:
        frequency, excess = matcher.count_excess(cases, kept)
        arrays = (frequency, excess.true, excess.added)
        parts.append(SkipFigures.of_json([array.tolist() for array in arrays]))
    return SkipFigures.total(parts, len(largest.schema))
