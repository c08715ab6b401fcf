"""The filter language: SQL `WHERE` text or dicts in, boxes and residuals out, and back to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

from boxmatch.errors import FilterError, FilterTooLargeError
from boxmatch.model.dialects.registry import DialectFilter, in_dialect
from boxmatch.model.filters.batches import FilterBatch, Refused, compile_batch, plain_texts
from boxmatch.model.filters.compiled import Bound, Box, CompiledFilter
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.mapping import compile_mapping
from boxmatch.model.filters.rendering import render
from boxmatch.model.filters.scope import DerivedAxis, Scope
from boxmatch.model.filters.shapes import ShapeCache
from boxmatch.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Bound",
    "Box",
    "CompiledFilter",
    "DerivedAxis",
    "FilterBatch",
    "compile_filter",
    "compile_many",
    "plain_texts",
    "render",
]

_SHAPES = ShapeCache()


def compile_filter(
    schema: Schema,
    filter: str | Mapping[str, Any] | DialectFilter,
    *,
    max_boxes: int = 1024,
    time_zone: tzinfo | None = None,
    lists: bool = True,
    dialect: str | None = None,
) -> CompiledFilter:
    """Compile SQL text or a dict to a union of boxes, and a residual if boxes are not enough.

    Timestamps in a text that name no zone are in `time_zone`, or in UTC if it is None. Without
    `lists` no box is on an axis of lists, for an index that does not take them. A filter
    that can never match is fine; its result says so. Filters of another `dialect` than SQL are
    what that has. Raises `FilterError`, or one of the kinds that
    derive from it, with the place in the text.
    """
    if dialect is not None:
        filter = in_dialect(filter, dialect)
    if isinstance(filter, DialectFilter):
        from boxmatch.model.dialects.compiling import compile_dialect

        return compile_dialect(schema, *filter, max_boxes=max_boxes, lists=lists)
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
    filters: Sequence[str | Mapping[str, Any] | DialectFilter],
    *,
    max_boxes: int = 1024,
    time_zone: tzinfo | None = None,
    lists: bool = True,
    texts: pa.ChunkedArray[Any] | None = None,
    skip: bool = False,
) -> tuple[FilterBatch, list[Refused]]:
    """Compile filters; an error names the row, counted from 0, of the filter it is in.

    With `skip` the rows that are wrong are left out, and returned. `texts` are those of the filters
    that are plain texts (`plain_texts`), if they are known.
    """
    return compile_batch(
        schema,
        _SHAPES,
        filters,
        plain_texts(filters) if texts is None else texts,
        partial(compile_filter, schema, max_boxes=max_boxes, time_zone=time_zone, lists=lists),
        max_boxes=max_boxes,
        time_zone=time_zone,
        lists=lists,
        skip=skip,
    )


def _compile_text(
    schema: Schema, text: str, max_boxes: int, zone: tzinfo | None, lists: bool
) -> CompiledFilter:
    from boxmatch.model.filters.sql import parse_text

    scope = Scope(schema)
    condition = parse_text(scope, text, zone)
    return compile_condition(scope, condition, max_boxes, text, lists=lists)
