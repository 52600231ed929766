"""Patterns that take long to compile are rejected with the error of Go for patterns that are too large."""

from __future__ import annotations

import pytest

from setpoint.kinds.apiextensions.schema_scalars import pattern_error
from setpoint.meta.cel.libraries.regular import BadPattern, compiled

TOO_LARGE = "error parsing regexp: expression too large"


@pytest.mark.parametrize("pattern", ["(a|b)*" * 3_000, r"\pL" * 101, r"[\PL]" * 101])
def test_too_large(pattern: str) -> None:
    assert pattern_error(pattern) == TOO_LARGE
    with pytest.raises(BadPattern, match=TOO_LARGE):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(a|b)*" * 2_000, r"\pL" * 20, "a{1000}"])
def test_realistic_patterns_are_accepted(pattern: str) -> None:
    assert pattern_error(pattern) == ""
    compiled(pattern)
