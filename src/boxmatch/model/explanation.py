"""Why a subscription does or does not want an event, as an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boxmatch.model.ids import SubscriptionId


@dataclass(frozen=True)
class Predicate:
    """One condition: what was wanted, what the event has, and whether that will do."""

    attribute: str
    """The attribute, or the expression, that is compared."""
    wanted: str
    got: Any
    satisfied: bool
    residual: bool = False
    """Whether no box expresses it, so that it is checked for the events that a box holds."""

    def __str__(self) -> str:
        mark = "✓" if self.satisfied else "✗"
        got = "absent" if self.got is None else repr(self.got)
        return f"{mark} {self.wanted}   got {got}"


@dataclass(frozen=True)
class Explanation:
    """Why a subscription does or does not want an event.

    A filter with OR has several alternatives, each a conjunction of predicates. It matches if all
    predicates of one alternative are satisfied. `predicates` are those of the alternative that
    matched, or else of the one with the fewest failures.
    """

    subscription: SubscriptionId
    matched: bool
    alternatives: tuple[tuple[Predicate, ...], ...]

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        return min(self.alternatives, key=_failures, default=())

    @property
    def never(self) -> bool:
        """No event can ever match this filter."""
        return not self.alternatives

    def __bool__(self) -> bool:
        return self.matched

    def __str__(self) -> str:
        verdict = "matches" if self.matched else "does not match"
        lines = [f"{self.subscription!r} {verdict}"]
        if self.never:
            lines.append("  its filter can never be true")
        elif not self.predicates:
            lines.append("  its filter is always true")
        lines.extend(f"  {predicate}" for predicate in self.predicates)
        others = len(self.alternatives) - 1
        if others > 0 and not self.matched:
            lines.append(f"  ({others} more alternative{'s' * (others > 1)}, none nearer)")
        return "\n".join(lines)


def _failures(predicates: Sequence[Predicate]) -> int:
    return sum(not predicate.satisfied for predicate in predicates)
