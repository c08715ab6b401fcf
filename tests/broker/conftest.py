from __future__ import annotations

from collections.abc import Generator, Iterator

import httpx
import pytest
from broker_server import RunningBroker, show_logs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(report)
    return report


@pytest.fixture(scope="session")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker without keys, for all tests: use names of your own for feeds and subscribers."""
    with RunningBroker(tmp_path_factory.mktemp("open") / "data") as running:
        yield running


@pytest.fixture
def http(open_broker: RunningBroker) -> Iterator[httpx.Client]:
    """The broker of `open_broker` over HTTP."""
    with httpx.Client(base_url=open_broker.url, timeout=30) as client:
        yield client
