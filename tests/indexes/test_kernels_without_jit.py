"""The kernels as plain Python, where an index out of range is an error and not a crash.

They run in processes of their own, since the JIT is switched off at import.
"""

from __future__ import annotations

import inspect
import operator
import os
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmatch.indexes.registry import index_class, index_names

HERE = Path(__file__).parent


def main(name: str, source: str) -> None:
    """What the process runs: the index of that name, which is in that file."""
    from boxmatch.kernels.jit import kernel

    if hasattr(kernel(lambda: None), "py_func"):
        raise SystemExit("the JIT is on")
    np.seterr(over="ignore")  # kernels count on arithmetic modulo 2**64, as machines do it
    if name not in index_names():
        runpy.run_path(source)  # registers it
    run_tile() if name == "tile" else run(name)


def run(name: str) -> None:
    """A case of each kind, then boxes that come and go."""
    from box_oracle import BOOLEAN_KINDS, KINDS, large_boolean_case, large_case, with_lists
    from odd_parameters import SMALL

    from boxmatch.indexes.registry import index_class

    capabilities, parameters = index_class(name).capabilities, SMALL.get(name, {})
    cases = []
    if capabilities.ranges:
        cases += [large_case(kind, 90, 15, seed=1, odd=0.1) for kind in KINDS]
        cases += [large_case("edges", *sizes, seed=2) for sizes in ((520, 3), (0, 9), (9, 0))]
    if capabilities.booleans:
        cases += [large_boolean_case(kind, 90, 15, seed=3) for kind in BOOLEAN_KINDS]
    if capabilities.lists:
        check(name, with_lists(large_case("edges", 90, 15, seed=4), [0, 2], 3, seed=4))
    for case in cases:
        check(name, case, **parameters)
        if capabilities.updates:
            check_updates(name, case, **parameters)


def check(name: str, case: Any, **parameters: Any) -> None:
    from box_oracle import build, check_answers, holders_of_many

    index, order = build(name, case.boxes, **parameters)
    expected = holders_of_many(*case)
    check_answers(index, order, case.points, expected, singles=3, lists=case.lists)
    alive = np.random.default_rng(1).random(case.boxes.count) < 0.6
    check_answers(index, order, case.points, expected, alive, singles=3, lists=case.lists)
    if index.capabilities.approximate:
        skipped = np.arange(case.boxes.dimensions) % 2 == 0
        counts = index.count(case.points, None, skipped, lists=case.lists)
        if any(map(operator.lt, counts.tolist(), map(len, expected))):
            raise SystemExit("matches are lost by skipping")


def check_updates(name: str, case: Any, **parameters: Any) -> None:
    from box_oracle import build, check_answers, holders_of_many

    from boxmatch.indexes import updatable

    updatable._FITTED_AT_LEAST = 5
    count = case.boxes.count
    index, _ = build(name, case.boxes.take(np.arange(count // 4)), **parameters)
    for first, last in pairwise([count // 4, count // 4, count // 4 + count // 8, count]):
        index.add(case.boxes.take(np.arange(first, last)))
    gone = np.random.default_rng(2).permutation(count)[: count // 2]
    index.remove(gone)
    expected = [rows - set(gone.tolist()) for rows in holders_of_many(case.boxes, case.points)]
    check_answers(index, list(range(count)), case.points, expected, singles=3)


def run_tile() -> None:
    """Blocks are small here, so that a few hundred events fill several of them, and lines cost
    more, so that blocks pay in some cases.
    """
    from box_oracle import Case, large_case, with_lists

    from boxmatch.indexes.registry import index_class
    from boxmatch.indexes.tile import blocks, lists, search
    from boxmatch.indexes.tile import index as tile_index
    from boxmatch.model.boxes import Boxes

    lists._BLOCK = search._BLOCK = 128
    lists._MOST_UNVERIFIED = 600
    search._MOST_UNVERIFIED = 600
    tile_index.LEAST_EVENTS = 60
    blocks.BLOCK_EVENTS = 100
    blocks._CHECK_COST = 20.0
    blocks._KEY_COST = 0.0
    block_search = tile_index.BlockSearch
    searched = []

    def by_blocks(state: Any) -> Any:
        searched.append(len(state.box_low))
        return block_search(state)

    tile_index.BlockSearch = by_blocks
    for seed, (kind, count, events) in enumerate(
        [
            ("uniform", 600, 150),
            ("zipf", 530, 129),
            ("equality", 600, 200),
            ("attributes", 300, 110),
            ("sizes", 200, 120),
            ("dense", 530, 130),
            ("edges", 600, 59),
            ("edges", 300, 201),
            ("edges", 3, 70),
            ("edges", 0, 130),
            ("edges", 40, 0),
            ("dense", 40, 0),
        ]
    ):
        check("tile", large_case(kind, count, events, seed))
    for kind, count, events in [("uniform", 600, 150), ("dense", 300, 20), ("edges", 530, 59)]:
        check("tile", with_lists(large_case(kind, count, events, seed=5), [0, 1, 3], 4, seed=5))
    label = np.repeat(np.arange(-900, 900, 3), 2)
    for columns in ([label], [label, label % 3]):
        keys = np.stack(columns, axis=1).reshape(-1)
        axes = np.tile(np.arange(len(columns), dtype=np.uint16), len(label))
        start = np.arange(0, len(keys) + 1, len(columns))
        labelled = Boxes(2, start, axes, keys, keys.copy())
        check("tile", with_lists(Case(labelled, np.zeros((140, 2), np.int64)), [0], 12, seed=6))
    if len(set(searched)) < 2:
        raise SystemExit(f"searched blocks: {searched}")
    never = Boxes.of(1, [[(0, 3, 3)]] * 700)
    index = index_class("tile")(1)
    index.build(never)
    if index.count(np.full((200, 1), 3)).tolist() != [700] * 200:
        raise SystemExit("duplicates are not counted")


A_FEW = ("tile", "rein", "tree")
"""One that is used most, one that takes changes by way of the parts that most others share, and
one of expressions: what `make test` has time for."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in A_FEW else pytest.mark.slow) for n in index_names()],
)
def test_kernels_as_plain_python(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, name, inspect.getfile(index_class(name))],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    main(*sys.argv[1:])
