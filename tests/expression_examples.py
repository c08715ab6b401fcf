"""Random expressions over one table of columns, and events for them with awkward values."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    Lambda,
    Literal,
    Node,
    Type,
    Variable,
)
from boxmatch.model.expressions.vectors import arrow_type

ITEM = Type("struct", fields=(("price", FLOAT), ("name", STRING), ("quantity", INT)))
COLUMNS = {
    "i": INT,
    "j": INT,
    "f": FLOAT,
    "g": FLOAT,
    "d": Type("decimal", 10, 2),
    "e": Type("decimal", 38, 10),
    "h": Type("decimal", 6, 3),
    "s": STRING,
    "r": STRING,
    "b": BOOL,
    "c": BOOL,
    "t": TIMESTAMP,
    "u": TIMESTAMP,
    "numbers": Type("list", element=INT),
    "names": Type("list", element=STRING),
    "items": Type("list", element=ITEM),
}

LAST = 2**63 - 1
DAY = 86_400_000_000
YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
BERLIN_CHANGES = (1_711_846_800_000_000, 1_729_990_800_000_000)

INTS = (0, 1, -1, 2, 3, 7, -10, 100, 12_345, 2**31, -(2**31), 2**53 + 1, 3_037_000_500, LAST, -LAST)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 3.5, 0.125, 1e-5, 123456.789, 1e7, 1e15, 1e16, 5e-324),
    *(1.7976931348623157e308, -1e300, 9.3e18, -9.3e18, float("inf"), -float("inf"), 2.675, 1e-3),
)
STRINGS = (
    *(
        "",
        " ",
        "a",
        "abc",
        "ABC",
        "  padded ",
        "a%b_c",
        "10",
        "-7",
        "2.5",
        "1e3",
        "true",
        "No",
        "x" * 9,
    ),
    *(
        "İstanbul",
        "ΑΣ",
        "Straße",
        "ß",
        "😀 smile",
        "é",
        "ab\nc",
        "2024-02-29",
        "2024-05-31 09:30:00.25",
    ),
    *("2024-05-31T09:30:00+02:00", "2024-13-01", "aXbXc", "\\", "ﬁn", "1970-1-1 1:2:3"),
)
TIMES = (
    *(
        0,
        1,
        -1,
        1_709_210_096_789_000,
        YEAR_1,
        YEAR_9999,
        951_782_400_000_000,
        -DAY,
        1_735_689_599_999_999,
    ),
    *(
        change + shift
        for change in BERLIN_CHANGES
        for shift in (-1, 0, 3_600_000_000, -1_800_000_000)
    ),
    *(1_706_659_200_000_000, 1_717_144_200_000_000, -2_208_988_800_000_000, 32_503_680_000_000_000),
)
TIMES_WIDE = (*TIMES, LAST, -LAST, LAST // 2, -(LAST // 3))
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "+05:30")
PATTERNS = ("a%", "%c", "%b%", "a_c", "%", "", "_", "%a%b%", "A\\_%", "a\\%b\\_c", "İ%", "__%")
REGEXES = ("a", "^a.c$", "[0-9]+", "(?i)abc", "\\d{2}", "ß|é", "x{3,}", ".", "")
UNITS = temporal.UNITS
PARTS = temporal.PARTS


def value(random: Random, type: Type, wide: bool = True) -> Any:
    """A value, or None; `wide` ones leave the ranges that all of Spark's functions agree about."""
    if random.random() < 0.12:
        return None
    match type.name:
        case "int":
            return random.choice((random.choice(INTS), random.randint(-20, 20)))
        case "float":
            return random.choice((random.choice(FLOATS), random.randint(-99, 99) / 8))
        case "decimal":
            top = 10 ** random.choice(
                (type.precision, type.precision, random.randint(1, type.precision))
            )
            unscaled = random.choice(
                (random.randint(1 - top, top - 1), top - 1, 1 - top, 0, 5, 125)
            )
            return (
                Decimal(f"{unscaled}e-{type.scale}") if abs(unscaled) < 10**type.precision else None
            )
        case "string":
            return random.choice(STRINGS)
        case "bool":
            return random.random() < 0.5
        case "timestamp":
            return random.choice(TIMES_WIDE if wide else TIMES)
        case "interval":
            return random.choice((0, 1, -DAY, 5_000_000, 3 * DAY, *((LAST, -LAST) if wide else ())))
        case "months":
            return random.choice(
                (0, 1, -1, 12, 25, -13, *((LAST, -7_000_000) if wide else (1200,)))
            )
        case "list":
            assert type.element is not None
            return [value(random, type.element, wide) for _ in range(random.choice((0, 1, 2, 3)))]
    return {name: value(random, field, wide) for name, field in type.fields}


