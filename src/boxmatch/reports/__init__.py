"""Reports as one HTML file with charts that needs nothing else, not even a network."""

from __future__ import annotations

from boxmatch.reports.parts import bullets, facts, figures, folded, table
from boxmatch.reports.shell import Charts, PlottingError, page, require_plotting

__all__ = [
    "Charts",
    "PlottingError",
    "bullets",
    "facts",
    "figures",
    "folded",
    "page",
    "require_plotting",
    "table",
]
