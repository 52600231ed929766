"""The math library, which Kubernetes' own environment leaves out and others may take in."""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import pytest

from setpoint.meta.cel.kubernetes import kubernetes_environment
from setpoint.meta.cel.libraries.math import MATH
from setpoint.meta.cel.source import CelProblem

WITH_MATH = kubernetes_environment().extended(libraries=(MATH,))


def outcome(text: str) -> Any:
    """Its value. Raises with what is wrong, when it is compiled or evaluated."""
    found = WITH_MATH.compile(text).evaluate({})
    if found.error is not None:
        raise ValueError(found.error)
    return found.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("math.greatest(1)", 1), ("math.greatest(1u, 2u)", 2), ("math.greatest(-42.0, -21.5)", -21.5),
        ("math.greatest(1, 2.5)", 2.5), ("math.greatest(1, 7, 3)", 7), ("math.greatest([1, 9, 3])", 9),
        ("math.least(5, 3.5)", 3.5),
        ("math.least([7])", 7), ("math.ceil(1.2)", 2.0), ("math.ceil(-1.2)", -1.0), ("math.floor(-1.2)", -2.0),
        ("math.round(1.5)", 2.0), ("math.round(-1.5)", -2.0), ("math.trunc(-1.7)", -1.0), ("math.abs(-3)", 3),
        ("math.abs(3u)", 3), ("math.sign(-2.5)", -1.0), ("math.sign(0)", 0), ("math.sqrt(81)", 9.0),
        ("math.isInf(1.0/0.0)", True), ("math.isNaN(0.0/0.0)", True), ("math.isFinite(1.0)", True),
        ("math.bitAnd(3, 2)", 2), ("math.bitOr(1u, 2u)", 3), ("math.bitXor(3, 5)", 6), ("math.bitNot(1)", -2),
        ("math.bitNot(0u)", 2**64 - 1), ("math.bitShiftLeft(1, 2)", 4), ("math.bitShiftLeft(1, 200)", 0),
        ("math.bitShiftRight(-1024, 3)", 2305843009213693824), ("math.ceil(1.0/0.0)", inf),
    ],
)  # fmt: skip
def test_numbers(text: str, value: object) -> None:
    found = outcome(text)
    assert found == value and isinstance(found, bool) == isinstance(value, bool)


def test_no_number() -> None:
    assert isnan(outcome("math.sqrt(-1.0)"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("math.greatest()", "math.greatest() requires at least one argument"),
        ("math.least('a')", "math.least() invalid single argument value"),
        ("math.greatest(1, 'a')", "math.greatest() simple literal arguments must be numeric"),
        ("math.abs(-9223372036854775808)", "integer overflow"),
        ("math.bitShiftLeft(1, -1)", "math.bitShiftLeft() negative offset: -1"),
    ],
)
def test_complaints(text: str, complaint: str) -> None:
    with pytest.raises((CelProblem, ValueError)) as caught:
        outcome(text)
    assert complaint in str(caught.value)


def test_kubernetes_has_it_not() -> None:
    with pytest.raises(CelProblem, match="undeclared reference"):
        kubernetes_environment().compile("math.abs(1)")
