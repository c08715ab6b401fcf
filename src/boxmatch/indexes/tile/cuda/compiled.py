"""Kernels of the card are compiled once per machine, like those of the processor."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from numba import cuda

from boxmatch.indexes.tile.cuda.warps import SIMULATED
from boxmatch.kernels.jit import BySignature, cache_folder

_decorating = Lock()


def card_kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as a kernel for the card, cached on disk where that can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = cuda.jit(**options)(function)
        folder = None if SIMULATED else cache_folder()
        if folder is not None:
            _cache(compiled, str(folder))
        return compiled

    return decorate


def _cache(compiled: Any, folder: str) -> None:
    import numba_cuda
    from numba.cuda.core import config
    from numba.cuda.core.caching import IndexDataCacheFile

    class Files(BySignature, IndexDataCacheFile):  # type: ignore[misc]  # which has no types
        """As for the processor, and of one version of numba-cuda."""

    # As in `kernels.jit`: the folder is read from settings when a cache is made.
    with _decorating:
        previous = config.CACHE_DIR
        config.CACHE_DIR = folder
        try:
            compiled.enable_caching()
        finally:
            config.CACHE_DIR = previous
    cache = compiled._cache
    stamp = cache._impl.locator.get_source_stamp(), numba_cuda.__version__
    cache._cache_file = Files(cache.cache_path, cache._impl.filename_base, stamp)
