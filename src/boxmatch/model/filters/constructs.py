"""What constructs of SQL are called by sqlglot, and what they are here."""

from __future__ import annotations

from typing import Final

from boxmatch.model.expressions.functions import FUNCTIONS
from boxmatch.model.expressions.nodes import BOOL, FLOAT, INT, STRING, TIMESTAMP

TIMESTAMPS: Final = {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME"}

# By sqlglot's name of a construct: our function, and where its arguments are.
CALLS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    **{
        key: (name, ("this", "expression"))
        for key, name in {
            "add": "+",
            "sub": "-",
            "mul": "*",
            "div": "/",
            "intdiv": "div",
            "mod": "%",
            "eq": "=",
            "neq": "<>",
            "lt": "<",
            "lte": "<=",
            "gt": ">",
            "gte": ">=",
            "and": "and",
            "or": "or",
            "nullsafeeq": "<=>",
            "nullif": "nullif",
            "pow": "power",
            "dpipe": "concat",
            "left": "left",
            "right": "right",
            "startswith": "starts_with",
            "endswith": "ends_with",
            "contains": "contains",
            "arraycontains": "array_contains",
            "arrayoverlaps": "arrays_overlap",
        }.items()
    },
    **{
        key: (name, ("this",))
        for key, name in {
            "neg": "neg",
            "not": "not",
            "abs": "abs",
            "sign": "sign",
            "sqrt": "sqrt",
            "floor": "floor",
            "ceil": "ceil",
            "lower": "lower",
            "upper": "upper",
            "length": "length",
            "reverse": "reverse",
            "arraysize": "cardinality",
        }.items()
    },
    "round": ("round", ("this", "decimals")),
    "substring": ("substring", ("this", "start", "length")),
    "replace": ("replace", ("this", "expression", "replacement")),
    "strposition": ("position", ("substr", "this")),
    "if": ("if", ("this", "true", "false")),
    "greatest": ("greatest", ("this", "expressions")),
    "least": ("least", ("this", "expressions")),
    "coalesce": ("coalesce", ("this", "expressions")),
    "concat": ("concat", ("expressions",)),
    "array": ("array", ("expressions",)),
}
CHAINS: Final = frozenset(("and", "or", "dpipe"))
"""Operators that take any number of operands, however they are nested."""
CLOCK: Final = (
    *("year", "quarter", "month", "day", "dayofweek", "dayofyear"),
    *("week", "hour", "minute", "second"),
)
OTHER_NAMES: Final = {
    "any_match": "exists",
    "all_match": "forall",
    "array_size": "cardinality",
    "character_length": "length",
    "day_of_month": "day",
    "day_of_week": "dayofweek",
    "day_of_year": "dayofyear",
    "dayofmonth": "day",
    "size": "cardinality",
    "try_add": "+",
    "try_subtract": "-",
    "try_multiply": "*",
    "try_divide": "/",
    "try_mod": "%",
    "week_of_year": "week",
    "weekofyear": "week",
}
"""Names that sqlglot does not know, and what they are here."""

BEYOND_EVENTS: Final = frozenset(
    (
        *("select", "subquery", "window"),
        *("currentdate", "currenttime", "currenttimestamp", "localtime", "localtimestamp", "now"),
        *("rand", "random", "randn", "uuid", "sum", "avg", "min", "max", "count"),
    )
)
"""Constructs whose value is not that of one event."""

NAMED: Final = sorted(
    name
    for name in FUNCTIONS - {"and", "or", "not", "in", "is_null", "is_true", "is_false", "field"}
    if name.isidentifier()
)
"""Functions that are called by their names."""

UNITS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
MONTH_UNITS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
IGNORING_CASE: Final = ("NOCASE", "UTF8_LCASE")
CAST_TYPES: Final = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), INT),
    **dict.fromkeys(("FLOAT", "DOUBLE"), FLOAT),
    **dict.fromkeys(("CHAR", "VARCHAR", "NVARCHAR", "TEXT"), STRING),
    **dict.fromkeys(TIMESTAMPS, TIMESTAMP),
    "BOOLEAN": BOOL,
}
