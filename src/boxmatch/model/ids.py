"""What ids of subscriptions are."""

from __future__ import annotations

from typing import Literal

IdKind = Literal["int", "string"]
"""All ids of a matcher are of one kind."""
SubscriptionId = str | int