def events(random: Random, count: int, wide: bool = True) -> list[dict[str, Any]]:
    return [
        {name: value(random, type, wide) for name, type in COLUMNS.items()} for _ in range(count)
    ]


def arrays(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {
        name: pa.array([row[name] for row in rows], arrow_type(type))
        for name, type in COLUMNS.items()
    }


class Examples:
    """Makes random expressions of a type."""

    def __init__(self, random: Random, wide: bool = True) -> None:
        self.random = random
        self.wide = wide
        self.variables: list[Variable] = []

    def expression(self, kind: str, depth: int) -> Node:
        """One of a type, by its name."""
        if depth == 0 or self.random.random() < 0.1:
            return self.leaf(kind)
        return getattr(self, f"a_{kind}")(depth - 1)

    def leaf(self, kind: str) -> Node:
        inner: list[Node] = [one for one in self.variables if one.type.name == kind]
        for variable in self.variables:
            inner += [
                call("field", variable, Literal(name, STRING))
                for name, type in variable.type.fields
                if type.name == kind
            ]
        there: list[Node] = [Column(n, t) for n, t in COLUMNS.items() if t.name == kind]
        if inner and self.random.random() < 0.5:
            there = inner
        if there and self.random.random() < 0.8:
            return self.random.choice(there)
        return self.literal(kind)

    def literal(self, kind: str) -> Literal:
        digits = self.random.choice(((1, 0), (4, 2), (18, 3), (38, 0), (38, 38)))
        type = Type("decimal", *digits) if kind == "decimal" else Type(kind)  # type: ignore[arg-type]
        if kind == "list":
            type = COLUMNS["numbers"]
        return Literal(value(self.random, type, self.wide), type)

    def choose(self, depth: int, *shapes: str) -> Node:
        """A call by a shape such as "round int :2", with literals after a colon."""
        function, *kinds = self.random.choice(shapes).split()
        arguments = [
            Literal(int(k[1:]), INT) if k.startswith(":") else self.expression(k, depth)
            for k in kinds
        ]
        return call(function, *arguments)

    def number(self) -> str:
        return self.random.choice(("int", "float", "decimal"))

    def general(self, kind: str, depth: int) -> Node:
        """A function of every type."""
        one, other = (self.expression(kind, depth) for _ in range(2))
        match self.random.randrange(5):
            case 0:
                return call("coalesce", one, other)
            case 1:
                return call(self.random.choice(("greatest", "least")), one, other)
            case 2:
                return call("nullif", one, other)
            case 3:
                return call("if", self.expression("bool", depth), one, other)
        conditions = [self.expression("bool", depth) for _ in range(2)]
        return call("case", conditions[0], one, conditions[1], other, self.leaf(kind))

    def a_int(self, depth: int) -> Node:
        match self.random.randrange(8):
            case 0 | 1 | 2:
                return self.choose(
                    depth,
                    *("+ int int", "- int int", "* int int", "% int int", "div int int", "neg int"),
                    *(
                        "abs int",
                        "round int :-2",
                        "floor float",
                        "ceil float",
                        "div decimal decimal",
                    ),
                )
            case 3:
                return self.choose(
                    depth, "length string", "position string string", "cardinality list"
                )
            case 4:
                zone = [Literal(self.random.choice(ZONES), STRING)] * self.random.randrange(2)
                return call(self.random.choice(PARTS), self.expression("timestamp", depth), *zone)
            case 5:
                return self.cast(INT, depth, "float", "decimal", "string", "bool", "timestamp")
            case 6:
                numbers = (
                    self.array(depth)
                    if self.random.random() < 0.5
                    else Column("numbers", COLUMNS["numbers"])
                )
                return call(
                    "element_at",
                    numbers,
                    Literal(
                        self.random.choice((1, 2, -1, 3, 0) if self.wide else (1, 2, -1, 3)), INT
                    ),
                )
        return self.general("int", depth)

    def a_float(self, depth: int) -> Node:
        match self.random.randrange(6):
            case 0 | 1:
                shapes = [f"{one} float {self.number()}" for one in "+-*/%"]
                return self.choose(depth, *shapes, "/ int int", "+ string float")
            case 2:
                return self.choose(
                    depth, "sqrt float", "power float float", "neg float", "abs float"
                )
            case 3:
                return self.choose(
                    depth,
                    "round float :0",
                    "round float :2",
                    "round float :-1",
                    f"sign {self.number()}",
                )
            case 4:
                return self.cast(FLOAT, depth, "int", "decimal", "string", "bool", "timestamp")
        return self.general("float", depth)

    def a_decimal(self, depth: int) -> Node:
        match self.random.randrange(5):
            case 0 | 1 | 2:
                operator = self.random.choice("+-*/%")
                return self.choose(depth, f"{operator} decimal decimal", f"{operator} int decimal")
            case 3:
                return self.choose(
                    depth,
                    *("neg decimal", "abs decimal", "round decimal :1", "round decimal :-2"),
                    *("floor decimal", "ceil decimal", "round decimal :5"),
                )
        type = Type("decimal", *self.random.choice(((5, 2), (18, 0), (20, 4), (38, 18), (38, 0))))
        return self.cast(type, depth, "int", "float", "decimal", "string", "bool")

    def a_string(self, depth: int) -> Node:
        match self.random.randrange(6):
            case 0 | 1:
                return self.choose(
                    depth,
                    *(
                        "lower string",
                        "upper string",
                        "trim string",
                        "ltrim string",
                        "rtrim string",
                    ),
                    *("reverse string", "concat string string", "replace string string string"),
                    *("concat string int string", "trim string string"),
                )
            case 2 | 3:
                return self.choose(
                    depth,
                    *("substring string :2", "substring string :-3", "substring string :0 :2"),
                    *("substring string :-5 :4", "substring string :2 :-1", "left string :2"),
                    *("right string :2", "right string :0", "substring string :1 :3"),
                )
            case 4:
                return self.cast(STRING, depth, "int", "float", "decimal", "bool", "timestamp")
        return self.general("string", depth)

    def a_bool(self, depth: int) -> Node:
        random = self.random
        match random.randrange(9):
            case 0 | 1:
                kind = random.choice((*KINDS, "interval"))
                operator = random.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
                return self.choose(
                    depth, f"{operator} {kind} {kind}", f"{operator} int {self.number()}"
                )
            case 2 | 3:
                return self.choose(
                    depth, "and bool bool", "or bool bool", "not bool", "and bool bool bool"
                )
            case 4:
                return self.choose(
                    depth,
                    "is_true bool",
                    "is_false bool",
                    "is_null string",
                    f"is_null {self.number()}",
                )
            case 5:
                text = self.expression("string", depth)
                if random.random() < 0.5:
                    return call("like", text, Literal(random.choice(PATTERNS), STRING))
                return call("rlike", text, Literal(random.choice(REGEXES), STRING))
            case 6:
                kind = random.choice(("int", "string", "float", "timestamp"))
                literals = [self.literal(kind) for _ in range(3)]
                return call("in", self.expression(kind, depth), *literals)
            case 7:
                return self.on_list(depth)
        return self.choose(
            depth, "starts_with string string", "ends_with string string", "contains string string"
        )

    def a_timestamp(self, depth: int) -> Node:
        match self.random.randrange(5):
            case 0:
                operator = self.random.choice("+-")
                return call(operator, self.expression("timestamp", depth), self.literal("interval"))
            case 1:
                operator = self.random.choice("+-")
                return call(operator, self.expression("timestamp", depth), self.literal("months"))
            case 2:
                zone = [Literal(self.random.choice(ZONES), STRING)] * self.random.randrange(2)
                unit = Literal(self.random.choice(UNITS), STRING)
                return call("date_trunc", unit, self.expression("timestamp", depth), *zone)
            case 3:
                return self.cast(TIMESTAMP, depth, "string", "int")
        return self.general("timestamp", depth)

    def a_interval(self, depth: int) -> Node:
        return self.choose(
            depth,
            *("- timestamp timestamp", "neg interval", "+ interval interval", "* interval int"),
            *("- interval interval", "abs interval"),
        )

    def a_months(self, depth: int) -> Node:
        return self.literal("months")

    def a_list(self, depth: int) -> Node:
        return self.array(depth) if self.random.random() < 0.3 else self.leaf("list")

    def cast(self, target: Type, depth: int, *kinds: str) -> Node:
        return call("cast", self.expression(self.random.choice(kinds), depth), type=target)

    def array(self, depth: int) -> Node:
        return call(
            "array", *(self.expression("int", depth) for _ in range(self.random.randint(1, 3)))
        )

    def on_list(self, depth: int) -> Node:
        numbers = Column("numbers", COLUMNS["numbers"])
        match self.random.randrange(4):
            case 0:
                return call("array_contains", numbers, self.expression("int", depth))
            case 1:
                other = self.array(depth) if self.random.random() < 0.5 else self.literal("list")
                return call("arrays_overlap", numbers, other)
        name = self.random.choice(("numbers", "names", "items"))
        element = COLUMNS[name].element
        assert element is not None
        variable = Variable(f"x{len(self.variables)}", element)
        self.variables.append(variable)
        body = self.expression("bool", max(depth, 3 - len(self.variables)))
        self.variables.pop()
        function = self.random.choice(("exists", "forall"))
        return call(function, Column(name, COLUMNS[name]), Lambda(variable, body))


KINDS = ("int", "float", "decimal", "string", "bool", "timestamp")
