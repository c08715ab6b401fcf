"""The subscriptions of a route, or of one of its shards, ready to be matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, NamedTuple

import msgspec
import xxhash

from boxmatch.engine.matcher import Matcher
from boxmatch.engine.results import MatchResult
from boxmatch.errors import BoxmatchError, FilterTooLargeError
from boxmatch.model.dialects.registry import in_dialect
from boxmatch.model.schema import Schema
from boxmatch.nats.bucket import Change
from boxmatch.nats.names import decode_token
from boxmatch.nats.settings import RouteSettings, StoredSubscription

_FEW: Final = 32
"""Up to so many are added one by one, which is quicker."""
_AT_ONCE: Final = 20_000

_decoder: Final = msgspec.json.Decoder(StoredSubscription)


class Refused(NamedTuple):
    """A key of the bucket that is no subscription, and why."""

    key: str
    reason: str


class RouteSubscriptions:
    """Matchers by feed, whose ids are the encoded subscriber and id with a dot between.

    For one thread at a time.
    """

    def __init__(
        self,
        settings: RouteSettings,
        shard: int = 0,
        matchers: Mapping[str, Matcher] | None = None,
    ) -> None:
        self._shard, self._shards = shard, settings.shards
        self.matchers = dict(matchers or {})
        for name, schema in settings.schemas().items():
            if name not in self.matchers:
                unknown = unknown_of(settings, name)
                self.matchers[name] = Matcher(schema, keep_texts=False, unknown=unknown)
        self.refused: dict[str, str] = {}
        """Keys that are no subscriptions, with the reason."""
        self.revision = 0
        """Up to which a snapshot has the bucket; 0 if there was none."""
        self.folder: TemporaryDirectory[str] | None = None
        """Of the files of a snapshot."""

    def close(self) -> None:
        """Remove files that are not needed any more."""
        if self.folder is not None:
            self.folder.cleanup()

    def __len__(self) -> int:
        return sum(map(len, self.matchers.values()))

    def schema(self, feed: str) -> Schema:
        return self.matchers[feed].schema

    def match(self, feed: str, rows: Sequence[Mapping[str, Any]]) -> MatchResult:
        """Who wants these events."""
        return self.matchers[feed].match_batch(rows, threads=1)

    def apply(self, changes: Iterable[Change]) -> list[Refused]:
        """Take over what was written to the bucket. Returns what is no subscription."""
        latest = {change.key: change.value for change in changes}
        wanted: dict[str, dict[str, StoredSubscription]] = {name: {} for name in self.matchers}
        gone: list[str] = []
        refused: list[Refused] = []
        for key, value in latest.items():
            kind, _, id = key.partition(".")
            if kind != "sub" or not self._is_ours(id.partition(".")[0]):
                continue
            self.refused.pop(id, None)
            gone.append(id)
            if value is None:
                continue
            try:
                found = self._read(id, value)
            except (BoxmatchError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                refused.append(Refused(id, str(error)))
            else:
                wanted[found.feed][id] = found
        for name, matcher in self.matchers.items():
            new = wanted[name]
            # What is refused, or of another feed now, must not stay as it was.
            left = [id for id in gone if id not in new and id in matcher]
            if left:
                matcher.unsubscribe_many(left, missing_ok=True)
            refused += _add(matcher, new)
        self.refused.update(refused)
        return refused

    def _is_ours(self, token: str) -> bool:
        if self._shards == 1:
            return True
        return shard_of(token, self._shards) == self._shard

    def _read(self, id: str, value: bytes) -> StoredSubscription:
        parts = id.split(".")
        if len(parts) != 2:
            raise BoxmatchError("a key is sub, a subscriber and an id, with dots between")
        for part in parts:
            decode_token(part)
        found = _decoder.decode(value)
        if found.feed not in self.matchers:
            raise BoxmatchError(f"there is no feed {found.feed!r}")
        return found


def unknown_of(settings: RouteSettings, feed: str) -> Literal["refuse", "ignore"]:
    """What a matcher does about attributes that the schema of a feed lacks."""
    return "refuse" if settings.feeds[feed].unknown == "refuse" else "ignore"


def shard_of(token: str, shards: int) -> int:
    """The shard that has a subscriber, by its encoded name. The same everywhere and always."""
    return xxhash.xxh3_64_intdigest(token.encode()) % shards


def _add(matcher: Matcher, wanted: Mapping[str, StoredSubscription]) -> list[Refused]:
    refused: list[Refused] = []
    ids = list(wanted)
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        if len(some) > _FEW:
            records = [_record(id, wanted[id]) for id in some]
            try:
                done = matcher.subscribe_many(records, on_error="skip")
            except FilterTooLargeError:  # all together; one by one, some go
                pass
            else:
                refused += [Refused(some[bad.row], bad.reason) for bad in done.rejected]
                continue
        for id in some:
            one = wanted[id]
            try:
                matcher.subscribe(id, in_dialect(one.filter, one.dialect))
            except BoxmatchError as error:
                refused.append(Refused(id, str(error)))
    for id, _ in refused:
        if id in matcher:  # with the filter that it had before
            matcher.unsubscribe(id)
    return refused


def _record(id: str, one: StoredSubscription) -> dict[str, Any]:
    record: dict[str, Any] = {"id": id, "filter": one.filter}
    return record if one.dialect is None else record | {"dialect": one.dialect}
