"""A forest of search trees over the predicates of boxes.

A tree keeps each of its boxes as a path of predicates, in an order that the index chooses; boxes
whose paths begin alike share that beginning. Attributes that a box leaves open have no predicate,
so the `*` branches of the papers need no edges of their own: the edges out of one node may be
about different attributes.

A stretch of path without a fork is a single edge. It names a place in `rows`, where all boxes have
their predicates written out. So a tree of n boxes has fewer than 2n edges, however long the paths,
and a box that shares nothing takes one edge. The box whose row is named may have been removed
meanwhile; its row stays. The first few predicates are copied into the edge, since most edges are
given up there.

The edges out of a node lie side by side. To find one of very many there is a hash table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, UInt16Array
from boxmatch.indexes.papers.parts.edges import (
    BEGIN,
    DELETED,
    EDGE_COLUMNS,
    EDGES,
    EMPTY,
    FREED,
    HEAD,
    LENGTH,
    NODE_COLUMNS,
    NODES,
    PATHS,
    ROOM,
    ROOTS,
    SIZE,
    SLOTS,
    START,
    TARGET,
    Forest,
    enter_edge,
    find_edge,
    slot_of_edge,
)
from boxmatch.indexes.papers.parts.predicates import ALWAYS
from boxmatch.kernels.jit import kernel

_SPARE: Final = 64  # edges and nodes to spare, however small the forest
_NODE_BYTES: Final = 4 * (NODE_COLUMNS + 1)
_EDGE_BYTES: Final = 4 * EDGE_COLUMNS + 6  # with one and a half slots

MOST_PLACES: Final = 2**31 - 1
"""How many numbers `rows` can have."""


class Paths(NamedTuple):
    """Boxes and where they go: `box` into the tree at `root`, by `length` predicates.

    They are in `rows`, from `begin` on.
    """

    root: Int32Array
    box: Int32Array
    begin: Int32Array
    length: UInt16Array


def empty_forest(roots: int) -> Forest:
    """Trees without paths."""
    return _allot(roots, roots, 0)


def plant(forest: Forest, rows: Int32Array, paths: Paths) -> Forest:
    """The forest with more paths. What was given must not be used any more."""
    is_first = forest.used[PATHS] == 0
    if is_first:
        # About what paths take while edges still move about.
        roots, count = int(forest.used[ROOTS]), len(paths.root)
        forest = _allot(roots, roots + count // 3, 3 * count + _SPARE)
    done = _plant(forest, rows, paths, 0)
    while done < len(paths.root):
        nodes, edges = int(forest.used[NODES]), _count_edges(forest)
        # The node at hand may have to move, whatever its size.
        spare = max(edges // 2, 2 * int(forest.nodes[:, SIZE].max())) + _SPARE
        forest = _laid_out_afresh(forest, nodes + nodes // 2 + _SPARE, edges + spare)
        done = _plant(forest, rows, paths, done)
    if is_first:
        nodes, edges = int(forest.used[NODES]), _count_edges(forest)
        forest = _laid_out_afresh(forest, _with_spare(nodes), _with_spare(edges))
    return forest


def paths_held(forest: Forest) -> int:
    """How many paths the trees have."""
    return int(forest.used[PATHS])


def most_bytes(roots: int, paths: int) -> int:
    """Bytes that trees of so many paths take at most, when made."""
    return _with_spare(roots + paths) * _NODE_BYTES + _with_spare(2 * paths) * _EDGE_BYTES + 128


def _with_spare(number: int) -> int:
    """Somewhat more, so that the first few paths that come later find room."""
    return number + number // 8


def _count_edges(forest: Forest) -> int:
    return int(forest.nodes[:, SIZE].sum(dtype=np.int64))


def _allot(roots: int, nodes: int, edges: int) -> Forest:
    return Forest(
        nodes=np.zeros((nodes, NODE_COLUMNS), np.int32),
        freed=np.zeros(nodes, np.int32),
        edges=np.zeros((edges, EDGE_COLUMNS), np.int32),
        slots=np.full(edges + edges // 2 + 8, EMPTY, np.int32),
        used=np.array([roots, roots, 0, 0, 0, 0]),
    )


def _laid_out_afresh(forest: Forest, nodes: int, edges: int) -> Forest:
    fresh = _allot(int(forest.used[ROOTS]), nodes, edges)
    _copy_in_order(forest, fresh)
    return fresh


@kernel
def _plant(forest: Forest, rows: Int32Array, paths: Paths, done: int) -> int:
    """Plant paths from `done` on; return where it had to stop for want of room."""
    nodes, edges, used = forest.nodes, forest.edges, forest.used
    for i in range(done, len(paths.root)):
        at = np.int64(paths.begin[i])
        end = at + paths.length[i]
        node: Int = np.int64(paths.root[i])
        edge: Int = np.int64(-1)
        common: Int = np.int64(0)
        while at < end:
            edge = find_edge(forest, node, np.int64(rows[at]), np.int64(0))
            if edge < 0:
                break
            length = np.int64(edges[edge, LENGTH])
            common = _common(rows, np.int64(edges[edge, BEGIN]), at, min(length, end - at))
            at += common
            if common < length or edges[edge, TARGET] < 0:
                break
            node = np.int64(edges[edge, TARGET])
            edge = np.int64(-1)
        # Nothing is changed before this, and nothing can go wrong after it.
        if not _is_ready(forest, node, bool(edge >= 0)):
            return i
        if edge >= 0:
            node = _fork(forest, rows, edge, common)
        elif nodes[node, SIZE] == nodes[node, ROOM]:
            _widen(forest, node)
        _put(forest, node, rows, at, end - at, np.int64(~paths.box[i]))
        used[PATHS] += 1
    return len(paths.root)


@kernel
def uproot(forest: Forest, rows: Int32Array, paths: Paths) -> None:
    """Take out paths, all of which must be there."""
    edges = forest.edges
    for i in range(len(paths.root)):
        at = np.int64(paths.begin[i])
        end = at + paths.length[i]
        node = np.int64(paths.root[i])
        above: Int = np.int64(-1)  # the edge into `node`
        while True:
            if at == end:
                edge = find_edge(forest, node, np.int64(ALWAYS), np.int64(paths.box[i]))
                break
            edge = find_edge(forest, node, np.int64(rows[at]), np.int64(0))
            if edges[edge, TARGET] < 0:
                break
            at += edges[edge, LENGTH]
            node = np.int64(edges[edge, TARGET])
            above = edge
        _take_out(forest, node, edge)
        if above >= 0 and forest.nodes[node, SIZE] == 1:
            _join(forest, rows, above, node)
        forest.used[PATHS] -= 1


@kernel
def _common(rows: Int32Array, left: Int, right: Int, most: Int) -> Int:
    """How many predicates two stretches of `rows` have in common."""
    for i in range(most):
        if rows[left + i] != rows[right + i]:
            return i
    return most


@kernel
def _is_ready(forest: Forest, node: Int, forking: bool) -> bool:
    """Whether there is room for an edge out of `node`, or for a fork and an edge out of that."""
    nodes, used = forest.nodes, forest.used
    if 4 * (used[SLOTS] + 2) > 3 * len(forest.slots):
        return False
    free = len(forest.edges) - used[EDGES]
    if forking:
        return bool(used[FREED] > 0 or (used[NODES] < len(nodes) and free >= 2))
    return bool(nodes[node, SIZE] < nodes[node, ROOM] or free >= 2 * nodes[node, SIZE] + 2)


@kernel
def _put(forest: Forest, node: Int, rows: Int32Array, begin: Int, length: Int, target: Int) -> None:
    """Give `node`, which has room, one more edge."""
    edge = np.int64(forest.nodes[node, START] + forest.nodes[node, SIZE])
    forest.nodes[node, SIZE] += 1
    _set_edge(forest.edges, edge, rows, begin, length, target)
    enter_edge(forest, node, edge)


@kernel
def _set_edge(
    edges: Int32Array, edge: Int, rows: Int32Array, begin: Int, length: Int, target: Int
) -> None:
    for i in range(HEAD):
        edges[edge, i] = rows[begin + i] if i < length else ALWAYS
    edges[edge, BEGIN] = begin
    edges[edge, LENGTH] = length
    edges[edge, TARGET] = target


@kernel
def _fork(forest: Forest, rows: Int32Array, edge: Int, common: Int) -> Int:
    """Cut an edge after `common` predicates; return the node that is now there."""
    nodes, edges, used = forest.nodes, forest.edges, forest.used
    if used[FREED] > 0:
        used[FREED] -= 1
        node = np.int64(forest.freed[used[FREED]])
    else:
        node = used[NODES]
        used[NODES] += 1
        nodes[node, START] = used[EDGES]
        nodes[node, ROOM] = 2
        used[EDGES] += 2
    begin = np.int64(edges[edge, BEGIN])
    left = edges[edge, LENGTH] - common
    _put(forest, node, rows, begin + common, left, np.int64(edges[edge, TARGET]))
    _set_edge(edges, edge, rows, begin, common, node)
    return node


@kernel
def _join(forest: Forest, rows: Int32Array, above: Int, node: Int) -> None:
    """Undo a fork: `above` goes on with the only edge that is left out of `node`."""
    edges = forest.edges
    edge = np.int64(forest.nodes[node, START])
    # The predicates of both, in the row of a box below.
    begin = np.int64(edges[edge, BEGIN] - edges[above, LENGTH])
    length = np.int64(edges[above, LENGTH] + edges[edge, LENGTH])
    _set_edge(edges, above, rows, begin, length, np.int64(edges[edge, TARGET]))
    _take_out(forest, node, edge)
    forest.freed[forest.used[FREED]] = node
    forest.used[FREED] += 1


@kernel
def _take_out(forest: Forest, node: Int, edge: Int) -> None:
    """Drop an edge out of `node`; the last one takes its place."""
    forest.slots[slot_of_edge(forest, node, edge)] = DELETED
    last = np.int64(forest.nodes[node, START] + forest.nodes[node, SIZE] - 1)
    if edge != last:
        forest.slots[slot_of_edge(forest, node, last)] = edge
        _copy_edge(forest.edges, last, forest.edges, edge)
    forest.nodes[node, SIZE] -= 1


@kernel
def _widen(forest: Forest, node: Int) -> None:
    """Move the edges out of `node` to the end, with twice the room."""
    nodes = forest.nodes
    start = forest.used[EDGES]
    for i in range(nodes[node, SIZE]):
        edge = np.int64(nodes[node, START] + i)
        forest.slots[slot_of_edge(forest, node, edge)] = start + i
        _copy_edge(forest.edges, edge, forest.edges, start + i)
    nodes[node, START] = start
    nodes[node, ROOM] = 2 * nodes[node, SIZE] + 2
    forest.used[EDGES] += nodes[node, ROOM]


@kernel
def _copy_edge(source: Int32Array, edge: Int, target: Int32Array, place: Int) -> None:
    for i in range(EDGE_COLUMNS):
        target[place, i] = source[edge, i]


@kernel
def _copy_in_order(source: Forest, target: Forest) -> None:
    """Copy tree by tree, in the order of a search, so that searches go forward in memory."""
    stack = np.empty(len(target.nodes), np.int32)  # edges in `target` that lead to nodes
    nodes = source.used[ROOTS]
    end = np.int64(0)
    for root in range(nodes):
        node = np.int64(root)
        old = np.int64(root)
        top = 0
        while True:
            start = np.int64(source.nodes[old, START])
            size = source.nodes[old, SIZE]
            target.nodes[node, START] = end
            target.nodes[node, SIZE] = size
            target.nodes[node, ROOM] = size
            for edge in range(start, start + size):
                _copy_edge(source.edges, edge, target.edges, end)
                enter_edge(target, node, end)
                if source.edges[edge, TARGET] >= 0:
                    stack[top] = end
                    top += 1
                end += 1
            if top == 0:
                break
            top -= 1
            node = nodes
            nodes += 1
            old = np.int64(target.edges[stack[top], TARGET])
            target.edges[stack[top], TARGET] = node
    target.used[NODES] = nodes
    target.used[EDGES] = end
    target.used[PATHS] = source.used[PATHS]
