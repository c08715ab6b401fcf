"""The kernels as plain Python, where an index out of range is an error and not a crash.

They run in a process of their own, since the JIT is switched off at import. Blocks are made small
there, so that a few hundred events fill several of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent


def main(name: str) -> None:
    """What the process runs: `name` is the index."""
    from box_oracle import check_answers, check_order, holders_of_many, large_case

    from boxmatch.indexes.registry import index_class
    from boxmatch.indexes.tile import index as tile_index
    from boxmatch.indexes.tile import search
    from boxmatch.model.boxes import Boxes

    if hasattr(search.search_batch, "py_func"):
        raise SystemExit("the JIT is on")
    np.seterr(over="ignore")  # kernels count on arithmetic modulo 2**64, as machines do it
    search._BLOCK = 128
    search._DOUBTS = 600
    tile_index.SWEEP_EVENTS = 60
    tile_index.SWEEP_BLOCK = 100
    order_events = tile_index.order_events
    swept = []

    def ordered(points: Any) -> Any:
        swept.append(len(points))
        return order_events(points)

    tile_index.order_events = ordered
    for seed, (kind, count, events) in enumerate(
        [
            ("uniform", 600, 150),
            ("clustered", 530, 130),
            ("zipf", 530, 129),
            ("equality", 600, 300),
            ("attributes", 530, 59),
            ("attributes", 300, 110),
            ("sizes", 300, 59),
            ("sizes", 200, 120),
            ("dense", 530, 59),
            ("dense", 530, 230),
            ("edges", 600, 59),
            ("edges", 300, 201),
            ("edges", 3, 70),
            ("edges", 0, 130),
            ("edges", 40, 0),
            ("dense", 40, 0),
        ]
    ):
        case = large_case(kind, count, events, seed)
        index = index_class(name)(case.boxes.dimensions)
        order = check_order(index, case.boxes, index.build(case.boxes))
        expected = holders_of_many(case.boxes, case.points)
        check_answers(index, order, case.points, expected, singles=3)
        alive = np.random.default_rng(seed).random(count) < 0.6
        check_answers(index, order, case.points, expected, alive, singles=3)
    if name == "tile" and len(set(swept)) < 2:
        raise SystemExit(f"swept blocks: {swept}")
    never = Boxes.of(1, [[(0, 3, 3)]] * 700)
    index = index_class(name)(1)
    index.build(never)
    if index.count(np.full((200, 1), 3)).tolist() != [700] * 200:
        raise SystemExit("duplicates are not counted")


@pytest.mark.parametrize("name", ["scan", "tile"])
def test_kernels_as_plain_python(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, name],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    main(sys.argv[1])
