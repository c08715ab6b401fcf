"""The edges of search trees: how they are stored, and how one of very many is found.

See `forest` for what they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array
from boxmatch.indexes.papers.parts.predicates import ALWAYS, mixed, slot_for
from boxmatch.kernels.jit import kernel

# Columns of `Forest.nodes`.
START: Final = 0
SIZE: Final = 1
ROOM: Final = 2
NODE_COLUMNS: Final = 3

# Columns of `Forest.edges`, which make half a line of the cache.
HEAD: Final = 5
BEGIN: Final = 5
LENGTH: Final = 6
TARGET: Final = 7
EDGE_COLUMNS: Final = 8

# Places in `Forest.used`.
ROOTS: Final = 0
NODES: Final = 1
FREED: Final = 2
EDGES: Final = 3
SLOTS: Final = 4
PATHS: Final = 5

# What a slot of the hash table holds, if not an edge.
EMPTY: Final = -1
DELETED: Final = -2


class Forest(NamedTuple):
    """Trees with their roots at nodes 0, 1, …

    A node has `START`, the first of the edges out of it; `SIZE`, how many they are; and `ROOM`, how
    many fit there. An edge has its first `HEAD` predicates, filled up with `ALWAYS`; `BEGIN`, where
    in `rows` all of them are, and `LENGTH`, their number; and `TARGET`, the node that it leads to
    or, if negative, `~` the box. A box whose path ends at a node has an edge there that asks for
    nothing. `freed` lists nodes to use again. `slots` is the hash table of edges; `used` says how
    far the arrays are filled.
    """

    nodes: Int32Array
    freed: Int32Array
    edges: Int32Array
    slots: Int32Array
    used: Int64Array


# In the hash table an edge is known by its node and its first predicate or, if it asks for nothing,
# its box. Where there is a predicate, the box does not count and is given as 0.


@kernel
def _first_slot(forest: Forest, node: Int, first: Int, box: Int) -> Int:
    state = mixed(mixed(mixed(np.uint64(0), np.uint64(node)), np.uint64(first)), np.uint64(box))
    return slot_for(state, len(forest.slots))


@kernel
def _slot_of(forest: Forest, node: Int, first: Int, box: Int) -> Int:
    """The slot of an edge, or the empty one that shows that there is none."""
    edges, slots = forest.edges, forest.slots
    start = forest.nodes[node, START]
    end = start + forest.nodes[node, SIZE]
    slot = _first_slot(forest, node, first, box)
    while slots[slot] != EMPTY:
        edge = slots[slot]
        if (
            start <= edge < end
            and edges[edge, 0] == first
            and (first != ALWAYS or edges[edge, TARGET] == ~box)
        ):
            break
        slot += 1
        if slot == len(slots):
            slot = 0
    return slot


@kernel
def find_edge(forest: Forest, node: Int, first: Int, box: Int) -> Int:
    """An edge out of `node`, or -1."""
    return np.int64(forest.slots[_slot_of(forest, node, first, box)])


@kernel
def _own_box(edges: Int32Array, edge: Int) -> Int:
    return np.int64(~edges[edge, TARGET] if edges[edge, 0] == ALWAYS else 0)


@kernel
def slot_of_edge(forest: Forest, node: Int, edge: Int) -> Int:
    edges = forest.edges
    return _slot_of(forest, node, np.int64(edges[edge, 0]), _own_box(edges, edge))


@kernel
def enter_edge(forest: Forest, node: Int, edge: Int) -> None:
    """Put a new edge into the table, which has room."""
    edges, slots = forest.edges, forest.slots
    slot = _first_slot(forest, node, np.int64(edges[edge, 0]), _own_box(edges, edge))
    while slots[slot] >= 0:
        slot += 1
        if slot == len(slots):
            slot = 0
    if slots[slot] == EMPTY:
        forest.used[SLOTS] += 1
    slots[slot] = edge
