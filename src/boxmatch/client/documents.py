"""The JSON that goes to the broker and comes from it, where it is more than plain fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boxmatch.client.exchange import Answer
from boxmatch.client.results import Feed, Receipt, read
from boxmatch.errors import AttributeValueError, ClientError

if TYPE_CHECKING:
    from boxmatch.engine.explain import Explanation
    from boxmatch.model.schema import Schema


def dumped(value: Any) -> bytes:
    import orjson

    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NAIVE_UTC)
    except TypeError as error:
        raise ClientError(f"this cannot be said in JSON: {error}") from None
    if b"null" in text and (found := unsaid(value)) is not None:
        raise ClientError(found)
    return text


def unsaid(value: Any, name: object = None) -> str | None:
    """Where there is a NaN or an infinity, for which the encoder writes null; None if nowhere."""
    if isinstance(value, Mapping):
        found = (unsaid(inner, key) for key, inner in value.items())
    elif isinstance(value, (list, tuple)):
        found = (unsaid(inner, name) for inner in value)
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


def given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}


def query_of(**wanted: float | str | None) -> dict[str, str]:
    return {name: str(value) for name, value in wanted.items() if value is not None}


def list_in(document: Any, name: str) -> list[Any]:
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise ClientError(f"the broker's answer has no list of {name}: {document!r:.200}")
    return found


def read_receipt(answer: Answer) -> Receipt:
    document = answer.json()
    # Numbers start at 1: a 0 says that there is none yet.
    numbers = {name: document.get(name) or None for name in ("first", "last")}
    return read(Receipt, document | numbers)


def joined(before: Receipt, later: Receipt) -> Receipt:
    if before.count == 0:
        return later
    return Receipt(
        before.first,
        later.last,
        before.count + later.count,
        before.durable and later.durable,
        before.repeated and later.repeated,
    )


def placed(error: ClientError, published: int) -> ClientError:
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
    import orjson

    from boxmatch.model.schema import Schema

    return orjson.loads(Schema(schema).to_json())


def read_feed(document: Any) -> Feed:
    from boxmatch.model.schema import Schema

    if not isinstance(document, dict) or "name" not in document:
        raise ClientError(f"the broker's answer is not a feed: {document!r:.200}")
    spaces = document.get("spaces") or {document["name"]: document.get("schema") or {}}
    return read(Feed, document | {"spaces": {name: Schema(one) for name, one in spaces.items()}})


def filter_json(filter: str | Mapping[str, Any] | None) -> Any:
    """A filter as it is sent: a range is an object, since a tuple would become a list of values."""
    if not isinstance(filter, Mapping):
        return filter
    return {
        name: list(wanted) if isinstance(wanted, (set, frozenset)) else _range(name, wanted)
        for name, wanted in filter.items()
    }


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


def read_explanation(document: Any, subscription: str) -> Explanation:
    from boxmatch.engine.explain import Explanation, Predicate

    alternatives = tuple(
        tuple(
            Predicate(one["attribute"], one["wanted"], one["got"], one["satisfied"])
            for one in alternative
        )
        for alternative in list_in(document, "alternatives")
    )
    return Explanation(subscription, document["matched"], alternatives)
