"""Parts of the package that need more than it installs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boxmatch.errors import MissingExtraError


@contextmanager
def requires(extra: str, what: str) -> Iterator[None]:
    """Around what imports: where a module is missing, say what needs it, and what to install."""
    try:
        yield
    except (ModuleNotFoundError, MissingExtraError) as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "boxmatch"):
            raise
        raise MissingExtraError(what, module, extra) from None
