"""Whether a pattern that a selector is translated to holds of an event, by its literal meaning."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from boxmatch.model.dialects.patterns import (
    AllTests,
    AnyTest,
    Equal,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Wildcard,
)


def holds(pattern: Pattern, event: Mapping[str, Any]) -> bool:
    match pattern:
        case Every(patterns):
            return all(holds(one, event) for one in patterns)
        case Some(patterns):
            return any(holds(one, event) for one in patterns)
        case Field((name,), test, True):
            return name in event and is_scalar(event[name]) and passes(test, event[name])
        case Missing((name,), scalar=True):
            return name not in event or not is_scalar(event[name])
    raise AssertionError(f"no pattern of a selector: {pattern}")


def is_scalar(value: Any) -> bool:
    return not isinstance(value, (list, dict))


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def passes(test: Test, value: Any) -> bool:
    kind = kind_of(value)
    match test:
        case Equal(constant):
            return kind == kind_of(constant) and exact(value) == exact(constant)
        case Range(low, high, low_open, high_open):
            if kind != kind_of(high if low is None else low):
                return False
            number = exact(value)
            above = low is None or number > exact(low) or (number == exact(low) and not low_open)
            below = (
                high is None or number < exact(high) or (number == exact(high) and not high_open)
            )
            return above and below
        case OfKind(wanted):
            return kind == wanted
        case Prefix(text, False):
            return kind == "string" and value.startswith(text)
        case Suffix(text, False):
            return kind == "string" and value.endswith(text)
        case Wildcard(parts):
            return kind == "string" and made_of(value, parts)
        case Other(inner):
            return not passes(inner, value)
        case AnyTest(tests):
            return any(passes(one, value) for one in tests)
        case AllTests(tests):
            return all(passes(one, value) for one in tests)
    raise AssertionError(f"no test of a selector: {test}")


def exact(value: Any) -> Any:
    """The value; of a float, the number that it is written as, as everywhere in Boxmatch."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def made_of(text: str, parts: tuple[str, ...]) -> bool:
    """Whether a text consists of parts with anything between them, by trying all ways."""
    if not text.startswith(parts[0]):
        return False
    rest = text[len(parts[0]) :]
    if len(parts) == 1:
        return not rest
    return any(made_of(rest[start:], parts[1:]) for start in range(len(rest) + 1))
