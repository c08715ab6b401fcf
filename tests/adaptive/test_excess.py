"""What skipping adds, against the obvious sum over boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.adaptive import excess as module
from boxmatch.adaptive.excess import Excess, ShrinkingExcess, rarest_first
from boxmatch.model.axis import ABSENT, FIRST
from boxmatch.model.boxes import Boxes

ATTRIBUTES = 6


@st.composite
def batches(draw: st.DrawFn) -> Boxes:
    """Boxes of any size; some predicates are empty intervals."""
    rows = draw(
        st.lists(
            st.dictionaries(st.integers(0, ATTRIBUTES - 1), st.sampled_from("aaab")), max_size=12
        )
    )
    ends = {"a": (3, 5), "b": (FIRST, ABSENT)}
    return Boxes.of(ATTRIBUTES, [[(a, *ends[row[a]]) for a in sorted(row)] for row in rows])


shares = st.lists(st.floats(0, 1), min_size=ATTRIBUTES, max_size=ATTRIBUTES).map(np.array)
orders = st.permutations(range(ATTRIBUTES)).map(np.array)
skips = st.lists(st.booleans(), min_size=ATTRIBUTES, max_size=ATTRIBUTES).map(np.array)


def probabilities(boxes: Boxes, shares: np.ndarray, skipped: np.ndarray) -> list[float]:
    """That each box matches."""
    return [
        float(np.prod([shares[a] * (low <= high) for a, low, high in row if not skipped[a]]))
        for row in (boxes.row(i) for i in range(boxes.count))
    ]


@given(boxes=batches(), shares=shares, order=orders)
def test_exact_along_the_order(boxes: Boxes, shares: np.ndarray, order: np.ndarray) -> None:
    found = Excess.of(boxes, shares, order)
    true = sum(probabilities(boxes, shares, np.zeros(ATTRIBUTES, bool)))
    assert found.true.tolist() == pytest.approx([true])
    for length in range(ATTRIBUTES + 1):
        skipped = np.isin(np.arange(ATTRIBUTES), order[:length])
        added = sum(probabilities(boxes, shares, skipped)) - true
        assert found.added[0, order[:length]].sum() == pytest.approx(added)


@given(boxes=batches(), shares=shares, order=orders, skipped=skips)
def test_a_bound_for_any_attributes(
    boxes: Boxes, shares: np.ndarray, order: np.ndarray, skipped: np.ndarray
) -> None:
    before = sum(probabilities(boxes, shares, np.zeros(ATTRIBUTES, bool)))
    added = sum(probabilities(boxes, shares, skipped)) - before
    assert added <= Excess.of(boxes, shares, order).added[0, skipped].sum() + 1e-9


def test_cases_are_counted_apart() -> None:
    boxes = Boxes.of(3, [[(0, 1, 2), (2, 1, 2)], [(2, 1, 2)]])
    cases = np.array([[0.5, 0.5, 0.5], [0.1, 0.5, 0.9]])
    both = Excess.of(boxes, cases, np.arange(3))
    for case, shares in enumerate(cases):
        alone = Excess.of(boxes, shares, np.arange(3))
        assert both.true[case] == alone.true[0]
        assert both.added[case].tolist() == alone.added[0].tolist()


def test_owners_match_as_often_as_their_best_box() -> None:
    boxes = Boxes.of(2, [[(0, 1, 2)], [(0, 1, 2), (1, 1, 2)], [(1, 1, 2)]])
    found = Excess.of(boxes, np.array([0.5, 0.25]), np.arange(2), np.array([7, 7, 3]))
    assert found.true.tolist() == [0.5 + 0.25]


def test_more_predicates_than_room_at_first() -> None:
    size = 100
    row = [(a, 1, 2) for a in range(size)]
    boxes = Boxes.of(size, [row[:3], row, row[:2]])
    order = np.random.default_rng(1).permutation(size)
    found = Excess.of(boxes, np.full(size, 0.9), order)
    assert found.true[0] == pytest.approx(0.9**3 + 0.9**size + 0.9**2)
    # With everything skipped all three boxes match always.
    assert found.added.sum() == pytest.approx(3 - found.true[0])


@given(boxes=batches(), shares=shares, data=st.data())
def test_removed_boxes_count_no_more(boxes: Boxes, shares: np.ndarray, data: st.DataObject) -> None:
    owners = np.array(data.draw(st.lists(st.integers(0, 3), min_size=12, max_size=12)), np.int32)
    owners = owners[: boxes.count]
    order = rarest_first(np.bincount(boxes.attribute, minlength=ATTRIBUTES))
    shrinking = ShrinkingExcess(boxes, shares, order, owners)
    gone = data.draw(st.permutations(sorted(set(owners.tolist()))))
    log: list[int] = []
    asked = [[]]
    for owner in gone:
        log = log + np.flatnonzero(owners == owner).tolist()
        asked.append(log)
    for removed in [*asked, *data.draw(st.permutations(asked))]:
        kept = np.setdiff1d(np.arange(boxes.count), removed)
        left = Excess.of(boxes.take(kept), shares, order, owners[kept])
        found = shrinking.without(removed)
        assert found.true == pytest.approx(left.true, abs=1e-9)
        assert found.added == pytest.approx(left.added, abs=1e-9)


def test_the_kernel_is_plain_python_too() -> None:
    boxes = Boxes.of(3, [[(0, 1, 2), (1, 1, 2), (2, 1, 2)], [], [(1, FIRST, ABSENT), (2, 1, 2)]])
    cases, rank = np.array([[0.5, 0.25, 0.75]]), np.array([2, 0, 1])
    results = []
    for kernel in (module._charge, module._charge.py_func):  # type: ignore[attr-defined]
        weight, added = np.empty((1, 3)), np.zeros((1, 3))
        kernel(*boxes[1:], cases, rank, weight, added)
        results.append((weight.tolist(), added.tolist()))
    assert results[0] == results[1]
    # Skipped are 1, 2, 0, so the last charge of the first box is (1 - 0.25) × 0.5 × 0.75.
    assert results[0] == (
        [[0.5 * 0.25 * 0.75, 1.0, 0.0]],
        [[0.5, 0.75 * 0.375 + 0.75, 0.25 * 0.5 + 0.25]],
    )
