"""Expressions over documents: the value at a path, its text, and the texts of its members.

A path is a literal: a JSON list of names. Values that have types of their own have texts, too, at
the empty path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from math import isfinite
from typing import Any, Final, NamedTuple, get_args
from typing import Literal as Choice

from boxmatch.model.documents import (
    ROOT,
    Path,
    find,
    members,
    string_of_text,
    string_text,
    text_of,
)
from boxmatch.model.expressions.casts import timestamp_of
from boxmatch.model.expressions.nodes import (
    BOOL,
    INT,
    JSON,
    STRING,
    Call,
    Column,
    Literal,
    Node,
    Type,
    read_path,
    walk,
)
from boxmatch.model.keys import is_absent

Form = Choice["", "folded", "reversed", "reversed folded", "address"]
"""What is compared of a text: itself, or of a string something that is made of it."""

_TEXTS: Final = Type("list", element=STRING)


# --- nodes -----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def path_literal(path: Path) -> Literal:
    """A path as a constant."""
    return Literal(json.dumps(path, ensure_ascii=False, separators=(",", ":")), STRING)


def value_at(document: Node, path: Path) -> Node:
    """The value at a path of a document."""
    return Call("json_path", (document, path_literal(path)), JSON) if path else document


@lru_cache(maxsize=4096)
def text_at(subject: Node, path: Path, form: Form = "") -> Node:
    """The text of the value at a path; NULL if it is a list or a mapping, or missing.

    A null that is there has a text, too.
    """
    return Call("text", (subject, path_literal(path), Literal(form, STRING)), STRING)


@lru_cache(maxsize=4096)
def texts_at(subject: Node, path: Path, form: Form = "") -> Node:
    """The texts of all members of a path."""
    return Call("texts", (subject, path_literal(path), Literal(form, STRING)), _TEXTS)


def as_written(node: Node) -> Node:
    """Texts of which something is compared that is made of them, as they are."""
    match node:
        case Call("text", (subject, path, _)):
            return text_at(subject, path_of(path))
        case Call("texts", (subject, path, _)):
            return texts_at(subject, path_of(path))
    return node


@lru_cache(maxsize=4096)
def missing_at(subject: Node, path: Path, within: int = 0) -> Node:
    """Whether a path has no member; for `within` see `documents.members`."""
    return Call("is_missing", (subject, path_literal(path), Literal(within, INT)), BOOL)


@lru_cache(maxsize=4096)
def joined_at(subject: Node, path: Path) -> Node:
    """All strings among the members of a path in one text; NULL if there is none.

    What one of them contains, it contains, too.
    """
    return Call("joined", (subject, path_literal(path)), STRING)


def wanted(
    dialect: str, text: str, parts: Iterable[DocumentPart], columns: Iterable[Column]
) -> Node:
    """Whether a filter of a dialect wants an event of these columns; it looks at these parts."""
    plain = json.dumps([[part.kind, part.column, part.path, part.within] for part in parts])
    constants = (Literal(one, STRING) for one in (dialect, text, plain))
    return Call("wanted", (*constants, *columns), BOOL)


def wanted_function(call: Call) -> Callable[[Sequence[Any]], bool]:
    """The function of the values of the columns, of such a node."""
    from boxmatch.model.dialects.evaluation import wants

    dialect, text = (one.value for one in call.arguments[:2] if isinstance(one, Literal))
    names = [one.name for one in call.arguments[3:] if isinstance(one, Column)]
    check = wants(dialect, text)
    if names == [ROOT]:
        return lambda values: check(values[0])

    def run(values: Sequence[Any]) -> bool:
        return check(
            {name: one for name, one in zip(names, values, strict=True) if one is not None}
        )

    return run


class DocumentPart(NamedTuple):
    """What a node says of a value at a path of a document, or of its members."""

    kind: Choice["text", "texts", "joined", "is_missing", "json_path"]
    column: str
    path: Path
    form: Form = ""
    within: int = 0

    @property
    def of_members(self) -> bool:
        """Whether the path leads through lists."""
        return self.kind in ("texts", "joined", "is_missing")


def part_of(node: Node) -> DocumentPart | None:
    """What a node is about, if that is one value at a path of a document, or its members."""
    match node:
        case Call("text", (Column(name, type), path, Literal(form))) if type == JSON:
            return DocumentPart("text", name, path_of(path), form)
        case Call("texts", (Column(name, type), path, Literal(form))) if type == JSON:
            return DocumentPart("texts", name, path_of(path), form)
        case Call("is_missing", (Column(name, type), path, Literal(within))) if type == JSON:
            return DocumentPart("is_missing", name, path_of(path), within=within)
        case Call("joined", (Column(name, type), path)) if type == JSON:
            return DocumentPart("joined", name, path_of(path))
        case Call("json_path", (Column(name, type), path)) if type == JSON:
            return DocumentPart("json_path", name, path_of(path))
        case Column(name, type) if type == JSON:
            return DocumentPart("json_path", name, ())
    return None


def parts_of(nodes: Iterable[Node]) -> Iterator[DocumentPart]:
    """What nodes say of members of documents, for each place where they do."""
    for node in nodes:
        for one in walk(node):
            if isinstance(one, Call) and one.function == "wanted":
                parts = one.arguments[2]
                assert isinstance(parts, Literal)  # as it is made here
                for kind, column, path, within in json.loads(parts.value):
                    yield DocumentPart(kind, column, tuple(path), within=within)
            part = part_of(one) if isinstance(one, Call) else None
            if part is not None and part.of_members:
                yield part


def path_of(node: Node) -> Path:
    """The path that a constant is."""
    assert isinstance(node, Literal)  # as it is made here
    return read_path(node.value)


# --- values ----------------------------------------------------------------------------------


def float_of(value: Any) -> float | None:
    """The nearest float of a number."""
    if type(value) is int or (type(value) is float and value == value):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, Decimal) and value.is_finite():
        found = float(value)
        return found if isfinite(found) else None
    return None


def string_of(value: Any) -> str | None:
    """A string; a date or a time, of a table or a dict, is the one that JSON has for it."""
    if isinstance(value, date):
        return None if is_absent(value) else value.isoformat()
    return value if type(value) is str else None


def _timestamp_of(value: Any) -> int | None:
    text = string_of(value)
    return None if text is None else timestamp_of(text)


_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    "float": float_of,
    "string": string_of,
    "bool": lambda value: value if type(value) is bool else None,
    "timestamp": _timestamp_of,
}


def cast_value(target: Type) -> Callable[[Any], Any]:
    """What reads a value of a document as one of a type; None if it is of another kind."""
    return _VALUES[target.name]


def fold(text: str) -> str:
    """A text in which the case of letters is gone, character by character."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_character, text))


