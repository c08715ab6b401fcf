"""How a receiver knows that a webhook's request is ours, and is not an old one sent again.

The header is `t=<unix seconds>,v1=<hex>`, where `v1` is the HMAC-SHA256 of `"<t>.<body>"` under
the webhook's secret. Only the standard library is needed here, so that receivers can use it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

HEADER = "Boxmatch-Signature"


def sign(secret: str, body: bytes, at: float) -> str:
    """The value of the header for a request that is sent at this time."""
    seconds = int(at)
    return f"t={seconds},v1={_digest(secret, seconds, body)}"


def verify_signature(
    secret: str,
    header: str,
    body: bytes,
    tolerance: float = 300.0,
    *,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Whether the body was signed with the secret, at most `tolerance` seconds from now.

    `body` has to be the bytes as they came: JSON that was read and written again differs. The
    header may hold several `v1`, as it does while a secret is being changed; one has to fit.
    """
    seconds: int | None = None
    digests: list[str] = []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            # int() alone would take signs, blanks, underscores and digits of other scripts.
            if seconds is not None or not (value.isascii() and value.isdigit()) or len(value) > 15:
                return False
            seconds = int(value)
        elif name == "v1":
            digests.append(value)
    # Written so that a tolerance that is not a number refuses.
    if seconds is None or not abs(clock() - seconds) <= tolerance:
        return False
    expected = _digest(secret, seconds, body).encode()
    # Every one is compared, in constant time: how long it takes tells nothing.
    fits = [hmac.compare_digest(expected, digest.encode()) for digest in digests]
    return any(fits)


def _digest(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d." % seconds + body, "sha256").hexdigest()
