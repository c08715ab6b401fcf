"""What a broker keeps on disk: feeds, events, who gets them, and how far everybody has read."""

from boxmatch.broker.store.rows import (
    Appended,
    LoggedEvent,
    MemberRow,
    Removed,
    ReplayRow,
    Sizes,
    SubscriberRow,
    SubscriptionRow,
)
from boxmatch.broker.store.store import Store
from boxmatch.broker.store.transaction import StoreTransaction

__all__ = [
    "Appended",
    "LoggedEvent",
    "MemberRow",
    "Removed",
    "ReplayRow",
    "Sizes",
    "Store",
    "StoreTransaction",
    "SubscriberRow",
    "SubscriptionRow",
]
