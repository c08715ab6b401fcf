"""The garbage collector, kept from looking through what stays.

It holds up all threads while it works, and to look through a hundred thousand subscriptions takes
it a good part of a second: too long for an event that is to be delivered in milliseconds. What is
in no cycle goes without it in any case.
"""

from __future__ import annotations

import gc

_THRESHOLDS = 10_000, 20, 10
"""Seldom: most of what is allocated belongs to a request, and is gone with it. Not too seldom: what
a request leaves behind in a cycle may hold all of its events."""


def tune_garbage_collection() -> None:
    """For a process that is a broker, when it has read what it has on disk."""
    gc.set_threshold(*_THRESHOLDS)
    keep_for_long()


def keep_for_long() -> None:
    """All that there is now is likely to stay: it is not looked through any more."""
    gc.freeze()
