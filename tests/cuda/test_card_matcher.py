"""A matcher with a card gives the answers of one without."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmatch as bm
from boxmatch.indexes.tile.cuda import card

SCHEMA = {"a": "float", "b": "int", "c": "float"}


def matcher(device: str) -> bm.Matcher:
    made = bm.Matcher(SCHEMA, device=device)
    made.warmup()
    return made


def subscribe(made: bm.Matcher, count: int = 60) -> bm.Matcher:
    rng = np.random.default_rng(1)
    lows = np.stack([rng.normal(size=count), rng.integers(-9, 9, count), rng.random(count)], 1)
    highs = lows + np.array([1.0, 4, 0.3])
    missing = rng.random(lows.shape) < 0.3
    lows[missing] = highs[missing] = np.nan
    made.subscribe_boxes(np.arange(count), lows, highs)
    made.compact()
    return made


def events(count: int = 14) -> Any:
    rng = np.random.default_rng(2)
    some = np.stack([rng.normal(size=count), rng.integers(-9, 9, count), rng.random(count)], 1)
    some[rng.random(some.shape) < 0.1] = np.nan
    some[:4, 0] = [0.0, -0.0, np.inf, -np.inf]
    return some


def same(left: bm.Matcher, right: bm.Matcher, batch: Any) -> None:
    found, wanted = left.match_batch(batch), right.match_batch(batch)
    assert [set(ids.tolist()) for _, ids in found] == [set(ids.tolist()) for _, ids in wanted]
    assert found.counts.tolist() == wanted.counts.tolist()
    assert left.count_batch(batch).tolist() == wanted.counts.tolist()


def test_arrays_tables_and_dicts() -> None:
    on_card, plain = subscribe(matcher("cuda")), subscribe(matcher("cpu"))
    batch = events()
    same(on_card, plain, batch)
    records = [
        {name: value for name, value in zip(SCHEMA, row, strict=True) if value == value}
        for row in batch.tolist()
    ]
    same(on_card, plain, records)
    assert sorted(on_card.match(records[0])) == sorted(plain.match(records[0]))
    assert on_card.memory_usage()["card"] > 0
    assert "card" not in plain.memory_usage()


def test_updates_and_removals_in_between() -> None:
    both = [subscribe(matcher(device)) for device in ("cuda", "cpu")]
    for made in both:
        made.unsubscribe_many([3, 5, 7, 20])
        made.subscribe(100, "a > 0 AND b < 3")
        made.subscribe(4, "c < 0.5 OR b = 2")
    same(*both, events())
    for made in both:
        made.compact()
        made.unsubscribe(100)
    same(*both, events())


def test_residuals_and_overlapping_boxes() -> None:
    both = [bm.Matcher({"a": "float", "t": "string"}, device=one) for one in ("cuda", "cpu")]
    for made in both:
        made.warmup()
        made.subscribe(1, "a > 0 AND t LIKE '%x%'")
        made.subscribe(2, "a > 1 OR a < 5 AND t = 'y'")
        made.subscribe(3, "t = 'y' OR t = 'x'")
        made.compact()
    same(*both, [{"a": float(i), "t": "xyz"[i % 3]} for i in range(6)])


def test_a_saved_matcher_opens_on_either(tmp_path: Path) -> None:
    made = subscribe(matcher("cuda"))
    made.save(tmp_path / "saved")
    on_card = bm.Matcher.load(tmp_path / "saved", device="cuda")
    plain = bm.Matcher.load(tmp_path / "saved")
    assert (on_card.device, plain.device) == ("cuda", "cpu")
    same(on_card, plain, events())
    with bm.Matcher.open(tmp_path / "durable", SCHEMA, device="cuda") as durable:
        subscribe(durable)
        same(durable, plain, events())


def test_what_an_axis_refuses_is_named() -> None:
    made = subscribe(matcher("cuda"))
    batch = events()
    batch[5, 1] = 1.5
    for search in (made.match_batch, made.count_batch):
        with pytest.raises(bm.AttributeValueError, match=r"attribute 'b': 1.5 in row 5 is not"):
            search(batch)


def fail(*_: object, **__: object) -> None:
    raise MemoryError("CUDA_ERROR_OUT_OF_MEMORY")


def lose(*_: object, **__: object) -> None:
    from numba.cuda.cudadrv.error import CudaSupportError

    raise CudaSupportError("CUDA_ERROR_ILLEGAL_ADDRESS")


@pytest.mark.parametrize(
    ("failure", "message"), [(fail, "too little memory"), (lose, "failed, or was lost")]
)
def test_a_card_that_fails(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Any,
    message: str,
) -> None:
    from boxmatch.indexes.tile.cuda.search import CardSearch

    on_card, either = subscribe(matcher("cuda")), subscribe(matcher("auto"))
    plain = subscribe(matcher("cpu"))
    same(either, plain, events())
    monkeypatch.setattr(CardSearch, "search", failure)
    monkeypatch.setattr(card, "_told", set())
    with pytest.raises(bm.DeviceError, match=message):
        on_card.match_batch(events())
    with caplog.at_level(logging.WARNING, "boxmatch"):
        same(either, plain, events())
        same(either, plain, events())
    assert [message in record.message for record in caplog.records] == [True]
