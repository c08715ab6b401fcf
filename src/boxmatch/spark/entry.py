"""How work reaches a Spark worker: by a function that can be unpickled without this package.

Spark pickles what it is given by reference where it can, and a worker that lacks the package then
fails while unpickling, with a message that helps nobody. A function made by `task` is pickled by
value, takes plain values only, and looks for the package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterator["pa.RecordBatch"]
Task = Callable[[Batches], Batches]


def task(function: str, /, label: str = "boxmatch", **arguments: Any) -> Task:
    """A function for `mapInArrow` that runs `"module:function"` with `arguments` on the worker.

    Arguments are plain values (strings, numbers, lists, dicts). `label` is the name that Spark
    shows in its plan. The function named is called with the batches and the arguments, and yields
    batches.
    """
    call = scalar(function, label, **arguments)

    def run(batches: Any) -> Any:
        yield from call(batches)

    run.__name__ = run.__qualname__ = label
    return run


def scalar(function: str, /, label: str = "boxmatch", **arguments: Any) -> Callable[[Any], Any]:
    """The same for a function that returns its result instead of yielding it."""
    from boxmatch import __version__ as version

    def call(given: Any) -> Any:
        import importlib
        import sys

        advice = (
            "install it for the Python that the executors run (PYSPARK_PYTHON), or ship an "
            "environment that has it (spark-submit --archives); the Spark guide shows how"
        )
        try:
            package = importlib.import_module("boxmatch")
        except ImportError as error:
            raise RuntimeError(
                f"this Spark worker ({sys.executable}) has no package boxmatch: {advice}"
            ) from error
        if package.__version__ != version:
            raise RuntimeError(
                f"this Spark worker ({sys.executable}) has boxmatch {package.__version__}, the "
                f"driver has {version}: {advice}"
            )
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(given, **arguments)

    call.__name__ = call.__qualname__ = label
    return call
