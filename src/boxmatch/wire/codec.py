"""JSON from structs and back, and where a value has another shape than it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType

from boxmatch.wire.responses import Fault

_encoder: Final = msgspec.json.Encoder(enc_hook=str)
encode = _encoder.encode
"""JSON of a struct."""


def encode_line(value: Any) -> bytes:
    """The same with a newline at the end, as an answer has: terminals show it on a line."""
    return _encoder.encode_lines((value,))  # a large answer is not copied for it


def stored(body: bytes) -> Any:
    """JSON that is there already, to be written as it is in the place of a value."""
    return msgspec.Raw(body)


def plain(value: Any) -> object:
    """What stands for a value that JSON has no form for; for orjson's `default`.

    Nothing is rounded: what JSON cannot hold exactly is a `TypeError`.
    """
    if isinstance(value, Mapping):
        return dict(value)
    from boxmatch.model.keys import TOO_FINE, exact_float

    if isinstance(value, Decimal):
        # Most who read JSON take numbers for floats. One that no float holds goes as text.
        number = float("nan") if value.is_nan() else exact_float(value)
        return str(value) if number is None else number
    missing = value != value  # pandas' NaT, and its NA, which is neither true nor false
    if missing is value or missing is True:
        return None
    if hasattr(value, "to_pydatetime"):  # pandas', and what Arrow makes of nanoseconds with it
        if value.nanosecond:
            raise TypeError(f"{value} {TOO_FINE}")
        return value.to_pydatetime()
    if hasattr(value, "item"):  # a NumPy scalar that the encoder does not know
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


_decoder = cache(msgspec.json.Decoder)

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode` raises: `msgspec.ValidationError`, if it is JSON of another shape."""


def decode(text: bytes | str, kind: Any) -> Any:
    """The struct, or whatever else `kind` is, that JSON stands for."""
    return _decoder(kind).decode(text)


def faults(value: Any, kind: Any, place: str = "body") -> Iterator[Fault]:
    """Every place where a value out of JSON has another shape than `kind`.

    msgspec stops at the first, and says `[...]` for all names in an object that is no struct. So
    what it refuses is looked at part by part, until a part has no smaller one that is wrong.
    """
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        inner = _within(value, kind, place)  # not all at once: there may be a million
        yield next(inner, None) or Fault(place, _message(value, kind, error))
        yield from inner


def _within(value: Any, kind: Any, place: str) -> Iterator[Fault]:
    """What is wrong with parts of the value."""
    for choice in _choices(kind):
        form = get_origin(choice) or choice
        if isinstance(value, dict) and isinstance(form, type) and issubclass(form, Struct):
            yield from _within_struct(value, form, place)
        elif isinstance(value, dict) and form is dict:
            names, values = get_args(choice)
            for name, one in value.items():
                yield from faults(name, names, f"{place}/{name}")
                yield from faults(one, values, f"{place}/{name}")
        elif isinstance(value, list) and form is list:
            (items,) = get_args(choice)
            for index, one in enumerate(value):
                yield from faults(one, items, f"{place}/{index}")


def _within_struct(value: dict[str, Any], kind: type[Struct], place: str) -> Iterator[Fault]:
    known = {one.encode_name: one for one in msgspec.structs.fields(kind)}
    for name, field in known.items():
        if name in value:
            yield from faults(value[name], _without_unset(field.type), f"{place}/{name}")
        elif field.required:
            yield Fault(f"{place}/{name}", "this is missing")
    for name in value:
        if name not in known and kind.__struct_config__.forbid_unknown_fields:
            yield Fault(f"{place}/{name}", "there is no such field")


def _message(value: Any, kind: Any, error: msgspec.ValidationError) -> str:
    for one in _metadata(kind):
        if one.extra and not isinstance(value, (dict, list)):
            return str(one.extra["otherwise"])
    literals = [one for one in _choices(kind) if get_origin(one) is Literal]
    if literals and isinstance(value, str):
        return f"must be one of {', '.join(get_args(literals[0]))}"
    return str(error)


def _choices(kind: Any) -> Iterator[Any]:
    """The types that a union allows, without what is said about them."""
    if get_origin(kind) is Annotated:
        yield from _choices(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _choices(one)
    else:
        yield kind


def _metadata(kind: Any) -> list[Meta]:
    return list(get_args(kind)[1:]) if get_origin(kind) is Annotated else []


def _without_unset(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(one for one in get_args(kind) if one is not UnsetType)]  # noqa: UP007
