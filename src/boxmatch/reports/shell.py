"""The page itself: its style, its charts, and the library that draws them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from boxmatch.errors import MissingExtraError

Specification = dict[str, Any]
"""A chart in Vega-Lite."""


class PlottingError(MissingExtraError):
    """The library that charts are drawn with is not installed."""


def require_plotting(extra: str = "bench") -> None:
    """Raise `PlottingError` unless charts can be made; `extra` brings what that takes."""
    try:
        import vl_convert  # noqa: F401 - only to see whether it is there
    except ImportError:
        raise PlottingError("the report", "vl-convert-python", extra) from None


class Charts:
    """The charts of a page, in the order in which they were placed."""

    def __init__(self) -> None:
        self.drawn: list[Specification] = []

    def place(self, specifications: Sequence[Specification], *, narrow: bool = False) -> str:
        """Where these charts go, side by side if there is room; narrow ones need less of it."""
        first = len(self.drawn)
        self.drawn.extend(specifications)
        places = "".join(
            f'<div class="chart" data-chart="{number}"></div>'
            for number in range(first, len(self.drawn))
        )
        return f'<div class="charts{" narrow" if narrow else ""}">{places}</div>'


def page(
    *, title: str, heading: str, introduction: str, origin: str, contents: str, sections: str,
    charts: Charts,
) -> str:  # fmt: skip
    """The whole page. Title and heading are text, the other parts are HTML already."""
    parts = {
        "title": escape(title, quote=False),
        "heading": escape(heading, quote=False),
        "introduction": introduction,
        "provenance": origin,
        "contents": contents,
        "sections": sections,
        "charts": script_json(charts.drawn),
        "library": _library(),
    }
    template = resources.files("boxmatch.reports").joinpath("page.html").read_text(encoding="utf-8")
    # In one go, so that nothing in a part can be taken for the place of another.
    return re.sub(r"<!-- (\w+) -->", lambda place: parts[place[1]], template)


def script_json(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, compressed: browsers unpack them by themselves."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
    # Without a time stamp, so that the same figures give the same file.
    return base64.b64encode(gzip.compress(bundle.encode(), 9, mtime=0)).decode()
