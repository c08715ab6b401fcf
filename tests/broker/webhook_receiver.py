"""A receiver of webhooks on loopback that does as told, and a broker around the sender."""

import asyncio
import contextlib
import json
import ssl

from boxmatch.broker.delivery.webhook_sender import WebhookSender
from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.store.rows import Notification

SECRET = "a secret of some length"
NOW = 1_800_000_000.0
ENDS = ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError


def notification(sequence, body=b'{"price":1}'):
    return Notification(sequence, "trades", 1.5, ["a", "b"], body)


class Receiver:
    """An HTTP server that does as told: `answer(request, writer)` writes whatever it likes."""

    def __init__(self, answer=None, tls=None):
        self.requests = []
        self.connections = 0
        self.now = self.most = 0
        self._answer = answer or (lambda request: 200)
        self._tls = tls
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?x=1"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        with contextlib.suppress(*ENDS):
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    await self._one(head.decode(), reader, writer)
            finally:
                writer.close()

    async def _one(self, head, reader, writer):
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        request = {"line": first, "headers": headers, "body": body}
        self.requests.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            said = self._answer(request)
            if asyncio.iscoroutine(said):
                said = await said
            if isinstance(said, int):
                said = f"HTTP/1.1 {said} X\r\nContent-Length: 2\r\n\r\nok".encode()
            if callable(said):
                await said(writer)
            else:
                writer.write(said)
                await writer.drain()
        finally:
            self.now -= 1

    @property
    def sequences(self):
        return [
            [n["sequence"] for n in json.loads(r["body"])["notifications"]] for r in self.requests
        ]


class FakeStream:
    def __init__(self, desk, subscriber, after):
        self.desk, self.subscriber = desk, subscriber
        self.cursor = desk.cursors.get(subscriber, 0)
        self.position = self.cursor if after is None else after

    async def __aenter__(self):
        self.desk.open += 1
        return self

    async def __aexit__(self, *_):
        self.desk.open -= 1

    async def take(self, most):
        while True:
            if self.desk.take_errors:
                raise self.desk.take_errors.pop()
            found = [
                n for n in self.desk.inbox.get(self.subscriber, []) if n.sequence > self.position
            ]
            if found:
                self.position = found[:most][-1].sequence
                return found[:most]
            self.desk.changed.clear()
            await self.desk.changed.wait()


class Desk:
    """What the broker around the sender does, in memory."""

    def __init__(self, **options):
        self.inbox, self.cursors = {}, {}
        self.dead, self.outcomes, self.slept, self.looked_up = [], [], [], []
        self.take_errors, self.acknowledge_errors, self.letter_errors = [], [], []
        self.open = 0
        self.changed = asyncio.Event()
        self.storing = None
        self.names = {}
        settings = {
            "allow_private": True,
            "resolve": self.resolve,
            "clock": lambda: NOW,
            "sleep": self.sleep,
            "jitter": lambda: 0.0,
        }
        self.sender = WebhookSender(
            open_stream=lambda subscriber: FakeStream(self, subscriber, None),
            acknowledge=self.acknowledge,
            dead_letter=self.dead_letter,
            on_result=lambda subscriber, outcome: self.outcomes.append((subscriber, outcome)),
            **settings | options,
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.sender.close()
        assert self.open == 0
        others = [t for t in asyncio.all_tasks() if t.get_name().startswith("webhook")]
        assert others == []

    def put(self, subscriber, *notifications):
        self.inbox.setdefault(subscriber, []).extend(notifications)
        self.changed.set()

    async def resolve(self, host, port):
        self.looked_up.append(host)
        found = self.names.get(host, [])
        if isinstance(found, Exception):
            raise found
        return found.pop(0) if found and isinstance(found[0], list) else found

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)

    async def acknowledge(self, subscriber, sequence):
        if self.storing is not None:
            await self.storing.wait()
        if self.acknowledge_errors:
            raise self.acknowledge_errors.pop()
        self.cursors[subscriber] = max(self.cursors.get(subscriber, 0), sequence)

    async def dead_letter(self, subscriber, first, last, attempts, reason, body):
        if self.letter_errors:
            raise self.letter_errors.pop()
        assert self.cursors.get(subscriber, 0) < first, "stored before it is acknowledged"
        self.dead.append((subscriber, first, last, attempts, reason, body))


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


def hook(url, **options):
    return Webhook(url=url, secret=SECRET, **{"timeout": 5.0, **options})


def answers(*statuses):
    """One status after the other, then 200."""
    left = list(statuses)
    return lambda request: left.pop(0) if left else 200


def run(scenario, answer=None, **options):
    async def main():
        async with Receiver(answer) as receiver, Desk(**options) as desk:
            await scenario(receiver, desk)

    asyncio.run(main())


async def never(request):
    await asyncio.Event().wait()
