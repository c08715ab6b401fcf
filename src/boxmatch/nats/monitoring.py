"""What a worker tells about itself: Prometheus metrics, health, and the server for both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from boxmatch import __version__
from boxmatch.errors import RouteError

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters and gauges of one worker. May be called from any thread."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"boxmatch_route_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"boxmatch_route_{name}", text, registry=registry)

        self.messages = counter("messages", "Messages routed, redelivered ones included.")
        self.redelivered = counter("messages_redelivered", "Messages that were delivered before.")
        self.events = counter("events", "Events matched.", "feed")
        self.matches = counter("matches", "Subscriptions that events matched.", "feed")
        self.notifications = counter("notifications", "Notifications stored.")
        self.duplicates = counter("duplicates", "Notifications that were stored before.")
        self.dead = counter("dead_letters", "Messages that went to the dead letters.", "reason")
        self.errors = counter("errors", "Errors, most of which pass.", "reason")
        self.lag = gauge("lag_messages", "Messages of this shard that no worker has had yet.")
        self.in_hand = gauge("in_hand_messages", "Messages of this shard that workers have.")
        self.subscriptions = gauge("subscriptions", "Subscriptions known.")
        self.refused = gauge("refused_subscriptions", "Keys of the bucket that are none.")
        self.revision = gauge("revision", "Sequence of the bucket that is known.")
        self.known = gauge("known_timestamp_seconds", "When the bucket was last looked at.")
        self.ready = gauge("ready", "Whether events are being routed.")
        self.seconds = Histogram(
            "boxmatch_route_stage_seconds",
            "How long batches take in each stage; end_to_end is of the oldest message of a batch, "
            "from when it was stored.",
            ("stage",),
            registry=registry,
            buckets=_BUCKETS,
        )
        Gauge("boxmatch_info", "Which Boxmatch this is.", ("version",), registry=registry).labels(
            __version__
        ).set(1)

    def render(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)

    def look(self, name: str, **labels: str) -> float:
        """The value of a metric, without `boxmatch_route_`; 0 if it has none yet."""
        return self.registry.get_sample_value(f"boxmatch_route_{name}", labels) or 0.0


class Health:
    """Whether a worker routes, and if not, why. May be read from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.reason: str | None = "starting"
        """None while events are being routed."""
        self.details: dict[str, Any] = {}

    def set(self, reason: str | None, **details: Any) -> None:
        self.reason = reason
        self.details |= details
        self._metrics.ready.set(reason is None)

    def knows(self, revision: int, subscriptions: int, refused: int) -> None:
        """The bucket was read up to a revision, now."""
        now = time.time()
        self.details |= {"revision": revision, "subscriptions": subscriptions, "known_at": now}
        self._metrics.revision.set(revision)
        self._metrics.known.set(now)
        self._metrics.subscriptions.set(subscriptions)
        self._metrics.refused.set(refused)

    def document(self) -> dict[str, Any]:
        status = "ready" if self.reason is None else "not-ready"
        return {"status": status, "reason": self.reason, **self.details}


class MonitoringServer:
    """GET /healthz, /readyz and /metrics, in a thread. As a context manager it is started."""

    def __init__(self, host: str, port: int, metrics: Metrics, health: Health) -> None:
        answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/healthz": lambda: (200, "application/json", b'{"status":"ok"}\n'),
            "/readyz": lambda: (
                200 if health.reason is None else 503,
                "application/json",
                json.dumps(health.document()).encode() + b"\n",
            ),
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, metrics.render()),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers.get(self.path.partition("?")[0])
                status, kind, body = answer() if answer else (404, "text/plain", b"not found\n")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise RouteError(
                f"cannot listen on {host}:{port} for metrics: {error.strerror or error}"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> MonitoringServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
