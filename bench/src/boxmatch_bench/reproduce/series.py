"""The indexes of the experiments, under the names and with the parameters that the papers use."""

from __future__ import annotations

from typing import Any, Final

from boxmatch_bench.reproduce.experiment import Series

TILE: Final = Series("tile", "tile")
"""Our own, in every experiment."""

COUNT: Final = Series("CountMatch", "count")
TREE: Final = Series("TreeMatch", "tree")
RAPID: Final = Series("RAPIDMatch", "rapid")
SIENA: Final = Series("SIENA", "siena")
TAMA: Final = Series("TAMA", "tama", parameters={"level": 13})
HTREE: Final = Series("H-TREE", "htree", parameters={"cells": 6, "indexed": 6})
OPINDEX: Final = Series("OpIndex", "opindex")
HEM: Final = Series("HEM", "hem", parameters={"groups": 32, "cells": 1_000})


def rein(cells: int = 1_000) -> Series:
    """REIN with so many buckets in a list (b, and c in the HEM paper)."""
    return Series("REIN", "rein", parameters={"cells": cells})


def ada_rein(rate: float, cells: int = 1_000) -> Series:
    """Ada-REIN at a tolerated rate of false positives."""
    parameters: dict[str, Any] = {"cells": cells, "rate": rate}
    return Series("Ada-REIN", "ada-rein", parameters=parameters, exact=False)


def skipping_tile(rate: float) -> Series:
    """`tile`, leaving out predicates at the same rate."""
    return Series("tile, skipping", "tile", skipping=rate, exact=False)
