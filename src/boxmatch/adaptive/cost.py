"""What predicate skipping saves: the time model of REIN (Ada-REIN, IV-F).

REIN keeps, for each attribute, two lists of buckets, of low ends and of high ends. For an event it
compares the ends in the bucket that its value falls into, in both lists, marks the boxes in the
buckets beyond, and at last checks which boxes were not marked.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import combinations

import numpy as np

from boxmatch.arrays import BoolArray, Float64Array, Int64Array


@dataclass(frozen=True)
class CostModel:
    """Seconds that each step takes on a machine; `fit` finds them."""

    compare: float
    """To compare a predicate with the event (β in the paper)."""
    traverse: float
    """To mark a predicate's box (γ)."""
    switch: float
    """To go on to the next bucket (δ)."""
    check: float
    """To see whether a box is marked (ε)."""

    def matching_time(
        self,
        frequency: Int64Array,
        boxes: int,
        buckets: int,
        skipped: BoolArray | None = None,
    ) -> float:
        """Seconds to match an event (Lemma 6), with the attributes in `skipped` left out."""
        return float(matching_work(frequency, boxes, buckets, skipped) @ astuple(self))

    def improvement(
        self, frequency: Int64Array, boxes: int, buckets: int, skipped: BoolArray
    ) -> float:
        """The share of the time that skipping saves (Theorem 2)."""
        whole = self.matching_time(frequency, boxes, buckets)
        left = self.matching_time(frequency, boxes, buckets, skipped)
        return 1 - left / whole if whole else 0.0


def matching_work(
    frequency: Int64Array, boxes: int, buckets: int, skipped: BoolArray | None = None
) -> Float64Array:
    """How often each step is taken to match an event: compare, traverse, switch, check.

    The ends of an attribute's f predicates spread evenly over the b buckets of both lists
    (Lemma 5): f / b are compared in each, and the buckets passed in one list are those not passed
    in the other, which makes f predicates and b buckets in all.
    """
    kept = frequency if skipped is None else frequency[~skipped]
    predicates = float(kept.sum())
    return np.array([2 * predicates / buckets, predicates, len(kept) * buckets, boxes], float)


def fit(work: Float64Array, seconds: Float64Array) -> CostModel:
    """The coefficients that explain measurements best: least squares of the relative errors.

    `work` has a row of `matching_work` (or of steps counted) for each of the `seconds` measured.
    No coefficient is negative. Steps that only ever come in the same proportion share their cost in
    some way: vary the frequencies, the buckets, the attributes and the boxes to tell them apart.
    """
    rows = np.asarray(work, np.float64)
    measured = np.asarray(seconds, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4 or len(rows) != len(measured) or len(rows) == 0:
        raise ValueError(f"work of shape {rows.shape} for {len(measured)} measurements")
    if not (np.isfinite(rows).all() and (rows >= 0).all()):
        raise ValueError("steps are counts, which are finite and not negative")
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ValueError("measurements are finite and above zero")
    return CostModel(*_non_negative(rows / measured[:, None], np.ones(len(rows))).tolist())


def _non_negative(matrix: Float64Array, target: Float64Array) -> Float64Array:
    """The x ≥ 0 for which `matrix @ x` comes closest to `target`.

    At the best x those that are not zero are an ordinary solution by themselves, so it is among the
    solutions of all choices of columns: fifteen for four of them.
    """
    columns = matrix.shape[1]
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    best = np.zeros(columns)
    least = float(target @ target)
    for size in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), size)):
            part = matrix[:, chosen] / scale[chosen]
            found = np.linalg.lstsq(part, target)[0]
            error = float(np.sum((part @ found - target) ** 2))
            if (found >= 0).all() and error < least:
                best = np.zeros(columns)
                best[chosen] = found / scale[chosen]
                least = error
    return best
