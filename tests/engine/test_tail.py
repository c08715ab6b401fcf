"""The newest subscriptions, which no index has yet."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.engine.box_stores import Tail

predicates = st.lists(st.integers(0, 4), unique=True, max_size=3)


@given(st.lists(st.tuples(st.lists(predicates, max_size=3), st.booleans()), max_size=12))
def test_frequency_is_that_of_all_boxes(steps: list[tuple[list[list[int]], bool]]) -> None:
    tail = Tail(5, np.int64)
    counts = np.zeros(5, np.int64)
    for number, (boxes, asks) in enumerate(steps):
        tail.append(number, [[(a, 0, 1) for a in sorted(box)] for box in boxes], True)
        for box in boxes:
            counts[box] += 1
        if asks:
            assert tail.frequency.tolist() == counts.tolist()
    tail.widen(7)
    assert tail.frequency.tolist() == [*counts.tolist(), 0, 0]
    assert tail.frequency is tail.frequency
