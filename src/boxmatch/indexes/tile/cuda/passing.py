"""The pass: live events of a tile against its lines, 32 boxes to a register.

A block has a tile. Its four warps hold the lines of a fourth of the boxes each, a cell to a lane;
an event's bits are then a shuffle away, whichever cell it is in. All live events pass the front
slots. Events of which some box is left queue up, and pass the others.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import cuda

from boxmatch.indexes.tile.cuda.compiled import card_kernel
from boxmatch.indexes.tile.cuda.tables import SLOTS
from boxmatch.indexes.tile.cuda.warps import (
    SIMULATED,
    lookup,
    meet,
    pick_bytes,
    reserve,
    reserved,
)

THREADS: Final = 128

GROUPS: Final = 128
"""Words of 32 events that a block looks through at a time."""

_CHOSEN: Final = 32 * GROUPS + 256
_STAGED: Final = 256
"""Live events whose cells are in shared memory at a time; places among them have eight bits."""

_ROW_WORDS: Final = 4
_EACH: Final = _STAGED // THREADS
_ROWS: Final = _EACH * _ROW_WORDS
_FRONT: Final = 12
_WORDS: Final = 4
_FRONT_LINES: Final = _FRONT * _WORDS
_BACK_LINES: Final = (SLOTS - _FRONT) * _WORDS
_PACKED: Final = SLOTS // 4
_CELLS: Final = _PACKED * _STAGED
_QUEUE: Final = 4 * _STAGED
_QUEUED: Final = _WORDS * _QUEUE
_PICKS: Final = _PACKED * _ROW_WORDS * 2
_KEPT: Final = 512
_FLUSH: Final = 256
_LIMITS: Final[dict[str, Any]] = {} if SIMULATED else {"max_registers": 128}
"""So that four blocks fit on a multiprocessor."""

_FULL: Final = np.uint32(0xFFFFFFFF)
_NO_ROOM: Final = 0x7FFF0000
"""More than can be found at a time."""


@cuda.jit(device=True)
def _hand_over(
    tile: Any,
    shared: Any,
    kept_mask: Any,
    kept_where: Any,
    kept_place: Any,
    found_event: Any,
    found_box: Any,
    cursor: Any,
) -> None:
    """Append what a block has kept, with one step of the cursor for all of it."""
    thread = np.int32(cuda.threadIdx.x)
    kept = min(shared[1], np.int32(_KEPT))
    for i in range(thread, kept, THREADS):
        kept_place[i] = cuda.atomic.add(shared, 2, np.int32(cuda.popc(kept_mask[i])))
    cuda.syncthreads()
    if thread == 0:
        start = cuda.atomic.add(cursor, 0, np.int64(shared[2]))
        shared[3] = np.int32(min(start, np.int64(_NO_ROOM)))
    cuda.syncthreads()
    for i in range(thread, kept, THREADS):
        left = kept_mask[i]
        spot = np.int64(shared[3]) + kept_place[i]
        event = kept_where[i] >> 4
        box = tile * 512 + (kept_where[i] & 15) * 32 - 1
        while left != 0:
            if spot < found_box.size:
                found_event[spot] = event
                found_box[spot] = box + cuda.ffs(left)
            left &= left - np.uint32(1)
            spot += 1
    cuda.syncthreads()
    if thread == 0:
        shared[1] = 0
        shared[2] = 0
    cuda.syncthreads()


@card_kernel(**_LIMITS)
def pass_tiles(
    waiting: Any,
    groups_each: Any,
    depths: Any,
    attributes: Any,
    first_line: Any,
    lines: Any,
    alive: Any,
    cells: Any,
    width: Any,
    found_event: Any,
    found_box: Any,
    cursor: Any,
) -> None:
    """Append to `found` the boxes that could hold each event, as far as lines can tell.

    Block (tile, part of the events): `waiting` has those for which a tile is live, `cells` those of
    each event by attribute, `width` words of eight. The cursor goes on where there is no more room.
    """
    chosen = cuda.shared.array(_CHOSEN, np.uint16)
    packed = cuda.shared.array(_CELLS, np.uint32)
    queue_mask = cuda.shared.array(_QUEUED, np.uint32)
    queue_event = cuda.shared.array(_QUEUE, np.uint8)
    queue_count = cuda.shared.array(16, np.int32)
    kept_mask = cuda.shared.array(_KEPT, np.uint32)
    kept_where = cuda.shared.array(_KEPT, np.int32)
    kept_place = cuda.shared.array(_KEPT, np.int32)
    picks = cuda.shared.array(_PICKS, np.uint32)
    shared = cuda.shared.array(4, np.int32)  # events chosen, words kept, their bits, where to
    front = cuda.local.array(_FRONT_LINES, np.uint32)
    back = cuda.local.array(_BACK_LINES, np.uint32)
    base = cuda.local.array(_WORDS, np.uint32)
    mask = cuda.local.array(_WORDS, np.uint32)
    own = cuda.local.array(_PACKED, np.uint32)
    row = cuda.local.array(_ROWS, np.uint64)

    thread = np.int32(cuda.threadIdx.x)
    tile = np.int32(cuda.blockIdx.x)
    lane = thread & 31
    warp = thread >> 5
    first_word = warp * _WORDS
    depth = np.int32(depths[tile])
    row_words = np.int32(width)
    line = np.int64(first_line[tile]) + first_word * 32
    for w in range(_WORDS):
        base[w] = alive[tile * 16 + first_word + w]
        for s in range(_FRONT):
            front[s * _WORDS + w] = _FULL
            if s < depth:
                front[s * _WORDS + w] = lines[line + s * 512 + w * 32 + lane]
        for s in range(SLOTS - _FRONT):
            back[s * _WORDS + w] = _FULL
            if s + _FRONT < depth:
                back[s * _WORDS + w] = lines[line + (s + _FRONT) * 512 + w * 32 + lane]
    # Which bytes of which half word of a row are the cells of slots, four by four.
    for i in range(thread, _PICKS, THREADS):
        q, column = i // (2 * _ROW_WORDS), i % (2 * _ROW_WORDS)
        pick = np.uint32(0)
        for b in range(4):
            a = np.int32(-1)
            if q * 4 + b < depth:
                a = np.int32(attributes[tile, q * 4 + b])
            byte = np.uint32(4 + (a & 3)) if (a >> 2) == column else np.uint32(b)
            pick |= byte << np.uint32(4 * b)
        picks[i] = pick
    if thread == 0:
        shared[1] = 0
        shared[2] = 0
    first_group = np.int32(cuda.blockIdx.y) * np.int32(groups_each)
    last_group = min(first_group + np.int32(groups_each), np.int32(waiting.shape[1]))
    first_event = first_group * 32
    if thread == 0:
        shared[0] = 0
    for group in range(first_group, last_group, GROUPS):
        cuda.syncthreads()
        if thread < GROUPS and group + thread < last_group:
            bits = waiting[tile, group + thread]
            if bits != 0:
                at = cuda.atomic.add(shared, 0, np.int32(cuda.popc(bits)))
                event = (group + thread - first_group) * 32 - 1
                while bits != 0:
                    chosen[at] = event + cuda.ffs(bits)
                    bits &= bits - np.uint32(1)
                    at += 1
        cuda.syncthreads()
        events = shared[0]
        # What is too little for a round waits for the next words.
        ready = events if group + GROUPS >= last_group else events & ~(_STAGED - 1)
        for first in range(0, ready, _STAGED):
            size = min(np.int32(_STAGED), ready - first)
            # The cells of the tile's slots. What is read first comes from far away.
            for h in range(_EACH):
                i = thread + h * THREADS
                at = np.int32(0)
                if i < size:
                    at = (first_event + np.int32(chosen[first + i])) * row_words
                for column in range(_ROW_WORDS):
                    row[h * _ROW_WORDS + column] = np.uint64(0)
                    if i < size and column < row_words:
                        row[h * _ROW_WORDS + column] = cells[at + column]
            for h in range(_EACH):
                i = thread + h * THREADS
                for q in range(_PACKED):
                    own[q] = np.uint32(0)
                if row_words <= _ROW_WORDS:
                    for column in range(_ROW_WORDS):
                        if column < row_words:
                            eight = row[h * _ROW_WORDS + column]
                            for q in range(_PACKED):
                                at = (q * _ROW_WORDS + column) * 2
                                own[q] = pick_bytes(
                                    own[q], np.uint32(eight & np.uint64(0xFFFFFFFF)), picks[at]
                                )
                                high = np.uint32(eight >> np.uint64(32))
                                own[q] = pick_bytes(own[q], high, picks[at + 1])
                elif i < size:
                    at = (first_event + np.int32(chosen[first + i])) * row_words
                    for q in range(_PACKED):
                        for b in range(4):
                            if q * 4 + b < depth:
                                a = np.int32(attributes[tile, q * 4 + b])
                                cell = cells[at + (a >> 3)] >> np.uint64(8 * (a & 7))
                                own[q] |= (np.uint32(cell) & np.uint32(31)) << np.uint32(8 * b)
                if i < size:
                    for q in range(_PACKED):
                        packed[q * _STAGED + i] = own[q]
            if thread < 16:
                queue_count[thread] = 0
            cuda.syncthreads()
            queued = np.int32(0)
            for begin in range(0, size, 32):
                i = begin + lane
                inside = i < size
                for q in range((_FRONT + 3) // 4):
                    own[q] = packed[q * _STAGED + i] if inside else np.uint32(0)
                for w in range(_WORDS):
                    mask[w] = base[w] if inside else np.uint32(0)
                for s in range(_FRONT):
                    cell = own[s // 4] >> np.uint32(8 * (s % 4))
                    for w in range(_WORDS):
                        place = line + s * 512 + w * 32 if s < depth else np.int64(-1)
                        mask[w] &= lookup(lines, place, front[s * _WORDS + w], cell)
                some = (mask[0] | mask[1] | mask[2] | mask[3]) != 0
                at, queued = reserve(queue_count, warp, queued, some)
                if some:
                    at += warp * _STAGED
                    queue_event[at] = i
                    for w in range(_WORDS):
                        queue_mask[w * _QUEUE + at] = mask[w]
            meet()
            queued = reserved(queue_count, warp, queued)
            for begin in range(0, queued, 32):
                i = np.int32(0)
                for w in range(_WORDS):
                    mask[w] = np.uint32(0)
                if begin + lane < queued:
                    at = warp * _STAGED + begin + lane
                    i = np.int32(queue_event[at])
                    for w in range(_WORDS):
                        mask[w] = queue_mask[w * _QUEUE + at]
                for q in range(_FRONT // 4, _PACKED):
                    own[q] = packed[q * _STAGED + i]
                for s in range(_FRONT, SLOTS):
                    cell = own[s // 4] >> np.uint32(8 * (s % 4))
                    for w in range(_WORDS):
                        place = line + s * 512 + w * 32 if s < depth else np.int64(-1)
                        mask[w] &= lookup(lines, place, back[(s - _FRONT) * _WORDS + w], cell)
                if (mask[0] | mask[1] | mask[2] | mask[3]) != 0:
                    event = first_event + np.int32(chosen[first + i])
                    for w in range(_WORDS):
                        left = mask[w]
                        if left != 0:
                            word = first_word + w
                            at = cuda.atomic.add(shared, 1, np.int32(1))
                            if at < _KEPT:
                                kept_mask[at] = left
                                kept_where[at] = event * 16 + word
                            else:  # rare: go without the shared list
                                spot = cuda.atomic.add(cursor, 0, np.int64(cuda.popc(left)))
                                box = tile * 512 + word * 32 - 1
                                while left != 0:
                                    if spot < found_box.size:
                                        found_event[spot] = event
                                        found_box[spot] = box + cuda.ffs(left)
                                    left &= left - np.uint32(1)
                                    spot += 1
            cuda.syncthreads()
            if shared[1] >= _FLUSH:
                _hand_over(
                    tile, shared, kept_mask, kept_where, kept_place, found_event, found_box, cursor
                )
        for i in range(ready + thread, events, THREADS):
            if ready > 0:
                chosen[i - ready] = chosen[i]
        cuda.syncthreads()
        if thread == 0:
            shared[0] = events - ready
    if shared[1] > 0:
        _hand_over(tile, shared, kept_mask, kept_where, kept_place, found_event, found_box, cursor)
