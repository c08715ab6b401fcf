"""A publisher and a subscriber that go on until they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

import httpx


class Load:
    """Publishes the same events again and again, over a connection of its own.

    What a subscriber gets of them is taken and acknowledged, if one is named.
    """

    def __init__(
        self, url: str, feed: str, events: Sequence[dict[str, Any]], subscriber: str | None = None
    ) -> None:
        self._url = url
        self._feed = feed
        self._events = list(events)
        self._subscriber = subscriber
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=30) as client:
                while not self._stop.wait(0.02):
                    path = f"/feeds/{self._feed}/events"
                    client.post(path, json=self._events).raise_for_status()
                    if self._subscriber is not None:
                        self._receive(client)
        except BaseException as error:
            self._error = error

    def _receive(self, client: httpx.Client) -> None:
        notifications = (
            client.get(f"/subscribers/{self._subscriber}/notifications").raise_for_status().json()
        )
        if notifications["notifications"]:
            client.post(
                f"/subscribers/{self._subscriber}/acknowledge",
                json={"sequence": notifications["next"]},
            ).raise_for_status()
