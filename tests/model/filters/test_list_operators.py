"""Operators of lists that sqlglot has in some dialects only."""

from __future__ import annotations

import pytest

import boxmatch as bm
from boxmatch.model.filters import compile_filter

SCHEMA = bm.Schema({"tags": "list of string", "n": "int"})


@pytest.mark.parametrize("text", ["tags && ARRAY['a', 'b']", "ARRAY['a', 'b'] && tags"])
def test_overlapping_lists(text: str) -> None:
    expected = compile_filter(SCHEMA, "ARRAYS_OVERLAP(tags, ARRAY['a', 'b'])")
    assert compile_filter(SCHEMA, text) == expected
    assert expected.residual == ()
    both = compile_filter(SCHEMA, f"{text} AND n > 3")
    assert all(len(box) == 2 for box in both.boxes)


def test_overlap_needs_lists() -> None:
    with pytest.raises(bm.FilterError, match="takes a list, not an int"):
        compile_filter(SCHEMA, "n && 3")
