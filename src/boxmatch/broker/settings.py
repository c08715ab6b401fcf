"""How a broker is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from boxmatch.storage.sqlite import Sync

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request, one key or one subscriber may ask for; a key can have its own."""

    body_bytes: int = 16 * MIB
    events_per_request: int = 50_000
    filter_bytes: int = 64 * 1024
    subscriptions: int = 1_000_000
    """Of one subscriber."""
    events_per_second: float | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the log is kept. What a subscriber has not read by then is dropped and counted."""

    seconds: float = 7 * 24 * 3600.0
    nbytes: int = 10 * 1024 * MIB
    free_bytes: int = 512 * MIB
    """While less of the disk is free, the oldest events that nobody waits for are removed. Of a
    small disk it is a sixteenth.
    """
    backlog: int = 100_000
    """Notifications that one subscriber may have waiting; more, and the oldest are dropped and
    counted.
    """


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that can be chosen. The defaults are private and safe."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    private_key: Path | None = None
    sync: Sync = "full"
    queue_events: int = 50_000
    """Events that may wait for the matcher; publishers wait when there are more."""
    queue_bytes: int = 64 * MIB
    window: int = 1_000
    """Notifications that a socket may have outstanding before it must acknowledge some."""
    recent_events: int = 10_000
    """Of each feed, read from the log for a dry run."""
    replay_rate: float = 20_000.0
    """Events of the log that are matched again in a second, for all replays together."""
    allow_private_webhooks: bool = False
    shutdown_seconds: float = 10.0
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