@lru_cache(maxsize=4096)
def _fold_character(one: str) -> str:
    lower = one.lower()
    return lower if len(lower) == 1 and lower.upper() == one else one


NO_ADDRESS: Final = "-"
"""The text of a string that is no address; others begin with a digit."""


def address_text(text: str) -> str:
    """An address of IPv4 or IPv6 as hexadecimal digits, whose order is that of addresses."""
    if "%" in text:  # a scope
        return NO_ADDRESS
    try:
        return address_digits(ip_address(text))
    except ValueError:
        return NO_ADDRESS


def address_digits(address: IPv4Address | IPv6Address) -> str:
    """The digits of an address, which begin with its version."""
    return f"{address.version}{int(address):032x}"


def _of_string(change: Callable[[str], str]) -> Callable[[str], str | None]:
    def run(text: str) -> str | None:
        if text[:1] == "\0" and not text.startswith("\0s"):
            return None
        return string_text(change(string_of_text(text)))

    return run


FORMS: Final[dict[str, Callable[[str], str | None] | None]] = {
    "": None,
    "folded": _of_string(fold),
    "reversed": _of_string(lambda text: text[::-1]),
    "reversed folded": _of_string(lambda text: fold(text)[::-1]),
    "address": _of_string(address_text),
}
"""By form: what makes of the text of a member the one that is compared."""

assert tuple(FORMS) == get_args(Form)


def text_function(form: str) -> Callable[[Any], str | None]:
    """What gives the text of one value, None if it has none."""
    change = FORMS[form]
    if change is None:
        return text_of

    def run(value: Any) -> str | None:
        text = text_of(value)
        return None if text is None else change(text)

    return run


def _texts_function(path: Path, form: str) -> Callable[[Any], list[str] | None]:
    text = text_function(form)

    def run(document: Any) -> list[str] | None:
        found = [text(one) for one in members(document, path)]
        if not found and not isinstance(find(document, path), (list, tuple)):
            return None
        return [one for one in found if one is not None]

    return run


def _joined_function(path: Path) -> Callable[[Any], str | None]:
    def run(document: Any) -> str | None:
        found = [str(one) for one in members(document, path) if isinstance(one, str)]
        return "\0".join(found) if found else None

    return run


def document_function(call: Call) -> Callable[[Any], Any]:
    """The function of a document's value, which may be None, for the calls of this module."""
    path = path_of(call.arguments[1])
    rest = [one.value for one in call.arguments[2:] if isinstance(one, Literal)]
    match call.function:
        case "json_path":
            return lambda document: find(document, path)
        case "is_missing":
            [within] = rest
            return lambda document: next(members(document, path, within), _NONE) is _NONE
        case "texts":
            return _texts_function(path, *rest)
        case "joined":
            return _joined_function(path)
        case "text":
            text = text_function(*rest)

            def run(document: Any) -> str | None:
                value = find(document, path, _NONE)
                return None if value is _NONE else text(value)

            return run
    raise TypeError(f"{call.function} is no function of documents")


_NONE: Final = object()

DOCUMENT_FUNCTIONS: Final = frozenset(("json_path", "text", "texts", "is_missing", "joined"))
