from __future__ import annotations

from collections.abc import Iterator

import pytest

from boxmatch.nats.local import LocalServer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with JetStream."""
    with LocalServer(tmp_path_factory.mktemp("nats")) as server:
        yield server.url
