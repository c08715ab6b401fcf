"""A key in words: what it may do and for how long, as a sentence, in short, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxmatch.broker.access import Grant, KeyInfo

_ALL = "*"
_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


def describe_key(info: KeyInfo, now: float) -> Iterator[str]:
    """Sentences: what a key may do, its limits, and which replaced secrets are still valid."""
    may = "may" if info.state(now) == "active" else "could"
    yield (
        f"Key {info.grant.id} ('{info.grant.label}') {may} {_abilities(info.grant)}; "
        f"{_end(info, now)}."
    )
    if info.limits:
        yield f"Its own limits: {describe_limits(info)}."
    for ends in valid_earlier(info, now):
        yield (
            f"A secret that was replaced is valid for another {_span(ends - now)}, "
            f"until {describe_moment(ends)} UTC."
        )


def describe_roles(grant: Grant) -> str:
    """What a key may do, in short: without what it may not, and `*` for all."""
    if grant.admin:
        return "do everything"
    to = "" if _ALL in grant.subscribe_to else f" to {', '.join(sorted(grant.subscribe_to))}"
    roles = (
        ("publish to", grant.publish, ""),
        ("read", grant.read, ""),
        ("subscribe as", grant.subscribe, to),
    )
    return "; ".join(
        f"{verb} {', '.join(sorted(names))}{end}" for verb, names, end in roles if names
    )


def describe_limits(info: KeyInfo) -> str:
    """The limits that are the key's own."""
    return ", ".join(f"{name} {value}" for name, value in info.limits.items())


def describe_moment(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")


def grant_document(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "label": grant.label,
        "admin": grant.admin,
        "publish": sorted(grant.publish),
        "read": sorted(grant.read),
        "subscribe": sorted(grant.subscribe),
        "subscribe_to": sorted(grant.subscribe_to) if grant.subscribe else [],
    }


def key_document(info: KeyInfo, now: float) -> dict[str, Any]:
    return {
        **grant_document(info.grant),
        "limits": dict(info.limits),
        "created": info.created,
        "expires": info.expires,
        "revoked": info.revoked,
        "earlier_secrets_end": valid_earlier(info, now),
        "state": info.state(now),
    }


def valid_earlier(info: KeyInfo, now: float) -> list[float]:
    """When the replaced secrets end that are valid now."""
    return [ends for ends in info.earlier if ends > now] if info.state(now) == "active" else []


def _abilities(grant: Grant) -> str:
    if grant.admin:
        return "do everything"
    subscribers = _names(grant.subscribe, "every subscriber")
    to = f"as {subscribers} to {_names(grant.subscribe_to, 'every feed')}"
    can, cannot = [], []
    for verb, names, what, nothing in (
        ("publish", grant.publish, f"to {_names(grant.publish, 'every feed')}", "nothing"),
        ("subscribe", grant.subscribe, to, "to nothing"),
        ("read", grant.read, _names(grant.read, "every feed"), "nothing"),
    ):
        if names:
            can.append(f"{verb} {what}")
        else:
            cannot.append(f"{verb} {nothing}")
    return _list([*can, *cannot], ", and ")


def _names(names: Iterable[str], all: str) -> str:
    known = sorted(names)
    return all if _ALL in known else _list([f"'{name}'" for name in known], " and ")


def _list(parts: list[str], last: str) -> str:
    return last.join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def _end(info: KeyInfo, now: float) -> str:
    if info.revoked is not None:
        return f"it was revoked {_span(now - info.revoked)} ago"
    if info.expires is None:
        return "it never expires"
    if now >= info.expires:
        return f"it expired {_span(now - info.expires)} ago"
    return f"it expires in {_span(info.expires - now)}"


def _span(seconds: float) -> str:
    """In the largest unit of which it is two or more."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size):,} {unit}"
    whole = max(round(seconds), 1)
    return f"{whole} second{'s' if whole > 1 else ''}"
