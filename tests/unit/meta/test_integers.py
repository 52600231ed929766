from __future__ import annotations

import pytest

from setpoint.meta.integers import parse_integer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("", 0), ("-0", 0), ("+7", 7), ("-007", -7), ("0" * 9000 + "5", 5), ("9" * 40, 10**40 - 1),
        ("1" * 41, 10**40), ("-" + "9" * 9000, -(10**40)),
    ],
)  # fmt: skip
def test_numbers_of_any_length(text: str, number: int) -> None:
    assert parse_integer(text) == number
