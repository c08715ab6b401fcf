"""The `boxmatch` command in this process: `run_boxmatch("check", "price > 3")`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import structlog

from boxmatch.cli import main


class Finished(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def quiet_logs() -> Iterator[None]:
    """Logging as it was, afterwards."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield
    root.handlers = before
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def run_boxmatch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet_logs: None
) -> Command:
    def call(*arguments: str) -> Finished:
        monkeypatch.setattr(sys, "argv", ["boxmatch", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return Finished(int(exit_.value.code or 0), out, err)

    return call
