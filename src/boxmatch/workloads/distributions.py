"""How values and attributes are chosen: uniform, normal, Pareto, Zipf."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

ValueDistribution = Literal["uniform", "normal", "pareto", "zipf"]
AttributeDistribution = Literal["uniform", "zipf"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_PARETO_LOWEST = 1e-3


def check_choice(name: str, value: str, choices: object) -> None:
    """Refuse a distribution that does not exist, naming those that do."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def integers(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    size: int,
    distribution: ValueDistribution,
    alpha: float,
) -> Int64Array:
    """Integers from 1 to `size`.

    `normal` has its mean in the middle and a sixth of the size as deviation; `pareto` is bounded,
    with shape `alpha`; `zipf` gives value v a weight of v ** -alpha. The last two favour small
    values.
    """
    if distribution == "uniform":
        return rng.integers(1, size, shape, np.int64, endpoint=True)
    if distribution == "zipf":
        return np.searchsorted(zipf_cumulative(size, alpha), rng.random(shape), "right") + 1
    unit = _normal(rng, shape) if distribution == "normal" else _pareto(rng, shape, alpha)
    return np.minimum((unit * size).astype(np.int64), size - 1) + 1


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    return np.clip(rng.normal(0.5, 1 / 6, shape), 0.0, 1.0)


def _pareto(rng: np.random.Generator, shape: tuple[int, ...], alpha: float) -> Float64Array:
    # The inverse of the distribution function of a Pareto variable cut off at 1.
    ratio = _PARETO_LOWEST**alpha
    unit: Float64Array = _PARETO_LOWEST * (1 - rng.random(shape) * (1 - ratio)) ** (-1 / alpha)
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
        chosen = _race(rng, rows, count, among, alpha)
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


def _race(
    rng: np.random.Generator, rows: int, count: int, among: int, alpha: float
) -> npt.NDArray[np.uint16]:
    """Weighted sampling without replacement: the first `count` of exponential arrival times."""
    mean = np.arange(1, among + 1, dtype=np.float64) ** alpha
    chosen = np.empty((rows, count), np.uint16)
    step = max(1, 2**21 // among)  # bounds memory; draws stay in row order, so values do not change
    for first in range(0, rows, step):
        arrival = rng.standard_exponential((min(step, rows - first), among)) * mean
        chosen[first : first + step] = np.argpartition(arrival, count - 1, axis=1)[:, :count]
    return chosen
