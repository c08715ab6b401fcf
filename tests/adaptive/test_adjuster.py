"""The adjuster (PADA): a trace worked by hand, and what must hold whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.adaptive.adjuster import Adjuster

waits = st.floats(0, 1, allow_nan=False)


def test_a_trace_worked_by_hand() -> None:
    adjuster = Adjuster(threshold=5.0, step=0.01, maximum=0.03)
    trace = [
        (1.0, 0.00),  # no congestion
        (5.0, 0.01),  # at the threshold, and longer than before: up
        (7.0, 0.02),
        (6.0, 0.02),  # congested, but less than before: as it is
        (6.0, 0.03),  # no less than before: up
        (9.0, 0.03),  # not above the maximum
        (4.0, 0.02),  # no congestion, and less than before: down
        (4.5, 0.02),  # less congestion than the threshold, but more than before: as it is
        (4.4, 0.01),
        (2.0, 0.00),
        (1.0, 0.00),  # not below exact
    ]
    assert [adjuster.decide(waited) for waited, _ in trace] == pytest.approx([r for _, r in trace])
    assert adjuster.rate == 0.0


@given(st.lists(waits), st.floats(1e-4, 0.5), st.floats(1e-5, 0.01), st.floats(0.01, 0.5))
def test_never_above_the_maximum_nor_by_more_than_a_step(
    trace: list[float], threshold: float, step: float, maximum: float
) -> None:
    adjuster = Adjuster(threshold=threshold, step=step, maximum=maximum)
    last = 0.0
    for waited in trace:
        rate = adjuster.decide(waited)
        assert 0.0 <= rate <= maximum
        assert abs(rate - last) <= step * (1 + 1e-9)
        assert rate == adjuster.rate
        last = rate


@given(st.lists(waits), st.lists(st.floats(0, 0.0049), min_size=1))
def test_exact_again_when_there_is_little_to_do(trace: list[float], quiet: list[float]) -> None:
    adjuster = Adjuster(threshold=0.01, step=0.001, maximum=0.01)
    for waited in trace:
        adjuster.decide(waited)
    before = adjuster.rate
    rates = [adjuster.decide(waited) for waited in quiet]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(max(0.0, before - 0.001 * len(quiet)))


@given(st.lists(st.floats(0, 0.00999)))
def test_exact_throughout_under_a_load_that_exact_matching_can_carry(trace: list[float]) -> None:
    adjuster = Adjuster(threshold=0.01)
    assert all(adjuster.decide(waited) == 0.0 for waited in trace)


@given(st.lists(st.tuples(waits, st.integers(1, 30))))
def test_events_together_count_as_many_decisions_that_are_alike(
    trace: list[tuple[float, int]],
) -> None:
    adjuster = Adjuster(threshold=0.1, step=0.003, maximum=0.05)
    last, before = 0.0, 0.0
    for waited, events in trace:
        rate = adjuster.decide(waited, events)
        up = waited >= 0.1 and waited >= last
        down = waited < 0.1 and (waited < last or waited < 0.05)
        wanted = min(before + 0.003 * events, 0.05) if up else before
        if down:
            # The last step up to the maximum may be a shorter one.
            assert max(before - 0.003 * events, 0.0) <= rate + 1e-9
            assert rate <= max(before - 0.003 * (events - 1), 0.0) + 1e-9
        else:
            assert rate == pytest.approx(wanted)
        last, before = waited, rate


def test_relaxed_it_is_exact() -> None:
    adjuster = Adjuster()
    assert adjuster.decide(1.0, 100) == 0.001
    adjuster.relax()
    assert adjuster.rate == 0.0
    assert adjuster.decide(0.004) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 0.0},
        {"step": 0.0},
        {"step": 0.1, "maximum": 0.01},
        {"maximum": 1.0},
        {"threshold": float("nan")},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Adjuster(**wrong)
