"""How a forest is searched: down every edge whose predicates hold."""

from __future__ import annotations

from typing import Final

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.edges import BEGIN, HEAD, LENGTH, SIZE, START, TARGET, Forest
from boxmatch.indexes.papers.parts.predicates import NumberedPredicates
from boxmatch.kernels.box_lists import is_alive, longer
from boxmatch.kernels.jit import kernel

_ROOM: Final = 1 << 14  # edges to try and boxes to list, at first
_FIRST: Final = np.zeros(1, np.int64)
_FEW: Final = 1024  # predicates that are sooner checked all at once than when an edge has them


def walk(
    forest: Forest,
    predicates: NumberedPredicates,
    rows: Int32Array,
    roots: Int32Array,
    query: Query,
) -> Int32Array:
    """Search for each point in the tree at its root.

    Events of the same tree are taken one after the other, while it is in the cache.
    """
    order = np.argsort(roots, kind="stable") if len(roots) > 1 else _FIRST[: len(roots)]
    attribute = predicates.attribute[: predicates.used[0]]
    ends = predicates.low, predicates.high
    found = _walk(forest.nodes, forest.edges, rows, attribute, *ends, roots, order, query)
    if not query.listing or len(roots) <= 1:
        return found
    event = np.repeat(order, query.counts[order])
    return found[np.argsort(event, kind="stable")]


@kernel
def _walk(
    nodes: Int32Array,
    edges: Int32Array,
    rows: Int32Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    roots: Int32Array,
    order: Int64Array,
    query: Query,
) -> Int32Array:
    points, alive, _, listing, counts = query
    few = len(attribute) <= _FEW
    holds = np.empty(len(attribute) if few else 0, np.uint8)
    stack = np.empty(_ROOM, np.int32)
    found = np.empty(_ROOM, np.int32)
    end: Int = np.int64(0)
    for event in order:
        point = points[event]
        if few:
            for i in range(len(attribute)):
                key = point[attribute[i]]
                holds[i] = (low[i] <= key) & (key <= high[i])
        root = np.int64(roots[event])
        while True:
            if few:
                last = _walk_few(nodes, edges, rows, holds, root, alive, stack, found, end)
            else:
                last = _walk_many(
                    nodes, edges, rows, attribute, low, high, point, root, alive, stack, found, end
                )
            if last >= 0:
                break
            # Once more with more room: to grow on the way would slow down every step.
            stack = longer(stack, 8 * len(stack))
            found = longer(found, 8 * len(found))
        counts[event] = last - end
        if listing:
            end = last
    return found[:end]


# Both of these set boxes behind `found[:end]` and return where they end, or -1 if there is not
# enough room. They try the edges out of a node without branches, since whether a predicate holds
# is hard to foresee. Indices are unsigned, since signed ones might count from the end: a third of
# the time would go into that.


@kernel
def _walk_few(
    nodes: Int32Array,
    edges: Int32Array,
    rows: Int32Array,
    holds: UInt8Array,
    node: Int,
    alive: BitLines,
    stack: Int32Array,
    found: Int32Array,
    end: Int,
) -> Int:
    """Search one tree, with all predicates checked before."""
    top = 0
    while node >= 0:
        start = np.uint32(nodes[node, START])
        size = np.int64(nodes[node, SIZE])
        if top + size > len(stack) or end + top + size > len(found):
            return np.int64(-1)
        for edge in range(start, start + size):
            stack[top] = edge
            all_hold = holds[np.uint32(edges[edge, 0])]
            for i in range(1, HEAD):
                all_hold &= holds[np.uint32(edges[edge, i])]
            top += all_hold
        node = np.int64(-1)
        while top > 0 and node < 0:
            top -= 1
            record = edges[np.uint32(stack[top])]
            at = record[BEGIN] + HEAD
            last = record[BEGIN] + record[LENGTH]
            while at < last and holds[np.uint32(rows[at])]:
                at += 1
            if at < last:
                continue
            node = np.int64(record[TARGET])
            if node < 0 and is_alive(alive, ~node):
                found[end] = ~node
                end += 1
    return end


@kernel
def _walk_many(
    nodes: Int32Array,
    edges: Int32Array,
    rows: Int32Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    point: Int64Array,
    node: Int,
    alive: BitLines,
    stack: Int32Array,
    found: Int32Array,
    end: Int,
) -> Int:
    """Search one tree, with predicates checked where an edge asks for them."""
    top = 0
    while node >= 0:
        start = np.uint32(nodes[node, START])
        size = np.int64(nodes[node, SIZE])
        if top + size > len(stack) or end + top + size > len(found):
            return np.int64(-1)
        for edge in range(start, start + size):
            stack[top] = edge
            first = np.uint32(edges[edge, 0])
            key = point[attribute[first]]
            top += (low[first] <= key) & (key <= high[first])
        node = np.int64(-1)
        while top > 0 and node < 0:
            top -= 1
            record = edges[np.uint32(stack[top])]
            at = record[BEGIN] + 1
            last = record[BEGIN] + record[LENGTH]
            while at < last:
                further = np.uint32(rows[at])
                key = point[attribute[further]]
                if key < low[further] or key > high[further]:
                    break
                at += 1
            if at < last:
                continue
            node = np.int64(record[TARGET])
            if node < 0 and is_alive(alive, ~node):
                found[end] = ~node
                end += 1
    return end
