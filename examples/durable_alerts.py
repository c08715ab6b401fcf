"""Price alerts that many threads change and that survive the end of the program.

Users add, change and cancel alerts from four threads while ticks are matched. A change that has
returned is on disk, so the next run of the program starts with exactly these alerts.

Run it with `python durable_alerts.py`. It needs only Boxmatch itself.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import boxmatch as bm

TICK = bm.Schema({"symbol": "string", "price": "float"})
SYMBOLS = ("IBM", "KO", "SAP", "TTE")
USERS = 50  # of each thread


def change_alerts(alerts: bm.Matcher, symbol: str) -> None:
    """What the users of one symbol do: all subscribe, some change their mind, some leave."""
    for user in range(USERS):
        alerts.subscribe(f"{symbol}-{user}", f"symbol = '{symbol}' AND price < {user}")
    for user in range(0, USERS, 2):
        alerts.subscribe(f"{symbol}-{user}", f"symbol = '{symbol}' AND price > {100 + user}")
    for user in range(0, USERS, 5):
        alerts.unsubscribe(f"{symbol}-{user}")


def first_run(folder: Path) -> None:
    with bm.Matcher.open(folder, TICK) as alerts, ThreadPoolExecutor(len(SYMBOLS)) as threads:
        changes = [threads.submit(change_alerts, alerts, symbol) for symbol in SYMBOLS]
        while not all(change.done() for change in changes):
            alerts.match_batch([{"symbol": symbol, "price": 10.0} for symbol in SYMBOLS])
        for change in changes:
            change.result()  # raises what went wrong in the thread
        print(len(alerts), "alerts are kept")


def second_run(folder: Path) -> None:
    with bm.Matcher.open(folder) as alerts:  # the schema is in the folder
        print(len(alerts), "alerts are there again")
        print("IBM at 45:", *sorted(alerts.match({"symbol": "IBM", "price": 45.0})))
        print("SAP at 105:", *sorted(alerts.match({"symbol": "SAP", "price": 105.0})))
        print("IBM-48 wants", alerts.filter_of("IBM-48"))


def main() -> None:
    with TemporaryDirectory() as folder:
        first_run(Path(folder) / "alerts")
        second_run(Path(folder) / "alerts")


if __name__ == "__main__":
    main()
