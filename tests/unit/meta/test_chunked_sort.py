"""Long inputs are sorted in steps, with the same result."""

from __future__ import annotations

import random

import pytest

from setpoint.meta.chunked_sort import CHUNK_SIZE, sorted_in_chunks


@pytest.mark.parametrize("count", [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE + 7])
def test_as_sorted(count: int) -> None:
    texts = [f"{number:x}" for number in range(count)]
    random.Random(count).shuffle(texts)
    assert sorted_in_chunks(texts) == sorted(texts)
