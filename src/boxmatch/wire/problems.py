"""What is wrong with something that was sent, as application/problem+json (RFC 9457) says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from boxmatch.wire.responses import Fault

MOST_DETAIL: Final = 2_000
"""Characters of a message that go out: it may quote what was sent, which can be long."""

MOST_FAULTS: Final = 20


class Problem(Exception):
    """A request that cannot be served, and why. `more` goes into the answer as it is."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more
        super().__init__(detail)

    def as_dict(self) -> dict[str, Any]:
        detail = self.detail
        if len(detail) > MOST_DETAIL:
            detail = detail[: MOST_DETAIL - 1] + "…"
        return {
            "type": f"urn:boxmatch:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            # A message may quote a lone surrogate, which UTF-8 has no bytes for.
            "detail": detail.encode(errors="backslashreplace").decode(),
            **self.more,
        }


def misplaced(kind: str, faults: Sequence[Fault]) -> Problem:
    """A request that can be read, with the places where it makes no sense."""
    return faulty(422, kind, faults)


def faulty(status: int, kind: str, faults: Sequence[Fault], **more: Any) -> Problem:
    """A request with places where something is wrong."""
    detail = "; ".join(f"{one.place}: {one.message}" for one in faults)
    return Problem(status, kind, detail, errors=faults, **more)
