"""Filters and regions in requests: their size, and one region or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import UnsetType, to_builtins

from boxmatch.broker.http.problems import Problem
from boxmatch.broker.settings import Limits
from boxmatch.spaces.dimensions import ONLY_REGION
from boxmatch.wire.requests import Filter


def check_filter(given: Filter | UnsetType | None, limits: Limits) -> None:
    """Refuse a filter that is longer than the key allows."""
    if given is None or isinstance(given, UnsetType):
        return
    size = len(given.encode() if isinstance(given, str) else orjson.dumps(given))
    if size > limits.filter_bytes:
        raise Problem(
            413, "filter-size", f"a filter has at most {limits.filter_bytes:,} bytes, not {size:,}"
        )


def named_regions(
    region: Mapping[str, Any] | None, regions: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The regions by name, in plain JSON; None if none are given."""
    if region is not None and regions is not None:
        raise Problem(422, "body", "give a region, or regions by name, not both")
    if region is not None:
        regions = {ONLY_REGION: region}
    # Ranges were checked as structs; here and on disk they are what they were in JSON.
    return None if regions is None else to_builtins(regions)
