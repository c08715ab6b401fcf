"""A web page that shows notifications of a broker as they arrive.

It starts a broker in a temporary folder, a feed of synthetic ticks, and a small web server. You can
edit the filter in the page, which receives Server-Sent Events. Browsers connect to the web server
only, which forwards what the page may do. If the broker has keys, they stay in the web server.

Run it with `python serve.py`, and open the address that it prints. It needs Boxmatch with the extra
`broker`. Ctrl-C stops everything.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from boxmatch.client import Client, ClientError

PAGE = Path(__file__).with_name("page.html")
FILTER = "price > 100"
PRICES = {"IBM": 95.0, "KO": 60.0, "PEP": 170.0, "SAP": 105.0}


@contextmanager
def running_broker(data: str) -> Iterator[str]:
    """The address of a broker, which is stopped at the end."""
    command = [sys.executable, "-m", "boxmatch", "serve", "--data", data, "--port", "0"]
    broker = subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.DEVNULL)
    try:
        address = Path(data, "address.json")
        while not address.exists():  # it is written when the broker is ready
            if broker.poll() is not None:
                raise SystemExit("the broker did not start")
            time.sleep(0.05)
        yield json.loads(address.read_text())["url"]
    finally:
        broker.terminate()
        broker.wait()


def publish(client: Client, every: float, stopped: threading.Event) -> None:
    """Publish random walks of prices."""
    prices = dict(PRICES)
    while not stopped.wait(every):
        for symbol in prices:
            prices[symbol] = round(prices[symbol] * random.uniform(0.98, 1.02), 2)
        volume = random.randrange(100, 10_000, 100)
        client.publish(
            "ticks", [{"symbol": s, "price": p, "volume": volume} for s, p in prices.items()]
        )


class Handler(BaseHTTPRequestHandler):
    client: Client
    broker: str

    def do_GET(self) -> None:
        if self.path == "/":
            self.answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif self.path == "/filter":
            wanted = self.client.subscription("reader", "page").filter
            self.answer(200, str(wanted).encode())
        elif self.path == "/notifications":
            self.pass_on_notifications()
        else:
            self.answer(404)

    def do_PUT(self) -> None:
        if self.path != "/filter":
            self.answer(404)
            return
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            self.client.subscribe("reader", "page", "ticks", text)
            self.answer(204)
        except ClientError as error:  # an invalid filter, with the position
            self.answer(422, str(error.problem.get("detail", error)).encode())

    def pass_on_notifications(self) -> None:
        """Forward the broker's stream. A browser that reconnects sends `Last-Event-ID`."""
        seen = {k: v for k, v in self.headers.items() if k.lower() == "last-event-id"}
        url = f"{self.broker}/subscribers/reader/notifications/stream"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            with httpx.stream("GET", url, headers=seen, timeout=None) as notifications:
                for piece in notifications.iter_raw():
                    self.wfile.write(piece)
        except (OSError, httpx.HTTPError):
            pass  # the page was closed, or the broker is gone

    def answer(
        self, status: int, body: bytes = b"", kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="A web page for a broker.")
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free port")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between ticks")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    try:
        server = ThreadingHTTPServer(("127.0.0.1", chosen.port), Handler)
    except OSError as error:
        raise SystemExit(f"port {chosen.port}: {error.strerror}; choose one with --port") from None
    stopped = threading.Event()
    with (
        server,
        TemporaryDirectory() as folder,
        running_broker(folder) as url,
        Client(url) as client,
    ):
        client.create_feed("ticks", {"symbol": "string", "price": "float", "volume": "int"})
        client.subscribe("reader", "page", "ticks", FILTER)
        publisher = threading.Thread(target=publish, args=(client, chosen.every, stopped))
        publisher.start()
        Handler.client, Handler.broker = client, url
        print(f"Open http://127.0.0.1:{server.server_port} (the broker is at {url})", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopping")
        stopped.set()
        publisher.join()


if __name__ == "__main__":
    main()
