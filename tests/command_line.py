"""The `boxmatch` command in this process: `run_boxmatch("check", "price > 3")`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from boxmatch.cli import main


class Finished(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def run_boxmatch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> Finished:
        monkeypatch.setattr(sys, "argv", ["boxmatch", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return Finished(int(exit_.value.code or 0), out, err)

    return call
