"""The language itself: what expressions come to, what they cost, and what is said about those that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.meta.cel import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    STRING,
    CelProblem,
    Environment,
    kubernetes_environment,
    list_of,
    map_of,
)

VARIABLES = {
    "x": INT,
    "s": STRING,
    "d": DYN,
    "li": list_of(INT),
    "ls": list_of(STRING),
    "m": map_of(STRING, INT),
    "b": BOOL,
    "f": DOUBLE,
}
VALUES = {
    "x": 5,
    "s": "hello world",
    "d": {"a": {"b": [1, 2, 3]}, "n": None, "s": "txt", "f": 1.5},
    "li": [3, 1, 2],
    "ls": ["a", "bb", "ccc"],
    "m": {"k": 1, "j": 2},
    "b": True,
    "f": 2.5,
}


@pytest.fixture(scope="module")
def environment() -> Environment:
    return kubernetes_environment().extended(VARIABLES)


# (expression, value, cost while running, least and most cost as estimated): recorded from the reference.
RESULTS: list[tuple[str, Any, int, int, int]] = [
    ("1 + 2 * 3", 7, 2, 2, 2),
    ("x > 3 && s.startsWith('hell')", True, 4, 2, 4),
    ("li.all(i, i < x)", True, 20, 2, 18446744073709551615),
    ("d.a.b[0] == 1", True, 5, 3, 3),
    ("has(d.a) && !has(d.zz)", True, 3, 1, 3),
    ("b ? x : 1", 5, 1, 1, 2),
    ("x in [1, 2, 5]", True, 1, 14, 14),
    ("1/0 == 1 || b", True, 3, 2, 3),
    ("[0, 1].exists(i, 1/i > 0)", True, 15, 19, 25),
    ("li.map(i, i * 2)", [6, 2, 4], 44, 12, 18446744073709551615),
]


@pytest.mark.parametrize(("text", "value", "cost", "least", "most"), RESULTS, ids=[row[0] for row in RESULTS])
def test_value_and_costs(environment: Environment, text: str, value: Any, cost: int, least: int, most: int) -> None:
    program = environment.compile(text)
    outcome = program.evaluate(VALUES)
    assert outcome.error is None
    assert outcome.value == value
    assert (outcome.cost, *program.cost_estimate()) == (cost, least, most)


PROBLEMS = [
    (
        "x +",
        "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', "
        "'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | x +\n | ...^",
    ),
    ("nope", "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"),
    (
        "s + 1",
        "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(string, int)'\n | s + 1\n | ..^",
    ),
    ("x.y", "ERROR: <input>:1:2: type 'int' does not support field selection\n | x.y\n | .^"),
    ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
]


@pytest.mark.parametrize(("text", "message"), PROBLEMS, ids=[row[0] for row in PROBLEMS])
def test_what_does_not_compile(environment: Environment, text: str, message: str) -> None:
    with pytest.raises(CelProblem) as caught:
        environment.compile(text)
    assert str(caught.value) == message
