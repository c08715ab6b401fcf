"""The best of the HEM authors' own C++, in settings of their paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from boxmatch.workloads import RangeWorkload

DEFAULT: Final = RangeWorkload(
    subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.3
)
"""The paper's default setting."""

SOURCE: Final = (
    "C++: the authors' repository shiwanghua/HEM at e4fdbe7, compiled with -O3 -march=native "
    "(AVX2), on one core of this kind of machine; the best of HEM with 32, 128 and 256 groups and "
    "of OpIndex. It counts matches and does not list them."
)

_MICROSECONDS: Final = {
    (20, 10, 20, 0.3): 383.0,
    (20, 5, 20, 0.1): 506.0,
    (20, 5, 20, 0.5): 257.0,
    (20, 5, 20, 0.7): 203.0,
    (20, 5, 20, 0.9): 101.0,
    (30, 5, 30, 0.7): 230.0,
    (30, 10, 30, 0.7): 282.0,
    (30, 20, 30, 0.7): 344.0,
    (30, 30, 30, 0.7): 406.0,
    (80, 10, 30, 0.3): 840.0,
    (80, 10, 50, 0.3): 1_118.0,
    (80, 10, 80, 0.3): 1_444.0,
    (30, 10, 20, 0.5): 362.0,
    (100, 10, 20, 0.5): 847.0,
    (300, 10, 20, 0.5): 2_957.0,
    (900, 10, 20, 0.5): 3_507.0,
}
"""By attributes, predicates, event size and width."""

BEST: Final = {
    replace(DEFAULT, attributes=d, predicates=k, event_size=size, width=width): microseconds
    for (d, k, size, width), microseconds in _MICROSECONDS.items()
}
"""Microseconds an event."""
