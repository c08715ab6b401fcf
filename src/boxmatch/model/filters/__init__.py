"""The filter language: SQL `WHERE` text or dicts in, boxes and residuals out, and back to text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import Any

from boxmatch.errors import FilterError, FilterTooLargeError
from boxmatch.model.filters.compiled import Bound, Box, CompiledFilter
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.mapping import compile_mapping
from boxmatch.model.filters.rendering import render
from boxmatch.model.filters.scope import DerivedAxis, Scope
from boxmatch.model.filters.shapes import ShapeCache
from boxmatch.model.schema import Schema

__all__ = [
    "Bound",
    "Box",
    "CompiledFilter",
    "DerivedAxis",
    "compile_filter",
    "compile_many",
    "render",
]

_SHAPES = ShapeCache()


def compile_filter(
    schema: Schema,
    filter: str | Mapping[str, Any],
    *,
    max_boxes: int = 1024,
    time_zone: tzinfo | None = None,
    lists: bool = True,
) -> CompiledFilter:
    """Compile SQL text or a dict to a union of boxes, and a residual if boxes are not enough.

    Timestamps in a text that name no zone are in `time_zone`, or in UTC if it is None. Without
    `lists` no box is on an axis of lists, for an index that does not take them. A filter
    that can never match is fine; its result says so. Raises `FilterError`, or one of the kinds that
    derive from it, with the place in the text.
    """
    if isinstance(filter, str):
        if max_boxes < 1:
            raise ValueError(f"max_boxes must be at least 1, not {max_boxes}")
        found = _SHAPES.find(schema, filter, time_zone)
        if found is not None:
            template, constants = found
            try:
                return template.compile(constants, max_boxes, lists=lists)
            except FilterTooLargeError as error:
                raise FilterTooLargeError(error.reason, filter, 0) from None
            except ValueError:
                pass  # again in full, for a message that knows the text and the place
        return _compile_text(schema, filter, max_boxes, time_zone, lists)
    if isinstance(filter, Mapping):
        return compile_mapping(schema, filter, max_boxes, lists=lists)
    if filter is None:
        raise FilterError("there is no filter: it is null")
    raise FilterError(f"a filter is SQL text or a dict, not {type(filter).__name__}")


def compile_many(
    schema: Schema,
    filters: Iterable[str | Mapping[str, Any]],
    *,
    max_boxes: int = 1024,
    time_zone: tzinfo | None = None,
    lists: bool = True,
) -> list[CompiledFilter]:
    """Compile filters in order; an error names the row, counted from 0, of the filter it is in."""
    compiled: list[CompiledFilter] = []
    for row, filter in enumerate(filters):
        try:
            compiled.append(
                compile_filter(
                    schema, filter, max_boxes=max_boxes, time_zone=time_zone, lists=lists
                )
            )
        except FilterError as error:
            located = type(error)(f"row {row}: {error.reason}", error.text, error.position)
            raise located from error
    return compiled


def _compile_text(
    schema: Schema, text: str, max_boxes: int, zone: tzinfo | None, lists: bool
) -> CompiledFilter:
    from boxmatch.model.filters.sql import parse_text

    scope = Scope(schema)
    condition = parse_text(scope, text, zone)
    return compile_condition(scope, condition, max_boxes, text, lists=lists)
