"""The dashboard's page and its files. They hold no data: the page asks for a key, if it needs one.

Only what lies in the folder is served, and found by looking there: a path is never put together
from what was asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from boxmatch.broker.http.problems import Problem

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain",
}
_HEADERS: Final = {
    "Cache-Control": "no-cache",  # ask again each time: the answer is seldom more than "the same"
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
def page(request: Request) -> Response:  # reads a file, so in a thread
    return _serve(request, "index.html")


@router.get("/dashboard/{name:path}")
def page_file(request: Request, name: str) -> Response:
    return _serve(request, name)


def _serve(request: Request, name: str) -> Response:
    file = dict(_files()).get(name)
    if file is None:
        path = request.url.path
        raise Problem(404, "no-such-path", f"there is nothing at {path[:200]}")
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[PurePosixPath(name).suffix])


def _files() -> Iterator[tuple[str, Traversable]]:
    """What may be served, by name: files of known types, also in folders, but not in theirs."""
    for one in files("boxmatch.broker").joinpath("dashboard").iterdir():
        if one.is_dir():
            for inner in one.iterdir():
                if _is_served(inner):
                    yield f"{one.name}/{inner.name}", inner
        elif _is_served(one):
            yield one.name, one


def _is_served(file: Traversable) -> bool:
    return file.is_file() and PurePosixPath(file.name).suffix in _TYPES
