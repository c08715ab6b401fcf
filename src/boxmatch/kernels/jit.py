"""How kernels are compiled: once per machine, cached where it can be written, without the GIL.

Numba invalidates a cached kernel when its own file changes, but not when a kernel that it calls
lives in another file. The cache folder therefore carries a fingerprint of all of them.

Numba also keeps an index of each kernel's signatures, in which two processes that compile two
signatures at once may claim the same file: whoever loads the one then runs the other, over memory
of another type. Here each signature has a file that is named after it, and there is no index.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numba
from numba.core import event as numba_event
from numba.core.caching import FunctionCache, IndexDataCacheFile

from boxmatch.kernels.notice import CompilationNotice

Function = TypeVar("Function", bound=Callable[..., Any])

_decorating = Lock()

_KERNELS = (b"\n@kernel\n", b"\n@inlined\n", b"\n@card_kernel(")
_IMPORT = re.compile(rb"^from boxmatch\.([\w.]+) import ([\w, ]+|\([^)]*\))", re.MULTILINE)
_NAME = re.compile(rb"\w+")


def kernel(function: Function) -> Function:
    """Compile `function` with Numba: no GIL, no Python objects, cached on disk."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    if compiled is function:  # they run as plain Python, for tests and debuggers
        return function
    notice.expect(function)
    folder = cache_folder()
    if folder is not None:
        # Numba reads the folder from its settings; other users in this process keep theirs. Threads
        # that import kernels take turns, else one might take our folder for the previous one.
        with _decorating:
            previous = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(folder)
            try:
                compiled._cache = _KernelCache(function)
            finally:
                numba.config.CACHE_DIR = previous
    return cast(Function, compiled)


def inlined(function: Function) -> Function:
    """Let `function` become a part of each kernel that calls it.

    For small ones that are handed many arrays: the compiler often leaves a call, and passing a
    tuple of arrays by value then takes longer than what is done with it.
    """
    return cast(Function, numba.njit(nogil=True, inline="always", error_model="numpy")(function))


class _KernelCache(FunctionCache):
    """Numba's cache of one function, without the index."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _SignatureFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )


class BySignature:
    """The compiled signatures of one kernel, each in a file named after it."""

    _index_name: str
    _version: str
    _source_stamp: Any
    _save_data: Any
    _load_data: Any

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._name_of(key), (key, data))

    def load(self, key: Any) -> Any:
        try:
            stored, data = self._load_data(self._name_of(key))
        except OSError:  # it is not there, or cannot be read: the kernel is compiled again
            return None
        return data if stored == key else None

    def _name_of(self, key: Any) -> str:
        what = repr((self._version, self._source_stamp, key))
        digest = hashlib.sha256(what.encode()).hexdigest()[:24]
        return f"{self._index_name.removesuffix('.nbi')}.{digest}.nbc"


class _SignatureFiles(BySignature, IndexDataCacheFile):
    pass


@cache
def cache_folder() -> Path | None:
    """The folder for compiled kernels: the first of the usual places that can be written."""
    name = f"kernels-{_fingerprint()}"
    for place in _places():
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


def _places() -> list[Path]:
    places = []
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        places.append(Path(chosen) / "boxmatch")
    if user_cache := os.environ.get("XDG_CACHE_HOME"):
        places.append(Path(user_cache) / "boxmatch")
    home = os.path.expanduser("~")
    if home != "~":
        places.append(Path(home) / ".cache" / "boxmatch")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    with suppress(FileNotFoundError):  # a system without a temporary folder
        places.append(Path(tempfile.gettempdir()) / f"boxmatch-{user}")
    return places


def _fingerprint() -> str:
    """Of all sources with kernels, and of what they import: constants are compiled in."""
    # With strings rather than paths, which take three times as long at every start.
    package = os.path.dirname(os.path.dirname(__file__))
    sources: dict[bytes, bytes] = {}
    for layer in ("kernels", "model", "adaptive", "indexes", "engine", "spaces"):
        for folder, _, files in os.walk(os.path.join(package, layer)):
            parent = folder[len(package) + 1 :].replace(os.sep, ".")
            for file in files:
                if file.endswith(".py"):
                    with open(os.path.join(folder, file), "rb") as source:
                        sources[f"{parent}.{file[:-3]}".encode()] = source.read()
    pending = [module for module, text in sources.items() if any(mark in text for mark in _KERNELS)]
    seen = set(pending)
    while pending:
        head = sources[pending.pop()].partition(b"\n\n\n")[0]  # what kernels use is imported there
        for module, names in _IMPORT.findall(head):
            modules = {module, *(module + b"." + name for name in _NAME.findall(names))}
            new = (modules & sources.keys()) - seen
            seen |= new
            pending += new
    digest = hashlib.sha256()
    for module in sorted(seen):
        digest.update(sources[module])
    return digest.hexdigest()[:16]


notice = CompilationNotice(cache_folder)
numba_event.register("numba:compile", notice)
