"""A browser for each module, and one broker for all tests of the dashboard."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "broker"))

from broker_server import RunningBroker, show_logs
from dashboard_page import Pages

PATIENCE = 30_000
"""Milliseconds. Nothing here takes as long; a busy machine may."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(report)
    return report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while Playwright runs, so does its event loop, and tests elsewhere could
    not start theirs in the same thread.
    """
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail("these tests need Chromium: `make chromium` says how to get it")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker without keys, for all tests: use names of your own for feeds and subscribers."""
    with RunningBroker(tmp_path_factory.mktemp("watched") / "data") as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    """The broker of `broker` over HTTP."""
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        yield client


@pytest.fixture
def pages(browser: Browser) -> Iterator[Pages]:
    """Opens the dashboard. A test fails if a page complains, or asks anyone but its broker."""
    with Pages(browser, PATIENCE) as pages:
        yield pages
        assert pages.complaints() == []
