"""A card, or the simulator: `NUMBA_ENABLE_CUDASIM=1 pytest tests/cuda`."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmatch.errors import BoxmatchError
from boxmatch.indexes.tile import index as tile
from boxmatch.indexes.tile.cuda.card import check_card

sys.path.append(str(Path(__file__).parents[1] / "indexes"))  # for box_oracle

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def _shared_array(shared: Any, shape: Any, dtype: Any, alignment: object = None) -> Any:
    """As in the simulator, but one for all threads of a block even if they ask at the same time."""
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    with _sharing:
        if place not in shared._allocations:
            shared._allocations[place] = np.empty(shape, dtype)
            taken = sum(array.nbytes for array in shared._allocations.values())
            assert taken <= 48 << 10, "older cards have no more for a block"
        return shared._allocations[place]


_sharing = threading.Lock()

if SIMULATED:
    from numba.cuda.simulator import kernelapi

    kernelapi.FakeCUDAShared.array = _shared_array
    # A block has a thread for each of its own, which wait for each other all the time.
    sys.setswitchinterval(1e-4)


def _why_not() -> str | None:
    try:
        check_card(0)
    except BoxmatchError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    why = _why_not() if mine else None
    for item in mine:
        # In the simulator, numbers of NumPy wrap where those of a card do.
        item.add_marker(pytest.mark.filterwarnings("ignore:overflow encountered"))
        if why is not None:
            item.add_marker(pytest.mark.skip(f"tests/indexes/test_simulated_card.py: {why}"))


@pytest.fixture(autouse=True)
def everything_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile, "_LEAST_ON_CARD", 1)
    monkeypatch.setattr(tile, "_LEAST_PAIRS_ON_CARD", 1)
    from boxmatch.indexes.tile.cuda import search

    monkeypatch.setattr(search, "_LENT", 64)
