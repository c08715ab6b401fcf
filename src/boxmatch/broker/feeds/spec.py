"""What a feed is made of, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from boxmatch.model.documents import ROOT
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Adaptive, FeedKind, FeedRetention, Unknown


@dataclass(frozen=True, kw_only=True)
class FeedSpec:
    """What a feed is made of. A feed of events has one schema, a state feed has named spaces."""

    name: str
    kind: FeedKind = "events"
    spaces: Mapping[str, Schema]
    """A feed of events has one, called as the feed."""
    unknown: Unknown = "refuse"
    index: str = "tile"
    """Of a feed of events."""
    adaptive: Adaptive | None = None
    """Of a feed of events; None is always exact."""
    leave: bool = True
    """Whether `leave` is told (state feeds)."""
    retention: FeedRetention | None = None
    """How long its log is kept; None: as those of all feeds are."""

    @property
    def schema(self) -> Schema:
        """The schema of a feed of events."""
        return next(iter(self.spaces.values()))

    @property
    def is_open(self) -> bool:
        """Whether events may have any attributes, as those of a feed without a schema."""
        return ROOT in self.schema


class FeedInfo(NamedTuple):
    """A feed and what is in it."""

    spec: FeedSpec
    number: int
    subscriptions: int
    publications: int
    events: int
    """Published since the broker started."""
    matches: int
    last_sequence: int
    rate: float = 0.0
    """The rate of false matches that is tolerated at the moment; 0 is exact."""
    sampled_matches: int = 0
    """Matches at a rate above 0 that were looked at again, and how many of them were false."""
    sampled_false: int = 0
    waiting: int = 0
    """Events that are received, and not yet durable."""
