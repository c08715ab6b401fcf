"""Price alerts: which alerts match a tick?

It shows alerts in SQL and as dicts, ticks one by one and in batches, an alert that changes, why an
alert did not match, and an invalid alert.

Run it with `python price_alerts.py`. It needs only Boxmatch itself.
"""

from typing import Any

import boxmatch as bm

TICK = bm.Schema({"symbol": "string", "price": "float", "volume": "int", "halted": "bool"})

ALERTS: dict[str, Any] = {
    "alice": "symbol = 'IBM' AND price BETWEEN 20 AND 30",
    "bob": "volume >= 1000000 OR halted = TRUE",
    "carol": {"symbol": ["IBM", "SAP"], "price": (None, 25)},  # at most 25
    "dave": "symbol LIKE 'S%' AND NOT price BETWEEN 90 AND 110",
}

TICKS = [
    {"symbol": "IBM", "price": 24.5, "volume": 300},
    {"symbol": "SAP", "price": 120.0, "volume": 2_000_000},
    {"symbol": "SAP", "price": 100.0, "volume": 50},
    {"symbol": "KO", "halted": True},  # no price: conditions on the price fail
]


def main() -> None:
    alerts = bm.Matcher(TICK)
    for name, filter in ALERTS.items():
        alerts.subscribe(name, filter)

    print("One by one")
    for tick in TICKS:
        print(" ", tick["symbol"], tick.get("price"), "->", *sorted(alerts.match(tick)))

    print("In a batch")  # much faster; Arrow, pandas and polars tables work too
    found = alerts.match_batch(TICKS)
    print("  matches of each tick:", *found.counts)
    for event, name in zip(found.event, found.subscription, strict=True):
        if name == "bob":
            print("  bob matches tick", event)

    print("Alerts change while ticks arrive")  # effective when the call returns
    alerts.unsubscribe("carol")
    alerts.subscribe("alice", "symbol = 'IBM' AND price < 20")
    print("  IBM 24.5 ->", *alerts.match(TICKS[0]))
    print(alerts.explain(TICKS[0], "alice"))

    print("An invalid filter is refused")
    try:
        alerts.subscribe("erin", "price > 10 AND volum < 3")
    except bm.FilterError as error:
        print(error)


if __name__ == "__main__":
    main()
