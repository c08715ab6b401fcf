"""Spark's state in memory: what `boxmatch.spark.publications.keeper` uses of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class FakeState:
    """The state of one bucket, and its timers, as Spark has them."""

    def __init__(self) -> None:
        self.maps: dict[str, FakeMap] = {}
        self.timers: set[int] = set()
        self.now = 0

    def getMapState(self, name: str, key: Any, value: Any) -> FakeMap:
        return self.maps.setdefault(name, FakeMap())

    def getValueState(self, name: str, schema: Any) -> FakeValue:
        return FakeValue(self.getMapState(name, None, schema))

    def registerTimer(self, at: int) -> None:
        self.timers.add(at)

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now


class FakeMap(dict[tuple[Any, ...], tuple[Any, ...]]):
    """A map of a bucket."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        del self[key]

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(list(self.items()))


class FakeValue:
    """A single value of a bucket."""

    def __init__(self, held: FakeMap) -> None:
        self.held = held

    def exists(self) -> bool:
        return bool(self.held)

    def get(self) -> tuple[Any, ...] | None:
        return self.held.get(())

    def update(self, value: tuple[Any, ...]) -> None:
        self.held[()] = value
