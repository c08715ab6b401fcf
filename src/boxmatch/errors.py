"""Every error that Boxmatch raises on purpose.

```
BoxmatchError
├── SchemaError            (ValueError)   a schema that makes no sense
├── AttributeValueError    (ValueError)   a value that does not fit its attribute's type or domain
├── EventError             (ValueError)   an event batch of a wrong shape or kind
├── FilterError            (ValueError)   a filter that cannot be compiled; says what and where
│   ├── FilterSyntaxError                 the text is not a WHERE expression
│   ├── UnsupportedFilterError            valid SQL that is no condition on one event
│   ├── UnknownAttributeError             names an attribute that the schema lacks
│   ├── FilterTooLargeError               has more boxes, expressions or text than allowed
│   └── RegionFilterError                 a filter over the names of regions that makes no sense
├── SubscriptionIdError    (TypeError)    an id of the wrong kind
├── UnknownSubscriptionError (KeyError)   no such id
├── DuplicateSubscriptionError (ValueError) one id twice in one call
├── RegionError            (ValueError)   a region that makes no sense in these spaces
├── UnknownMemberError     (KeyError)     no such publication or subscription in these spaces
├── DuplicateMemberError   (ValueError)   a publication or subscription of this id is there already
├── IndexConfigError       (ValueError)   no such index, or a parameter that it does not take
│   └── IndexTooLargeError (MemoryError)  the index would take more memory than it may
├── DeviceError            (RuntimeError) no card to match on, or one that failed
├── ResultTooLargeError    (MemoryError)  the matches of a batch would not fit into memory
├── StorageError           (OSError)      a saved matcher that cannot be read or written
├── SparkError             (ValueError)   a DataFrame, path or setting that does not serve
├── BrokerError            (RuntimeError) what a broker cannot do
│   ├── UnknownFeedError   (KeyError)     no such feed
│   ├── UnknownEventError  (KeyError)     no such event in the log
│   ├── FeedExistsError    (ValueError)   a feed of this name is there already
│   ├── TargetError        (ValueError)   a webhook that may not go there, or makes no sense
│   ├── AccessError        (PermissionError) a key that is unknown, or may not do this
│   ├── LimitError                        more than a key or a request may ask for
│   └── OverloadError                     more than the broker can take at the moment
├── ClientError            (RuntimeError) what a broker answered to a client, or that it did not
├── RouteError             (RuntimeError) a route on NATS that is not there, or cannot do this
└── MissingExtraError      (ImportError)  a part of the package that was not installed
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class BoxmatchError(Exception):
    """Base of all errors raised by Boxmatch."""

    __str__ = Exception.__str__  # KeyError's would show the repr of the message

    def __reduce__(self) -> Any:
        # As other processes are told of it. What exceptions do by themselves is to call the class
        # with the message alone, which most of these do not take.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[BoxmatchError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class SchemaError(BoxmatchError, ValueError):
    """A schema that makes no sense."""


class AttributeValueError(BoxmatchError, ValueError):
    """A value that does not fit its attribute. Names both, and in a batch the `row`."""

    def __init__(
        self, attribute: str, value: object, reason: str, *, row: int | None = None
    ) -> None:
        self.attribute = attribute
        self.value = value
        self.reason = reason
        self.row = row
        place = "" if row is None else f"in row {row} "
        super().__init__(f"attribute {attribute!r}: {_short(value)} {place}{reason}")

    def without_row(self) -> AttributeValueError:
        """The same of a value that stands alone."""
        return AttributeValueError(self.attribute, self.value, self.reason)


class EventError(BoxmatchError, ValueError):
    """An event batch of a wrong shape or kind; `row` is the event's, if it is about one."""

    def __init__(self, reason: str, *, row: int | None = None) -> None:
        self.row = row
        super().__init__(reason)


class FilterError(BoxmatchError, ValueError):
    """A filter that cannot be compiled.

    `position` is the offset of the offending part in `text` (None for dict filters, whose
    message names the attribute instead).
    """

    def __init__(self, reason: str, text: str | None = None, position: int | None = None) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        super().__init__(_located(reason, text, position))


class FilterSyntaxError(FilterError):
    """The text is not a WHERE expression."""


class UnsupportedFilterError(FilterError):
    """Valid SQL that is no condition on one event: a subquery, the time now, an aggregate."""


class UnknownAttributeError(FilterError):
    """The filter names an attribute that the schema lacks."""


class FilterTooLargeError(FilterError):
    """The filter has more boxes, expressions or text than a limit allows."""


class RegionFilterError(FilterError):
    """A filter over the names of regions that makes no sense."""


class SubscriptionIdError(BoxmatchError, TypeError):
    """An id that is neither string nor int64, or of the other kind than the ids so far."""


