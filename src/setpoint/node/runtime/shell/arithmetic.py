"""`$((...))`: whole numbers, variables, the operators of C that scripts use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?([A-Za-z_]\w*)|(\*\*|<=|>=|==|!=|&&|\|\||[-+*/%()<>!]))")
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: _divided(a, b), "%": lambda a, b: a - b * _divided(a, b)},
)  # fmt: skip


class ArithmeticProblem(ValueError):
    pass


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise ArithmeticProblem("divide by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def evaluate(text: str, variables: Mapping[str, str]) -> int:
    """Raises ArithmeticProblem."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticProblem(f"arithmetic syntax error: {text.strip()}")
        at = match.end()
        if match[2]:
            held = variables.get(match[2], "0") or "0"
            if not re.fullmatch(r"[-+]?\d{1,18}", held.strip()):
                raise ArithmeticProblem(f"bad number: {held}")
            tokens.append(str(int(held)) if int(held) >= 0 else f"({int(held)})")
        else:
            tokens.append(match[1] or match[3])
    tokens = [part for token in tokens for part in re.findall(r"\d+|[()]|[^\d()]+", token)]
    value, rest = _level(tokens, 0)
    if rest or not -(2**63) <= value < 2**63:
        raise ArithmeticProblem(f"arithmetic syntax error: {text.strip()}")
    return value


def _level(tokens: list[str], depth: int) -> tuple[int, list[str]]:
    if depth == len(_LEVELS):
        return _unary(tokens)
    value, rest = _level(tokens, depth + 1)
    while rest and rest[0] in _LEVELS[depth]:
        operator = rest[0]
        right, rest = _level(rest[1:], depth + 1)
        value = _LEVELS[depth][operator](value, right)
    return value, rest


def _unary(tokens: list[str]) -> tuple[int, list[str]]:
    if not tokens:
        raise ArithmeticProblem("arithmetic syntax error")
    first = tokens[0]
    if first.isdigit():
        return int(first[:19]), tokens[1:]
    if first == "(":
        value, rest = _level(tokens[1:], 0)
        if not rest or rest[0] != ")":
            raise ArithmeticProblem("arithmetic syntax error: missing )")
        return value, rest[1:]
    if first in "+-!":
        value, rest = _unary(tokens[1:])
        return {"+": value, "-": -value, "!": int(not value)}[first], rest
    raise ArithmeticProblem(f"arithmetic syntax error near {first}")
