"""Generated JSON patches: applied to one document they return the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.meta.patch.json_patch import apply_json_patch, json_patch_between
from setpoint.meta.patch.strategic_diff import same

KEYS = st.sampled_from(["a", "b", "a/b", "~c", "", "metadata"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, VALUES, max_size=4))
def test_generated_patch_turns_one_document_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert same(apply_json_patch(old, json_patch_between(old, new)), new)


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, [{"op": "remove", "path": "/a/c"}]),
        ({}, {"a/b~": 1}, [{"op": "add", "path": "/a~1b~0", "value": 1}]),
        ({"l": [1, 2, 3]}, {"l": [1, 3]}, [{"op": "remove", "path": "/l/1"}]),
        ({"l": [1, 3]}, {"l": [1, 2, 3]}, [{"op": "add", "path": "/l/1", "value": 2}]),
        ({"l": [{"n": 1}]}, {"l": [{"n": 2}]}, [{"op": "replace", "path": "/l/0/n", "value": 2}]),
    ],
)
def test_generated_patch_is_small(old: dict[str, Any], new: dict[str, Any], patch: list[dict[str, Any]]) -> None:
    assert json_patch_between(old, new) == patch
