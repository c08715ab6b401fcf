"""Alerts over nested JSON: texts, computed values, lists, and lists of structs.

It shows a schema with nested fields and lists, filters over expressions, which part of a filter is
checked after the index, and the value of an expression in `explain`.

Run it with `python json_alerts.py`. It needs only Boxmatch itself.
"""

import json

import boxmatch as bm

ORDER = bm.Schema(
    {
        "customer": {"type": "struct", "fields": {"tier": "string", "country": "string"}},
        "note": "string",
        "placed": "timestamp",
        "total": "decimal(12, 2)",
        "paid": "decimal(12, 2)",
        "tags": "list of string",
        "items": {
            "type": "list of struct",
            "fields": {"sku": "string", "price": "float", "quantity": "int"},
        },
    }
)

ALERTS = {
    "gold or large": "customer.tier = 'gold' OR total > 1000",
    "underpaid": "total - paid > 10",
    "complaint": "note ILIKE '%refund%' AND note NOT ILIKE '%thanks%'",
    "at night": "HOUR(placed) NOT BETWEEN 6 AND 21",
    "urgent abroad": "'urgent' = ANY(tags) AND customer.country <> 'DE'",
    "bulk of lamps": "EXISTS(items, i -> i.sku LIKE 'lamp-%' AND i.quantity >= 10)",
}

ORDERS = """
{"id": 1, "customer": {"tier": "gold", "country": "FR"}, "placed": "2026-01-05T23:10:00Z", "total": "80.00", "paid": "80.00", "tags": ["gift", "urgent"]}
{"id": 2, "customer": {"tier": "basic"}, "note": "Refund, please!", "placed": "2026-01-06T09:00:00Z", "total": "1250.00", "paid": "1000.00"}
{"id": 3, "note": "Thanks for the refund", "items": [{"sku": "lamp-3", "price": 20.0, "quantity": 2}, {"sku": "bulb-1", "price": 1.0, "quantity": 50}]}
{"id": 4, "items": [{"sku": "lamp-7", "price": 35.5, "quantity": 12}]}
"""  # noqa: E501


def main() -> None:
    alerts = bm.Matcher(ORDER)
    for name, filter in ALERTS.items():
        alerts.subscribe(name, filter)

    orders = [json.loads(line) for line in ORDERS.strip().splitlines()]
    print("One by one")
    for order in orders:
        print(f"  order {order['id']} ->", ", ".join(alerts.match(order)) or "-")

    print("In a batch")
    print("  matches of each order:", *alerts.match_batch(orders).counts)

    print("What is checked after the index")
    for name in ALERTS:
        predicates = alerts.explain({}, name).predicates
        checked = [predicate.wanted for predicate in predicates if predicate.residual]
        if checked:
            print(f"  {name}:", *checked)

    print("Why?")
    print(alerts.explain(orders[1], "underpaid"))
    print(alerts.explain(orders[2], "complaint"))


if __name__ == "__main__":
    main()
