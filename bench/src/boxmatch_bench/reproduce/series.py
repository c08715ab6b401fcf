"""The indexes of the experiments, under the names and with the parameters that the papers use."""

from __future__ import annotations

from typing import Any, Final

from boxmatch_bench.reproduce.experiment import Series

TILE: Final = Series(label="tile", index="tile")
"""Our own, in every experiment."""

COUNT: Final = Series(label="CountMatch", index="count")
TREE: Final = Series(label="TreeMatch", index="tree")
RAPID: Final = Series(label="RAPIDMatch", index="rapid")
SIENA: Final = Series(label="SIENA", index="siena")
TAMA: Final = Series(label="TAMA", index="tama", parameters={"level": 13})
HTREE: Final = Series(label="H-TREE", index="htree", parameters={"cells": 6, "indexed": 6})
OPINDEX: Final = Series(label="OpIndex", index="opindex")
HEM: Final = Series(label="HEM", index="hem", parameters={"groups": 32, "cells": 1_000})


def rein(cells: int = 1_000) -> Series:
    """REIN with so many buckets in a list (b, and c in the HEM paper)."""
    return Series(label="REIN", index="rein", parameters={"cells": cells})


def ada_rein(rate: float, cells: int = 1_000) -> Series:
    """Ada-REIN at a tolerated rate of false positives."""
    parameters: dict[str, Any] = {"cells": cells, "rate": rate}
    return Series(label="Ada-REIN", index="ada-rein", parameters=parameters, exact=False)


def skipping_tile(rate: float) -> Series:
    """`tile`, leaving out predicates at the same rate."""
    return Series(label="tile, skipping", index="tile", skipping=rate, exact=False)
