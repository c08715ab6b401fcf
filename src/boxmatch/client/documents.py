"""Requests as JSON, out of what users write: filters, ranges, schemas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from msgspec.structs import fields, replace

from boxmatch.errors import AttributeValueError, ClientError
from boxmatch.model.dialects.registry import SQL
from boxmatch.wire.requests import RequestBody
from boxmatch.wire.responses import Receipt

if TYPE_CHECKING:
    from boxmatch.model.schema import Schema


def _dump(value: Any) -> bytes:
    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NAIVE_UTC)
    except TypeError as error:
        raise ClientError(f"this cannot be said in JSON: {error}") from None
    if b"null" in text and (found := find_not_finite(value)) is not None:
        raise ClientError(found)
    return text


def find_not_finite(value: Any, name: object = None) -> str | None:
    """Where there is a NaN or an infinity, for which the encoder writes null; None if nowhere."""
    if isinstance(value, Mapping):
        found = (find_not_finite(inner, key) for key, inner in value.items())
    elif isinstance(value, (list, tuple)):
        found = (find_not_finite(inner, name) for inner in value)
    else:
        from boxmatch.model.keys import NO_PLACE, is_nan

        if is_nan(value):
            return f"{name!r} is {value}, which {NO_PLACE}"
        try:
            infinite = value in (float("inf"), float("-inf"))
        except (TypeError, ValueError):  # arrays, and pandas' NA
            infinite = False
        return f"{name!r} is infinite, which JSON cannot say" if infinite else None
    return next((one for one in found if one is not None), None)


def body_of(request: RequestBody) -> bytes:
    """A request as JSON, without what the broker would take it to be anyway."""
    return _dump(
        {
            encoded: value
            for name, encoded, default in _fields(type(request))
            if (value := getattr(request, name)) is not default
        }
    )


@cache
def _fields(kind: type[RequestBody]) -> list[tuple[str, str, Any]]:
    return [(one.name, one.encode_name, one.default) for one in fields(kind)]


def read_receipt(receipt: Receipt) -> Receipt:
    """Numbers start at 1: a 0 says that there is none yet."""
    return replace(receipt, first=receipt.first or None, last=receipt.last or None)


def join_receipts(before: Receipt, later: Receipt) -> Receipt:
    if before.count == 0:
        return later
    return Receipt(
        before.first,
        later.last,
        before.count + later.count,
        before.durable and later.durable,
        before.repeated and later.repeated,
    )


def number_among_all(error: ClientError, published: int) -> ClientError:
    """The error of one of several requests, its event numbered among all of them."""
    if not published:
        return error
    problem = error.problem | {"published": published}
    index = problem.get("index")
    reason = f"{error} (after {published:,} events that were published"
    if isinstance(index, int):
        problem["index"] = index + published
        reason += f"; it is event {index + published:,} of all"
    return ClientError(reason + ")", status=error.status, problem=problem)


def schema_json(schema: Schema | Mapping[str, Any]) -> Any:
    from boxmatch.model.schema import Schema

    return orjson.loads(Schema(schema).to_json())


def retention_json(retention: Mapping[Any, float] | None) -> Any:
    """How long a log is kept, as it is sent."""
    return None if retention is None else dict(retention)


def start_json(start: int | datetime | str | None) -> Any:
    """Where a replay begins or ends, as it is sent. A time without a zone is UTC."""
    return start.isoformat() if isinstance(start, datetime) else start


def filter_json(filter: str | Mapping[str, Any] | None, dialect: str | None = None) -> Any:
    """A filter as it is sent: a range of SQL is an object, since a tuple would become a list of
    values.
    """
    if not isinstance(filter, Mapping) or dialect not in (None, SQL):
        return filter
    return {name: _wanted(name, wanted) for name, wanted in filter.items()}


def dialects_by_id(
    filters: Mapping[str, Any], dialect: str | Mapping[str, str | None] | None
) -> dict[str, str]:
    """The dialects of filters; those that are not in it are SQL."""
    if dialect is None or isinstance(dialect, str):
        return {} if dialect is None else dict.fromkeys(filters, dialect)
    for id in dialect:
        if id not in filters:
            raise ClientError(f"there is a dialect for {id!r}, and no filter")
    return {id: one for id, one in dialect.items() if one is not None}


def _wanted(name: str, wanted: Any) -> Any:
    if isinstance(wanted, Mapping):
        return wanted  # a range, or a test of a text
    return list(wanted) if isinstance(wanted, (set, frozenset)) else _range(name, wanted)


def regions_json(regions: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Regions as they are sent: a range is an object here too."""
    return {
        space: None if region is None else {name: _range(name, one) for name, one in region.items()}
        for space, region in regions.items()
    }


def _range(name: str, given: Any) -> Any:
    from boxmatch.model.interval import as_mapping

    try:
        return as_mapping(name, given)
    except AttributeValueError as error:
        raise ClientError(str(error)) from None
