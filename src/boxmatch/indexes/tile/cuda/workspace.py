"""What a search needs on a card besides the index: a stream, arrays, and recorded launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda
from numba.cuda.cudadrv import driver

from boxmatch.indexes.tile.cuda.warps import SIMULATED

Array = npt.NDArray[Any]

_MOST_GRAPHS = 32


class Workspace:
    """One search at a time. Arrays and pinned memory are kept for the next."""

    def __init__(self) -> None:
        self.stream = cuda.stream()
        self._arrays: dict[str, Any] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._pinned: dict[str, Array] = {}
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, Any] = {}
        self.timer: tuple[Any, Any] | None = None
        """Events to record before and after kernels, for who measures."""

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array on the card, with whatever was in it before."""
        view = self._views.get((name, shape))
        if view is None:
            size = int(np.prod(shape))
            held = self._arrays.get(name)
            if held is None or held.size < size:
                self._forget()
                self._arrays.pop(name, None)
                held = self._arrays[name] = cuda.device_array(max(1, size), dtype)
            view = self._views[name, shape] = held[:size].reshape(shape)
        return view

    def size(self, name: str) -> int:
        """How many items there is room for under this name."""
        held = self._arrays.get(name)
        return 0 if held is None else int(held.size)

    def _forget(self) -> None:
        # What was recorded names arrays that are about to go.
        self._views.clear()
        self._seen.clear()
        self._graphs.clear()

    def pinned(self, name: str, size: int, dtype: Any) -> Array:
        """Host memory that the card copies to by itself."""
        held = self._pinned.get(name)
        if held is None or held.size < size:
            held = self._pinned[name] = cuda.pinned_array(max(1, size), dtype)
            self._forget()
        return held[:size]

    def put(self, target: Any, source: Array) -> None:
        """Begin to copy to the card."""
        if SIMULATED:
            target.copy_to_device(source.reshape(-1).view(target.dtype).reshape(target.shape))
        elif source.size:
            driver.host_to_device(target, source, source.nbytes, stream=self.stream)

    def fetch(self, name: str, source: Any, size: int | None = None) -> Array:
        """Begin to copy the first `size` items, or all; they are there after `wait`."""
        count = int(source.size) if size is None else size
        target = self.pinned(name, count, source.dtype)
        self.copy(target, source)
        return target

    def copy(self, target: Array, source: Any) -> None:
        """Begin to copy from the card as many items as there is room for."""
        if SIMULATED:
            target[:] = source.copy_to_host()[: target.size]
        elif target.size:
            driver.device_to_host(target, source, target.nbytes, stream=self.stream)

    def wait(self) -> None:
        """Wait for all that was begun."""
        self.stream.synchronize()

    def launch(self, key: Hashable, kernels: Callable[[], None]) -> None:
        """Launch some kernels, recorded as one graph if they were launched before by this key.

        A launch from Python takes longer than most of the kernels, a graph no longer than one.
        """
        if self.timer is not None:
            self.timer[0].record(self.stream)
        self._launch(key, kernels)
        if self.timer is not None:
            self.timer[1].record(self.stream)

    def _launch(self, key: Hashable, kernels: Callable[[], None]) -> None:
        if SIMULATED:
            kernels()
            return
        graph = self._graphs.get(key)
        if graph is None:
            if key not in self._seen:  # kernels may have to be compiled
                kernels()
                self._seen.add(key)
                return
            if len(self._graphs) >= _MOST_GRAPHS:
                self._graphs.clear()
            graph = self._graphs[key] = Graph(self.stream, kernels)
        graph.launch()

    @property
    def nbytes(self) -> int:
        """Bytes on the card."""
        return sum(one.nbytes for one in list(self._arrays.values()))


class Graph:
    """Launches on a stream, recorded."""

    def __init__(self, stream: Any, launches: Callable[[], None]) -> None:
        from cuda.bindings import driver as bindings

        self._bindings = bindings
        self._stream = bindings.CUstream(_address(stream))
        mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._check(bindings.cuStreamBeginCapture(self._stream, mode))
        try:
            launches()
        finally:
            graph = self._check(bindings.cuStreamEndCapture(self._stream))
        self._graph = self._check(bindings.cuGraphInstantiate(graph, 0))
        self._check(bindings.cuGraphDestroy(graph))

    def launch(self) -> None:
        self._check(self._bindings.cuGraphLaunch(self._graph, self._stream))

    def __del__(self) -> None:
        destroy = self._bindings.cuGraphExecDestroy
        if hasattr(self, "_graph") and destroy is not None:  # it is at the end of the process
            destroy(self._graph)

    def _check(self, answer: tuple[Any, ...]) -> Any:
        error, *result = answer
        if error != self._bindings.CUresult.CUDA_SUCCESS:
            raise driver.CudaAPIError(int(error), f"a graph of kernels: {error.name}")
        return result[0] if result else None


def _address(stream: Any) -> int:
    handle = stream.handle
    return int(getattr(handle, "value", handle) or 0)
