"""Properties of the engine: arithmetic, order, equality, logic, names, and a compiler that survives any text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.cel import BOOL, DOUBLE, DYN, INT, CelError, CelProblem, kubernetes_environment
from setpoint.meta.cel.json_values import to_json
from setpoint.meta.cel.lexer import escape_property, unescape_property
from setpoint.meta.cel.libraries.optionals import BINDINGS
from setpoint.meta.cel.operators import equals

ENVIRONMENT = kubernetes_environment().extended(
    {"i": INT, "j": INT, "f": DOUBLE, "d": DYN, "e": DYN, "p": BOOL, "q": BOOL}
)
INTS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
ADD, SUB, MUL, DIV, MOD = (ENVIRONMENT.compile(f"i {operator} j") for operator in "+-*/%")
EQUAL = ENVIRONMENT.compile("d == e")
LESS, GREATER = ENVIRONMENT.compile("i < f"), ENVIRONMENT.compile("f > i")


def _go_quotient(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


@given(INTS, INTS)
def test_integers_are_exact_or_an_error(left: int, right: int) -> None:
    exact = {ADD: left + right, SUB: left - right, MUL: left * right}
    if right != 0:
        exact[DIV] = _go_quotient(left, right)
        exact[MOD] = left - _go_quotient(left, right) * right
    for program, expected in exact.items():
        outcome = program.evaluate({"i": left, "j": right})
        overflows = not -(1 << 63) <= expected < 1 << 63
        if program is MOD and (left, right) == (-(1 << 63), -1):
            overflows = True
        if overflows:
            assert outcome.error == "integer overflow"
        else:
            assert outcome.value == expected


@given(INTS, st.floats(allow_nan=False))
def test_order_across_types_is_antisymmetric(left: int, right: float) -> None:
    bindings = {"i": left, "f": right}
    assert LESS.evaluate(bindings).value is GREATER.evaluate(bindings).value
    if abs(left) < 1 << 53:
        assert LESS.evaluate(bindings).value is (left < right)


@given(JSON, JSON)
def test_equality_is_reflexive_and_symmetric(one: Any, other: Any) -> None:
    assert equals(one, one)
    assert equals(one, other) is equals(other, one)
    assert EQUAL.evaluate({"d": one, "e": other}).value is equals(one, other)


@given(JSON)
def test_json_round_trip(document: Any) -> None:
    outcome = ENVIRONMENT.compile("[d]").evaluate({"d": document})
    assert json.dumps(to_json(outcome.value)) == json.dumps([document])


ERROR = "(1 / (i - i) > 0)"
TRUTH = {"true": True, "false": False, ERROR: None}


def test_and_and_or_absorb_errors() -> None:
    for left, left_value in TRUTH.items():
        for right, right_value in TRUTH.items():
            both = ENVIRONMENT.compile(f"{left} && {right}").evaluate({"i": 1})
            either = ENVIRONMENT.compile(f"{left} || {right}").evaluate({"i": 1})
            values = (left_value, right_value)
            expected = False if False in values else None if None in values else True
            assert both.value is expected
            assert (both.error is None) is (expected is not None)
            expected = True if True in values else None if None in values else False
            assert either.value is expected
            assert (either.error is None) is (expected is not None)


@given(st.lists(st.sampled_from(["t", "f", "e"]), max_size=6))
def test_all_and_exists_are_chains_of_and_and_or(marks: list[str]) -> None:
    numbers = [{"t": 1, "f": -1, "e": 0}[mark] for mark in marks]
    everything = ENVIRONMENT.compile("d.all(n, 1 / n > 0)").evaluate({"d": numbers})
    something = ENVIRONMENT.compile("d.exists(n, 1 / n > 0)").evaluate({"d": numbers})
    assert everything.value is (False if "f" in marks else None if "e" in marks else True)
    assert something.value is (True if "t" in marks else None if "e" in marks else False)


@given(st.from_regex(r"[a-zA-Z_./\-][a-zA-Z0-9_./\-]{0,20}", fullmatch=True))
def test_escaped_names_round_trip(name: str) -> None:
    identifier = escape_property(name)
    assert identifier is not None
    assert identifier.replace("_", "a").isalnum()
    # Three underscores in a row can be read in more than one way; upstream has the same ambiguity.
    if "___" not in name and not name.startswith("_") and not name.endswith("_") and "_-" not in name:
        if not any(pair in name for pair in ("_.", "._", "_/", "/_", "-_", "_-")):
            assert unescape_property(identifier) == name


@given(st.text(alphabet=st.sampled_from(list("ab1.[](){}?:,+-*/%!&|<>='\" \n\\`uxre_")), max_size=30))
def test_no_text_breaks_the_compiler(text: str) -> None:
    try:
        ENVIRONMENT.compile(text).evaluate({})
    except (CelProblem, CelError) as problem:
        assert str(problem)


@given(st.lists(INTS, max_size=8))
def test_sorting_and_extremes(values: list[int]) -> None:
    ordered = ENVIRONMENT.compile("d.map(n, int(n)).sort()").evaluate({"d": values})
    assert ordered.value == sorted(values)
    largest = ENVIRONMENT.compile("d.map(n, int(n)).max()").evaluate({"d": values})
    assert largest.value == (max(values) if values else None)


def test_doubles_divide_by_zero() -> None:
    program = ENVIRONMENT.compile("f / 0.0")
    assert program.evaluate({"f": 1.0}).value == math.inf
    assert program.evaluate({"f": -1.0}).value == -math.inf
    assert math.isnan(program.evaluate({"f": 0.0}).value)


def test_the_cost_limit_stops_a_loop() -> None:
    text = "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))"
    outcome = ENVIRONMENT.compile(text).evaluate({})
    assert outcome.cost_exceeded
    assert outcome.error == "operation cancelled: actual cost limit exceeded"
    assert 1_000_000 < outcome.cost < 1_020_000


def test_depth_is_bounded() -> None:
    for text in ("(" * 249 + "i" + ")" * 249, "i" + " + 1" * 248, "[" * 249 + "]" * 249):
        assert ENVIRONMENT.compile(text).evaluate({"i": 1}).error is None
    for text in ("(" * 250 + "i" + ")" * 250, "[" * 251 + "]" * 251, "d" + ".a" * 251, "1" + " + 1" * 251):
        try:
            ENVIRONMENT.compile(text)
        except CelProblem as problem:
            assert "recursion" in str(problem)
        else:
            raise AssertionError(text)
    try:
        ENVIRONMENT.compile("1 +" + " " * 100_000 + "1")
    except CelProblem as problem:
        assert "expression code point size exceeds limit: size: 100004, limit 100000" in str(problem)


BINDING = ENVIRONMENT.extended(libraries=(BINDINGS,))


def _bound(start: str, step: str, times: int, result: str) -> str:
    """Return an expression that binds `step` repeatedly, each time to the previous result."""
    text = result.format(f"v{times}")
    for index in range(times, 0, -1):
        text = f"cel.bind(v{index}, {step.format(f'v{index - 1}')}, {text})"
    return f"cel.bind(v0, {start}, {text})"


def test_nothing_grows_beyond_the_limit() -> None:
    ten = "'aaaaaaaaaa'"
    million = ten + f".replace('a', {ten})" * 5
    placeholders, arguments = "%s" * 900, ", ".join(["v0"] * 900)
    texts = [
        _bound("[1, 2, 3]", "{0} + {0}", 60, "size({0}) > 0"),
        _bound("'abc'", "{0} + {0}", 60, "size({0}) > 0"),
        _bound(million, "{0}.replace('a', {0})", 1, "{0} == ''"),
        _bound("[" + million + "]", "{0} + {0}", 9, "{0}.join('-') == ''"),
        _bound(million, "{0}", 0, f"'{placeholders}'.format([{arguments}]) == ''"),
        _bound("lists.range(300)", "{0}.map(i, {0})", 2, "{0}.indexOf([]) == 1"),
        "lists.range(900000).distinct() == []",
    ]
    for text in texts:
        outcome = BINDING.compile(text).evaluate({})
        assert outcome.cost_exceeded, (text[:80], outcome.error, outcome.cost)


def test_a_chain_that_doubles_is_bounded() -> None:
    text = "optional.of(1)" + ".optMap(v, v + 1)" * 40
    with pytest.raises(CelProblem, match="target is too large"):
        ENVIRONMENT.compile(text)
    assert ENVIRONMENT.compile("optional.of(1)" + ".optMap(v, v + 1)" * 5).evaluate({}).value.get() == 6


def test_maps_are_filled_in_linear_time() -> None:
    text = "lists.range(20000).transformMap(i, v, v).size()"
    assert ENVIRONMENT.compile(text).evaluate({}).value == 20000
    program = ENVIRONMENT.compile("[1, 2].transformMap(i, v, v) == {0: 1, 1: 2}")
    assert [program.evaluate({}).value for _ in range(2)] == [True, True]
