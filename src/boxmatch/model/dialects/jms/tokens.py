"""The words, numbers, strings and signs that a message selector is made of."""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Iterator
from math import isinf
from typing import Final, Literal, NamedTuple

from boxmatch.errors import FilterError, FilterSyntaxError

MOST: Final = 2**63 - 1
"""The largest exact number, which is Java's largest `long`."""

_KEYWORDS: Final = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)

_BLANK: Final = re.compile(r"[ \t\f\r\n]+")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_$]+")
_QUOTED: Final = re.compile(r'"[^"]+"')
_STRING: Final = re.compile(r"'[^']*+(?:''[^']*+)*+'")
_SIGN: Final = re.compile(r"<>|<=|>=|--|/\*|==|!=|[-+*/()=<>,]")

_DIGITS = r"[0-9](?:[0-9_]*[0-9])?"
_HEX = r"[0-9a-fA-F](?:[0-9a-fA-F_]*[0-9a-fA-F])?"
_POWER = rf"[eE][-+]?{_DIGITS}"
_NUMBER: Final = re.compile(
    rf"(?P<hex_approximate>0[xX](?:{_HEX}\.?|(?:{_HEX})?\.{_HEX})[pP][-+]?{_DIGITS}[fFdD]?)"
    rf"|(?P<approximate>(?:{_DIGITS}\.(?:{_DIGITS})?(?:{_POWER})?|\.{_DIGITS}(?:{_POWER})?"
    rf"|{_DIGITS}{_POWER})[fFdD]?|{_DIGITS}[fFdD])"
    rf"|(?P<hex>0[xX]{_HEX})[lL]?"
    r"|(?P<binary>0[bB][01](?:[01_]*[01])?)[lL]?"
    rf"|(?P<exact>{_DIGITS})[lL]?"
)
_NUMBER_START: Final = re.compile(r"\.?[0-9]")

_NO_COMMENTS = "a selector has no comments"
_HINTS: Final = {
    "--": f"{_NO_COMMENTS}; minus a negative number is written with a space, or in parentheses",
    "/*": _NO_COMMENTS,
    "==": "equal is written =",
    "!=": "not equal is written <>",
    '"': "a name in double quotes has no end, or no characters",
    "%": "there is no remainder among the operators, which are +, -, * and /",
    ".": "a name with dots is written in double quotes",
    "&": "and is written AND",
    "|": "or is written OR",
}
"""What to say about signs that other languages have."""

_NAME_START: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_NAME_PART: Final = _NAME_START | {"Nd", "Mn", "Mc", "Cf"}

Kind = Literal["name", "keyword", "string", "number", "sign", "end"]


class Token(NamedTuple):
    """A word, number, string or sign, or the end."""

    kind: Kind
    text: str
    """As it is written; a keyword in upper case."""
    position: int
    value: str | int | float = ""
    """Of a name or a string, its text; of a number, the number, which may be one more than `MOST`.
    """


def as_long(number: int) -> int:
    """What is left of a number in Java's `long`: its last 64 bits, with a sign."""
    return (number + 2**63) % 2**64 - 2**63


def tokens_of(text: str) -> Iterator[Token]:
    """All tokens of a selector, the end being the last."""
    position = 0
    while position < len(text):
        if blank := _BLANK.match(text, position):
            position = blank.end()
            continue
        token = _token(text, position)
        yield token
        position += len(token.text)
    yield Token("end", "", len(text))


def _token(text: str, position: int) -> Token:
    if _starts_name(text[position]):
        return _word(text, position)
    if _NUMBER_START.match(text, position):
        return _number(text, position)
    if text[position] == "'":
        return _string(text, position)
    if quoted := _QUOTED.match(text, position):
        return _quoted_name(quoted.group(), text, position)
    sign = _SIGN.match(text, position)
    found = text[position] if sign is None else sign.group()
    if found in _HINTS:
        raise FilterSyntaxError(_HINTS[found], text, position)
    if sign is None:
        raise FilterSyntaxError(f"unexpected {found!r}", text, position)
    return Token("sign", found, position)


