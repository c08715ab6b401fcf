from __future__ import annotations

import pytest

import boxmatch as bm
from boxmatch.indexes import registry
from boxmatch.indexes.registry import index_class, index_names, register
from boxmatch.indexes.scan import ScanIndex


@pytest.fixture(autouse=True)
def _forget_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def test_an_index_of_ones_own_is_found_by_its_name() -> None:
    @register
    class Mine(ScanIndex):
        name = "mine"

    assert index_class("mine") is Mine
    assert index_names()[-1] == "mine"
    matcher = bm.Matcher(bm.Schema({"price": "float"}), index="mine")
    matcher.subscribe("alice", "price > 3")
    assert matcher.match({"price": 4.0}) == ["alice"]
    with pytest.raises(bm.IndexConfigError, match=r"'yours'.*scan.*, mine$"):
        index_class("yours")


def test_the_last_of_a_name_is_taken() -> None:
    """As a cell of a notebook that is run again would have it."""
    kinds = [register(type("Mine", (ScanIndex,), {"name": "mine"})) for _ in range(2)]
    assert index_class("mine") is kinds[1]
    assert index_names().count("mine") == 1


def test_the_names_of_the_package_are_taken() -> None:
    with pytest.raises(bm.IndexConfigError, match="there is an index 'tile' already"):
        register(type("Mine", (ScanIndex,), {"name": "tile"}))
    assert index_class("tile").__name__ == "TileIndex"
