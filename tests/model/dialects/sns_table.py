"""Filter policies of SNS, what they match and what not, and policies that are refused."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
Row = tuple[str, list[Event], list[Event]]

# Policies for attributes, which say the same as policies for bodies.
ATTRIBUTES: list[Row] = [
    (
        '{"interests": ["rugby", "tennis"]}',
        [{"interests": "rugby"}, {"interests": ["soccer", "tennis"]}],
        [{"interests": "soccer"}, {"interests": []}, {"interest": "rugby"}, {}],
    ),
    (
        '{"store": ["a"], "event": [{"anything-but": "cancelled"}],'
        ' "price": [{"numeric": [">=", 1]}]}',
        [{"store": "a", "event": "placed", "price": 1, "more": 2}],
        [
            *({"store": "a", "event": "cancelled", "price": 1}, {"store": "a", "price": 1}),
            *({"store": "a", "event": "placed", "price": "1"}, {"event": "placed", "price": 1}),
        ],
    ),
    # texts
    ('{"x": [{"prefix": "bas"}]}', [{"x": "baseball"}], [{"x": "rugby"}, {"x": "BASE"}]),
    ('{"x": [{"suffix": "ball"}]}', [{"x": ["rugby", "football"]}], [{"x": "ballet"}]),
    ('{"x": [{"equals-ignore-case": "tennis"}]}', [{"x": "TENNIS"}, {"x": "Tennis"}], [{"x": "t"}]),
    ('{"x": [{"wildcard": "*/src/*.js"}]}', [{"x": "a/src/b.js"}], [{"x": "a/src/b.ts"}, {"x": 1}]),
    ('{"x": [{"cidr": "10.0.0.0/24"}]}', [{"x": "10.0.0.255"}], [{"x": "10.1.1.0"}, {"x": "a"}]),
    # anything-but
    (
        '{"x": [{"anything-but": ["rugby", "tennis"]}]}',
        [{"x": "soccer"}, {"x": ["rugby", "soccer"]}, {"x": 1}],
        [{"x": "rugby"}, {"x": ["rugby"]}, {"x": []}, {}],
    ),
    ('{"x": [{"anything-but": [100, 500]}]}', [{"x": 100.1}, {"x": [100, 50]}], [{"x": 100}]),
    ('{"x": [{"anything-but": {"prefix": "bas"}}]}', [{"x": "rugby"}], [{"x": "baseball"}]),
    ('{"x": [{"anything-but": {"prefix": ["a", "b"]}}]}', [{"x": "c"}], [{"x": "a"}, {"x": "b"}]),
    ('{"x": [{"anything-but": {"wildcard": "*ball"}}]}', [{"x": "rugby"}], [{"x": "football"}]),
    # numbers
    ('{"x": [{"numeric": ["=", 301.5]}]}', [{"x": 301.5}, {"x": 3.015e2}], [{"x": "301.5"}]),
    ('{"x": [{"numeric": [">", 0, "<=", 150]}]}', [{"x": 150}], [{"x": 0}, {"x": 150.000001}]),
    ('{"x": [{"numeric": ["<", -0.00001]}]}', [{"x": -2e9}], [{"x": -0.00001}]),
    ('{"x": [{"numeric": ["<=", 1e9]}]}', [{"x": 1000000000}], [{"x": 1000000000.5}]),
    ('{"x": [5000000000]}', [{"x": 5e9}], [{"x": "5000000000"}]),
    # exists
    (
        '{"x": [{"exists": true}]}',
        [{"x": "a"}, {"x": 0}, {"x": False}, {"x": ["", "a"]}],
        [{"x": None}, {"x": ""}, {"x": []}, {"x": [None, ""]}, {"y": 1}, {}],
    ),
    (
        '{"x": [{"exists": false}]}',
        [{"y": "a"}, {"x": [], "y": 1}],
        [{"x": "a"}, {"x": ""}, {"x": ["a"], "y": 1}],
    ),
    ('{"x": [{"anything-but": "a"}, {"exists": false}]}', [{"x": "b"}, {"y": 1}], [{"x": "a"}]),
    # and, or
    (
        '{"s": ["a"], "$or": [{"m": ["b"]}, {"t": ["c"], "$or": [{"i": [1]}, {"j": [2]}]}]}',
        [{"s": "a", "m": "b"}, {"s": "a", "t": "c", "j": 2}],
        [{"s": "a", "t": "c"}, {"m": "b"}, {"s": "a", "i": 1}],
    ),
    ('{"a.b": [1]}', [{"a.b": 1}], [{"a": 1}, {"b": 1}]),
    ('{"x": [1], "x": [2]}', [{"x": 2}], [{"x": 1}]),
]

BODIES: list[Row] = [
    (
        '{"object.nested.test": ["v"]}',
        [
            *({"object": {"nested": {"test": "v"}}}, {"object.nested.test": "v"}),
            *({"object.nested": {"test": "v"}}, {"object": {"nested.test": ["v"]}}),
        ],
        [{"object": {"nested": "v"}}],
    ),
    (
        '{"Records": {"s3": {"object": {"key": [{"prefix": "auto-"}]}}, "event": ["put"]}}',
        [
            {
                "Records": [
                    {"event": "put", "s3": {"object": [[{"key": "auto-1"}]]}},
                    {"event": "get"},
                ]
            }
        ],
        [{"Records": [{"event": "put", "s3": {}}, {"s3": {"object": {"key": "auto-1"}}}]}],
    ),
    (
        '{"d": {"$or": [{"a": ["x"]}, {"b": ["y"]}]}}',
        [{"d": {"b": "y"}}, {"d": [{"a": "z"}, {"a": "x"}]}],
        [{"a": "x"}, {"d": {"a": "y"}}],
    ),
    (
        '{"o": {"a": [1], "b": [1], "c": {"d": [1], "e": [1]}, "f": [1], "g": [1]}, "p": [1]}',
        [{"o": {"a": 1, "b": 1, "c": {"d": 1, "e": 1}, "f": 1, "g": 1}, "p": 1}],
        [{"o": {"a": 1, "b": 1, "c": {"d": 1, "e": 1}, "f": 1}, "p": 1}],
    ),
    ('{"x": [{"exists": false}]}', [{}, {"x": []}, {"x": {"y": 1}}], [{"x": None}, {"x": 1}]),
]

# Text with ^ before the place that the error points at, and a part of the message.
REFUSED: list[tuple[str, str]] = [
    ('{"x": ^{}}', "should not be empty"),
    ('{"x": ^"a"}', "takes a list of values"),
    ('{"$or": ^[{"a": [1]}]}', "two mappings or more"),
    ('{"$or": [{^"prefix": ["a"]}, {"b": [1]}]}', "no field is named 'prefix'"),
    # fewer operators
    ('{"x": [{^"exactly": "a"}]}', "unknown operator 'exactly'; known are 'prefix'"),
    ('{"x": [{"prefix": ^{"equals-ignore-case": "a"}}]}', "'prefix' takes a string"),
    ('{"x": [{"suffix": ^{"equals-ignore-case": "a"}}]}', "'suffix' takes a string"),
    ('{"x": [{"anything-but": {^"suffix": "a"}}]}', "unknown operator 'suffix' of 'anything-but'"),
    ('{"x": [{"anything-but": {^"equals-ignore-case": "a"}}]}', "known are 'prefix', 'wildcard'"),
    ('{"x": [{"anything-but": {"prefix": ^false}}]}', "'prefix' takes a string"),
    # limits of numbers
    ('{"x": [{"numeric": ["<", ^1000000001]}]}', "between -1e9 and 1e9"),
    ('{"x": [{"numeric": [">", -1, "<", ^1e300]}]}', "between -1e9 and 1e9"),
    ('{"x": [{"numeric": ["=", ^0.000001]}]}', "at most 5 decimal places"),
    ('{"x": [{"anything-but": [1, ^-1e10]}]}', "between -1e9 and 1e9"),
    # limits of policies
    ('{"a": [1], "b": [1], "c": [1], "d": [1], "e": [1], ^"f": [1]}', "at most 5 fields"),
    ('{"a": [1], "b": [1], "$or": [{"c": [1], "d": [1]}, {"e": [1], ^"f": [1]}]}', "5 fields"),
    ('^{"a": [' + ", ".join(["1"] * 151) + "]}", "at most 150 combinations of values, not 151"),
    (
        '^{"s": [1, 2, 3, 4], "$or": [{"m": [1, 2, 3, 4, 5, 6]}, {"t": [1, 2, 3, 4],'
        ' "$or": [{"i": [1, 2, 3, 4]}, {"j": [1, 2, 3, 4]}]}]}',
        "not 152",
    ),
    ('{"x": [{"wildcard": ^"a*b*c*d*"}]}', "at most 3 '*'"),
    ('{"x": [{"anything-but": {"wildcard": ["*", ^"*a*b*c*"]}}]}', "at most 3 '*'"),
    (
        '^{"x": [{"wildcard": "a*"}, {"anything-but": {"wildcard": ["*b*", "c*d*e*", "*f*g*"]}},'
        ' {"wildcard": "h"}]}',
        "a complexity of 125, above 100",
    ),
    ('^{"x": ["' + "a" * (256 * 1024) + '"]}', "at most 256 KiB"),
]
