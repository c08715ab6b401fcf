"""Routing by content on NATS JetStream: events to the subjects of their subscribers.

Names are loaded on first use. They need `pip install 'boxmatch[nats]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxmatch.nats.connection import Connection
    from boxmatch.nats.local import LocalServer
    from boxmatch.nats.messages import Notification, read_notification
    from boxmatch.nats.operations import publish, status, subscribe, unsubscribe
    from boxmatch.nats.router import Router
    from boxmatch.nats.routes import Storage, create_route
    from boxmatch.nats.settings import FeedSettings, RouteSettings

__all__ = [
    "Connection",
    "FeedSettings",
    "LocalServer",
    "Notification",
    "RouteSettings",
    "Router",
    "Storage",
    "create_route",
    "publish",
    "read_notification",
    "status",
    "subscribe",
    "unsubscribe",
]

_HOMES = {
    "Connection": "connection",
    "FeedSettings": "settings",
    "LocalServer": "local",
    "Notification": "messages",
    "RouteSettings": "settings",
    "Router": "router",
    "Storage": "routes",
    "create_route": "routes",
    "publish": "operations",
    "read_notification": "messages",
    "status": "operations",
    "subscribe": "operations",
    "unsubscribe": "operations",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from boxmatch.extras import requires

    with requires("nats", f"boxmatch.nats.{name}"):
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
