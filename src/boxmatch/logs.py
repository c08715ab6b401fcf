"""Logs: JSON lines on standard error, or text on a terminal. Never keys, secrets or bodies."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import structlog

Level = Literal["debug", "info", "warning", "error"]

_KEY = re.compile(r"bm_([A-Za-z0-9]{8})_[A-Za-z0-9_-]+")
_SECRET_NAMES = frozenset({"authorization", "key", "secret", "password", "token"})


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is logged, and how."""

    level: Level = "info"
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` is text on a terminal and JSON everywhere else."""
    requests: bool = False
    """Log every request; those that end in 500 or above are logged anyway."""


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send the logs of this process, also those of libraries, to standard error."""
    stream = stream or sys.stderr
    text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Exceptions are made text before secrets are looked for: pretty ones would show variables.
    render: Any = (
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if text
        else structlog.processors.JSONRenderer(default=repr, ensure_ascii=False)
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                without_secrets,
                render,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
    # Uvicorn logs at this level every WebSocket, with its query string; httpx of every call.
    for name in ("uvicorn", "uvicorn.error", "websockets", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def without_secrets(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Cut API keys down to their ids, wherever they occur, and hide what is named a secret."""
    for name, value in event.items():
        if name.lower() in _SECRET_NAMES:
            event[name] = "…"
        elif isinstance(value, str) and "bm_" in value:
            event[name] = _KEY.sub(r"bm_\1_…", value)
    return event
