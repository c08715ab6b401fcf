"""`Spaces`: publications and subscriptions that stay and change, and their transitions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Self, SupportsIndex

from boxmatch.engine.ids import IdArray
from boxmatch.engine.memory import pausing_full_collections
from boxmatch.errors import SchemaError, StorageError
from boxmatch.kernels.pieces import drop
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spaces.dimensions import (
    ONLY_REGION,
    UNCHANGED,
    Dimensions,
    RegionSpec,
    Stored,
    Unchanged,
)
from boxmatch.spaces.journal import Journal
from boxmatch.spaces.records import Which
from boxmatch.spaces.state import State
from boxmatch.spaces.transitions import Transitions
from boxmatch.storage.sqlite import Sync

Given = Mapping[Any, RegionSpec | Stored]
"""Members by id, which is a string or an integer."""


class Spaces:
    """Named spaces with stored publications and subscriptions; notifications are transitions.

    A dimension that several spaces have is the same one in all of them. A region is valid in the
    spaces of which it constrains a dimension, and two regions match if they overlap in a space in
    which both are valid; dimensions that a region does not constrain may have any value.

    Every operation is atomic and returns its transitions. All methods may be called from any
    thread; operations take turns.
    """

    def __init__(
        self,
        spaces: Mapping[str, SchemaSpec],
        *,
        leave: bool = True,
        remember: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.schemas = _schemas_of(spaces)
        self._state = State(Dimensions(self.schemas), leave, remember, clock)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        spaces: Mapping[str, SchemaSpec] | None = None,
        *,
        leave: bool | None = None,
        sync: Sync = "full",
        clock: Callable[[], float] = time.time,
    ) -> Spaces:
        """Spaces that are kept in the directory `path`; what they are made of is given once.

        An operation that has returned survives a crash, one that has not leaves no trace, and
        transitions can be read again (`transitions`). With `sync="full"` that goes for the loss of
        power too; with `"normal"`, which is faster, the last operations may then be lost. Callers
        in several threads share the wait for the disk. If the disk fails, operations raise
        `StorageError` until the spaces are opened again.
        """
        given = None if spaces is None else _Settings(_schemas_of(spaces), leave is not False)
        if given is not None:
            Dimensions(given.spaces)  # complains about spaces that do not fit together
        journal = Journal.open(path, settings=given and given.to_json(), sync=sync)
        try:
            kept = _Settings.from_json(journal.settings)
            if given is not None and given.spaces != kept.spaces:
                raise StorageError(
                    f"{path} was made with other spaces or other settings of them: "
                    f"{journal.settings}"
                )
            if leave not in (None, kept.leave):
                raise StorageError(f"{path} was made with other settings: leave is {kept.leave}")
            opened = cls(kept.spaces, leave=kept.leave, clock=clock)
            opened._state.recover(journal)
        except BaseException:
            journal.close()
            raise
        return opened

    def close(self) -> None:
        """Wait until everything is durable, and unlock the directory."""
        with self._state.writing:
            self._state.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transitions(self, since: int | None = None) -> Iterator[Transitions]:
        """All transitions from sequence number `since` on, or from the first that is still known.

        In memory these are the last ones (`remember`), on disk all that were not forgotten.
        """
        with self._state.writing:
            log = self._state.log
            first = log.first_sequence if since is None else max(since, 1)
            if first < log.first_sequence:
                raise StorageError(
                    f"transitions up to {log.first_sequence - 1} are forgotten, from {since} on"
                )
            return log.transitions(first)

    def forget_transitions(self, before: int) -> None:
        """Forget the transitions under sequence numbers before this one."""
        with self._state.writing:
            self._state.log.forget_transitions(before)

    def __repr__(self) -> str:
        return (
            f"<Spaces {', '.join(self.schemas)}: {self.publication_count:,} publications, "
            f"{self.subscription_count:,} subscriptions>"
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # Of `copy` and `pickle`: a copy would share what it is to be a copy of.
        raise StorageError(
            "spaces cannot be copied or pickled: keep them in a directory (Spaces.open), or load "
            "into others what get_publication and get_subscription give (Spaces.load)"
        )

    # Operations

    def publish(
        self,
        publication_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec] | None = None,
        region_filter: str | None = None,
        ttl: float | None = None,
    ) -> Transitions:
        """Store a publication; subscriptions that match it get `enter`.

        With several regions, `region_filter` says by their names which of them must overlap a
        region of the other side: `"position OR motor"`. Without it, all must.
        """
        return self._state.add(
            self._state.publications, publication_id, region, regions, region_filter, ttl
        )

    def subscribe(
        self,
        subscription_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec] | None = None,
        region_filter: str | None = None,
        ttl: float | None = None,
    ) -> Transitions:
        """Store a subscription; it gets `enter` for every stored publication that matches it."""
        return self._state.add(
            self._state.subscriptions, subscription_id, region, regions, region_filter, ttl
        )

    def update_publication(
        self,
        publication_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec | None] | None = None,
        region_filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Transitions:
        """Change a publication; only what changes need be given.

        A dimension that is None is free from now on, a region that is None is removed, and a region
        that is new is added. Subscriptions that begin to match get `enter`, those that
        cease to get `leave`.
        """
        return self._state.update(
            self._state.publications, publication_id, region, regions, region_filter, ttl
        )

    def update_publications(self, publication_ids: Any, points: Any) -> Transitions:
        """Move many publications: what `update_publication` does, row by row, in one operation.

        For positions, prices and readings that come in batches. Row i of `points` says where
        publication `publication_ids[i]` is now, by single values. The rows are an Arrow, pandas or
        polars table, a list of dicts, or an array with a column for each dimension. A dimension
        that is None or null in a row is free from now on, and so is one that is NaN or NaT in a
        table or array; a dimension that a row does not name stays as it is. All are moved or, if
        one cannot be, none.
        """
        return self._state.move_publications(publication_ids, points)

    def update_subscription(
        self,
        subscription_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec | None] | None = None,
        region_filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Transitions:
        """Change a subscription, as `update_publication` does; it gets `enter` and `leave`."""
        return self._state.update(
            self._state.subscriptions, subscription_id, region, regions, region_filter, ttl
        )

    def retract(self, publication_id: SubscriptionId) -> Transitions:
        """Remove a publication; subscriptions that matched it get `deleted`."""
        return self._state.remove(self._state.publications, publication_id, notify=True)

    def unsubscribe(self, subscription_id: SubscriptionId) -> Transitions:
        """Remove a subscription, which gets nothing. Transitions are of what had expired before."""
        return self._state.remove(self._state.subscriptions, subscription_id, notify=False)

    def expire(self) -> Transitions:
        """Remove what has expired. Every operation does so before anything else.

        A publication that expires is `deleted`; a subscription that does `leave`s what it matched.
        """
        with self._state.operation() as operation:
            pass
        return operation.notified

    def due(self, now: float | None = None) -> list[tuple[Which, SubscriptionId]]:
        """What has expired now, or at another time, and goes with the next operation."""
        with self._state.writing:
            return self._state.expiry.expired(self._state.clock() if now is None else now)

    def changes_between(
        self, old: RegionSpec | Stored | None, new: RegionSpec | Stored | None
    ) -> tuple[IdArray, IdArray]:
        """Which stored subscriptions begin to match a publication, and which cease to.

        It goes from one region, or one `Stored` with several and a region filter, to another; None
        is no publication at all. Nothing is stored.
        """
        return self._state.changes_between(old, new)

    @pausing_full_collections()
    def load(
        self,
        *,
        publications: Given | None = None,
        subscriptions: Given | None = None,
    ) -> None:
        """Store many at once: all of them, or none. Nobody is notified.

        To begin with what is known already: regions, or what `get_publication` and
        `get_subscription` give. Ids must be new.
        """
        given: dict[Which, dict[SubscriptionId, Stored]] = {
            "publication": _stored(publications or {}),
            "subscription": _stored(subscriptions or {}),
        }
        self._state.load(given)
        for stored in given.values():
            values = [*stored.values()]
            stored.clear()
            drop(values)

    def warmup(self) -> None:
        """Compile, or load from the cache, all kernels that operations need."""
        trial = Spaces({"trial": {"x": "int", "s": "string"}}, remember=0)
        count = 64  # enough for the endpoints to need more room
        trial.load(
            publications={number: {"x": number} for number in range(count)},
            subscriptions={number: {"x": (number, number + 2)} for number in range(count)},
        )
        two: dict[str, RegionSpec] = {"near": {"x": (1, 3)}, "far": {"x": (7, 9), "s": "a"}}
        trial.subscribe(count, regions=two, region_filter="near OR far")
        trial.publish(count, regions=two, region_filter="near AND far")
        trial.update_publication(0, {"x": 9})
        trial.update_publication(0, {"s": "b"})
        trial.update_subscription(0, {"x": (5, 8)})
        trial.update_publications(range(count), [{"x": 3}] * count)
        trial.changes_between({"x": 3}, {"x": 9})
        trial.matches_of_publication(0)
        trial.retract(0)
        trial.unsubscribe(0)

    # Looking

    @property
    def publication_count(self) -> int:
        return len(self._state.publications)

    @property
    def subscription_count(self) -> int:
        return len(self._state.subscriptions)

    def publications(self) -> Iterator[SubscriptionId]:
        """The ids of all publications, as they are now."""
        with self._state.writing:
            return iter(list(self._state.publications))

    def subscriptions(self) -> Iterator[SubscriptionId]:
        """The ids of all subscriptions, as they are now."""
        with self._state.writing:
            return iter(list(self._state.subscriptions))

    def matches_of_publication(self, publication_id: SubscriptionId) -> list[SubscriptionId]:
        """The subscriptions that match a stored publication."""
        return self._state.matches_of(self._state.publications, publication_id)

    def matches_of_subscription(self, subscription_id: SubscriptionId) -> list[SubscriptionId]:
        """The stored publications that match a subscription."""
        return self._state.matches_of(self._state.subscriptions, subscription_id)

    def get_publication(self, publication_id: SubscriptionId) -> Stored:
        """A publication as it is stored now."""
        return self._state.get(self._state.publications, publication_id)

    def get_subscription(self, subscription_id: SubscriptionId) -> Stored:
        """A subscription as it is stored now."""
        return self._state.get(self._state.subscriptions, subscription_id)


def _stored(given: Given) -> dict[SubscriptionId, Stored]:
    return {
        member_id: one if isinstance(one, Stored) else Stored(member_id, {ONLY_REGION: one}, None)
        for member_id, one in given.items()
    }


class _Settings(NamedTuple):
    """What spaces on disk were made with: their schemas, and whether there is a `leave`."""

    spaces: dict[str, Schema]
    leave: bool

    def to_json(self) -> str:
        schemas = {name: json.loads(schema.to_json()) for name, schema in self.spaces.items()}
        return json.dumps({"spaces": schemas, "leave": self.leave})

    @classmethod
    def from_json(cls, text: str) -> _Settings:
        known = json.loads(text)
        schemas = {n: Schema.from_json(json.dumps(one)) for n, one in known["spaces"].items()}
        return cls(schemas, known["leave"])


def _schemas_of(spaces: Mapping[str, SchemaSpec]) -> dict[str, Schema]:
    """The schema of each space."""
    given: object = spaces
    if not isinstance(given, Mapping):
        raise SchemaError(f"spaces are a mapping of names to schemas, not {given!r}")
    schemas = {}
    for name, spec in spaces.items():
        try:
            schemas[name] = Schema(spec)
        except SchemaError as error:
            raise SchemaError(f"space {name!r}: {error}") from None
    return schemas
