"""The published models of how many false matches predicate skipping brings (Ada-REIN, IV-D).

All boxes have k predicates, each satisfied by a share w of the events, independently. A box that
loses j of them matches w ** -j times as often. What remains is how likely each j is: a
distribution here is an array whose entry j is the share of boxes that lose j predicates, for
j = 0 … k.
"""

from __future__ import annotations

import math

import numpy as np

from boxmatch.arrays import BoolArray, Float64Array
from boxmatch.model.boxes import Boxes


def uniform_losses(attributes: int, predicates: int, skipped: int) -> Float64Array:
    """Losses when boxes choose their attributes uniformly and `skipped` of these go (Lemma 1).

    Hypergeometric: of m attributes a box draws k without replacement, and X of the m are skipped.
    (The paper calls this an upper bound; it is exact.)
    """
    _check("predicates", predicates, attributes)
    _check("skipped", skipped, attributes)
    ways = [
        math.comb(attributes - skipped, predicates - lost) * math.comb(skipped, lost)
        for lost in range(predicates + 1)
    ]
    total = math.comb(attributes, predicates)
    return np.array([one / total for one in ways])


def frequency_losses(boxes: int, predicates: int, frequency: int) -> Float64Array:
    """Losses when attributes differ in frequency and those skipped have `frequency` (Lemma 2).

    Binomial: each of the k predicates of a box is one of the f skipped ones of n × k in all.
    """
    _check("frequency", frequency, boxes * predicates)
    share = frequency / (boxes * predicates) if frequency else 0.0
    return np.array(
        [
            math.comb(predicates, lost) * share**lost * (1 - share) ** (predicates - lost)
            for lost in range(predicates + 1)
        ]
    )


def counted_losses(boxes: Boxes, skipped: BoolArray) -> Float64Array:
    """Losses as they are: the share of `boxes` that have 0, 1, 2 … predicates on `skipped`."""
    lost = np.zeros(len(boxes.attribute) + 1, np.int64)
    np.cumsum(skipped[boxes.attribute], out=lost[1:])
    size = int(np.diff(boxes.start).max(initial=0))
    counts = np.bincount(np.diff(lost[boxes.start]), minlength=size + 1)
    return counts / max(1, boxes.count)


def expected_size(losses: Float64Array) -> float:
    """Predicates that a box has left, on average (Lemma 3)."""
    return float(losses @ np.arange(len(losses))[::-1])


def rate_of_size(size: float, predicates: int, selectivity: float) -> float:
    """False matches for each true one if every box had `size` predicates left (Lemma 4).

    With a mean size it is less than what skipping brings, for the power of the mean is less than
    the mean of the powers: see `expected_rate`.
    """
    return math.pow(selectivity, size - predicates) - 1


def expected_rate(losses: Float64Array, selectivity: float) -> float:
    """False matches for each true one, exactly: Σ P_j (w ** -j - 1)."""
    return float(losses @ (selectivity ** -np.arange(len(losses), dtype=np.float64) - 1))


def skippable_predicates(boxes: int, selectivity: float, rate: float) -> float:
    """Predicates that may go at this rate according to Theorem 1: n log(1 + F) / log(1 / w).

    (Equation 7 lacks a minus sign.) For comparison only: it follows from Lemma 4, so that the rate
    one measures is higher.
    """
    if not 0 < selectivity < 1:
        raise ValueError(f"selectivity must be between 0 and 1, not {selectivity!r}")
    return boxes * math.log1p(rate) / -math.log(selectivity)


def _check(name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise ValueError(f"{name} must be from 0 to {most:,}, not {value!r}")
