"""Published figures name a seed; the rows behind it must stay what they were."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from chunking import EDGE

from boxmatch.workloads import EqualityWorkload, MarketWorkload, RangeWorkload


def digest(*arrays: npt.NDArray[Any]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(str(array.dtype).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digest_of_table(table: pa.Table) -> str:
    return hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest()[:16]


def test_first_rows() -> None:
    workload = RangeWorkload()
    assert workload.boxes(0, 1).row(0)[:2] == [(1, 341879, 641879), (2, 164426, 464426)]
    assert workload.events(0, 1)[0, :3].tolist() == [921154, 480658, 566282]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, "05cb2be55c751059"),
        ({"attributes": 300, "event_size": 20, "seed": 7}, "ba30411a1764ba4a"),
        ({"attributes": 6, "predicates": 6, "event_size": 3, "width": 0.0}, "259577c7e9f1eb0d"),
        (
            {"attribute_choice": "zipf", "attribute_alpha": 1.5, "event_size": 12},
            "e4ab25f8cf0ff0c5",
        ),
        ({"values": "zipf"}, "c46860161d226ceb"),
        ({"values": "pareto", "value_alpha": 1.2}, "94f8c8c1ee2734fa"),
        ({"values": "normal", "width": 0.7}, "c4ba61fdc3c81d0b"),
        ({"domain": 1000, "width": 1.0}, "a4ea1aa130e0f687"),
    ],
)
def test_ranges(parameters: dict[str, Any], expected: str) -> None:
    workload = RangeWorkload(**parameters)
    _, *boxes = workload.boxes(EDGE - 500, EDGE + 500)
    keys = workload.event_keys(EDGE - 200, EDGE + 200)
    assert digest(*boxes, keys, workload.events(0, 100)) == expected


def test_equality() -> None:
    workload = EqualityWorkload()
    wanted = workload.subscription_codes(EDGE - 500, EDGE + 500)
    events = workload.event_codes(EDGE - 200, EDGE + 200)
    assert digest(*wanted.values(), *events.values()) == "89517a58635e2383"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ticks", "9d807b15d5adea6f"),
        ("alerts", "552263722e179d31"),
        ("alert_texts", "c5d7e39e8efe080a"),
        ("odd_texts", "0b21ea4e5c5a0e58"),
    ],
)
def test_market(name: str, expected: str) -> None:
    make = getattr(MarketWorkload(), name)
    assert digest_of_table(make(EDGE - 200, EDGE + 200)) == expected
