"""Boxmatch: match events against millions of subscriptions, exactly.

```python
import boxmatch as bm

m = bm.Matcher(bm.Schema({"symbol": "string", "price": "float"}))
m.subscribe("alice", "symbol = 'IBM' AND price BETWEEN 20 AND 30")
m.match({"symbol": "IBM", "price": 24.5})  # ['alice']
```

Names are loaded on first use, so the import itself is cheap.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxmatch.engine.bulk import Rejected
    from boxmatch.engine.explain import Explainer, Miss, Nearest
    from boxmatch.engine.listing import MatcherInfo
    from boxmatch.engine.matcher import Matcher
    from boxmatch.engine.results import MatchResult
    from boxmatch.engine.subscriptions import Subscribed
    from boxmatch.errors import *  # all of them
    from boxmatch.model.explanation import Explanation, Predicate
    from boxmatch.model.ids import SubscriptionId
    from boxmatch.model.interval import Interval
    from boxmatch.model.schema import Attribute, Schema
    from boxmatch.spaces.dimensions import Stored
    from boxmatch.spaces.spaces import Spaces
    from boxmatch.spaces.transitions import Transition, Transitions

__version__ = "0.2.0"

__all__ = [
    "AccessError",
    "Attribute",
    "AttributeValueError",
    "BoxmatchError",
    "BrokerError",
    "ClientError",
    "DeviceError",
    "DuplicateMemberError",
    "DuplicateSubscriptionError",
    "EventError",
    "Explainer",
    "Explanation",
    "FeedExistsError",
    "FilterError",
    "FilterSyntaxError",
    "FilterTooLargeError",
    "IndexConfigError",
    "IndexTooLargeError",
    "Interval",
    "LimitError",
    "MatchResult",
    "Matcher",
    "MatcherInfo",
    "Miss",
    "MissingExtraError",
    "Nearest",
    "OverloadError",
    "Predicate",
    "RegionError",
    "RegionFilterError",
    "Rejected",
    "ResultTooLargeError",
    "RouteError",
    "Schema",
    "SchemaError",
    "Spaces",
    "SparkError",
    "StorageError",
    "Stored",
    "Subscribed",
    "SubscriptionId",
    "SubscriptionIdError",
    "TargetError",
    "Transition",
    "Transitions",
    "UnknownAttributeError",
    "UnknownEventError",
    "UnknownFeedError",
    "UnknownMemberError",
    "UnknownSubscriptionError",
    "UnsupportedFilterError",
    "__version__",
]

_HOMES = {
    "Attribute": "boxmatch.model.schema",
    "Explainer": "boxmatch.engine.explain",
    "Explanation": "boxmatch.model.explanation",
    "Interval": "boxmatch.model.interval",
    "MatchResult": "boxmatch.engine.results",
    "Matcher": "boxmatch.engine.matcher",
    "MatcherInfo": "boxmatch.engine.listing",
    "Miss": "boxmatch.engine.explain",
    "Nearest": "boxmatch.engine.explain",
    "Predicate": "boxmatch.model.explanation",
    "Rejected": "boxmatch.engine.bulk",
    "Schema": "boxmatch.model.schema",
    "Spaces": "boxmatch.spaces.spaces",
    "Stored": "boxmatch.spaces.dimensions",
    "Subscribed": "boxmatch.engine.subscriptions",
    "SubscriptionId": "boxmatch.model.ids",
    "Transition": "boxmatch.spaces.transitions",
    "Transitions": "boxmatch.spaces.transitions",
}
_importing = RLock()


@contextmanager
def _without_collections() -> Iterator[None]:
    """Numba brings many objects, all of which stay: to search them for garbage takes a while."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # One at a time: threads that begin with different modules of a package may wait for each other.
    with _importing, _without_collections():
        value = getattr(import_module(_HOMES.get(name, "boxmatch.errors")), name)
    globals()[name] = value  # the next use is an ordinary lookup
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
