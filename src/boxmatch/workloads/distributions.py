"""How values and attributes are chosen: uniform, normal, Pareto, Zipf."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Float64Array, Int64Array

ValueDistribution = Literal["uniform", "normal", "pareto", "zipf"]
AttributeDistribution = Literal["uniform", "zipf"]


def check_choice(name: str, value: str, choices: object) -> None:
    """Refuse a distribution that does not exist, naming those that do."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def check_between(workload: object, low: float, high: float, *names: str, limit: str = "") -> None:
    """Refuse parameters outside a range; `limit` says what its high end is."""
    for name in names:
        value = getattr(workload, name)
        if low <= value <= high:
            continue
        if high == math.inf:
            raise ValueError(f"{name} must be at least {low:,}, not {value}")
        most = f"{limit} ({high:,})" if limit else f"{high:,}"
        raise ValueError(f"{name} must be from {low:,} to {most}, not {value}")


def integers(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    size: int | Int64Array,
    distribution: ValueDistribution,
    alpha: float,
    *,
    deviation: float = 1 / 6,
    lowest: float = 1e-3,
) -> Int64Array:
    """Integers from 1 to `size`, which may be an array of the given shape.

    `normal` has its mean in the middle, `deviation` as a share of the size, and ends up at the
    ends where it would leave them; `pareto` has shape `alpha`, starts at `lowest` as a share of the
    size, and is cut off at the size; `zipf` gives value v a weight of v ** -alpha. The last two
    favour small values.
    """
    if distribution == "uniform":
        return rng.integers(1, size, shape, np.int64, endpoint=True)
    if distribution == "zipf":
        return _zipf(rng, shape, size, alpha)
    if distribution == "normal":
        unit = np.clip(rng.normal(0.5, deviation, shape), 0.0, 1.0)
    else:
        unit = _pareto(rng, shape, alpha, lowest)
    return np.minimum((unit * size).astype(np.int64), size - 1) + 1


def _zipf(
    rng: np.random.Generator, shape: tuple[int, ...], size: int | Int64Array, alpha: float
) -> Int64Array:
    if not isinstance(size, np.ndarray):
        return np.searchsorted(zipf_cumulative(size, alpha), rng.random(shape), "right") + 1
    # One table for all sizes, cut off where each ends. A power of two, so that it is made once.
    table = zipf_cumulative(1 << int(size.max(initial=1)).bit_length(), alpha)
    drawn = np.searchsorted(table, rng.random(shape) * table[size - 1], "right") + 1
    return np.minimum(drawn, size)


def _pareto(
    rng: np.random.Generator, shape: tuple[int, ...], alpha: float, lowest: float
) -> Float64Array:
    # The inverse of the distribution function of a Pareto variable cut off at 1.
    ratio = lowest**alpha
    unit: Float64Array = lowest * (1 - rng.random(shape) * (1 - ratio)) ** (-1 / alpha)
    return np.minimum(unit, 1.0)


@lru_cache(maxsize=4)
def zipf_cumulative(size: int, alpha: float) -> Float64Array:
    """Probability that a Zipf variable is at most 1, 2, … `size`."""
    weights = np.arange(1, size + 1, dtype=np.float64) ** -alpha
    cumulative: Float64Array = np.cumsum(weights)
    cumulative /= cumulative[-1]
    cumulative[-1] = np.inf  # rounding must not let a draw fall off the end
    cumulative.flags.writeable = False
    return cumulative


def distinct(
    rng: np.random.Generator,
    rows: int,
    count: int,
    among: int,
    distribution: AttributeDistribution,
    alpha: float,
) -> npt.NDArray[np.uint16]:
    """For each row `count` distinct numbers below `among`, ascending.

    With `zipf`, number i is drawn with weight (i + 1) ** -alpha, without replacement.
    """
    if count == among:
        return np.broadcast_to(np.arange(among, dtype=np.uint16), (rows, among)).copy()
    if distribution == "uniform":
        chosen = _floyd(rng, rows, count, among)
    else:
        chosen = _without_replacement(rng, rows, count, among, alpha)
    chosen.sort(axis=1)
    return chosen


def _floyd(rng: np.random.Generator, rows: int, count: int, among: int) -> npt.NDArray[np.uint16]:
    """Robert Floyd's sampling, a column at a time: no n × `among` array is needed."""
    chosen = np.empty((rows, count), np.uint16)
    for column, top in enumerate(range(among - count, among)):
        draw = rng.integers(0, top, rows, np.uint16, endpoint=True)
        taken = (chosen[:, :column] == draw[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, np.uint16(top), draw)
    return chosen


def _without_replacement(
    rng: np.random.Generator, rows: int, count: int, among: int, alpha: float
) -> npt.NDArray[np.uint16]:
    """Weighted sampling, a column at a time: draw from the axis without what a row already has.

    The weights lie one after the other on an axis. A draw falls on what is left of it, and is
    moved up by the weight of each number of its row that lies before it.
    """
    weight = np.arange(1, among + 1, dtype=np.float64) ** -alpha
    ends = np.cumsum(weight)
    begins = ends - weight
    chosen = np.empty((rows, count), np.uint16)
    for column in range(count):
        before = np.sort(chosen[:, :column], axis=1)
        left = ends[-1] - weight[before].sum(axis=1)
        todo = np.arange(rows)
        while len(todo):
            at = rng.random(len(todo)) * left[todo]
            for taken in before[todo].T:
                at += np.where(at >= begins[taken], weight[taken], 0.0)
            drawn = np.minimum(np.searchsorted(ends, at, "right"), among - 1).astype(np.uint16)
            chosen[todo, column] = drawn
            # Rounding may have put a draw back on the edge of what its row has.
            todo = todo[(before[todo] == drawn[:, None]).any(axis=1)]
    return chosen
