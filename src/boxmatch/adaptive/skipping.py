"""Predicate skipping: which attributes need not be checked, given a tolerated rate of errors.

Leaving predicates out can only add matches, never lose one. Rare attributes go first: skipping
them touches the fewest subscriptions. (PSAM, in the Ada-REIN paper.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes, Int64Array

BoolArray = npt.NDArray[np.bool_]

_SAMPLE = 64


def choose_skipped(
    frequency: Int64Array, boxes: int, matchability: float, rate: float
) -> BoolArray:
    """The attributes to skip so that at most `rate` false matches come with each true one.

    `frequency` counts the predicates of each attribute, `matchability` (w in the paper) is the
    share of events that satisfy a predicate. A box without one of its predicates matches `1 / w`
    times as often, so `n` boxes without `Y` predicates, no two of one box, have `Y (1 / w - 1) / n`
    false matches for each true one. (The paper's Theorem 1 averages the predicates left per box
    before it takes the power, which is less than what one then measures.) The least frequent
    attributes are taken as long as their predicates stay within.
    """
    skipped = np.zeros(len(frequency), bool)
    if rate <= 0 or boxes == 0:
        return skipped
    allowed = boxes * rate / (1 / min(max(matchability, 1e-9), 1 - 1e-9) - 1)
    order = np.argsort(frequency, kind="stable")
    within = np.cumsum(frequency[order]) <= allowed
    skipped[order[within]] = True
    return skipped


def estimate_matchability(boxes: Boxes) -> float:
    """The share of predicates that an event satisfies, rather too small than too large.

    Events are not known here. Subscribers ask for what happens, so an event's value is taken to be
    an end of some predicate of the same attribute; a quarter is taken off, since events also fall
    where fewer people ask.
    """
    shares = []
    for attribute in np.unique(boxes.attribute[: 64 * _SAMPLE]):
        mine = np.flatnonzero(boxes.attribute == attribute)
        some = mine[:: max(1, len(mine) // _SAMPLE)][:_SAMPLE]
        low, high = boxes.low[some], boxes.high[some]
        for ends in (low, high):
            inside = (low[:, None] <= ends) & (ends <= high[:, None])
            np.fill_diagonal(inside, False)
            shares.append(inside.sum() / max(1, inside.size - len(some)))
    return 0.75 * float(np.mean(shares)) if shares else 0.0
