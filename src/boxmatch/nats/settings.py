"""What all workers of a route agree on: it stands in the route's bucket."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from boxmatch.errors import FilterError, RouteError, SchemaError
from boxmatch.model.dialects.registry import in_dialect
from boxmatch.model.filters import compile_filter
from boxmatch.model.schema import Schema
from boxmatch.wire.codec import encode
from boxmatch.wire.http import ARROW, CLOUDEVENT, CLOUDEVENTS, JSON, NDJSON
from boxmatch.wire.requests import Attributes, Dialect, Filter, NameText, Unknown

Format = Literal["json", "ndjson", "cloudevents", "cloudevents-batch", "arrow"]
MEDIA_TYPES: Final[dict[Format, str]] = {
    "json": JSON,
    "ndjson": NDJSON,
    "cloudevents": CLOUDEVENT,
    "cloudevents-batch": CLOUDEVENTS,
    "arrow": ARROW,
}
MOST_SHARDS: Final = 1024


class FeedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of one kind."""

    subject: str = ""
    """Of its events, possibly with wildcards; ROUTE.in.FEED if none is given."""
    schema: Attributes | None = None
    """Without one, events may have any attributes."""
    unknown: Unknown = "refuse"
    format: Format = "json"
    """Of messages without a Content-Type."""


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route: which events, how they are read, and how the work is shared."""

    feeds: Annotated[dict[NameText, FeedSettings], Meta(min_length=1)]
    stream: str = ""
    """That has the events; if none is given, `init` makes one."""
    shards: Annotated[int, Meta(ge=1, le=MOST_SHARDS)] = 1
    """Into how many parts subscribers are cut; each has its own workers."""
    ordered: bool = False
    """One message at a time, for the order of the stream whatever fails."""
    ack_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """After which another worker gets what one has not finished."""
    max_deliver: Annotated[int, Meta(ge=1, le=1_000_000)] = 5
    """A message that was delivered more often is matched alone, once more: it may end workers."""
    version: Annotated[int, Meta(ge=1, le=1)] = 1
    """Of these settings."""

    def schemas(self) -> dict[str, Schema]:
        """By feed. `RouteError` names the feed whose schema makes no sense."""
        found = {}
        for name, feed in self.feeds.items():
            try:
                spec = None if feed.schema is None else msgspec.to_builtins(feed.schema)
                found[name] = Schema(spec)
            except SchemaError as error:
                raise RouteError(f"feed {name!r}: {error}") from None
        return found

    def encode(self) -> bytes:
        return encode(self)


class StoredSubscription(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A subscription, as its key in the bucket has it."""

    feed: str
    filter: Filter
    dialect: Dialect | None = None


def read_settings(data: bytes | dict[str, Any], where: str) -> RouteSettings:
    """The settings out of JSON, or out of a table. `RouteError` says what is wrong."""
    try:
        if isinstance(data, bytes):
            return msgspec.json.decode(data, type=RouteSettings)
        return msgspec.convert(data, RouteSettings)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RouteError(f"{where}: {error}") from None


def check_subscription(settings: RouteSettings, wanted: StoredSubscription) -> None:
    """`RouteError` or `FilterError` if workers would refuse it."""
    if wanted.feed not in settings.feeds:
        known = ", ".join(map(repr, settings.feeds))
        raise RouteError(f"there is no feed {wanted.feed!r}; there are {known}")
    if wanted.filter is None:
        raise FilterError("a subscription needs a filter")
    given = in_dialect(wanted.filter, wanted.dialect)
    compile_filter(settings.schemas()[wanted.feed], given)
