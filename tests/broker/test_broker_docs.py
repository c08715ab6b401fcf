"""Everything in the broker's guide is run, as one session, and prints what the guide says."""

from __future__ import annotations

from pathlib import Path

import pytest

from guide import ROOT, Guide, check
from guide_session import Session

GUIDE = Session(Guide("broker.md"), ports=(8080, 9000))
README = Session(Guide("README.md", section="As a service"))


def test_guide(tmp_path: Path) -> None:
    check(GUIDE.printed(tmp_path), GUIDE.said)


def test_readme(tmp_path: Path) -> None:
    check(README.printed(tmp_path), README.said)


def test_routes() -> None:
    from boxmatch.broker.http.app import ROUTERS

    table = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8").partition("\n## Routes\n")[2]
    routes = [route for router in ROUTERS for route in router.routes]
    # The files of the page at /docs are nobody's business.
    paths = {getattr(route, "path", "") for route in routes} - {"/docs/{name}"}
    assert len(paths) > 15
    assert [path for path in sorted(paths) if f" {path}`" not in table] == []


@pytest.mark.parametrize(("text", "reason"), GUIDE.left_out.items())
def test_not_run(text: str, reason: str) -> None:
    pytest.skip(reason)
