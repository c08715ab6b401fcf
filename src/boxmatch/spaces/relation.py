"""Which members of one side match a member of the other, and which begin or cease to."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int32Array
from boxmatch.spaces.changes import find_changes
from boxmatch.spaces.member import Member, equal
from boxmatch.spaces.search import find_matches
from boxmatch.spaces.side import Members


def matching(member: Member, others: Members) -> Int32Array:
    """The numbers of those that match."""
    count = find_matches(member.actor, others.packed(), others.regions)
    return others.scratch.found[:count].copy()


def changing(old: Member, new: Member, others: Members) -> tuple[Int32Array, int]:
    """The numbers of those that come to match, then of those that cease to; and how many come."""
    if old.names == new.names and equal(old.valid, new.valid) and equal(old.code, new.code):
        changes: tuple[Int32Array, int] = find_changes(old.actor, new.actor, others.packed())
        return changes
    before, after = (matching(one, others) for one in (old, new))
    entered = np.setdiff1d(after, before)
    return np.concatenate([entered, np.setdiff1d(before, after)]), len(entered)
