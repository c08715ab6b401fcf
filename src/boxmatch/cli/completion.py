"""Words that a shell offers: types of attributes, and feeds of a broker.

What cannot be found out at once is not offered; nothing here may print or fail.
"""

from __future__ import annotations

import json
import os
from typing import Any

from boxmatch.cli.connect import DEFAULT_URL

_SECONDS = 0.5
"""A broker that has not answered by then offers no names."""


def attribute_types(incomplete: str) -> list[str]:
    """`price=` is completed with the types that there are."""
    name, equals, _ = incomplete.partition("=")
    kinds = ("int", "float", "string", "bool", "timestamp")
    return filter_by_prefix([f"{name}={kind}" for kind in kinds], incomplete) if equals else []


def feed_names(ctx: Any, incomplete: str) -> list[str]:
    """Feeds of the broker that the command would talk to."""
    return filter_by_prefix(_list_names(ctx, "feeds"), incomplete)


def _list_names(ctx: Any, what: str) -> list[str]:
    """Names that a broker lists."""
    import urllib.request

    url = ctx.params.get("url") or os.environ.get("BOXMATCH_URL") or DEFAULT_URL
    key = ctx.params.get("key") or os.environ.get("BOXMATCH_KEY")
    if not url.startswith(("http://", "https://")):
        return []
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url.rstrip('/')}/{what}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return [str(one["name"]) for one in json.load(answer)[what]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def filter_by_prefix(names: list[str], incomplete: str) -> list[str]:
    """Those that begin with what was typed so far."""
    return [name for name in names if name.startswith(incomplete)]
