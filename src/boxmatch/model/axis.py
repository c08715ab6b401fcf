"""The one axis: where every attribute value becomes an int64 key.

A predicate is a closed interval of keys. The smallest key means that the event has no such
attribute, so "no predicate" is the whole axis and `IS NULL` is the single key `ABSENT`.
"""

from __future__ import annotations

from typing import Final

ABSENT: Final = -(2**63)
"""The event has no value for the attribute."""

FIRST: Final = ABSENT + 1
"""The smallest key that a value can have."""

LAST: Final = 2**63 - 1
"""The largest key that a value can have."""
