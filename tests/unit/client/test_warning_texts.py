from __future__ import annotations

import pytest

from setpoint.client.sender import warning_texts


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ('299 - "a"', ["a"]),
        ('299 - "a \\"b\\" \\\\"', ['a "b" \\']),
        ('299 - "a", 299 - "b" "Sat, 25 Aug 2012 23:34:45 GMT"', ["a", "b"]),
        ('299 - "a\x1b[2J", 299 - "b"', ["b"]),
        ('299 - "\x9b31m", 299 - "\x07", 299 - "\x7f"', []),
        ("nonsense", []),
        ('299 - "' + "\\" * 10_000, []),
    ],
)
def test_control_characters_in_warnings_are_escaped(header: str, texts: list[str]) -> None:
    """CVE-2021-25743."""
    assert warning_texts(header) == texts
