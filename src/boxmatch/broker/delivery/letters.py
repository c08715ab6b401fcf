"""What one request to a webhook carries, and what may come of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from boxmatch.broker.messages import Note

MAX_BODY = 1 << 20
"""Bytes of one request. A single note may be larger: then it goes alone."""


class Letter(NamedTuple):
    """Notes as they are posted; the same bytes at every attempt."""

    first: int
    last: int
    body: bytes
    notes: Sequence[Note] = ()


class Failure(NamedTuple):
    """Why a letter was not taken."""

    reason: str
    retry_after: float = 0.0
    gone: bool = False
    """The receiver wants no more at all."""


def letters(notes: Iterable[Note]) -> Iterator[Letter]:
    """Cut notes into requests that are not too large, in order."""
    parts: list[bytes] = []
    within: list[Note] = []
    size = 0
    for note in notes:
        part = note.to_json()
        if parts and size + len(part) > MAX_BODY:
            yield _letter(within, parts)
            parts, within, size = [], [], 0
        parts.append(part)
        within.append(note)
        size += len(part)
    if parts:
        yield _letter(within, parts)


def _letter(notes: Sequence[Note], parts: list[bytes]) -> Letter:
    body = b'{"notes":[' + b",".join(parts) + b"]}"
    return Letter(notes[0].sequence, notes[-1].sequence, body, notes)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds that a receiver asks for, as a number or as a date; 0 if it does not."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
