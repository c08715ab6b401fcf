"""The dialects by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from boxmatch.errors import FilterError, did_you_mean
from boxmatch.model.dialects.patterns import Translation, Translator

SQL: Final = "sql"
"""The filters of this package."""

_TRANSLATORS: Final[Mapping[str, tuple[str, str]]] = {
    "eventbridge": ("eventbridge", "translate"),
    "sns": ("sns", "translate"),
    "sns-body": ("sns", "translate_body"),
    "cesql": ("cesql", "translate"),
    "jms": ("jms", "translate"),
}
"""Modules, which are imported when they are first used, and functions in them."""

DIALECTS: Final = tuple(_TRANSLATORS)
"""The names of those of others."""

_MARK: Final = "\0"


class DialectFilter(NamedTuple):
    """A filter of another dialect than SQL."""

    dialect: str
    filter: str | Mapping[str, Any]

    @property
    def written(self) -> str:
        """The filter with its dialect, as it is stored."""
        return with_dialect(self.dialect, text_of_filter(self.filter))


def in_dialect(filter: Any, dialect: object) -> Any:
    """A filter of a dialect, or the filter itself if that is SQL. Raises `FilterError`."""
    own = check_dialect(dialect)
    return filter if own is None else DialectFilter(own, filter)


def check_dialect(dialect: object) -> str | None:
    """The name of a dialect of others; None for SQL. Raises `FilterError`."""
    if dialect is None or dialect == SQL:
        return None
    if dialect not in DIALECTS:
        known = ", ".join((SQL, *DIALECTS))
        hint = did_you_mean(dialect, (SQL, *DIALECTS))
        raise FilterError(f"there is no dialect {dialect!r} (known are {known}){hint}")
    return str(dialect)


def translate(dialect: str, text: str) -> Translation:
    """What a filter, as text, wants of events. Raises `FilterError`."""
    return _translated(dialect, text)


@lru_cache(maxsize=4096)
def _translated(dialect: str, text: str) -> Translation:
    return _translator(dialect)(text)


def _translator(dialect: str) -> Translator:
    module, function = _TRANSLATORS[dialect]
    found: Translator = getattr(import_module(f"boxmatch.model.dialects.{module}"), function)
    return found


def text_of_filter(filter: object) -> str:
    """The text of a filter, which may be one that JSON says, given as a mapping or list.

    Raises `FilterError`.
    """
    if isinstance(filter, str):
        return filter
    if not isinstance(filter, (Mapping, list)):
        kind = "null" if filter is None else type(filter).__name__
        raise FilterError(f"a filter of a dialect is a text, or a mapping of JSON, not {kind}")
    try:
        return json.dumps(filter, ensure_ascii=False, allow_nan=False, default=_refuse)
    except (TypeError, ValueError, RecursionError) as error:
        raise FilterError(f"this filter cannot be written as JSON: {error}") from None


def _refuse(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def written_text(filter: object) -> str | None:
    """What is kept of how a filter was written: with its dialect, if that is not SQL."""
    if isinstance(filter, DialectFilter):
        return filter.written
    return str(filter) if isinstance(filter, str) else None


def with_dialect(dialect: str | None, text: str) -> str:
    """A filter's text with its dialect, in the form in which both are stored."""
    return text if dialect is None else f"{_MARK}{dialect}{_MARK}{text}"


def without_dialect(stored: str) -> tuple[str | None, str]:
    """The inverse: the dialect, None for SQL, and the text."""
    if not stored.startswith(_MARK):
        return None, stored
    dialect, text = stored[1:].split(_MARK, 1)
    return dialect, text
