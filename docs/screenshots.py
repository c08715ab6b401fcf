"""Takes the pictures of the dashboard in docs/images: `make screenshots`.

A broker runs for some minutes on made-up data: a market whose ticks come in waves, a few of them
higher than can be matched exactly; orders; a fleet of lorries; subscribers that keep up, that do
not, and whose webhooks fail. Then a browser looks at it.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from PIL import Image
from playwright.async_api import Browser, FloatRect, Page, async_playwright

from boxmatch.client import AsyncClient

IMAGES: Final = Path(__file__).parent / "images"
MOST_BYTES: Final = 150_000
SCALE: Final = 1.5
"""Pixels of a picture for each of the page."""

SYMBOLS: Final = (
    "AAPL",
    "ASML",
    "BMW",
    "IBM",
    "KO",
    "MSFT",
    "NESN",
    "NVDA",
    "PEP",
    "SAP",
    "SIE",
    "T",
)
INDICATORS: Final = (
    "price", "volume", "change", "spread", "volatility", "momentum", "rsi", "macd", "vwap", "beta",
    "yield", "skew", "depth", "imbalance", "turnover", "drift", "gamma", "delta", "theta", "vega",
)  # fmt: skip
DESKS: Final = tuple(
    f"desk-{city}" for city in ("basel", "berlin", "geneva", "london", "paris", "zurich")
)
ALERTS: Final = 30_000
BATCH: Final = 60
CITIES: Final = {
    "zurich": (47.38, 8.54),
    "bern": (46.95, 7.45),
    "basel": (47.56, 7.59),
    "geneva": (46.20, 6.14),
}
WRONG: Final = "symbol IN ('IBM', 'SAP')\n  AND amont > 1500\n  AND side = 'buy'"
RIGHT: Final = "side = 'buy'\n  AND (amount > 500 OR symbol IN ('IBM', 'SAP'))"


class Market:
    """Made-up data, always the same."""

    def __init__(self) -> None:
        self._random = random.Random(11)

    def tick(self) -> dict[str, Any]:
        values = {name: round(self._random.uniform(0, 100), 2) for name in INDICATORS}
        return {"symbol": self._random.choice(SYMBOLS), **values}

    def alert(self) -> dict[str, Any]:
        """Few ask for the last of the indicators, so that these can be left unchecked."""
        weights = [1 / rank if rank < 8 else 0.0004 for rank in range(1, len(INDICATORS) + 1)]
        names = set(self._random.choices(INDICATORS, weights, k=5))
        lows = {name: round(self._random.uniform(0, 70), 1) for name in sorted(names)}
        ranges = {name: {"low": low, "high": low + 30} for name, low in lows.items()}
        return {"symbol": self._random.choice(SYMBOLS), **ranges}

    def order(self) -> dict[str, Any]:
        side = self._random.choice(("buy", "sell"))
        return {
            "side": side,
            "amount": round(self._random.expovariate(1 / 900), 2),
            "symbol": self._random.choice(SYMBOLS),
        }

    def place(self) -> dict[str, float]:
        return {"lat": self._random.uniform(46.0, 47.8), "lon": self._random.uniform(6.0, 9.5)}


@asynccontextmanager
async def running_broker(data: Path) -> AsyncIterator[str]:
    """Its address."""
    log = (data.parent / "broker.log").open("wb")
    command = ["serve", "--data", str(data), "--port", "0", "--allow-private-webhooks"]
    process = subprocess.Popen([sys.executable, "-m", "boxmatch", *command], stdout=log, stderr=log)
    try:
        while not (data / "address.json").exists():
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended:\n{(data.parent / 'broker.log').read_text()}")
            await asyncio.sleep(0.1)
        yield json.loads((data / "address.json").read_text())["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        log.close()


async def set_up(http: httpx.AsyncClient, market: Market) -> None:
    async def send(method: str, path: str, body: dict[str, Any]) -> None:
        (await http.request(method, path, json=body)).raise_for_status()

    adaptive = {"threshold": 0.02, "step": 0.00002, "maximum": 0.01}
    ticks = {"symbol": "string", **dict.fromkeys(INDICATORS, "float")}
    await send(
        "POST", "/feeds", {"name": "ticks", "schema": ticks, "index": "rein", "adaptive": adaptive}
    )
    orders = {"side": ["buy", "sell"], "amount": "float", "symbol": "string"}
    await send("POST", "/feeds", {"name": "orders", "schema": orders})
    await send(
        "POST",
        "/feeds",
        {"name": "fleet", "kind": "state", "schema": {"lat": "float", "lon": "float"}},
    )

    for start in range(0, ALERTS, 500):
        filters = {f"alert-{start + number}": market.alert() for number in range(500)}
        subscriber = DESKS[start // 500 % len(DESKS)]
        await send(
            "POST",
            f"/subscribers/{subscriber}/subscriptions",
            {"feed": "ticks", "filters": filters},
        )
    for subscriber, id, feed, filter in (
        ("desk-london", "cheap-ibm", "ticks", "symbol = 'IBM' AND price < 30"),
        ("desk-zurich", "nervous", "ticks", "volatility >= 98 AND spread > 50"),
        ("risk", "wild", "ticks", "volatility >= 90 AND momentum >= 50"),
        ("risk", "impossible", "ticks", "volatility > 100"),
        ("research", "cheap", "ticks", "price < 20"),
        ("audit", "large", "orders", "amount > 2000"),
        ("audit", "sales", "orders", "side = 'sell'"),
        ("ledger", "all", "orders", "amount >= 0"),
        ("ledger", "negative", "orders", "amount < 0"),
        ("pager", "huge", "orders", "amount > 4000"),
        ("crm", "sap", "orders", "symbol = 'SAP'"),
        ("treasury", "dear-sap", "orders", "symbol = 'SAP' AND side = 'buy' AND amount > 1000"),
        ("treasury", "ibm", "orders", "symbol = 'IBM' AND side = 'buy' AND amount > 100"),
    ):
        body = {"feed": feed, "filter": filter, "exact": subscriber == "risk"}
        await send("PUT", f"/subscribers/{subscriber}/subscriptions/{id}", body)
    for city, (lat, lon) in CITIES.items():
        region = {"lat": [lat - 0.15, lat + 0.15], "lon": [lon - 0.2, lon + 0.2]}
        await send(
            "PUT",
            f"/subscribers/depot-{city}/subscriptions/yard",
            {"feed": "fleet", "region": region},
        )
    # Nobody listens there, so these fail: one is tried again and again, one gives up at once.
    for subscriber, attempts in (("pager", 8), ("crm", 1)):
        hook = {"url": "http://127.0.0.1:9/notifications", "attempts": attempts, "timeout": 2}
        await send("PUT", f"/subscribers/{subscriber}/webhook", hook)


async def receive(url: str, subscriber: str) -> None:
    async with AsyncClient(url) as client, client.listen(subscriber) as notifications:
        async for _ in notifications:
            pass


async def publish_ticks(http: httpx.AsyncClient, market: Market, began: float) -> None:
    """In waves of 50 seconds, a third of which is more than can be carried."""
    while True:
        wave = 0.5 - 0.5 * math.cos((time.monotonic() - began) / 50 * 2 * math.pi)
        ticks = [market.tick() for _ in range(BATCH)]
        sent = time.monotonic()
        await http.post("/feeds/ticks/events", json=ticks)
        pause = 0.9 * (1 - wave) ** 2 + 0.02
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - sent)))


async def publish_orders(http: httpx.AsyncClient, market: Market) -> None:
    while True:
        await http.post(
            "/feeds/orders/events", json=[market.order() for _ in range(random.randint(1, 30))]
        )
        await asyncio.sleep(0.2)


async def move_fleet(http: httpx.AsyncClient, market: Market) -> None:
    while True:
        for lorry in range(25):
            path = f"/feeds/fleet/publications/lorry-{lorry + 1}"
            await http.put(path, json={"region": market.place()})
            await asyncio.sleep(0.1)


async def take(page: Page, name: str, part: str | None = None) -> None:
    """A picture of the page, or of a part of it with some space around."""
    clip = None
    if part is not None:
        box = await page.locator(part).bounding_box()
        if box is None:
            raise RuntimeError(f"{part} is not to be seen")
        clip = FloatRect(
            x=box["x"] - 16, y=box["y"] - 16, width=box["width"] + 32, height=box["height"] + 32
        )
    png = await page.screenshot(animations="disabled", caret="hide", clip=clip)
    image = Image.open(io.BytesIO(png)).convert("RGB")
    packed = io.BytesIO()
    image.quantize(255, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    if packed.tell() > MOST_BYTES:
        raise RuntimeError(f"{name} has {packed.tell():,} bytes, more than {MOST_BYTES:,}")
    (IMAGES / f"{name}.png").write_bytes(packed.getvalue())
    print(f"{name}.png  {packed.tell():,} bytes")


async def open_page(browser: Browser, url: str, section: str, scheme: str, **size: int) -> Page:
    context = await browser.new_context(
        viewport={"width": size.get("width", 1280), "height": size.get("height", 660)},
        device_scale_factor=SCALE,
        color_scheme=scheme,
    )
    page = await context.new_page()
    await page.goto(f"{url}/#{section}")
    await page.locator("#status", has_text="live").wait_for()
    await page.locator(f"#{section}").wait_for()
    return page


async def take_all(browser: Browser, url: str) -> None:
    feeds = [
        await open_page(browser, url, "feeds", scheme, height=960) for scheme in ("light", "dark")
    ]
    for page in feeds:
        for feed in ("fleet", "orders"):  # closed, so that there is room
            await page.locator(f'[data-feed="{feed}"] .feed-toggle').click()
        await page.locator("#feeds-title").click()
    await asyncio.sleep(5)  # until there are rates
    for page, name in zip(feeds, ("dashboard-feeds", "dashboard-feeds-dark"), strict=True):
        approximate = page.locator('[data-feed="ticks"][data-state="approximate"]')
        while True:
            await approximate.wait_for(timeout=120_000)
            await take(page, name)
            if await approximate.count():  # or it was over before the picture was taken
                break
        await page.context.close()

    page = await open_page(browser, url, "subscribers", "light", height=800)
    await asyncio.sleep(3)
    await take(page, "dashboard-subscribers")

    await page.keyboard.press("4")
    await page.locator("#filter-feed").select_option("orders")
    await page.locator("#filter-recent > li").first.wait_for()
    await page.locator("#filter-text").fill(WRONG)
    await page.locator("#filter-error mark").wait_for()
    await take(page, "dashboard-filter-error", ".bench-in:visible")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.locator("#filter-text").fill(RIGHT)
    await page.locator("#filter-recent > li").first.wait_for()
    await page.locator("#playground-title").click()
    await take(page, "dashboard-playground")
    await page.context.close()

    page = await open_page(browser, url, "trace", "dark", height=780)
    await page.locator("#trace-feed").select_option("orders")
    event = {"side": "sell", "amount": 2250.0, "symbol": "SAP"}
    await page.locator("#trace-event").fill(json.dumps(event, indent=2))
    await page.locator("#trace-publish").click()
    await page.locator("#trace-gets > li").first.wait_for()
    await page.locator("#trace-title").click()
    await take(page, "dashboard-trace")
    await page.context.close()


async def main(seconds: float) -> None:
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    market = Market()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        async with (
            running_broker(data) as url,
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            async_playwright() as playwright,
        ):
            await set_up(http, market)
            print(f"{url} runs for {seconds:.0f} s")
            began = time.monotonic()
            work = [publish_ticks(http, market, began) for _ in range(3)]
            work += [publish_orders(http, market), move_fleet(http, market)]
            # "research" is not among these: what it subscribed to waits.
            listening = [*DESKS, "risk", "audit", "ledger", *(f"depot-{city}" for city in CITIES)]
            work += [receive(url, one) for one in listening]
            tasks = [asyncio.create_task(one) for one in work]
            await asyncio.sleep(seconds)
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            await take_all(browser, url)
            await browser.close()
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if not isinstance(error, asyncio.CancelledError):
            raise RuntimeError("part of the load ended too early") from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=270, help="of load before the pictures")
    asyncio.run(main(parser.parse_args().seconds))
