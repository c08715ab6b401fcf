"""The broker over HTTP: routes, WebSockets and Server-Sent Events."""

from boxmatch.broker.http.app import make_app

__all__ = ["make_app"]
