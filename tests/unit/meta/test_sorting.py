"""Long inputs are sorted in steps, with the same result."""

from __future__ import annotations

import random

import pytest

from setpoint.meta.sorting import AT_ONCE, in_order


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 7])
def test_as_sorted(count: int) -> None:
    texts = [f"{number:x}" for number in range(count)]
    random.Random(count).shuffle(texts)
    assert in_order(texts) == sorted(texts)
