"""How requests are written: names in paths, media types, headers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
"""What feeds, subscribers and ids may be called; for `fullmatch`."""
NAME_PATTERN: Final = f"^{NAME.pattern}$"
MOST_NAME: Final = 128
MOST_SEQUENCE: Final = (1 << 53) - 1
"""JSON has no whole numbers beyond, as many of its readers see it."""

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
PROBLEM: Final = "application/problem+json"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
"""An array of them."""

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds of a Retry-After header, which has a number or a date; None if it has neither.

    Whoever answers may write anything there. Names of headers are in lower case.
    """
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
        return seconds if seconds < float("inf") else None
    try:
        at = parsedate_to_datetime(text)
        moment = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))
