"""Figures of the HEM authors' own C++, measured on one core of this kind of machine.

At -O3, 500 events, 1,000,000 subscriptions, uniform data over 1,000,000 values, 32 groups.
Milliseconds per event. Their code counts matches; it does not list ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from boxmatch_bench.reproduce.experiment import Published
from boxmatch_bench.reproduce.quantities import SINGLE

Figures = Mapping[float, tuple[float, ...]]

NOTE: Final = (
    "C++: the authors' own code at -O3 on one core of this kind of machine, uniform data; it "
    "counts matches and does not list them."
)

COLUMNS: Final = (
    ("REIN", "C++"),
    ("HEM", "C++"),
    ("HEM", "C++, wide OR"),
    ("TAMA", "C++"),
    ("TAMA", "C++, compressed"),
    ("OpIndex", "C++"),
)
"""Series and variant of each of the numbers below."""

NUMPY: Final = 29.5
"""NumPy brute force beside them, at the default setting."""

DEFAULT: Final = (22.7, 2.29, 0.855, 13.5, 4.38, 59.0)
"""HEM's default setting: 20 attributes, 10 predicates of width 0.3."""

WIDTH: Final[Figures] = {
    0.1: (21.3, 2.36, 0.849, 5.61, 1.66, 33.3),
    0.5: (10.5, 2.35, 0.539, 11.8, 4.07, 31.1),
    0.7: (8.17, 4.27, 0.360, 12.7, 5.26, 30.5),
    0.9: (6.32, 5.54, 0.172, 14.0, 7.21, 31.3),
}
"""By width: 20 attributes, 5 predicates."""

SUBSCRIPTION_SIZE: Final[Figures] = {
    5: (8.19, 4.12, 0.473, 14.6, 5.83, 34.4),
    10: (9.18, 2.05, 0.564, 17.0, 11.9, 51.1),
    20: (17.1, 1.79, 0.736, 24.1, 23.8, 81.8),
    30: (23.6, 1.96, 0.892, 35.8, 39.7, 155),
}
"""By predicates: 30 attributes, width 0.7."""

EVENT_SIZE: Final[Figures] = {
    30: (47.7, 2.54, 1.51, 7.56, 3.51, 14.6),
    50: (49.4, 3.31, 2.40, 10.6, 5.35, 30.9),
    80: (40.7, 4.15, 2.45, 14.6, 7.20, 63.7),
}
"""By values in an event: 80 attributes, 10 predicates of width 0.3."""

ATTRIBUTES: Final[Figures] = {
    30: (18.6, 2.20, 0.668, 12.3, 5.69, 25.5),
    100: (40.7, 2.44, 0.995, 6.88, 3.30, 6.14),
    300: (71.0, 3.68, 2.20, 4.52, 4.51, 2.37),
    900: (110, 12.0, 11.8, 2.98, 19.0, 2.11),
}
"""By attributes: 10 predicates of width 0.5, 20 values in an event."""


def published(rows: Figures, only: str | None = None) -> Iterable[Published]:
    """The figures as published ones, of all series or of one."""
    for x, figures in rows.items():
        for (series, source), value in zip(COLUMNS, figures, strict=True):
            if only in (None, series):
                yield Published(SINGLE, series, x, value, source)
