"""Listening without sockets: one subscriber's notifications over one connection after the other.

A `Follower` says step by step what is to be done with the connection and is told what came of it.
It remembers what it has received, so a new connection goes on where the last one ended, and what
comes twice is left out by its number.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

import orjson
from msgspec import UNSET, Struct, to_builtins

from boxmatch.client.exchange import RetryPolicy, Sleep, path, refusal
from boxmatch.errors import ClientError
from boxmatch.wire.codec import UNREADABLE, decode
from boxmatch.wire.responses import Frame, Message, Notification, Ready, Refusal

_log = logging.getLogger("boxmatch.client")

_ACKNOWLEDGE_SECONDS: Final = 1.0
_REMEMBERED: Final = 1_000
"""Acknowledgements of single notifications that are said again over the next connection."""
_NO_USE = frozenset({1002, 1003, 1007, 1008, 1009, 1010})
"""Codes of a close after which the same would happen again."""
_PASSING = frozenset({1001, 1006, 1011, 1012, 1013})
"""Codes of a close that has nothing to do with what this client did."""


class Connect(NamedTuple):
    """Open a connection, instead of the one before. Answered with None or `Lost`."""

    path: str
    query: dict[str, str]


class Receive(NamedTuple):
    """Wait for a message. Answered with it, with `TimedOut`, or with `Lost`."""

    seconds: float | None


class Send(NamedTuple):
    """Send a message. Answered with None or `Lost`."""

    text: str


class Deliver(NamedTuple):
    """Hand a notification to the user. Answered with None when the user is done with it."""

    notification: Notification


class Lost(NamedTuple):
    """There is no connection: it could not be opened (`status` if by an answer), or it closed."""

    reason: str
    code: int | None = None
    status: int | None = None
    body: bytes = b""
    retry_after: float | None = None
    hopeless: bool = False


class TimedOut(NamedTuple):
    """Nothing came in time."""


Step = Connect | Receive | Send | Deliver | Sleep
Outcome = str | bytes | Lost | TimedOut | None
Steps = Generator[Step, Outcome, Lost | None]


class Follower:
    """One subscriber's notifications, for as long as they are followed.

    A step that was interrupted is there still.
    """

    is_shared = False
    """Whether others get some of the notifications."""

    def __init__(
        self,
        subscriber: str,
        *,
        after: int | None,
        acknowledge: bool,
        window: int | None,
        idle: float | None,
        retries: RetryPolicy,
    ) -> None:
        self.subscriber = subscriber
        self.path = path("/subscribers/{}/notifications/socket", subscriber)
        self.received = after
        """The last number that came. None: wherever the broker's cursor is."""
        self.dropped = 0
        self._automatic = acknowledge
        self._window = window
        self._idle = idle
        self._retries = retries
        self._clock = retries.clock
        self._waiting: deque[Notification] = deque()
        self._handed: int | None = None  # the last number that the user has got
        self._done = 0  # all up to this is to be acknowledged
        self._acknowledged = 0
        self._acknowledged_at = self._clock()
        self._unacknowledged = 0
        self._welcome = False  # the broker has let us in at least once
        self._refusal: Refusal | None = None
        self._heard = self._clock()  # when there was last a notification
        self._most = window or 1_000
        self._lent = False  # the user has the notification of this step
        self._steps = self._all_steps()
        self.step: Step | None = next(self._steps)
        """What is to be done now; None at the end."""

    def answer(self, outcome: Outcome) -> None:
        """Say what came of the step."""
        try:
            self.step = self._steps.send(outcome)
        except StopIteration:
            self.step = None
        except ClientError:
            self.step = None
            raise

    def hand_over(self) -> Notification | None:
        """The notification, if it is time for one."""
        if isinstance(self.step, Deliver):
            self._lent = True
            return self.step.notification
        return None

    def take_back(self) -> None:
        """The user comes for the next notification, so the one before is done with."""
        if self._lent:
            self._lent = False
            self.answer(None)

    def _all_steps(self) -> Steps:
        """All there is to do, until nothing came for `idle` seconds. Raises `ClientError`."""
        failures = 0
        began = self._clock()
        while True:
            query: dict[str, Any] = {"after": self._begin(), "window": self._window}
            query = {name: str(value) for name, value in query.items() if value is not None}
            opened, received = self._clock(), self.received
            self._refusal = None
            lost = yield Connect(self.path, query)
            if lost is None:
                lost = yield from self._session()
                if lost is None:
                    return None
                lasting = self._clock() - opened > self._retries.longest
                if lasting or self.received != received:
                    failures = 0
            if not isinstance(lost, Lost):
                raise TypeError(f"a connection does not end with {lost!r}")
            error = self._error_of(lost)
            pause = self._retries.pause(failures, lost.retry_after)
            if not self._welcome and self._clock() - began + pause > self._retries.seconds:
                raise error
            if self._idle is not None and self._left() < pause:
                return None
            _log.warning("%s; trying again in %.1f s", error, pause)
            failures += 1
            yield Sleep(pause)

    def _begin(self) -> int | None:
        """The number after which a connection begins; None leaves that to the broker."""
        return self.received

    def acknowledge(self, sequence: int) -> str | None:
        """The message that acknowledges up to a number; None if that is done already."""
        self._done = max(self._done, sequence)
        return self._acknowledgement()

    def last_number(self, *, finished: bool) -> int | None:
        """What is to be acknowledged once more at the end, by a request: its answer shows that
        the broker has heard of it. `finished`: the user is done with the last notification too.
        """
        if self._automatic and finished and self._handed is not None:
            self._done = max(self._done, self._handed)
        return self._done or None

    def farewell(self, *, finished: bool, failure: str) -> Iterator[str]:
        """Messages for the end. `finished` as above; `failure` is why the user is not, if known."""
        return iter(())

    def _session(self) -> Steps:
        while True:
            if self._waiting:
                notification = self._waiting.popleft()
                self._handed = notification.sequence
                yield Deliver(notification)
                self._heard = self._clock()
                if self._automatic and (text := self._settle(notification.sequence)) is not None:
                    lost = yield Send(text)
                    if isinstance(lost, Lost):
                        return lost
                continue
            got = yield Receive(None if self._idle is None else self._left())
            if isinstance(got, TimedOut):
                return None
            if isinstance(got, Lost):
                return got
            if got is not None and (text := self._read(got)) is not None:
                lost = yield Send(text)
                if isinstance(lost, Lost):
                    return lost

    def _settle(self, sequence: int) -> str | None:
        """The user is done with a notification. Returns what is to be sent at once."""
        self._done = max(self._done, sequence)
        self._unacknowledged += 1
        return self._acknowledgement() if self._due() else None

    def _read(self, message: str | bytes) -> str | None:
        """Take a message in. Returns what is to be answered at once."""
        try:
            told = decode(message, Message)
        except UNREADABLE:
            if not _is_news(message):
                raise ClientError(
                    f"the broker sent what is not a message: {message!r:.200}"
                ) from None
            return None
        if isinstance(told, Ready):
            return self._ready(told)
        if isinstance(told, Refusal):
            self._refusal = told
        elif isinstance(told, Frame):
            for one in told.notifications:
                if not self._has(one.sequence):
                    self.received = one.sequence
                    self._waiting.append(one)
        return None

    def _has(self, sequence: int) -> bool:
        """Whether a notification that comes was here before."""
        return self.received is not None and sequence <= self.received

    def _ready(self, ready: Ready) -> str | None:
        self._enter(ready)
        if self.received is None:
            self.received = ready.cursor
        elif ready.after is not UNSET and ready.after < self.received:
            self._start_again(ready.after)
        # What was acknowledged on a connection that broke may not have arrived, and the cursor
        # of this one says only where it goes on.
        self._acknowledged = 0
        return self._acknowledgement()

    def _enter(self, ready: Ready) -> None:
        self._welcome = True
        self._most = ready.window or self._most
        self.dropped = self.dropped if ready.dropped is None else ready.dropped
        if (ready.ack_seconds is UNSET) == self.is_shared:
            shares, method = ("does not share", "listen") if self.is_shared else ("shares", "work")
            raise ClientError(
                f"subscriber {self.subscriber!r} {shares} its notifications: use {method!r}"
            )

    def _start_again(self, after: int) -> None:
        """Numbers come again in a replay; what was received before it comes later, if at all."""
        self.received = after
        self._waiting.clear()
        self._handed = None
        self._done = min(self._done, after)

    def _due(self) -> bool:
        return (
            not self._waiting
            or self._unacknowledged >= max(1, self._most // 2)
            or self._clock() - self._acknowledged_at > _ACKNOWLEDGE_SECONDS
        )

    def _acknowledgement(self) -> str | None:
        if self._done <= self._acknowledged:
            return None
        self._acknowledged = self._done
        self._acknowledged_at = self._clock()
        self._unacknowledged = 0
        return f'{{"type":"acknowledge","sequence":{self._done}}}'

    def _left(self) -> float:
        """Seconds until this has been idle for too long."""
        return max(0.0, self._heard + (self._idle or 0.0) - self._clock())

    def _error_of(self, lost: Lost) -> ClientError:
        """The error that a loss stands for; raised if it would be the same the next time."""
        if lost.status is not None:
            error = refusal(lost.status, lost.body)
            hopeless = lost.status != 429 and lost.status < 500
        elif self._refusal is not None:
            error = ClientError(self._refusal.message, problem=to_builtins(self._refusal))
            hopeless = lost.code not in _PASSING
        else:
            error = ClientError(f"the connection to the broker was lost: {lost.reason}")
            hopeless = lost.code in _NO_USE or lost.hopeless
        if hopeless:
            raise error
        return error


class SharedFollower(Follower):
    """The same for what one connection gets of notifications that are shared.

    Each is acknowledged by itself. Those that have not been begun when a connection breaks are for
    others.
    """

    is_shared = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._open: int | None = None
        """The number that the user has, unless it was acknowledged or rejected by hand."""
        self._acknowledgements: deque[int] = deque(maxlen=_REMEMBERED)

    def hand_over(self) -> Notification | None:
        notification = super().hand_over()
        if notification is not None:
            self._open = notification.sequence
        return notification

    def acknowledge(self, sequence: int) -> str:
        self._close(sequence)
        self._acknowledgements.append(sequence)
        return _message("acknowledge", sequences=[sequence])

    def reject(self, sequence: int, reason: str, delay: float) -> str:
        """The message that has the notification handed out again."""
        self._close(sequence)
        return _message("reject", sequences=[sequence], reason=reason, delay=delay)

    def extend(self, sequence: int, seconds: float | None) -> str:
        """The message that takes more time for a notification."""
        return _message("extend", sequences=[sequence], seconds=seconds)

    def last_number(self, *, finished: bool) -> None:
        return None

    def farewell(self, *, finished: bool, failure: str) -> Iterator[str]:
        if self._automatic and self._open is not None:
            if finished:
                yield self.acknowledge(self._open)
            elif failure:
                yield self.reject(self._open, failure, 0.0)
        if self._waiting:
            waiting = [one.sequence for one in self._waiting]
            yield _message("reject", sequences=waiting, begun=False)

    def _begin(self) -> None:
        return None

    def _settle(self, sequence: int) -> str | None:
        return self.acknowledge(sequence) if sequence == self._open else None

    def _close(self, sequence: int) -> None:
        if sequence == self._open:
            self._open = None

    def _has(self, sequence: int) -> bool:
        return False

    def _ready(self, ready: Ready) -> str | None:
        self._enter(ready)
        self._waiting.clear()  # they came over a connection that is no more, so others have them
        # What was acknowledged over that one may not have arrived.
        done = list(self._acknowledgements)
        return _message("acknowledge", sequences=done) if done else None


def _message(type: str, **fields: Any) -> str:
    return orjson.dumps({"type": type, **fields}).decode()


class _News(Struct):
    type: str


_KNOWN = frozenset({"ready", "notifications", "error"})


def _is_news(message: str | bytes) -> bool:
    """Whether this is a message of a kind that only later brokers send."""
    try:
        news: _News = decode(message, _News)
        return news.type not in _KNOWN
    except UNREADABLE:
        return False
