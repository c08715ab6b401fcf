"""What is left of a store, as of any moment, is all but what was removed until then."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.engine.removals import Removals
from boxmatch.kernels.bit_lines import filled_lines

STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 63, 64, 200]), st.sampled_from([0, 1, 2, 50]), st.randoms()),
    max_size=20,
)


@given(steps=STEPS, order=st.randoms())
def test_what_is_left_at_any_moment(steps: list[tuple[int, int, Random]], order: Random) -> None:
    removals = Removals()
    moments = [(0, 0)]
    for more, count, random in steps:
        rows = moments[-1][1] + more
        there = [position for position in range(rows) if position not in removals]
        removals.add(random.sample(there, min(count, len(there))))
        moments.append((len(removals), rows))
        for length, rows in [moments[-1], *order.sample(moments, min(2, len(moments)))]:
            bits = removals.alive(length, rows)
            if length == 0:
                assert bits is None
                continue
            left = np.unpackbits(filled_lines(rows).view(np.uint8), bitorder="little").reshape(-1)
            left[removals.log[:length]] = 0
            found = np.unpackbits(bits.view(np.uint8), bitorder="little").reshape(-1)
            assert found.tolist() == left.tolist()
