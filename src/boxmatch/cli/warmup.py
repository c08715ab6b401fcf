"""`boxmatch warmup`: compile all kernels in advance."""

from __future__ import annotations

from time import perf_counter

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson, print_json


@examples("boxmatch warmup", "boxmatch warmup --json")
def warmup(as_json: AsJson = False) -> None:
    """Compile and cache all kernels, for images and CI.

    Boxmatch compiles its kernels for the processor when they are first needed. After this command,
    no process with the same cache waits for those of matching, also with lists and texts, and of
    spaces. The cache is in NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, the first that is set and
    can be written.
    """
    from boxmatch.engine.matcher import Matcher
    from boxmatch.kernels.jit import cache_folder, notice
    from boxmatch.spaces.spaces import Spaces

    began = perf_counter()
    Matcher({"number": "int", "text": "string"}).warmup()
    Spaces({"trial": {"x": "int"}}).warmup()
    seconds = perf_counter() - began
    folder = cache_folder()
    if as_json:
        cached = None if folder is None else str(folder)
        print_json({"compiled": notice.compiled, "seconds": round(seconds, 3), "cache": cached})
        return
    if notice.compiled:
        typer.echo(f"Compiled {notice.compiled} kernels in {seconds:.1f} s.")
    else:
        typer.echo("All kernels are compiled already.")
    where = "not cached: no folder can be written" if folder is None else f"cached in {folder}"
    typer.echo(f"They are {where}.")
