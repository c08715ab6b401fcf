"""What one request to a webhook carries, and what may come of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
