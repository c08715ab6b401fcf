"""Names of attributes in SQL."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_PARTS: Final = 4  # that a parser of SQL reads as one name


@lru_cache(maxsize=4096)
def quote_name(name: str) -> str:
    """The name as it is, or in double quotes if it would not be read as a name."""
    from boxmatch.model.filters.parsing import is_reserved

    parts = name.split(".")
    if len(parts) <= _MOST_PARTS and all(
        _PLAIN_NAME.fullmatch(part) and not is_reserved(part) for part in parts
    ):
        return name
    return '"' + name.replace('"', '""') + '"'
