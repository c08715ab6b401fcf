"""Pages for people: the dashboard, and the description of the API. They need nothing from the
Internet and hold no data: the dashboard asks for a key, if it needs one.

Only what lies in the folders is served, and found by looking there: a path is never put together
from what was asked for.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from boxmatch.wire.problems import Problem

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
_DOCS_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Boxmatch</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon-32x32.png"></head>
<body><div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script></body>
</html>
"""
_DOCS_START: Final = """SwaggerUIBundle({url: "openapi.json", dom_id: "#page", deepLinking: true,
  validatorUrl: null, presets: [SwaggerUIBundle.presets.apis]});
"""
_DOCS_POLICY: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'"
)
_DOCS_FILES: Final = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> Response:
    return HTMLResponse(_DOCS_PAGE, headers={"Content-Security-Policy": _DOCS_POLICY})


@router.get("/docs/{name}")
def docs_file(name: str) -> Response:  # reads a file, so in a thread
    if name == "start.js":
        return Response(_DOCS_START, media_type=_TYPES[".js"])
    if name not in _DOCS_FILES:
        raise Problem(404, "no-such-path", f"there is nothing at /docs/{name[:100]}")
    from swagger_ui_bundle import swagger_ui_path  # type: ignore[import-untyped]  # no stubs

    content = (Path(str(swagger_ui_path)) / name).read_bytes()
    headers = {"Cache-Control": "max-age=86400", "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=_TYPES[PurePosixPath(name).suffix], headers=headers)


@router.get("/")
def dashboard(request: Request) -> Response:
    return dashboard_file(request, "index.html")


@router.get("/dashboard/{name:path}")
def dashboard_file(request: Request, name: str) -> Response:
    file = _dashboard_files().get(name)
    if file is None:
        raise Problem(404, "no-such-path", f"there is nothing at {request.url.path[:200]}")
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[PurePosixPath(name).suffix])


def _dashboard_files() -> dict[str, Traversable]:
    """What may be served, by name: files of known types, also in folders, but not in theirs."""
    folder = files("boxmatch.broker").joinpath("dashboard")
    found = {one.name: one for one in folder.iterdir()}
    for one in folder.iterdir():
        if one.is_dir():
            found |= {f"{one.name}/{inner.name}": inner for inner in one.iterdir()}
    return {
        name: file
        for name, file in found.items()
        if file.is_file() and PurePosixPath(name).suffix in _TYPES
    }
