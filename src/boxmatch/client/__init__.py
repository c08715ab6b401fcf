"""A client of the broker, for programs that publish to it or listen to it.

```python
from boxmatch.client import Client

with Client("http://127.0.0.1:8080") as client:
    client.publish("ticks", [{"symbol": "IBM", "price": 24.5}])
    with client.listen("alice") as notifications:
        for notification in notifications:
            print(notification.sequence, notification.subscriptions, notification.event)
```

`AsyncClient` has the same methods to `await`. Names are loaded when first used; what they
need is an extra of the package, `boxmatch[client]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boxmatch.extras import requires

if TYPE_CHECKING:
    from boxmatch.client.asynchronous import AsyncClient, AsyncListener, AsyncWorker
    from boxmatch.client.blocking import Client, Listener, Worker
    from boxmatch.errors import ClientError
    from boxmatch.wire.responses import (
        DeadLetter,
        DryRun,
        EventPage,
        Feed,
        LoggedEvent,
        Notification,
        NotificationPage,
        Publication,
        Receipt,
        Replay,
        Subscriber,
        Subscription,
        Webhook,
    )
    from boxmatch.wire.signatures import verify_signature

__all__ = [
    "AsyncClient",
    "AsyncListener",
    "AsyncWorker",
    "Client",
    "ClientError",
    "DeadLetter",
    "DryRun",
    "EventPage",
    "Feed",
    "Listener",
    "LoggedEvent",
    "Notification",
    "NotificationPage",
    "Publication",
    "Receipt",
    "Replay",
    "Subscriber",
    "Subscription",
    "Webhook",
    "Worker",
    "verify_signature",
]

_HOMES = {
    "AsyncClient": "boxmatch.client.asynchronous",
    "AsyncListener": "boxmatch.client.asynchronous",
    "AsyncWorker": "boxmatch.client.asynchronous",
    "Client": "boxmatch.client.blocking",
    "ClientError": "boxmatch.errors",
    "Listener": "boxmatch.client.blocking",
    "Worker": "boxmatch.client.blocking",
    "verify_signature": "boxmatch.wire.signatures",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with requires("client", f"boxmatch.client.{name}"):
        value = getattr(import_module(_HOMES.get(name, "boxmatch.wire.responses")), name)
    globals()[name] = value  # the next use is an ordinary lookup
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
