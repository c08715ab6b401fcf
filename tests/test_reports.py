from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from boxmatch import reports as pages
from boxmatch.errors import BoxmatchError
from boxmatch.reports import Charts
from boxmatch.reports.shell import script_json

CHART = {
    "data": {"values": [{"x": "a", "y": 1}]},
    "mark": "bar",
    "encoding": {"x": {"field": "x", "type": "nominal"}, "y": {"field": "y"}},
}


def made(charts: Charts | None = None, *, title: str = "T", sections: str = "") -> str:
    return pages.page(
        title=title,
        heading="H",
        introduction="<p>I</p>",
        origin=pages.facts({"Seed": 1}),
        contents="",
        sections=sections,
        charts=charts or Charts(),
    )


def script(page: str, name: str) -> str:
    found = re.search(rf'id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return found[1]


class Balanced(HTMLParser):
    """Fails on elements that are closed in another order than they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_parts_are_in_their_places() -> None:
    charts = Charts()
    places = charts.place([CHART, CHART]) + charts.place([CHART])
    page = made(charts, sections=f"<section>{places}</section>")
    Balanced(page)
    assert "<title>T</title>" in page
    assert "<h1>H</h1>\n<p>I</p>\n<dl><dt>Seed</dt><dd>1</dd></dl>" in page
    assert re.findall(r'data-chart="(\d)"', page) == ["0", "1", "2"]
    assert json.loads(script(page, "charts")) == [CHART] * 3
    assert "<!--" not in page


def test_nothing_is_loaded() -> None:
    page = made()
    assert "default-src 'none'" in page
    assert not re.search(r"<link|@import|\bsrc=|https?:", page.replace(script(page, "library"), ""))


def test_library_is_whole_and_the_same_every_time() -> None:
    packed = script(made(), "library")
    assert packed == script(made(), "library")
    assert "window.vegaEmbed" in gzip.decompress(base64.b64decode(packed)).decode()


def test_light_dark_and_small_screens() -> None:
    page = made()
    assert "color-scheme: light dark" in page
    assert 'name="viewport" content="width=device-width' in page
    assert "@media (max-width" in page


def test_text_is_escaped() -> None:
    evil = "</script><b>&\"'<!-- library -->"
    page = made(title=evil)
    assert "<title>&lt;/script&gt;" in page
    charts = Charts()
    charts.place([{"title": evil}])
    page = made(charts)
    assert "<b>" not in page
    assert json.loads(script(page, "charts"))[0]["title"] == evil
    for part in (
        pages.table(evil, [evil], [[evil, evil]]),
        pages.bullets([evil]),
        pages.facts({evil: evil}),
        pages.figures([(evil, evil, evil)]),
        pages.folded(evil, ""),
        pages.table(evil, [evil], [[evil]], code=0),
    ):
        Balanced(part)
        assert "<b>" not in part
        assert "<!--" not in part


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "a < b", "ü"])
def test_json_in_a_script(text: str) -> None:
    assert "<" not in script_json({text: [text]})
    assert json.loads(script_json({text: [text]})) == {text: [text]}


def test_tables_tell_labels_from_figures() -> None:
    table = pages.table("t", ("a", "b", "c"), [("1", "2", "3")], labels=2)
    head = '<tr><th class="label">a</th><th class="label">b</th><th>c</th></tr>'
    assert head in table
    assert '<tr><th class="label">1</th><th class="label">2</th><td>3</td></tr>' in table


def test_plotting_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    pages.require_plotting()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(pages.PlottingError, match=r"boxmatch\[bench\]") as e:
        pages.require_plotting()
    assert isinstance(e.value, BoxmatchError)