class UnknownSubscriptionError(BoxmatchError, KeyError):
    """No subscription has this id."""

    def __init__(self, subscription_id: object) -> None:
        self.subscription_id = subscription_id
        super().__init__(f"no subscription with id {subscription_id!r}")


class DuplicateSubscriptionError(BoxmatchError, ValueError):
    """One call names the same id twice, so it cannot tell which filter is meant."""

    def __init__(self, subscription_id: object) -> None:
        self.subscription_id = subscription_id
        super().__init__(f"subscription id {subscription_id!r} occurs more than once")


class RegionError(BoxmatchError, ValueError):
    """A region that makes no sense in these spaces. Says which dimension, and why."""


class UnknownMemberError(BoxmatchError, KeyError):
    """No publication, or no subscription, has this id."""

    def __init__(self, which: str, member_id: object) -> None:
        self.member_id = member_id
        super().__init__(f"no {which} with id {member_id!r}")


class DuplicateMemberError(BoxmatchError, ValueError):
    """There is a publication, or a subscription, with this id already: update it instead."""

    def __init__(self, which: str, member_id: object) -> None:
        self.member_id = member_id
        super().__init__(f"there is a {which} with id {member_id!r} already: update it instead")


class IndexConfigError(BoxmatchError, ValueError):
    """No such index, or a parameter that it does not take."""


class IndexTooLargeError(IndexConfigError, MemoryError):
    """The index would take more memory than it may; nothing was built."""


class DeviceError(BoxmatchError, RuntimeError):
    """There is no card that batches could be matched on, it has too little memory, or it failed."""


class ResultTooLargeError(BoxmatchError, MemoryError):
    """The matches of a batch would take more memory than there is; nothing was listed."""


class StorageError(BoxmatchError, OSError):
    """A saved matcher that cannot be read or written. Names the file."""


class MissingExtraError(BoxmatchError, ImportError):
    """A part of the package needs a module that is not installed. Says which extra brings it."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{what} needs {module}, which is not installed: pip install 'boxmatch[{extra}]'",
            name=module,
        )


class SparkError(BoxmatchError, ValueError):
    """A DataFrame, path or setting that the Spark layer cannot work with. Says what would do."""


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """What to add to a message about an unknown name: the known ones that are like it, if any."""
    close = difflib.get_close_matches(str(name), [str(one) for one in known], n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _located(reason: str, text: str | None, position: int | None) -> str:
    if text is None or position is None:
        return reason
    line_start = text.rfind("\n", 0, position) + 1
    line_end = text.find("\n", position)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    column = position - line_start
    # A window around the place keeps the message readable when the filter is long.
    first = max(0, column - 40)
    shown = line[first : column + 40]
    return f"{reason} (at offset {position})\n  {shown}\n  {' ' * (column - first)}^"


class BrokerError(BoxmatchError, RuntimeError):
    """What a broker cannot do."""


class UnknownFeedError(BrokerError, KeyError):
    """There is no such feed."""

    def __init__(self, feed: str) -> None:
        self.feed = feed
        super().__init__(f"there is no feed {feed!r}")


class UnknownEventError(BrokerError, KeyError):
    """The log of a feed has no event of this number: not yet, or not any more."""

    def __init__(self, feed: str, sequence: int) -> None:
        self.feed = feed
        self.sequence = sequence
        super().__init__(f"feed {feed!r} has no event {sequence} any more, or yet")


class FeedExistsError(BrokerError, ValueError):
    """A feed of this name is there already."""

    def __init__(self, feed: str) -> None:
        self.feed = feed
        super().__init__(f"there is a feed {feed!r} already")


class TargetError(BrokerError, ValueError):
    """A webhook may not go there, or its settings make no sense."""


class AccessError(BrokerError, PermissionError):
    """A key that is unknown (`unknown`), or that may not do this."""

    def __init__(self, reason: str, *, unknown: bool = False) -> None:
        self.unknown = unknown
        super().__init__(reason)


class LimitError(BrokerError):
    """More than a key or a request may ask for; `retry_after` seconds it may be different."""

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(reason)


class OverloadError(LimitError):
    """More than the broker can take at the moment."""


class ClientError(BoxmatchError, RuntimeError):
    """A request that failed: `status` is None if there was no answer.

    `problem` is what the broker said about it.
    """

    def __init__(
        self, reason: str, *, status: int | None = None, problem: dict[str, object] | None = None
    ) -> None:
        self.status = status
        self.problem = problem or {}
        super().__init__(reason)


class RouteError(BoxmatchError, RuntimeError):
    """A route on NATS that is not there, or that cannot do this. Says what would help."""
