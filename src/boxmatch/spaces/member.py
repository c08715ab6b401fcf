"""One publication or subscription, taken out of the arrays or not yet in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array, UInt16Array, UInt64Array
from boxmatch.spaces.layout import Actor
from boxmatch.spaces.region_filter import Code

OPEN = 16
"""From which bit on it stands which endpoints are open: the low one, the high one."""


class Member(NamedTuple):
    """A publication or a subscription: named regions, and which of them must have a partner.

    Region `i` has the constraints `start[i] : start[i + 1]`, by dimension in ascending order.
    """

    names: tuple[str, ...]
    start: Int64Array
    dimension: UInt16Array
    low: Int64Array
    high: Int64Array
    open: npt.NDArray[np.uint8]
    valid: UInt64Array
    filter: str | None
    code: Code

    @property
    def actor(self) -> Actor:
        """What a search through the other side needs of it."""
        return Actor(self.start, self.dimension, self.low, self.high, self.valid, self.code)


def what_of(dimension: npt.NDArray[Any], opened: npt.NDArray[np.uint8]) -> Int64Array:
    """Dimensions together with which endpoints are open, as constraints have them."""
    return dimension.astype(np.int64) | opened.astype(np.int64) << OPEN


def equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two arrays are equal; they often are the same."""
    return one is other or np.array_equal(one, other)
