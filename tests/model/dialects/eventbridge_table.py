"""Event patterns, what they match and what not, and patterns that are refused."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
Row = tuple[str, list[Event], list[Event]]


def _at_x(wanted: str, yes: list[Any], no: list[Any]) -> Row:
    """A pattern of one field, and what it says to values of it."""
    return '{"x": [' + wanted + "]}", [{"x": one} for one in yes], [{"x": one} for one in no]


MATCHES: list[Row] = [
    # Values are equal if their kinds are, and numbers as numbers.
    _at_x('"on"', ["on", ["off", "on"], [["on"]]], ["On", "on ", "", None, True, 1, [], {"a": 1}]),
    _at_x('""', ["", ["a", ""]], [None, [], "a", 0, False]),
    _at_x("null", [None, [None]], ["null", "", 0, False, []]),
    _at_x("true", [True], [1, "true", False]),
    _at_x("false", [False], [0, "", None]),
    _at_x("1", [1, 1.0], ["1", True, 1.5, 10]),
    _at_x("1.50", [1.5], [1, 1.4999999999999998, "1.50"]),
    _at_x("3.0e2", [300, 300.0], [3, "3.0e2"]),
    _at_x("-0.0", [0, 0.0, -0.0], [False, "0", "-0.0"]),
    _at_x("12345678901234567890", [12345678901234567890], [12345678901234567891, 1.2345678e19]),
    _at_x("1e400", [10**400], [10**400 + 1, 1e308]),
    _at_x("0.1", [0.1], [0.10000000000000002]),
    # more digits than a float has
    _at_x("12.345678901234567891", [12.345678901234567891], [12.345678901234566, 12.3456]),
    _at_x("98765432109876543210987", [98765432109876543210987, 9.876543210987654e22], [9.8e22]),
    _at_x('"a", 1, null', ["a", 1, None, ["b", 1]], ["1", "null", 2, []]),
    _at_x(r'"caf\u00e9 \ud83d\ude80 \"\\"', ['café 🚀 "\\'], ["cafe\u0301 🚀", "café 🚀"]),
    _at_x(
        '"2001:db8::1"',
        ["2001:db8::1", "2001:DB8:0:0:0:0:0:1"],
        ["2001:db8::2", "2001:db8::1%1", "2001:db8::1/128"],
    ),
    _at_x('"10.0.0.1"', ["10.0.0.1"], ["10.0.0.2", "010.0.0.1", "::ffff:10.0.0.1"]),
    _at_x('"::g"', ["::g"], ["::G"]),
    # exactly
    _at_x('{"exactly": "on"}', ["on"], ["On", "on "]),
    _at_x('{"exactly": "::1"}', ["::1"], ["0::1"]),
    # prefix and suffix are about strings
    _at_x('{"prefix": "1"}', ["1", "10"], [1, 10, 1.5, "21", "", None]),
    _at_x('{"prefix": "n"}', ["n", "no"], [None, "on"]),
    _at_x('{"prefix": ""}', ["", "a", [1, "a"]], [1, None, True, []]),
    _at_x('{"suffix": ".png"}', ["a.png", ".png", ["a", "b.png"]], [".PNG", "png", "a.png ", None]),
    _at_x('{"suffix": ""}', ["", "a"], [1, None]),
    _at_x('{"prefix": {"equals-ignore-case": "eC2"}}', ["ec2", "EC2-a"], ["c2", "ec", 2, None]),
    _at_x('{"prefix": {"equals-ignore-case": ""}}', ["", "a"], [1]),
    _at_x('{"suffix": {"equals-ignore-case": ".Jpg"}}', ["a.JPG", ".jpg"], ["a.jpg ", "jpg"]),
    # equals-ignore-case: the lower and the upper form of each character
    _at_x('{"equals-ignore-case": "Ab1"}', ["ab1", "AB1", "aB1"], ["ab", "ab11", 1, "Áb1"]),
    _at_x('{"equals-ignore-case": ""}', [""], ["a", None]),
    _at_x('{"equals-ignore-case": "É😀"}', ["é😀", "É😀"], ["e😀", "E\u0301😀"]),
    _at_x('{"equals-ignore-case": "ks"}', ["KS", "Ks"], ["\u212as", "k\u017f"]),
    _at_x('{"equals-ignore-case": "straße"}', ["STRASSE", "straße", "STRAßE"], ["strasse"]),
    _at_x('{"equals-ignore-case": "ΣΊΣΥΦΟΣ"}', ["σίσυφοσ", "Σίσυφοσ"], ["σίσυφος"]),
    _at_x('{"equals-ignore-case": "σίσυφος"}', ["ΣΊΣΥΦΟΣ", "ΣΊΣΥΦΟς"], ["σίσυφοσ"]),
    _at_x('{"equals-ignore-case": "ǅ"}', ["ǆ", "Ǆ"], ["ǅ"]),
    _at_x('{"prefix": {"equals-ignore-case": "ß"}}', ["ß", "SSa"], ["ss", "Ss", "s"]),
    # wildcard
    _at_x('{"wildcard": "a*b"}', ["ab", "axb", "a*b", "a\nb"], ["a", "abc", "xab", 1]),
    _at_x('{"wildcard": "*"}', ["", "a"], [1, None, []]),
    _at_x('{"wildcard": ""}', [""], ["a"]),
    _at_x('{"wildcard": "ab"}', ["ab"], ["a", "abc"]),
    _at_x('{"wildcard": "*ab*ab*"}', ["abab", "xabyabz"], ["ab", "aba"]),
    _at_x('{"wildcard": "a*a"}', ["aa", "aba"], ["a"]),
    _at_x(r'{"wildcard": "\\**\\\\"}', ["*\\", "*a\\"], ["a\\", "*", "\\*\\"]),
    # anything-but wants a member of whatever kind that is something else
    _at_x('{"anything-but": "on"}', ["off", "", 1, None, True, ["on", "off"]], ["on", ["on"], []]),
    _at_x('{"anything-but": ""}', ["a", None], ["", [""]]),
    _at_x('{"anything-but": ["a", "b"]}', ["c", ["a", "c"], 0], ["a", "b", ["a", "b"], []]),
    _at_x('{"anything-but": 1}', [2, "1", True, None, 1.5], [1, 1.0]),
    _at_x('{"anything-but": [0, 1.5]}', [1, "0", False, 2**70], [0, -0.0, 1.5]),
    _at_x('{"anything-but": {"prefix": "in"}}', ["on", "", 12, None], ["in", "init"]),
    _at_x('{"anything-but": {"prefix": ["a", "b"]}}', ["c", 1], ["ab", "b"]),
    _at_x('{"anything-but": {"suffix": ".txt"}}', ["a.png", ".TXT", None], [".txt", "a.txt"]),
    _at_x('{"anything-but": {"suffix": ["1", "2"]}}', ["a", 1, "1a"], ["1", "a2"]),
    _at_x('{"anything-but": {"equals-ignore-case": "On"}}', ["no", None, 1], ["on", "ON"]),
    _at_x('{"anything-but": {"equals-ignore-case": ["a", "ß"]}}', ["ss", "b"], ["A", "SS", "ß"]),
    _at_x('{"anything-but": {"wildcard": "*/lib/*"}}', ["lib/a", "", 1], ["/lib/", "a/lib/b"]),
    _at_x('{"anything-but": {"wildcard": ["a*", ""]}}', ["b", None], ["a", "ab", ""]),
    # numeric
    _at_x('{"numeric": ["=", 3.018e2]}', [301.8], [301, "301.8", None, [[]]]),
    _at_x('{"numeric": [">", 0, "<=", 5]}', [5, 0.5, 1e-320, [9, 1]], [0, -0.0, 5.1, "1", True]),
    _at_x('{"numeric": [">=", 0, "<", 5]}', [0, 4.999999999999999], [-1, 5, None]),
    _at_x('{"numeric": ["<", -1]}', [-2, -1.5, -(10**400)], [-1, 0]),
    _at_x('{"numeric": [">=", 9007199254740992]}', [2**53, 2**53 + 1, 1e300], [2**53 - 1]),
    _at_x('{"numeric": ["<=", 0.3]}', [0.3, 0], [0.30000000000000004, "0"]),
    # cidr
    _at_x('{"cidr": "10.0.0.0/24"}', ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "10.0.0", 10, ""]),
    _at_x('{"cidr": "10.1.2.3/8"}', ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "9.255.255.255"]),
    _at_x('{"cidr": "0.0.0.0/0"}', ["255.255.255.255"], ["::1", "a"]),
    _at_x('{"cidr": "192.0.2.0/31"}', ["192.0.2.1"], ["192.0.2.2"]),
    _at_x(
        '{"cidr": "2001:db8::/32"}',
        ["2001:db8::1", "2001:0DB8:ffff:0:0:0:0:1"],
        ["2001:db9::", "10.0.0.1", "2001:db8::1%eth0"],
    ),
    # exists
    _at_x('{"exists": true}', [1, "", None, False, [None], [[], 1]], [[], {}, {"y": 1}, [[{}]]]),
    _at_x('{"exists": false}', [[], {}, {"y": 1}, [[]], [{"y": 1}]], [1, None, "", [[], 1]]),
    ('{"x": [{"exists": false}]}', [{}, {"y": 1}], []),
    ('{"x": [{"exists": true}]}', [], [{}, {"y": 1}]),
    ('{"x": [{"anything-but": "a"}]}', [], [{}]),
    ('{"x": [{"anything-but": "a"}, {"exists": false}]}', [{}, {"x": "b"}], [{"x": "a"}]),
    ('{"x": [{"exists": false}, 1]}', [{}, {"x": [2, 1]}], [{"x": 2}]),
    ('{"x": {"y": {"z": [{"exists": false}]}}}', [{}, {"x": 1}, {"x": {"y": 1}}], [{"x.y.z": 1}]),
    # fields, and names with dots
    (
        '{"a": [1], "b": {"c": [2], "d": [3]}}',
        [{"a": 1, "b": {"c": 2, "d": 3, "e": 4}, "f": 5}],
        [{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2, "d": 2}}, {"b": {"c": 2, "d": 3}}, {}],
    ),
    (
        '{"a.b": {"c": [1]}}',
        [{"a": {"b": {"c": 1}}}, {"a.b.c": 1}, {"a": {"b.c": 1}}, {"a.b": {"c": 1}}],
        [{"a.b": {"b.c": 1}}, {"a": {"b": 1}}, {"c": 1}],
    ),
    ('{"a": {"b": [1]}}', [{"a": {"b": 2}, "a.b": 1}, {"a.b": [2, 1]}], [{"A": {"b": 1}}]),
    ('{"": ["a"]}', [{"": "a"}], [{"a": "a"}]),
    ('{"exists": [1], "$x": [2]}', [{"exists": 1, "$x": 2}], [{"exists": 1}]),
    ('{"a": {"b": [1]}}', [{"a": [{}, {"b": 1}]}, {"a": [[1, {"b": [2, [1]]}]]}], [{"a": [1]}]),
    ('{"a": {"b": ["x"]}}', [], [{"a": '{"b": "x"}'}]),
    # of a field that is there twice, the last one counts
    ('{"x": ["u"], "x": ["v"]}', [{"x": "v"}, {"x": ["u", "v"]}], [{"x": "u"}, {}]),
    ('{"a": {"b": [1]}, "a.b": [2]}', [{"a": {"b": 2}}, {"a.b": 2}], [{"a": {"b": 1}}]),
    ('{"a.b": [2], "a": {"c": [3], "b": [1]}}', [{"a": {"b": 1, "c": 3}}], [{"a": {"b": 2}}]),
    # fields of one element of a list
    (
        '{"a": {"b": [1], "c": [2]}}',
        [
            *({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}, {"c": 2, "b": [3, 1]}]}),
            {"a": [[{"b": 1}], [[{"b": 1, "c": 2}]]]},
        ],
        [{"a": [{"b": 1}, {"c": 2}]}, {"a": [{"b": 1, "c": 1}, {"b": 2, "c": 2}]}],
    ),
    (
        '{"a": {"b": {"c": [1]}, "d": {"e": [2]}}}',
        [{"a": [{"b": [{"c": 1}, {"c": 3}], "d": [{"e": 3}, {"e": 2}]}]}],
        [{"a": [{"b": [{"c": 1}]}, {"d": [{"e": 2}]}]}],
    ),
    (
        '{"a": {"b": {"c": [1], "d": [2]}}}',
        [{"a": [{"b": [{"c": 1, "d": 2}]}]}],
        [{"a": [{"b": [{"c": 1}, {"d": 2}]}]}, {"a": [{"b": [{"c": 1}]}, {"b": [{"d": 2}]}]}],
    ),
    ('{"a": ["x"], "a.b": [1]}', [{"a": ["x", {"b": 2}, {"b": 1}]}], [{"a": [{"b": 1}]}]),
    ('{"a": {"x": [1]}, "b": {"x": [1]}}', [{"a": [{"x": 0}, {"x": 1}], "b": [{"x": 1}]}], []),
    # exists: false looks at the element of the fields whose names are before
    (
        '{"a": {"b": [1], "c": [{"exists": false}]}}',
        [{"a": [{"b": 1}, {"b": 2, "c": 3}]}, {"a": [{"c": 3}, {"b": 1, "c": []}]}, {"a.b": 1}],
        [{"a": [{"b": 1, "c": 3}, {"b": 2}]}, {"a": {"b": 1, "c": 3}}],
    ),
    (
        '{"a": {"b": [{"exists": false}], "c": [1]}}',
        [{"a": [{"c": 1}, {"c": 2}]}, {"a": {"c": 1}}],
        [{"a": [{"c": 1}, {"b": 2}]}, {"a": {"b": 1, "c": 1}}],
    ),
    (
        '{"a": {"b": [1], "d": {"e": [{"exists": false}]}}}',
        [{"a": [{"b": 1, "d": [{"f": 1}]}, {"d": [{"e": 1}]}]}],
        [{"a": [{"b": 1, "d": [{"f": 1}, {"e": 1}]}]}],
    ),
    (
        '{"a": {"b": [1, {"exists": false}], "c": [{"exists": false}]}}',
        [{"a": [{"b": 1}, {"c": 1}]}, {"a": [{"d": 1}]}, {}],
        [{"a": [{"c": 1}, {"d": 1}]}, {"a": [{"b": 1, "c": 1}]}, {"a": [{"b": 2}]}],
    ),
    (
        '{"a": {"z": [{"exists": false}], "$or": [{"b": [1]}, {"zz": [2]}]}}',
        [{"a": [{"b": 1}, {"z": 1}]}, {"a": [{"zz": 2}]}],
        [{"a": [{"zz": 2}, {"z": 1}]}, {"a": [{"b": 1, "z": 1}]}],
    ),
    # $or
    ('{"$or": [{"a": [1]}, {"b": [2]}]}', [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}], [{"a": 2}, {}]),
    (
        '{"s": ["x"], "$or": [{"a": [1]}, {"b": [2], "c": [3]}], "t": ["y"]}',
        [{"s": "x", "t": "y", "a": 1}, {"s": "x", "t": "y", "b": 2, "c": 3}],
        [{"s": "x", "a": 1}, {"s": "x", "t": "y", "b": 2}, {"t": "y", "a": 1}],
    ),
    (
        '{"$or": [{"a": [1]}, {"b": [1]}], "d": {"$or": [{"a": [2]}, {"b": [2]}]}}',
        [{"a": 1, "d": {"b": 2}}, {"b": 1, "d.a": 2}],
        [{"a": 1, "d": {"a": 1}}, {"d": {"a": 2}}, {"a": 1, "b": 1}],
    ),
    (
        '{"$or": [{"a": [1]}, {"b": [1], "$or": [{"c": [1]}, {"d": {"e": [1]}}]}]}',
        [{"a": 1}, {"b": 1, "c": 1}, {"b": 1, "d": {"e": 1}}],
        [{"b": 1}, {"c": 1}],
    ),
    (
        '{"p": [1], "$or": [{"p": [{"anything-but": 1}]}, {"q": [2]}]}',
        [{"p": 3}, {"p": 1, "q": 2}, {"p": 3, "q": 4}],
        [{"p": 1}, {"q": 2}, {"p": 1, "q": 4}],
    ),
    (
        '{"$or": [{"p": [1]}, {"q": [2]}], "p": [5]}',
        [{"p": 5}, {"p": 5, "q": 3}],
        [{"p": 1}, {"q": 2}, {"p": 1, "q": 2}],
    ),
    (
        '{"l": {"a": [1], "$or": [{"b": [1]}, {"c": [1]}]}}',
        [{"l": [{"a": 1, "c": 1}]}],
        [{"l": [{"a": 1}, {"b": 1, "c": 1}]}],
    ),
]  # fmt: skip

# With a mapping, or with values and operators only, `$or` is the name of a field; and the names of
# a mapping that is there twice are all wanted.
NAMES: list[Row] = [
    ('{"$or": {"a": [1], "b": [2]}}', [{"$or": {"a": 1, "b": 2}}], [{"a": 1}, {"b": 2}]),
    ('{"x": {"$or": ["a", null]}}', [{"x": {"$or": None}}, {"x.$or": "a"}], [{"x": "a"}, {}]),
    (
        '{"$or": [{"numeric": ["<", 0]}, {"prefix": "z"}], "a": [1]}',
        [{"$or": -1, "a": 1}, {"$or": "zz", "a": 1}],
        [{"$or": -1}, {"$or": 0, "a": 1}, {"a": 1}],
    ),
    ('{"$or": [{"exists": false}]}', [{"a": 1}], [{"$or": 1}]),
    (
        '{"a": [1], "a": {"b": [2]}, "a": {"c": [3]}}',
        [{"a": [1, {"b": 2, "c": 3}]}],
        [{"a": 1}, {"a": {"b": 2, "c": 3}}, {"a": [1, {"b": 2}, {"c": 3}]}],
    ),
    (
        '{"$or": [{"a": [1]}, {"b": [1]}], "$or": [{"c": [1]}, {"d": [1]}]}',
        [{"a": 1, "d": 1}, {"b": 1, "c": 1}],
        [{"a": 1, "b": 1}, {"c": 1, "d": 1}],
    ),
]

# Text with ^ before the place that the error points at, and a part of the message.
REFUSED: list[tuple[str, str]] = [
    # JSON
    ("^", "a JSON value should be here"),
    ("^[1]", "a mapping of names"),
    ('{"x": [1]} ^{', "should end here"),
    ('{"x": [1]^', "',' or '}' should be here"),
    ('{"x": [1^', "',' or ']' should be here"),
    ('{"x": [1,^]}', "a JSON value should be here"),
    ('{"x": [1],^}', "a name in double quotes"),
    ("{^x: [1]}", "a name in double quotes"),
    ('{"x" ^[1]}', "':' should be here"),
    ('{"x": [^NaN]}', "a JSON value should be here"),
    ('{"x": [^.5]}', "a JSON value should be here"),
    ('{"x": [0^1]}', "',' or ']' should be here"),
    ('{"x": [^"a]}', "Unterminated string"),
    ('{"x": ["a^\n"]}', "Invalid control character"),
    ('{"x": ["^\\a"]}', "Invalid \\escape"),
    (r'{"x": [^"\ud800"]}', "half of a surrogate pair"),
    ('{"x": [^1e99999]}', "a number is between"),
    ('{"x": [^' + "1" * 1001 + "]}", "at most 1,000 digits"),
    ('{"x": [' + "[" * 98 + "^[", "more than 100 mappings and lists"),
    # structure
    ("^{}", "should not be empty"),
    ('{"x": ^{}}', "should not be empty"),
    ('{"x": ^[]}', "should not be empty"),
    ('{"x": ^"a"}', "'x' takes a list of values, or a mapping"),
    ('{"x": ^null}', "'x' takes a list of values"),
    ('{"x": [^[1]]}', "a value is a string"),
    ('{"x": [^{}]}', "one operator, not 0"),
    ('{"x": [^{"prefix": "a", "suffix": "b"}]}', "one operator, not 2"),
    ('{"x": [{^"PREFIX": "a"}]}', "unknown operator 'PREFIX'; known are 'exactly', 'prefix'"),
    ('{"x": {"prefix": ^"a"}}', "'prefix' takes a list of values, or a mapping"),
    ('{"x": [^{"prefix": "a", "prefix": "b"}]}', "one operator, not 2"),
    # $or
    ('{"$or": ^"a"}', "'$or' takes a list of values, or a mapping"),
    ('{"$or": ^[]}', "'$or' takes a list of two mappings"),
    ('{"$or": [{"a": [1]}, ^"b"]}', "a mapping of names"),
    ('{"$or": [{^"prefix": "a"}, {"b": [1]}]}', "no field is named 'prefix'"),
    ('{"$or": ^[{"a": [1]}]}', "'$or' takes a list of two mappings"),
    ('{"$or": [{"a": [1]}, ^[1]]}', "a mapping of names"),
    ('{"$or": [{"a": [1]}, ^{}]}', "should not be empty"),
    ('{"$or": [{^"numeric": [1]}, {"a": [1]}]}', "no field is named 'numeric'"),
    ('{"$or": [{"a": {^"regex": [1]}}, {"a": [1]}]}', "no field is named 'regex'"),
    # texts
    ('{"x": [{"exactly": ^1}]}', "'exactly' takes a string"),
    ('{"x": [{"prefix": ^1}]}', "'prefix' takes a string"),
    ('{"x": [{"suffix": ^[".a"]}]}', "'suffix' takes a string"),
    ('{"x": [{"prefix": {^"x": "a"}}]}', "unknown operator 'x' of 'prefix'"),
    ('{"x": [{"suffix": {"equals-ignore-case": ^["a"]}}]}', "'equals-ignore-case' takes a string"),
    ('{"x": [{"prefix": ^{"equals-ignore-case": "a", "b": 1}}]}', "one operator, not 2"),
    ('{"x": [{"equals-ignore-case": ^[]}]}', "'equals-ignore-case' takes a string"),
    ('{"x": [{"equals-ignore-case": ^"ßabcdefghij"}]}', "no text this long with 'ß'"),
    ('{"x": [{"wildcard": ^["a"]}]}', "'wildcard' takes a string"),
    ('{"x": [{"wildcard": ^"a**b"}]}', "no two '*' in a row"),
    (r'{"x": [{"wildcard": ^"a\\b"}]}', r"takes '\' before '*' and '\' only"),
    (r'{"x": [{"wildcard": ^"a*\\"}]}', r"takes '\' before '*' and '\' only"),
    # anything-but
    ('{"x": [{"anything-but": ^null}]}', "takes strings or numbers"),
    ('{"x": [{"anything-but": ["a", ^true]}]}', "takes strings or numbers"),
    ('{"x": [{"anything-but": ^["a", 1]}]}', "strings or numbers, not both"),
    ('{"x": [{"anything-but": ^[]}]}', "a list that is not empty"),
    ('{"x": [{"anything-but": {^"exists": true}}]}', "unknown operator 'exists' of 'anything-but'"),
    (
        '{"x": [{"anything-but": {"prefix": ^""}}]}',
        "'prefix' of 'anything-but' takes a string that",
    ),
    ('{"x": [{"anything-but": {"suffix": ["a", ^""]}}]}', "'suffix' of 'anything-but' takes"),
    ('{"x": [{"anything-but": {"prefix": [^1]}}]}', "'prefix' takes a string"),
    ('{"x": [{"anything-but": {"prefix": ^{"equals-ignore-case": "a"}}}]}', "takes a string"),
    ('{"x": [{"anything-but": {"wildcard": ["a", ^"**"]}}]}', "no two '*' in a row"),
    ('{"x": [{"anything-but": {"equals-ignore-case": ^[]}}]}', "a list that is not empty"),
    ('{"x": [{"anything-but": [^9007199254740993]}]}', "too large or too long for a double"),
    # numeric
    ('{"x": [{"numeric": ^5}]}', "'numeric' takes a list of one or two comparisons"),
    ('{"x": [{"numeric": ^[]}]}', "a list of one or two comparisons"),
    ('{"x": [{"numeric": ^[">", 20, "<="]}]}', "a list of one or two comparisons"),
    ('{"x": [{"numeric": [">", 20, "<", 30, "<", 50]}]}'.replace('[">"', '^[">"'), "one or two"),
    ('{"x": [{"numeric": [^"!=", 1]}]}', "the operators '=', '<'"),
    ('{"x": [{"numeric": ["=", ^"1"]}]}', "a number after each operator"),
    ('{"x": [{"numeric": [">", 1, "<", ^true]}]}', "a number after each operator"),
    ('{"x": [{"numeric": ["<", 9, ^">", 1]}]}', "a second comparison after '>' and '>=' only"),
    ('{"x": [{"numeric": [">", 1, ^">", 2]}]}', "'<' or '<=' as its second operator"),
    ('{"x": [{"numeric": ^[">", 3, "<", 1]}]}', "a lower number before a higher one"),
    ('{"x": [{"numeric": ^[">=", 1, "<=", 1.0]}]}', "a lower number before a higher one"),
    ('{"x": [{"numeric": ["=", ^12345678901234567890]}]}', "too large or too long for a double"),
    ('{"x": [{"numeric": ["<", ^1e400]}]}', "too large or too long for a double"),
    # cidr
    ('{"x": [{"cidr": ^8}]}', "'cidr' takes a string"),
    ('{"x": [{"cidr": ^"10.0.0.0"}]}', "an address, '/' and a number of bits"),
    ('{"x": [{"cidr": ^"10.0.0.0/8/8"}]}', "an address, '/' and a number of bits"),
    ('{"x": [{"cidr": ^"10.0.0.0/-1"}]}', "an address, '/' and a number of bits"),
    ('{"x": [{"cidr": ^"fe80::1%eth0/10"}]}', "an address, '/' and a number of bits"),
    ('{"x": [{"cidr": ^"10.0.0.0/32"}]}', "at most 31 bits"),
    ('{"x": [{"cidr": ^"::/128"}]}', "at most 127 bits"),
    ('{"x": [{"cidr": ^"10.0.0.256/8"}]}', "an IP address before the '/'"),
    ('{"x": [{"cidr": ^"1.2.3/8"}]}', "an IP address before the '/'"),
    ('{"x": [{"cidr": ^"1::2::3/8"}]}', "an IP address before the '/'"),
    # exists
    ('{"x": [{"exists": ^null}]}', "'exists' takes true or false"),
    ('{"x": [{"exists": ^"false"}]}', "'exists' takes true or false"),
    ('{"x": [{"exists": ^0}]}', "'exists' takes true or false"),
]
