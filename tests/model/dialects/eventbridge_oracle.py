"""Event patterns of EventBridge, from their JSON to true or false, by what is documented.

An event is a list of fields: a name with dots, a value, and for each list of mappings that it is in
which element. Values are picked for the names of a pattern in their order, such that no two are in
different elements of the same list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from ipaddress import IPv6Address, ip_address, ip_network
from math import isfinite
from typing import Any

Elements = dict[tuple[Any, ...], int]
"""By the place of a list: which element."""
FieldOfEvent = tuple[str, Any, Elements]
Rule = dict[str, list[Any]]


def matches(
    pattern: dict[str, Any], event: dict[str, Any], exists: Callable[[Any], bool] = lambda _: True
) -> bool:
    """Whether a pattern matches an event; `exists` says of which values `{"exists": true}` is."""
    fields = list(flattened(event, [], (), {}))
    return any(
        satisfied(sorted(rule.items(), key=in_order), fields, {}, exists)
        for rule in rules(pattern, "")
    )


def in_order(item: tuple[str, Any]) -> bytes:
    return item[0].encode("utf-16-be")


def rules(pattern: dict[str, Any], prefix: str) -> list[Rule]:
    """The pattern without `$or`: one of the rules must be satisfied."""
    found: list[Rule] = [{}]
    for name, below in pattern.items():
        if name == "$or":
            more = [rule for option in below for rule in rules(option, prefix)]
        elif isinstance(below, dict):
            more = rules(below, f"{prefix}{name}.")
        else:
            more = [{f"{prefix}{name}": below}]
        found = [{**one, **another} for one in found for another in more]
    return found


def flattened(
    value: Any, names: list[str], place: tuple[Any, ...], elements: Elements
) -> Iterator[FieldOfEvent]:
    if isinstance(value, dict):
        for name, below in value.items():
            yield from flattened(below, [*names, name], (*place, name), elements)
    elif isinstance(value, list):
        for index, one in enumerate(in_one_list(value)):
            inside = {**elements, place: index} if isinstance(one, dict) else elements
            yield from flattened(one, names, (*place, index), inside)
    else:
        yield ".".join(names), value, elements


def in_one_list(value: list[Any]) -> Iterator[Any]:
    for one in value:
        if isinstance(one, list):
            yield from in_one_list(one)
        else:
            yield one


def satisfied(
    wanted: list[tuple[str, list[Any]]],
    fields: list[FieldOfEvent],
    chosen: Elements,
    exists: Callable[[Any], bool],
) -> bool:
    if not wanted:
        return True
    (name, values), *rest = wanted
    candidates = [
        (value, {**chosen, **elements})
        for field, value, elements in fields
        if field == name and all(chosen.get(at, index) == index for at, index in elements.items())
    ]
    if not candidates and {"exists": False} in values:
        return satisfied(rest, fields, chosen, exists)
    return any(
        satisfied(rest, fields, together, exists)
        for value, together in candidates
        if any(accepts(one, value, exists) for one in values)
    )


# --- one value ---------------------------------------------------------------------------------


def accepts(wanted: Any, value: Any, exists: Callable[[Any], bool]) -> bool:
    """Whether a value in the event is what an element of a list in the pattern wants."""
    if not isinstance(wanted, dict):
        return equal(wanted, value) or same_ipv6(wanted, value) or nearly_equal(wanted, value)
    ((operator, operand),) = wanted.items()
    if operator == "exists":
        return operand is True and exists(value)
    if operator == "anything-but":
        return not excluded(operand, value)
    if operator == "numeric":
        return is_number(value) and in_range(operand, exact(value))
    return isinstance(value, str) and accepts_text(operator, operand, value)


def equal(one: Any, another: Any) -> bool:
    if is_number(one) and is_number(another):
        return bool(exact(one) == exact(another))
    return type(one) is type(another) and bool(one == another)


def nearly_equal(wanted: Any, value: Any) -> bool:
    """Whether a value is the float that a number with more digits is read as."""
    if not is_number(wanted) or not is_number(value):
        return False
    if isinstance(wanted, int) and -(2**63) <= wanted < 2**64:
        return False
    nearest = float(exact(wanted))
    return isfinite(nearest) and exact(nearest) == exact(value)


def same_ipv6(one: Any, another: Any) -> bool:
    try:
        return "%" not in one + another and IPv6Address(one) == IPv6Address(another)
    except (ValueError, TypeError):
        return False


def excluded(operand: Any, value: Any) -> bool:
    if isinstance(operand, dict):
        ((operator, texts),) = operand.items()
        texts = texts if isinstance(texts, list) else [texts]
        return isinstance(value, str) and any(accepts_text(operator, one, value) for one in texts)
    return any(equal(one, value) for one in (operand if isinstance(operand, list) else [operand]))


def accepts_text(operator: str, operand: Any, value: str) -> bool:
    if operator in ("prefix", "suffix") and isinstance(operand, dict):
        pattern = either_case(operand["equals-ignore-case"])
        return bool(re.match(pattern if operator == "prefix" else rf"(?s:.*){pattern}\Z", value))
    if operator == "prefix":
        return value.startswith(operand)
    if operator == "suffix":
        return value.endswith(operand)
    if operator == "exactly":
        return bool(value == operand)
    if operator == "equals-ignore-case":
        return bool(re.fullmatch(either_case(operand), value))
    if operator == "wildcard":
        return bool(re.fullmatch(wildcard(operand), value, re.DOTALL))
    assert operator == "cidr"
    try:
        return "%" not in value and ip_address(value) in ip_network(operand, strict=False)
    except ValueError:
        return False


def either_case(text: str) -> str:
    return "".join(f"(?:{re.escape(one.lower())}|{re.escape(one.upper())})" for one in text)


def wildcard(text: str) -> str:
    parts = re.findall(r"\\.|\*|[^\\*]+", text, re.DOTALL)
    return "".join(
        ".*" if part == "*" else re.escape(re.sub(r"\\(.)", r"\1", part)) for part in parts
    )


def in_range(comparisons: list[Any], value: Decimal) -> bool:
    pairs = zip(comparisons[::2], comparisons[1::2], strict=True)
    return all(compares(operator, value, exact(bound)) for operator, bound in pairs)


def compares(operator: str, value: Decimal, bound: Decimal) -> bool:
    return {
        "=": value == bound,
        "<": value < bound,
        "<=": value <= bound,
        ">": value > bound,
        ">=": value >= bound,
    }[operator]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def exact(value: Any) -> Decimal:
    """A number as it is written."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
