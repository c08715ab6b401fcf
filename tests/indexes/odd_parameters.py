"""Values of every index's parameters that are fine but unusual, and values that are refused."""

from __future__ import annotations

from typing import Any

ODD: dict[str, list[dict[str, Any]]] = {
    "rapid": [
        {"most_ones": 0},
        {"most_ones": 1},
        {"most_ones": 3, "memory_limit": 1 << 28},
        {"most_ones": 20},
    ],
    "rein": [{"cells": 1}, {"cells": 2}, {"cells": 7}, {"cells": 5000}],
    "ada-rein": [
        {"cells": 1},
        {"cells": 7, "rate": 0},
        {"rate": 0.0, "selectivity": 0.5},
        {"selectivity": 1},
    ],
    "hem": [
        {"cells": 1, "groups": 1},
        {"cells": 2, "groups": 1},
        {"cells": 16, "groups": 1},
        {"cells": 16, "groups": 2},
        {"cells": 16, "groups": 16},
        {"cells": 7, "groups": 3},
        {"cells": 7, "groups": 1},
        {"groups": 1000},
    ],
    "siena": [{"cells": 1}, {"cells": 2}, {"cells": 7}, {"cells": 3000}],
    "tama": [{"level": 1}, {"level": 2, "exact": True}, {"level": 5}, {"level": 24}],
    "htree": [
        {"cells": 1},
        {"cells": 2, "indexed": 1},
        {"cells": 40, "indexed": 2},
        {"cells": 3, "indexed": 5, "memory_limit": 1 << 28},
    ],
    "tile": [{"cells": 8}, {"cells": 37}, {"cells": 120}],
}
"""Exact with these as well. Every parameter that an index takes is there."""

COARSE: dict[str, list[dict[str, Any]]] = {
    "ada-rein": [
        {"rate": 0.1},
        {"rate": 0.5, "cells": 7},
        {"rate": 0.9, "selectivity": 0.99},
        {"rate": 0.999, "selectivity": 0.01},
    ],
    "tama": [{"level": level, "exact": False} for level in (1, 4, 13)],
}
"""Matches may be reported that are none, and none is missed."""

NOT_A_NUMBER: list[Any] = [2.5, 16.0, "16", None, True]

BAD: dict[str, dict[str, list[Any]]] = {
    "rapid": {
        "most_ones": [-1, 1_001, *NOT_A_NUMBER],
        "memory_limit": [0, -1, 2**60, *NOT_A_NUMBER],
    },
    "rein": {"cells": [0, -1, 10**9, *NOT_A_NUMBER]},
    "ada-rein": {
        "cells": [0, -1, 10**9, *NOT_A_NUMBER],
        "rate": [-0.1, 1, 2.0, float("inf"), float("nan"), "0.1", None, True],
        "selectivity": [0, -0.5, 1.5, float("nan"), "0.5", True],
    },
    "hem": {"cells": [0, -1, 10**9, *NOT_A_NUMBER], "groups": [0, -1, 1001, *NOT_A_NUMBER]},
    "siena": {"cells": [0, -1, 10**9, *NOT_A_NUMBER]},
    "tama": {"level": [0, -1, 25, *NOT_A_NUMBER], "exact": [None, 0, 1, "yes"]},
    "htree": {
        "cells": [0, -1, 10_001, *NOT_A_NUMBER],
        "indexed": [0, -1, 31, *NOT_A_NUMBER],
        "memory_limit": [0, -1, 2**60, *NOT_A_NUMBER],
    },
    "tile": {"cells": [7, 121, 0, -1, *NOT_A_NUMBER]},
}
"""Refused by the constructor, which names the parameter."""

SMALL: dict[str, dict[str, Any]] = {
    "rapid": {"most_ones": 2},
    "rein": {"cells": 6},
    "ada-rein": {"cells": 5},
    "hem": {"cells": 9, "groups": 3},
    "siena": {"cells": 6},
    "tama": {"level": 4},
    "htree": {"cells": 3, "indexed": 2},
}
"""What makes structures small enough to walk in plain Python."""
