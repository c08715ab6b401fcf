"""Requests and answers without sockets: what is asked, when it is asked again, what went wrong.

An operation is a generator that yields requests and gets answers. Whoever has a connection, one
that blocks or one that is awaited, drives it; nothing here does either.
"""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    overload,
)
from urllib.parse import urlsplit

import msgspec
import orjson

from boxmatch.client.documents import body_of
from boxmatch.errors import ClientError
from boxmatch.wire.codec import UNREADABLE, decode
from boxmatch.wire.http import JSON, NAME, retry_after
from boxmatch.wire.requests import RequestBody

if TYPE_CHECKING:
    from boxmatch.client.asynchronous import AsyncClient
    from boxmatch.client.blocking import Client

P = ParamSpec("P")
T = TypeVar("T")

_REFUSED_FOR_NOW = frozenset({429, 503})
_LOST_ON_THE_WAY = frozenset({502, 504})  # a proxy's word: the broker may have got the request


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is asked of the broker."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    key: str | None = None
    """The idempotency key."""
    again: bool = True
    """Whether it does no harm if it arrives twice."""
    wait: float = 0.0
    """Seconds that the broker may take on purpose, on top of the client's timeout."""

    @property
    def headers(self) -> dict[str, str]:
        found = {} if self.body is None else {"Content-Type": self.content_type}
        if self.key is not None:
            found["Idempotency-Key"] = self.key
        return found


class Response(NamedTuple):
    """What the broker said. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, kind: type[T]) -> T:
        """The answer as one of `boxmatch.wire.responses`, or None if that is what is wanted."""
        try:
            found: Any = None if kind is NoneType else decode(self.body, kind)
            wanted: T = found
            return wanted
        except msgspec.ValidationError as error:
            what = kind.__name__.lower()
            raise ClientError(
                f"the broker's answer is not a {what}: {error}: {self.body!r:.200}",
                status=self.status,
            ) from None
        except UNREADABLE:
            raise ClientError(
                f"the answer is not JSON, so this is hardly a Boxmatch broker: {self.body!r:.80}",
                status=self.status,
            ) from None


class Unanswered(NamedTuple):
    """There was no answer. `sent`: the request may have arrived all the same."""

    reason: str
    sent: bool
    hopeless: bool = False


class Sleep(NamedTuple):
    """Nothing is to be done for a while."""

    seconds: float


Operation = Generator[Request, Response, T]
Exchange = Generator[Request | Sleep, Response | Unanswered | None, T]


class operation(Generic[P, T]):  # read as a decorator
    """A generator of requests as a method of both clients: one returns its result, the other a
    coroutine of it.

    This is what type checkers see. Each client makes plain methods of it, see `Operations`; of
    `Operations` itself it is the generator, for whoever carries it out.
    """

    def __init__(self, ask: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        self.ask = ask
        self.__doc__ = ask.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Operation[T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return functools.partial(self.ask, client)

    def method(self, *, awaited: bool) -> Any:
        """A method with the name, the text and the signature of the operation."""
        ask = self.ask

        async def coroutine(client: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await client._carry_out(ask(client, *args, **kwargs))

        def blocking(client: Any, /, *args: Any, **kwargs: Any) -> Any:
            return finish(coroutine(client, *args, **kwargs))

        method: Any = coroutine if awaited else blocking
        functools.update_wrapper(method, ask)
        signature = inspect.signature(ask)
        returned = str(signature.return_annotation).removeprefix("Operation[").removesuffix("]")
        method.__signature__ = signature.replace(return_annotation=returned)
        method.__annotations__ = ask.__annotations__ | {"return": returned}
        return method


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, since all that it calls blocks."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a client that blocks has to wait for an event loop")


def ask(
    kind: type[T],
    operation: str,
    *names: str,
    query: Mapping[str, float | str | None] | None = None,
    body: RequestBody | None = None,
    again: bool = True,
    wait: float = 0.0,
) -> Operation[T]:
    """One request, such as `GET /feeds/{}` with its name, and its answer."""
    method, template = operation.split()
    given = (query or {}).items()
    answer = yield Request(
        method=method,
        path=path(template, *names),
        query={name: str(value) for name, value in given if value is not None},
        body=None if body is None else body_of(body),
        again=again,
        wait=wait,
    )
    return answer.read(kind)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long and how often something is tried again."""

    seconds: float = 60.0
    first: float = 0.1
    longest: float = 5.0
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def pause(self, failures: int, wanted: float | None = None) -> float:
        """Seconds until the next attempt: doubled each time, and spread, so that many clients
        that lost one broker do not come back all at once. Never less than `wanted`.
        """
        longest = min(self.longest, self.first * 2.0 ** min(failures, 30))
        return max(longest * (0.5 + 0.5 * self.chance()), wanted or 0.0)


def retrying(operation: Operation[T], retries: RetryPolicy) -> Exchange[T]:
    """The operation, each of its requests tried again as long as that may help.

    What fails for good is thrown into the operation as `ClientError`.
    """
    try:
        request = next(operation)
        while True:
            try:
                answer = yield from _attempts(request, retries)
            except ClientError as error:
                request = operation.throw(error)
            else:
                request = operation.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        operation.close()


def _attempts(request: Request, retries: RetryPolicy) -> Exchange[Response]:
    began = retries.clock()
    failures = 0
    arrived = False  # an attempt that was not answered may have been carried out
    while True:
        answer = yield request
        wanted = None
        if isinstance(answer, Response):
            if 200 <= answer.status < 300:
                return answer
            if answer.status == 404 and request.method == "DELETE" and arrived:
                return Response(204, {}, b"")
            error = refusal(answer.status, answer.body)
            unsure = answer.status in _LOST_ON_THE_WAY
            if not unsure and answer.status not in _REFUSED_FOR_NOW:
                raise error
            wanted = retry_after(answer.headers)
        elif isinstance(answer, Unanswered):
            error = ClientError(f"no answer from the broker: {answer.reason}")
            if answer.hopeless:
                raise error
            unsure = answer.sent
        else:
            raise TypeError(f"a request is not answered by {answer!r}")
        if unsure and not request.again:
            raise error
        arrived |= unsure
        pause = retries.pause(failures, wanted)
        if retries.clock() - began + pause > retries.seconds:
            raise error
        failures += 1
        yield Sleep(pause)


def refusal(status: int, body: bytes) -> ClientError:
    """The error that an answer stands for, with the problem detail if it has one."""
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        text = body.decode("utf-8", "replace").strip()
        problem = {"detail": text[:500]} if text else {}
    said = problem.get("detail") or problem.get("title") or "the broker refused the request"
    return ClientError(f"{said} (HTTP {status})", status=status, problem=problem)


def path(template: str, *names: str) -> str:
    """The path of a resource, with names that somebody chose in the place of `{}`."""
    for name in names:
        if not NAME.fullmatch(str(name)):
            raise ClientError(
                f"{name!r} cannot be a name: use up to 128 of A-Z, a-z, 0-9 and _.:@-, "
                "with a letter or digit first"
            )
    return template.format(*names)  # no name has a letter that would have to be quoted


def base_url(text: str) -> str:
    """The broker's address without a slash at the end, if it is one."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises for what is not a number
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment:
        raise ClientError(f"{text!r} is not the address of a broker, like http://127.0.0.1:8080")
    return text.rstrip("/")
