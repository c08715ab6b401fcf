"""The dashboard in a browser, and what it complained of or asked for meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Request,
    Route,
    expect,
)

SECTIONS = ("feeds", "subscribers", "subscriptions", "playground", "trace")
POSITIVE = re.compile(r"^\d*\.?\d*[1-9]")


class Dashboard:
    """The page of one broker in a tab of its own, with storage of its own."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.bodies: list[str] = []
        """What the broker answered, if that is recorded."""
        self._expected: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"raised: {error}"))
        self.page.on("request", self._on_request)

    def expect_failures(self, *what: str) -> None:
        """Browsers write to the console what was refused: "401", "ERR_CONNECTION_REFUSED"."""
        self._expected += what

    def open(self, section: str = "", path: str = "/") -> Self:
        self.page.goto(f"{self.url}{path}{f'#{section}' if section else ''}")
        return self

    def open_live(self, section: str = "") -> Self:
        self.open(section)
        self.is_said("live")
        if section:
            expect(self.at(f"#{section}")).to_be_visible()
        return self

    def unfold(self) -> Self:
        """Shows idle feeds too, from the next opening on."""
        self.context.add_init_script("sessionStorage.setItem('boxmatch-unfolded', 'true')")
        return self

    def at(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def feed(self, name: str) -> Locator:
        return self.at(f'[data-feed="{name}"]')

    def value(self, feed: str, key: str) -> Locator:
        return self.feed(feed).locator(f'[data-value="{key}"]')

    def number(self, feed: str, key: str) -> float:
        text = self.value(feed, key).get_attribute("data-number")
        assert text is not None
        return float(text)

    def is_said(self, status: str) -> None:
        expect(self.at("#status")).to_have_text(status)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def until(self, is_so: Callable[[], Any], what: str, looks: int = 300) -> Any:
        """Looks ten times a second; for what `expect` cannot say."""
        for _ in range(looks):
            found = is_so()
            if found:
                return found
            self.page.wait_for_timeout(100)
        raise AssertionError(f"not within {looks / 10} s: {what}")

    def record_bodies(self) -> None:
        """Keeps every answer that the page gets from now on."""

        def keep(route: Route) -> None:
            try:
                answer = route.fetch()
                self.bodies.append(f"{route.request.url}\n{answer.text()}")
                route.fulfill(response=answer)
            except Error:
                if not self.page.is_closed():  # the page was left while it asked
                    route.abort()

        self.page.route(re.compile(r".*"), keep)

    def everything(self) -> str:
        """All that the page holds: its markup, and what is in its fields."""
        return str(
            self.page.evaluate(
                """() => document.documentElement.outerHTML + "\\n" + [...document.querySelectorAll(
                "input, textarea, select")].map((one) => one.value).join("\\n")"""
            )
        )

    def close(self) -> None:
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        said = f"{message.text} ({message.location.get('url', '')})"
        loading = message.text.startswith("Failed to load resource")
        if not (loading and any(one in message.text for one in self._expected)):
            self.complaints.append(said)

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"asked another: {request.url}")


class Pages:
    """Pages that are open, to be closed together."""

    def __init__(self, browser: Browser, patience: float) -> None:
        self._browser = browser
        self._patience = patience
        self._all: list[Dashboard] = []

    def new(self, url: str, **options: Any) -> Dashboard:
        """Not opened yet. `options` are those of a Playwright context."""
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = self._browser.new_context(**options)
        context.set_default_timeout(self._patience)
        dashboard = Dashboard(context, url)
        self._all.append(dashboard)
        return dashboard

    def complaints(self) -> list[str]:
        return [said for one in self._all for said in one.complaints]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.close()
