"""Filters and regions in requests: their size, and one region or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from boxmatch.broker.http.problems import Problem
from boxmatch.broker.settings import Limits
from boxmatch.spaces.dimensions import ONLY_REGION


def checked_filter(given: str | Mapping[str, Any], limits: Limits) -> str | Mapping[str, Any]:
    """The filter, if it is not longer than the key allows."""
    size = len(given.encode() if isinstance(given, str) else orjson.dumps(given))
    if size > limits.filter_bytes:
        raise Problem(
            413, "filter-size", f"a filter has at most {limits.filter_bytes:,} bytes, not {size:,}"
        )
    return given


def checked_text(given: str | None, limits: Limits) -> str | None:
    """A filter on regions, which is a text or nothing, if it is not longer than the key allows."""
    if given is not None:
        checked_filter(given, limits)
    return given


def named_regions(
    region: Mapping[str, Any] | None, regions: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The regions by name, in plain JSON; None if none are given."""
    if region is not None and regions is not None:
        raise Problem(422, "body", "give a region, or regions by name, not both")
    if region is not None:
        regions = {ONLY_REGION: region}
    return None if regions is None else {name: _plain(one) for name, one in regions.items()}


def _plain(region: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if region is None:
        return None
    return {
        dimension: given.model_dump(exclude_unset=True) if isinstance(given, BaseModel) else given
        for dimension, given in region.items()
    }
