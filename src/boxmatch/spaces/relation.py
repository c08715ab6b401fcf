"""Which members of one side match a member of the other, and which begin or cease to."""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.base import Int32Array
from boxmatch.spaces.search import UInt64Array, find_matches
from boxmatch.spaces.side import Member, Members, equal
from boxmatch.spaces.transitions import find_changes


def matching(member: Member, others: Members, spaces_of: UInt64Array) -> Int32Array:
    """The numbers of those that match."""
    scratch = others.scratch
    count = find_matches(member.actor, others.side, others.regions, others.ends, spaces_of, scratch)
    return scratch.found[:count].copy()


def changing(
    old: Member, new: Member, others: Members, spaces_of: UInt64Array
) -> tuple[Int32Array, int]:
    """The numbers of those that come to match, then of those that cease to; and how many come."""
    if old.names == new.names and equal(old.valid, new.valid) and equal(old.code, new.code):
        changes: tuple[Int32Array, int] = find_changes(
            old.actor, new.actor, others.side, others.ends, spaces_of, others.scratch
        )
        return changes
    before, after = (matching(one, others, spaces_of) for one in (old, new))
    entered = np.setdiff1d(after, before)
    return np.concatenate([entered, np.setdiff1d(before, after)]), len(entered)
