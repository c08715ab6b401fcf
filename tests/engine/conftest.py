from __future__ import annotations

import sys
from pathlib import Path

import pytest

import boxmatch as bm

# The evaluator of filters in plain Python lives beside the tests of the filter language.
sys.path.insert(0, str(Path(__file__).parents[1] / "model" / "filters"))


@pytest.fixture(autouse=True, scope="session")
def compiled() -> None:
    """Tests that run against the clock must not wait for the compiler."""
    bm.Matcher(bm.Schema({"x": "int"})).warmup()
