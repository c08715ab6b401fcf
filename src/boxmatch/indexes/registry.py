"""Indexes by name."""

from __future__ import annotations

from importlib import import_module
from typing import TypeVar

from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import Index

# Modules are named here and imported when asked for: each compiles kernels of its own.
_CLASSES = {
    "scan": "boxmatch.indexes.scan:ScanIndex",
    "count": "boxmatch.indexes.papers.count:CountIndex",
    "tree": "boxmatch.indexes.papers.tree:TreeIndex",
    "rapid": "boxmatch.indexes.papers.rapid:RapidIndex",
    "siena": "boxmatch.indexes.papers.siena:SienaIndex",
    "tama": "boxmatch.indexes.papers.tama:TamaIndex",
    "htree": "boxmatch.indexes.papers.htree:HTreeIndex",
    "opindex": "boxmatch.indexes.papers.opindex:OpIndex",
    "rein": "boxmatch.indexes.papers.rein:ReinIndex",
    "ada-rein": "boxmatch.indexes.papers.ada_rein:AdaReinIndex",
    "hem": "boxmatch.indexes.papers.hem:HemIndex",
    "tile": "boxmatch.indexes.tile.index:TileIndex",
}
_REGISTERED: dict[str, type[Index]] = {}

_Kind = TypeVar("_Kind", bound=type[Index])


def register(kind: _Kind) -> _Kind:
    """Make an index of your own known by its `name`, in this process. A decorator of its class.

    Registering another under the same name takes its place, except for the names above.
    """
    if kind.name in _CLASSES:
        raise IndexConfigError(f"there is an index {kind.name!r} already: choose another name")
    _REGISTERED[kind.name] = kind
    return kind


def index_names() -> tuple[str, ...]:
    """The names that `Matcher(index=…)` takes."""
    return (*_CLASSES, *_REGISTERED)


def index_class(name: str) -> type[Index]:
    """The class of the index called `name`."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    try:
        module, _, attribute = _CLASSES[name].partition(":")
    except KeyError:
        raise IndexConfigError(
            f"no index is called {name!r}; there are: {', '.join(index_names())}"
        ) from None
    found: type[Index] = getattr(import_module(module), attribute)
    return found
