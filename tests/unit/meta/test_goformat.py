from __future__ import annotations

from typing import Any

import pytest

from setpoint.meta.goformat import kind_of, parse_integer, plain, type_name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        ("a b", "a b"),
        (1000000, "1000000"),
        (1.0, "1"),
        (1.5, "1.5"),
        (100000.0, "100000"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (-1e21, "-1e+21"),
        (0.0001, "0.0001"),
        (1.234e-05, "1.234e-05"),
        (0.0, "0"),
        ({"b": [1, "x"], "a": {}}, "map[a:map[] b:[1 x]]"),
        ([[None], []], "[[<nil>] []]"),
    ],
)
def test_plain(value: Any, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        ({}, "object", "map[string]interface {}"),
        ([], "array", "[]interface {}"),
        ("", "string", "string"),
        (1, "number", "int64"),
        (1.5, "number", "float64"),
        (True, "bool", "bool"),
        (None, "null", "<nil>"),
    ],
)
def test_kinds_and_types(value: Any, kind: str, name: str) -> None:
    assert (kind_of(value), type_name(value)) == (kind, name)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("", 0),
        ("-0", 0),
        ("+7", 7),
        ("-007", -7),
        ("0" * 9000 + "5", 5),
        ("9" * 40, 10**40 - 1),
        ("1" * 41, 10**40),
        ("-" + "9" * 9000, -(10**40)),
    ],
)
def test_integers_of_any_length_are_parsed(text: str, number: int) -> None:
    assert parse_integer(text) == number
