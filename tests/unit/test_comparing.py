"""The comparison of two outputs that differ in ages, as the tests beside kubectl make it."""

from __future__ import annotations

import pytest
from comparing import differ_only_in_ages


@pytest.mark.parametrize(
    ("wanted", "got", "same"),
    [
        ("NAME   AGE\none    9s\n", "NAME   AGE\none    10s\n", True),
        ("one   2m", "one   119s", True),
        ("one   9s", "one   12s", False),
        ("one   9s", "two   9s", False),
        ("one   9", "one   10", False),
        ("one   9s", "one   9s\ntwo   9s", False),
    ],
)
def test_ages_may_differ_by_the_time_that_passed(wanted: str, got: str, same: bool) -> None:
    assert differ_only_in_ages(wanted, got, 0.5) is same