def _word(text: str, position: int) -> Token:
    end = position + 1
    if plain := _PLAIN.match(text, end):  # which most names are, to their end
        end = plain.end()
    while end < len(text) and _continues_name(text[end]):
        end += 1
    word = text[position:end]
    if word.upper() in _KEYWORDS and word.isascii():
        return Token("keyword", word.upper(), position)
    return Token("name", word, position, word)


def _quoted_name(quoted: str, text: str, position: int) -> Token:
    """A name that cannot be written without quotes; others are likely to be meant as strings."""
    name = quoted[1:-1]
    if _starts_name(name[0]) and _word(name, 0).value == name:
        raise FilterSyntaxError("a string is written in single quotes", text, position)
    return Token("name", quoted, position, name)


def _starts_name(character: str) -> bool:
    """Whether Java's identifiers may begin so."""
    if character.isascii():
        return character.isalpha() or character in "_$"
    return unicodedata.category(character) in _NAME_START


def _continues_name(character: str) -> bool:
    """Whether Java's identifiers may go on so; most control characters may be in them."""
    if character.isascii() and character.isprintable():
        return character.isalnum() or character in "_$"
    return unicodedata.category(character) in _NAME_PART or (
        character <= "\x08" or "\x0e" <= character <= "\x1b" or "\x7f" <= character <= "\x9f"
    )


def _string(text: str, position: int) -> Token:
    found = _STRING.match(text, position)
    if found is None:
        raise FilterSyntaxError("this string has no closing quote", text, position)
    return Token("string", found.group(), position, found.group()[1:-1].replace("''", "'"))


def _number(text: str, position: int) -> Token:
    found = _NUMBER.match(text, position)
    if found is None or _goes_on(text, found.end()):
        raise FilterSyntaxError("this is no number", text, position)
    digits = found.group(found.lastgroup or 0).replace("_", "")
    value: int | float
    if found.lastgroup in ("approximate", "hex_approximate"):
        value = _approximate(digits, text, position)
    elif found.lastgroup == "exact":
        value = _exact(digits, text, position)
    else:
        value = _bits(digits, 16 if found.lastgroup == "hex" else 2, text, position)
    return Token("number", found.group(), position, value)


def _goes_on(text: str, end: int) -> bool:
    return end < len(text) and (text[end] == "." or _continues_name(text[end]))


def _exact(digits: str, text: str, position: int) -> int:
    """A whole number, of at most one more than `MOST`, which a minus may make one of Java's."""
    if len(digits) > 1 and digits[0] == "0":
        if not set(digits) <= set("01234567"):
            raise FilterSyntaxError(
                "a number that begins with 0 is octal, and has no digits 8 and 9", text, position
            )
        return _bits(digits, 8, text, position)
    # A limit of Python's on the digits that `int` reads would be an error of another kind.
    if len(digits) > 19 or int(digits) > MOST + 1:
        raise FilterError(f"exact numbers go up to {MOST}", text, position)
    return int(digits)


def _bits(digits: str, base: int, text: str, position: int) -> int:
    """A whole number of 64 bits, the first of which is the sign, as Java reads them."""
    value = int(digits, base)  # of these bases, of any length
    if value >= 2**64:
        raise FilterError("exact numbers have 64 bits", text, position)
    return as_long(value)


def _approximate(digits: str, text: str, position: int) -> float:
    """A float, which is the nearest single-precision one if it ends with F."""
    number = re.sub("[fFdD]$", "", digits)
    try:
        value = float.fromhex(number) if _is_hex(number) else float(number)
        if digits[-1] in "fF":
            value = float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        value = float("inf")
    if isinf(value) or (value == 0 and _has_digits(number)):
        raise FilterError("this number is outside the range of Java's", text, position)
    return value


def _has_digits(number: str) -> bool:
    """Whether a number has other digits than 0 before its exponent."""
    mantissa = re.split("[pP]", number[2:]) if _is_hex(number) else re.split("[eE]", number)
    return any(digit not in "0." for digit in mantissa[0])


def _is_hex(number: str) -> bool:
    return number[:2] in ("0x", "0X")
