"""The best of the HEM authors' own C++, in settings of their paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from boxmatch.workloads import RangeWorkload

DEFAULT: Final = RangeWorkload(
    subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.3
)
"""The paper's default setting."""

REPOSITORY: Final = "shiwanghua/HEM"
COMMIT: Final = "e4fdbe7"
COMPILED: Final = "g++ 12 -O3 -march=native"
GROUPS: Final = (32, 128, 256)
"""Of which the best counts; of 32 alone from 300 attributes on, where more take over 5 GB."""

SOURCE: Final = (
    f"C++: HEM of the authors' repository {REPOSITORY} at {COMMIT}, {COMPILED}, one event at a "
    "time on one core of an AMD EPYC (Zen 3 or later), with large pages for its memory; the best "
    f"of {', '.join(map(str, GROUPS))} groups whose counts are right, and of {GROUPS[0]} alone "
    "from 300 attributes on, where more take over 5 GB. OpIndex of the same repository is never "
    "near. It counts matches and does not list them."
)

_MICROSECONDS: Final = {
    (20, 10, 20, 0.3): 216.0,
    (20, 5, 20, 0.1): 244.0,
    (20, 5, 20, 0.5): 138.0,
    (20, 5, 20, 0.7): 97.0,
    (20, 5, 20, 0.9): 54.0,
    (30, 5, 30, 0.7): 139.0,
    (30, 10, 30, 0.7): 165.0,
    (30, 20, 30, 0.7): 207.0,
    (30, 30, 30, 0.7): 258.0,
    (80, 10, 30, 0.3): 400.0,
    (80, 10, 50, 0.3): 521.0,
    (80, 10, 80, 0.3): 705.0,
    (30, 10, 20, 0.5): 173.0,
    (100, 10, 20, 0.5): 316.0,
    (300, 10, 20, 0.5): 1_263.0,
    (900, 10, 20, 0.5): 3_814.0,
}
"""By attributes, predicates, event size and width."""

BEST: Final = {
    replace(DEFAULT, attributes=d, predicates=k, event_size=size, width=width): microseconds
    for (d, k, size, width), microseconds in _MICROSECONDS.items()
}
"""Microseconds an event."""
