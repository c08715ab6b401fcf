"""The options of a reader or a writer, checked where they are first read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from boxmatch.errors import ClientError, SparkError

if TYPE_CHECKING:
    from boxmatch.client import Client, Feed

Place = int | Literal["earliest", "latest"]

OPTIONS: Final = (
    *("url", "key", "feed", "subscriber", "startingSequence", "endingSequence", "maxPerTrigger"),
    *("partitions", "failOnDataLoss", "includeBody", "acknowledge"),
    *("checkpointLocation", "stagingLocation", "idempotencyKey", "inDoubt"),
)
"""The names of all options."""


@dataclass(frozen=True)
class Connection:
    """Where the broker is. Travels to the workers, each of which makes a client of its own."""

    url: str
    key: str | None = field(default=None, repr=False)  # Spark shows plans to anybody

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Connection:
        """The key may also be in the environment of the driver, where no plan shows it."""
        _check_names(options)
        key = options.get("key") or os.environ.get("BOXMATCH_KEY") or None
        return cls(require_option(options, "url"), key)

    def client(self) -> Client:
        """A client to be closed."""
        from boxmatch.client import Client

        return Client(self.url, self.key)

    def feed(self, name: str) -> Feed:
        """The feed as it is now."""
        with self.client() as client:
            try:
                return client.feed(name)
            except ClientError as error:
                raise SparkError(f"feed {name!r} at {self.url}: {error}") from error


def _check_names(names: Iterable[str]) -> None:
    known = {option.lower(): option for option in OPTIONS}  # Spark hands them over in any case
    for name in names:
        if name.lower() not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {known[close[0]]!r}?" if close else f"it has {', '.join(OPTIONS)}"
            raise SparkError(f"format('boxmatch') has no option {name!r}; {hint}")


def require_option(options: Mapping[str, str], name: str) -> str:
    """An option that must be there."""
    value = options.get(name)
    if not value:
        raise SparkError(f"format('boxmatch') needs option {name!r}")
    return value


def number(options: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """An option that is a positive number."""
    value = options.get(name)
    if value is None:
        return default
    try:
        found = int(value)
    except ValueError:
        found = 0
    if found < 1:
        raise SparkError(f"option {name!r} is a number of at least 1, not {value!r}")
    return found


def switch(options: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false."""
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise SparkError(f"option {name!r} is true or false, not {value!r}")
    return value.lower() == "true"


def place(options: Mapping[str, str], name: str, default: Place) -> Place:
    """An option that names a place in the log: a sequence number, or one of its ends."""
    value = options.get(name)
    if value is None:
        return default
    match value.lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if not value.isascii() or not value.isdigit():
        raise SparkError(
            f"option {name!r} is a sequence number, 'earliest' or 'latest', not {value!r}"
        )
    return int(value)
