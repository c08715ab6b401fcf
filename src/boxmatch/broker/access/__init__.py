"""Who may do what on a broker: keys and what they grant, limits, and what the network may reach."""

from boxmatch.broker.access.exposure import (
    ALLOWED_HOSTS,
    check_exposure,
    check_local_request,
    is_allowed_host,
)
from boxmatch.broker.access.grant import OPEN, Grant, Meter
from boxmatch.broker.access.keys import KeyInfo, Keys

__all__ = [
    "ALLOWED_HOSTS",
    "OPEN",
    "Grant",
    "KeyInfo",
    "Keys",
    "Meter",
    "check_exposure",
    "check_local_request",
    "is_allowed_host",
]
