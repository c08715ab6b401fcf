"""The pass: live events of a tile against its lines, 32 boxes to a register.

A block has a tile. Its eight warps hold the lines of 64 boxes each, a cell to a lane; an event's
bits are then a shuffle away, whichever cell it is in. A summary of the lines says first which words
of boxes could hold a live event at all, and so which warps it passes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import cuda

from boxmatch.indexes.tile.cuda.compiled import card_kernel
from boxmatch.indexes.tile.cuda.tables import CELLS, SLOTS
from boxmatch.indexes.tile.cuda.warps import SIMULATED, lookup, pick_bytes

THREADS: Final = 256

_GROUPS: Final = 64
"""Words of 32 events that a block looks through at a time."""

_STAGED: Final = 1_024
"""Live events whose cells are in shared memory at a time, of which there are 48 KiB for a block."""

_CHOSEN: Final = 32 * _GROUPS + _STAGED
_ROW_WORDS: Final = 4
_WORDS: Final = 2
_LINES: Final = SLOTS * _WORDS
_PACKED: Final = SLOTS // 4
_CELLS: Final = _PACKED * _STAGED
_WARPS: Final = THREADS // 32
_QUEUE: Final = _WARPS * _STAGED
_PICKS: Final = _PACKED * _ROW_WORDS * 2
_SUMMARY: Final = SLOTS * CELLS
_KEPT: Final = 256
_FLUSH: Final = 128
_LIMITS: Final[dict[str, Any]] = {} if SIMULATED else {"max_registers": 80}
"""So that three blocks fit on a multiprocessor."""

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


@cuda.jit(device=True)
def _append(
    tile: Any, event: Any, word: Any, left: Any, found_event: Any, found_box: Any, cursor: Any
) -> None:
    """Append the boxes of one word without the list that a block keeps."""
    spot = cuda.atomic.add(cursor, 0, np.int64(cuda.popc(left)))
    box = np.int32(tile * np.uint32(512) + word * np.uint32(32)) - np.int32(1)
    while left != 0:
        if spot < found_box.size:
            found_event[spot] = event
            found_box[spot] = box + cuda.ffs(left)
        left &= left - np.uint32(1)
        spot += 1


@card_kernel(**_LIMITS)
def pass_tiles(
    order: Any,
    parts: Any,
    waiting: Any,
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

    A block has one of `parts` of the events, and a tile, in this `order`. `waiting` has the events
    for which a tile is live, `cells` the cells of each by attribute, `width` words of eight. Where
    `attributes` have one dimension, slots are the attributes in order, for which another kernel is
    compiled. The cursor goes on where there is no more room.
    """
    chosen = cuda.shared.array(_CHOSEN, np.uint16)
    packed = cuda.shared.array(_CELLS, np.uint32)
    queue = cuda.shared.array(_QUEUE, np.uint16)
    queue_count = cuda.shared.array(_WARPS, np.int32)
    summary = cuda.shared.array(_SUMMARY, np.uint32)
    kept_mask = cuda.shared.array(_KEPT, np.uint32)
    kept_where = cuda.shared.array(_KEPT, np.int32)
    kept_place = cuda.shared.array(_KEPT, np.int32)
    picks = cuda.shared.array(_PICKS, np.uint32)
    shared = cuda.shared.array(4, np.int32)  # events chosen, words kept, their bits, where to
    held = cuda.local.array(_LINES, np.uint32)
    base = cuda.local.array(_WORDS, np.uint32)
    mask = cuda.local.array(_WORDS, np.uint32)
    own = cuda.local.array(_PACKED, np.uint32)

    thread = np.uint32(cuda.threadIdx.x)
    block = np.uint32(cuda.blockIdx.x)
    if block >= np.uint32(order.size) * np.uint32(parts):
        return
    tile = np.uint32(order[block // np.uint32(parts)])
    lane = thread & np.uint32(31)
    warp = thread >> np.uint32(5)
    first_word = warp * np.uint32(_WORDS)
    depth = np.uint32(depths[tile])
    row_words = np.uint32(width)
    line = np.uint64(first_line[tile]) + np.uint64(first_word * np.uint32(32))
    for i in range(thread, np.uint32(_SUMMARY), np.uint32(THREADS)):
        summary[i] = np.uint32(0)
    if attributes.ndim == 2:
        # Which bytes of which half word of a row are the cells of slots, four by four.
        for i in range(thread, np.uint32(_PICKS), np.uint32(THREADS)):
            q, column = i // np.uint32(2 * _ROW_WORDS), i % np.uint32(2 * _ROW_WORDS)
            pick = np.uint32(0)
            for b in range(4):
                a = np.int32(-1)
                if q * 4 + b < depth:
                    a = np.int32(attributes[tile, q * 4 + b])
                byte = np.uint32(4 + (a & 3)) if (a >> 2) == column else np.uint32(b)
                pick |= byte << np.uint32(4 * b)
            picks[i] = pick
    if thread == 0:
        shared[0] = 0
        shared[1] = 0
        shared[2] = 0
    cuda.syncthreads()
    for w in range(_WORDS):
        base[w] = alive[tile * np.uint32(16) + first_word + np.uint32(w)]
    at = line + np.uint64(lane)
    for s in range(SLOTS):
        some = np.uint32(0)
        for w in range(_WORDS):
            own_line = _FULL
            if s < depth:
                own_line = lines[at + np.uint64(s * 512 + w * 32)]
            held[s * _WORDS + w] = own_line
            if own_line & base[w] != 0:
                some |= np.uint32(1 << w)
        cuda.atomic.or_(summary, np.uint32(s * 32) + lane, some << first_word)
    groups = np.uint32(waiting.shape[1])
    each = (groups + np.uint32(parts) - np.uint32(1)) // np.uint32(parts)
    first_group = (block % np.uint32(parts)) * each
    last_group = min(first_group + each, groups)
    first_event = first_group * np.uint32(32)
    # Words are read one turn ahead, as they come from far away.
    ahead = np.uint32(0)
    if thread < np.uint32(_GROUPS) and first_group + thread < last_group:
        ahead = waiting[tile, first_group + thread]
    for group in range(first_group, last_group, np.uint32(_GROUPS)):
        cuda.syncthreads()
        bits, ahead = ahead, np.uint32(0)
        if thread < np.uint32(_GROUPS):
            next_group = group + np.uint32(_GROUPS) + thread
            if next_group < last_group:
                ahead = waiting[tile, next_group]
            if bits != 0:
                spot = np.uint32(cuda.atomic.add(shared, 0, np.int32(cuda.popc(bits))))
                event = (group + thread - first_group) * np.uint32(32) - np.uint32(1)
                while bits != 0:
                    chosen[spot] = event + np.uint32(cuda.ffs(bits))
                    bits &= bits - np.uint32(1)
                    spot += np.uint32(1)
        cuda.syncthreads()
        events = np.uint32(shared[0])
        # What is too little for a round waits for the next words.
        ready = events
        if group + np.uint32(_GROUPS) < last_group:
            ready = events & np.uint32(0xFFFFFFFF - (_STAGED - 1))
        for first in range(np.uint32(0), ready, np.uint32(_STAGED)):
            size = min(np.uint32(_STAGED), ready - first)
            if thread < np.uint32(_WARPS):
                queue_count[thread] = 0
            cuda.syncthreads()
            # The cells of the tile's slots, and which words of boxes could hold an event.
            for i in range(thread, size, np.uint32(THREADS)):
                row = (first_event + np.uint32(chosen[first + i])) * row_words
                for q in range(_PACKED):
                    own[q] = np.uint32(0)
                if attributes.ndim == 1:
                    for column in range((_PACKED + 1) // 2):
                        if column < row_words:
                            eight = cells[row + np.uint32(column)]
                            own[2 * column] = np.uint32(eight & np.uint64(0xFFFFFFFF))
                            if 2 * column + 1 < _PACKED:
                                own[2 * column + 1] = np.uint32(eight >> np.uint64(32))
                elif row_words <= _ROW_WORDS:
                    for column in range(_ROW_WORDS):
                        if column < row_words:
                            eight = cells[row + np.uint32(column)]
                            for q in range(_PACKED):
                                place = (q * _ROW_WORDS + column) * 2
                                own[q] = pick_bytes(
                                    own[q], np.uint32(eight & np.uint64(0xFFFFFFFF)), picks[place]
                                )
                                high = np.uint32(eight >> np.uint64(32))
                                own[q] = pick_bytes(own[q], high, picks[place + 1])
                else:
                    for q in range(_PACKED):
                        for b in range(4):
                            if q * 4 + b < depth:
                                a = np.uint32(attributes[tile, q * 4 + b])
                                cell = cells[row + (a >> np.uint32(3))] >> np.uint64(
                                    np.uint32(8) * (a & np.uint32(7))
                                )
                                own[q] |= (np.uint32(cell) & np.uint32(31)) << np.uint32(8 * b)
                could = _FULL
                for s in range(SLOTS):
                    cell = np.uint64((own[s // 4] >> np.uint32(8 * (s % 4))) & np.uint32(31))
                    could &= summary[cell + np.uint64(s * 32)]
                for q in range(_PACKED):
                    packed[np.uint32(q * _STAGED) + i] = own[q]
                for k in range(_WARPS):
                    if could & np.uint32(((1 << _WORDS) - 1) << (k * _WORDS)) != 0:
                        spot = np.uint32(cuda.atomic.add(queue_count, k, np.int32(1)))
                        queue[np.uint32(k * _STAGED) + spot] = i
            cuda.syncthreads()
            queued = queue_count[warp]
            for begin in range(np.uint32(0), np.uint32(queued), np.uint32(32)):
                last = np.uint32(queued) - np.uint32(1)
                i = np.uint32(queue[warp * np.uint32(_STAGED) + min(begin + lane, last)])
                for q in range(_PACKED):
                    own[q] = packed[np.uint32(q * _STAGED) + i]
                for w in range(_WORDS):
                    mask[w] = base[w]
                for s in range(SLOTS):
                    cell = own[s // 4] >> np.uint32(8 * (s % 4))
                    for w in range(_WORDS):
                        place = line + np.uint64(s * 512 + w * 32)
                        mask[w] &= lookup(lines, place, held[s * _WORDS + w], cell, s < depth)
                some = (mask[0] | mask[1]) != 0
                if some and begin + lane <= last:
                    event = first_event + np.uint32(chosen[first + i])
                    for w in range(_WORDS):
                        left = mask[w]
                        if left != 0:
                            word = first_word + np.uint32(w)
                            spot = np.uint32(cuda.atomic.add(shared, 1, np.int32(1)))
                            if spot < np.uint32(_KEPT):
                                kept_mask[spot] = left
                                kept_where[spot] = event * np.uint32(16) + word
                            else:  # rare: go without the shared list
                                _append(tile, event, word, left, found_event, found_box, cursor)
            cuda.syncthreads()
            if shared[1] >= _FLUSH:
                _hand_over(
                    tile, shared, kept_mask, kept_where, kept_place, found_event, found_box, cursor
                )
        for i in range(ready + thread, events, np.uint32(THREADS)):
            if ready > 0:
                chosen[i - ready] = chosen[i]
        cuda.syncthreads()
        if thread == 0:
            shared[0] = events - ready
    if shared[1] > 0:
        _hand_over(tile, shared, kept_mask, kept_where, kept_place, found_event, found_box, cursor)
