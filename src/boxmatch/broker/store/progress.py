"""How far a subscriber is that shares its notifications, and how that is packed into a row.

Such a subscriber is done with notifications one by one. Kept is not what is done, which grows, but
what is not: it has been handed out or waits to be again, and there is a limit to how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from boxmatch.broker.store.rows import json_text, text_checksum


class Progress(NamedTuple):
    """All up to `position` is done, but for what is outstanding; nothing after it is."""

    position: int
    outstanding: Mapping[int, int]
    """By number, ascending: how many times it was handed out."""

    @property
    def cursor(self) -> int:
        """All up to this number is done."""
        return min(self.outstanding, default=self.position + 1) - 1

    def is_done(self, sequence: int) -> bool:
        return sequence <= self.position and sequence not in self.outstanding


class SharingRow(NamedTuple):
    """That a subscriber shares its notifications; `settings` is JSON."""

    subscriber: int
    settings: bytes
    progress: Progress | None
    """None if it is damaged; then the cursor is what is known."""


def pack_progress(subscriber: int, progress: Progress) -> tuple[int, int, int, str, int]:
    """Values for the columns subscriber, position, amount, outstanding and checksum."""
    position, outstanding = progress
    text = json_text(list(outstanding.items()))
    checksum = text_checksum(subscriber, position, text)
    return subscriber, position, len(outstanding), text, checksum


def unpack_progress(
    subscriber: int, position: object, text: object, checksum: object
) -> Progress | None:
    """None if the row is damaged."""
    if not isinstance(position, int) or not isinstance(text, str):
        return None
    if text_checksum(subscriber, position, text) != checksum:
        return None
    return Progress(position, dict(orjson.loads(text)))
