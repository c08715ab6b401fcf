"""Everything in the guide to routes is run, as one session, and prints what the guide says."""

from __future__ import annotations

from pathlib import Path

import pytest

from guide import Guide, check
from guide_session import Session

GUIDE = Session(Guide("route.md"), ports=(4222, 4223, 9100))


def test_guide(tmp_path: Path) -> None:
    check(GUIDE.printed(tmp_path, timeout=180), GUIDE.said)


@pytest.mark.parametrize(("text", "reason"), GUIDE.left_out.items())
def test_not_run(text: str, reason: str) -> None:
    pytest.skip(reason)
