"""Algorithms as the papers have them, where the package's own differ; and what they leave open."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from boxmatch.indexes import registry
from boxmatch.indexes.base import Index

_CLASSES: Final = {
    "ada-rein-published": "psam:PublishedAdaReinIndex",
    "rapid-cut": "cut_space:CutSpaceIndex",
    "rein-covered": "subsumption:CoveredIndex",
}

NAMES: Final = tuple(_CLASSES)
"""Indexes that only the reproduction has."""


def index_class(name: str) -> type[Index]:
    """The class of one of these, or of the package's own."""
    if name not in _CLASSES:
        return registry.index_class(name)
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Index] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found
