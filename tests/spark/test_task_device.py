"""A task matches on the card that Spark gave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from boxmatch.engine.matcher import Matcher
from boxmatch.spark.segments import open_segment
from boxmatch.spark.worker import task_device


def in_a_task(monkeypatch: pytest.MonkeyPatch, resources: Mapping[str, list[str]] | None) -> None:
    context: Any = None
    if resources is not None:
        given = {name: SimpleNamespace(addresses=one) for name, one in resources.items()}
        context = SimpleNamespace(resources=lambda: given)
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)


@pytest.mark.parametrize(
    ("resources", "device"),
    [
        (None, "cpu"),
        ({}, "cpu"),
        ({"fpga": ["0"]}, "cpu"),
        ({"gpu": []}, "cpu"),
        ({"gpu": ["0"]}, "auto:0"),
        ({"gpu": ["3", "4"]}, "auto:3"),
        ({"gpu": ["GPU-6a1d"]}, "auto"),
    ],
)
def test_the_card_of_a_task(
    monkeypatch: pytest.MonkeyPatch, resources: Mapping[str, list[str]] | None, device: str
) -> None:
    in_a_task(monkeypatch, resources)
    assert task_device() == device


def test_a_segment_is_opened_for_a_card(tmp_path: Path) -> None:
    matcher = Matcher({"a": "float"})
    matcher.subscribe_boxes([1], [[0.0]], [[1.0]])
    matcher.save(tmp_path / "segments" / "one" / "matcher")
    for device in ("auto:1", "cpu"):
        opened = open_segment(str(tmp_path), "one", device).matcher
        assert opened is not None
        assert opened.device == device
        assert opened.snapshot.views[0].store.index_of(1).device == device
