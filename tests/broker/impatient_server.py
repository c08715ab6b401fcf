"""A broker whose patience is short, for tests that would otherwise wait for minutes.

`python impatient_server.py DATA` prints its address, and serves until it is stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

from boxmatch.broker.server.process import ServerOptions, run
from boxmatch.broker.server.protocols import Timeouts
from boxmatch.broker.settings import Settings

OPTIONS = ServerOptions(
    timeouts=Timeouts(
        header_seconds=0.4,
        header_bytes=16 * 1024,
        body_seconds=0.4,
        body_rate=1e6,
        idle_seconds=1.0,
        stalled_seconds=0.5,
        check_seconds=0.1,
    ),
    ping_seconds=0.8,
    connections=100,
)

if __name__ == "__main__":
    run(
        Settings(data=Path(sys.argv[1]), port=0, shutdown_seconds=1.0),
        options=OPTIONS,
        on_listening=lambda listening: print(listening.url, flush=True),
    )
