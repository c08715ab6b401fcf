"""The documentation builds into a site without a warning, and that loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import boxmatch
import boxmatch.client
import boxmatch.spark
import boxmatch.workloads
from guide import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [one for one in loaded.addresses if re.match(r"(\w+:)?//", one)] == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(\w+:)?//", style.read_text(encoding="utf-8"))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in site.glob("reference/*.html"))
    anchors = set(re.findall(r'id="(boxmatch\.[\w.]+)"', pages))
    last = {anchor.rpartition(".")[2] for anchor in anchors}
    modules = (boxmatch, boxmatch.client, boxmatch.spark, boxmatch.workloads)
    public = {name for module in modules for name in module.__all__} - {"__version__"}
    assert sorted(public - last) == []


def test_methods_of_the_clients_are_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "client.html").read_text(encoding="utf-8")
    for kind in ("Client", "AsyncClient"):
        methods = {one for one in vars(getattr(boxmatch.client, kind)) if not one.startswith("_")}
        shown = set(re.findall(rf'id="boxmatch\.client\.{kind}\.(\w+)"', page))
        assert sorted(methods - shown) == []


def test_drawings_are_in_the_pages(site: Path) -> None:
    for name in ("index", "concepts", "architecture"):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert 'class="drawing"' in page
        assert not re.search(r"<img [^>]*images/(?!mark)[\w-]+\.svg", page)


class _Loaded(HTMLParser):
    """What a page fetches by itself: scripts, styles, images, frames; not links to click on."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given.get("href") or "")
        self.addresses += [given.get("src") or "", given.get("srcset") or ""]
