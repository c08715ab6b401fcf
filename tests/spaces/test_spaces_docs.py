"""Everything in the guide to spaces is run, in order, and prints what the guide says."""

from __future__ import annotations

from pathlib import Path

from guide import Guide, check

GUIDE = Guide("spaces.md")


def test_python(tmp_path: Path) -> None:
    check(GUIDE.printed(tmp_path), GUIDE.said)
