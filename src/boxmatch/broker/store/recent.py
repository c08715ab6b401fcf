"""What was read last, up to so many bytes of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


_OVERHEAD = 1024
"""Bytes that a value takes beside its content: most are small."""


class Recent(Generic[K, V]):
    """Keeps values by key; those that nobody has asked for go first. From any thread."""

    def __init__(self, most_bytes: int) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._room = most_bytes

    def get(self, key: K) -> V | None:
        with self._lock:
            known = self._values.get(key)
            if known is None:
                return None
            self._values.move_to_end(key)
            return known[0]

    def put(self, key: K, value: V, nbytes: int) -> None:
        with self._lock:
            if key in self._values:
                return
            held = nbytes + _OVERHEAD
            self._values[key] = value, held
            self._room -= held
            while self._room < 0:
                _, (_, freed) = self._values.popitem(last=False)
                self._room += freed

    def retain(self, keys: Collection[K]) -> None:
        """Keep nothing of other keys."""
        with self._lock:
            for key in [key for key in self._values if key not in keys]:
                _, freed = self._values.pop(key)
                self._room += freed

    def clear(self) -> None:
        with self._lock:
            self._room += sum(nbytes for _, nbytes in self._values.values())
            self._values.clear()
