"""Who hears of the changes of stores: the contract between them and what keeps them on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from boxmatch.engine.bulk import Bulk
from boxmatch.model.filters import CompiledFilter
from boxmatch.model.ids import SubscriptionId


class Written(Protocol):
    """A change that is on its way to the disk."""

    def wait(self) -> None:
        """Return once it is there."""


class Recorded(NamedTuple):
    """The changes up to one of them."""

    number: int = 0
    """That of the last one."""
    needed: int = 0
    """That of the last one that no journal has, so that it is in files or nowhere."""


class Recorder(Protocol):
    """Hears of every change, in their order, while the writer has its turn."""

    @property
    def last(self) -> Recorded:
        """What it has heard of."""

    def added(
        self, subscription_id: SubscriptionId, compiled: CompiledFilter, text: str | None
    ) -> Written: ...

    def loaded(self, bulk: Bulk) -> Written: ...

    def removed(self, ids: Sequence[SubscriptionId]) -> Written: ...
