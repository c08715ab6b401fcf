"""How many examples a property that takes seconds is tried on."""

from __future__ import annotations

share = 1.0
"""Less for `make test`; `make test-all` tries all."""


def examples(number: int) -> int:
    return max(1, round(share * number))
