"""Devices that are wrong, and machines without a card."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import pytest

import boxmatch as bm
from boxmatch.indexes.tile import index as tile
from boxmatch.indexes.tile.cuda import card
from boxmatch.indexes.tile.index import TileIndex

SCHEMA = {"a": "float"}


def no_card(number: int) -> None:
    raise bm.DeviceError("there is no card that CUDA can use")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CUDA", "", None, 0])
def test_a_device_that_is_none(device: object) -> None:
    with pytest.raises(bm.IndexConfigError, match="device is 'cpu', 'cuda', 'cuda:N' or 'auto'"):
        bm.Matcher(SCHEMA, device=device)  # type: ignore[arg-type]


def test_an_index_that_does_not_search_on_cards() -> None:
    with pytest.raises(bm.IndexConfigError, match="index 'scan' does not search on a graphics"):
        bm.Matcher(SCHEMA, index="scan", device="cuda")
    assert bm.Matcher(SCHEMA, index="scan", device="auto").device == "auto"


def test_without_a_card_cuda_is_an_error_and_auto_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(card, "check_card", no_card)
    monkeypatch.setattr("boxmatch.engine.subscriptions.check_card", no_card)
    monkeypatch.setattr(card, "_told", set())
    monkeypatch.setattr(tile, "_LEAST_PAIRS_ON_CARD", 1)
    with pytest.raises(bm.DeviceError, match="no card"):
        bm.Matcher(SCHEMA, device="cuda")
    matcher = bm.Matcher(SCHEMA, device="auto")
    matcher.warmup()
    matcher.subscribe_boxes([1, 2], [[0.0], [5.0]], [[6.0], [9.0]])
    matcher.compact()
    with caplog.at_level(logging.WARNING, "boxmatch"):
        for _ in range(2):
            found = matcher.match_batch(np.arange(10.0).reshape(-1, 1))
            assert found.counts.tolist() == [1, 1, 1, 1, 1, 2, 2, 1, 1, 1]
    messages = [record.message for record in caplog.records]
    assert messages == ["batches are matched on the processor: there is no card that CUDA can use"]


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(bm.MissingExtraError, match=r"pip install 'boxmatch\[cuda\]'"):
        bm.Matcher(SCHEMA, device="cuda")


def test_few_events_stay_on_the_processor() -> None:
    index = TileIndex(1)
    index.device = "cuda"
    index.build(bm_boxes())
    assert not index.prefers_whole(100)  # nobody looked for a card
    assert index._card is None


def bm_boxes() -> Any:
    from boxmatch.model.boxes import Boxes

    return Boxes.of(1, [[(0, 1, 5)], [(0, 3, 9)]])
