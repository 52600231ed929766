"""Large values are processed in steps, with the same result."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from setpoint.meta import chunked_json
from setpoint.meta.apply.field_set import order, sort
from setpoint.meta.chunked_json import CHUNK_SIZE, equal, sorted_in_chunks

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([-1.0, -0.0, 0.0, 1.0, 1.5])
    | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("count", [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE + 7])
def test_as_sorted(count: int) -> None:
    texts = [f"{number:x}" for number in range(count)]
    random.Random(count).shuffle(texts)
    assert sorted_in_chunks(texts) == sorted(texts)


def test_the_elements_of_a_large_field_set_are_sorted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    elements = [f'k:{{"containerPort":{number}}}' for number in range(3 * CHUNK_SIZE)]
    random.Random(7).shuffle(elements)
    sizes: list[int] = []

    def recorded(texts: list[str], key: Any = None) -> list[str]:
        sizes.append(len(texts))
        return sorted(texts, key=key)

    monkeypatch.setattr(chunked_json, "sorted", recorded, raising=False)
    assert list(sort({element: {} for element in elements})) == sorted(elements, key=order)
    assert len(sizes) == 6  # three chunks by text, three by order
    assert max(sizes) <= CHUNK_SIZE


@given(JSON_VALUES, JSON_VALUES)
@example({"a": 1}, {"b": 1})
@example({"a": [1]}, {"a": [1.0]})
@example([True], [1])
@example([0.0], [-0.0])
@example({"a": None, "b": 1}, {"b": 1, "a": None})
def test_equal_as_the_operator(a: Any, b: Any) -> None:
    option = orjson.OPT_SORT_KEYS
    assert equal(a, b) == (a == b)
    assert equal(a, b, same_json=True) == (orjson.dumps(a, option=option) == orjson.dumps(b, option=option))
    assert equal(a, orjson.loads(orjson.dumps(a)), same_json=True)
