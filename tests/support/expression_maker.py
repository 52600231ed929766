"""Random expressions that type-check: every one is a call of what `LEAVES` and the rules below offer."""

from __future__ import annotations

import random
import re

VARIABLES = {
    "x": "int",
    "y": "int",
    "s": "string",
    "t": "string",
    "b": "bool",
    "f": "double",
    "li": "list(int)",
    "ls": "list(string)",
    "m": "map(string, int)",
}
VALUES = {
    "x": 5,
    "y": -3,
    "s": "hello world",
    "t": "",
    "b": True,
    "f": 2.5,
    "li": [3, 1, 2],
    "ls": ["a", "bb", "ccc"],
    "m": {"k": 1, "j": 2},
}
LEAVES = {
    "int": ["x", "y", "1", "0", "-5", "3", "9223372036854775807", "li[0]", "m.k"],
    "string": ["s", "t", "'a'", "'hello'", "'b,c'", "''", "ls[1]", "'é😁'"],
    "bool": ["b", "true", "false"],
    "double": ["f", "1.5", "0.0", "-2.25"],
    "list(int)": ["li", "[1, 2, 3]", "[x, y]"],
    "list(string)": ["ls", "['a', 'b']", "[s, t]"],
    "map(string, int)": ["m", "{'a': 1}", "{'k': x}"],
}
_TEMPLATES = {
    "int": [
        "(<int> + <int>)",
        "(<int> - <int>)",
        "(<int> * <int>)",
        "(<int> / <int>)",
        "(<int> % <int>)",
        "-(<int>)",
        "<string>.size()",
        "size(<list(int)>)",
        "<list(int)>[<int>]",
        "(<bool> ? <int> : <int>)",
        "int(<double>)",
        "<map(string, int)>[<string>]",
        "size(<map(string, int)>)",
        "int(<string>)",
    ],
    "string": [
        "(<string> + <string>)",
        "(<bool> ? <string> : <string>)",
        "string(<int>)",
        "<list(string)>[<int>]",
        "string(<bool>)",
        "string(bytes(<string>))",
    ],
    "bool": [
        "(<bool> && <bool>)",
        "(<bool> || <bool>)",
        "!(<bool>)",
        "(<int> == <int>)",
        "(<int> < <int>)",
        "(<int> >= <int>)",
        "(<string> == <string>)",
        "(<string> < <string>)",
        "(<string> != <string>)",
        "(<double> < <double>)",
        "(<double> == <double>)",
        "(<list(int)> == <list(int)>)",
        "(<int> in <list(int)>)",
        "(<map(string, int)> == <map(string, int)>)",
        "(<bool> ? <bool> : <bool>)",
        "<string>.contains(<string>)",
        "<string>.startsWith(<string>)",
        "<string>.endsWith(<string>)",
        "<string>.matches('^[a-z]*')",
        "(<string> in <map(string, int)>)",
        "has(m.k)",
        "has(m.zz)",
        "(dyn(<int>) == dyn(<string>))",
        "(dyn(<int>) == <double>)",
    ],
    "double": ["(<double> + <double>)", "(<double> - <double>)", "(<double> * <double>)", "double(<int>)"],
    "list(int)": ["[<int>, <int>]", "(<list(int)> + <list(int)>)", "(<bool> ? <list(int)> : <list(int)>)"],
    "list(string)": ["[<string>, <string>]", "(<list(string)> + <list(string)>)"],
    "map(string, int)": ["{<string>: <int>}", "(<bool> ? <map(string, int)> : <map(string, int)>)"],
}
# (result, macro, range, variable, body)
_MACROS = [
    ("bool", "all", "list(int)", "int", "bool"),
    ("bool", "exists", "list(int)", "int", "bool"),
    ("bool", "exists_one", "list(int)", "int", "bool"),
    ("bool", "all", "list(string)", "string", "bool"),
    ("bool", "exists", "map(string, int)", "string", "bool"),
    ("list(int)", "map", "list(int)", "int", "int"),
    ("list(int)", "filter", "list(int)", "int", "bool"),
    ("list(int)", "map", "list(string)", "string", "int"),
    ("list(string)", "map", "list(int)", "int", "string"),
    ("list(string)", "filter", "list(string)", "string", "bool"),
]


_HOLE = re.compile(r"<([a-z][a-z(), ]*)>")


class ExpressionMaker:
    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._scope: list[tuple[str, str]] = []

    def make(self) -> str:
        self._scope.clear()
        return self._of(self._choose.choice(list(LEAVES)), self._choose.randint(1, 4))

    def _of(self, kind: str, depth: int) -> str:
        if depth <= 0:
            return self._leaf(kind)
        macros = [macro for macro in _MACROS if macro[0] == kind]
        rules: list[str | tuple[str, str, str, str, str]] = [*_TEMPLATES[kind], *macros]
        rule = self._choose.choice(rules)
        if isinstance(rule, tuple):
            return self._macro(rule, depth - 1)
        return _HOLE.sub(lambda hole: self._of(hole[1], depth - 1), rule)

    def _leaf(self, kind: str) -> str:
        visible = [name for name, of in self._scope if of == kind]
        if visible and self._choose.random() < 0.6:
            return self._choose.choice(visible)
        return self._choose.choice(LEAVES[kind])

    def _macro(self, macro: tuple[str, str, str, str, str], depth: int) -> str:
        _, name, ranged, variable, body = macro
        over = self._of(ranged, depth)
        self._scope.append((f"v{len(self._scope)}", variable))
        inner = self._of(body, depth)
        called, _ = self._scope.pop()
        return f"{over}.{name}({called}, {inner})"
