from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.patch import PatchUndecodable, apply_merge_patch


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({}, {"a": [{"b": None}, None]}, {"a": [{}, None]}),
        ({"a": {"b": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        ({"a": None}, {"a": {"b": None}}, {"a": {}}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1]}, {"a": [True]}, {"a": [True]}),
    ],
)
def test_merges(doc: Any, patch: Any, expected: Any) -> None:
    result = apply_merge_patch(doc, patch)
    assert result == expected
    assert repr(result) == repr(expected)


@pytest.mark.parametrize(("patch", "kind"), [([], "array"), ("x", "string"), (5, "number"), (True, "bool")])
def test_only_objects_are_patches(patch: Any, kind: str) -> None:
    with pytest.raises(PatchUndecodable) as caught:
        apply_merge_patch({}, patch)
    assert caught.value.message == (
        f"error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    )


def test_null_is_not_a_patch() -> None:
    with pytest.raises(PatchUndecodable, match=r"^Invalid JSON Patch$"):
        apply_merge_patch({}, None)


def test_without_field_validation_a_list_replaces_the_document() -> None:
    assert apply_merge_patch({"a": 1}, [{"b": None}], strict=False) == [{}]
    with pytest.raises(PatchUndecodable, match=r"^Invalid JSON Patch$"):
        apply_merge_patch({"a": 1}, "x", strict=False)


def test_no_change_is_the_same_document() -> None:
    doc = {"a": {"b": {"c": 1}, "d": "x"}}
    assert apply_merge_patch(doc, {"a": {"b": {"c": 1, "gone": None}, "d": "x"}}) is doc
    changed = apply_merge_patch(doc, {"a": {"d": "y"}})
    assert changed["a"]["b"] is doc["a"]["b"]


SCALARS = st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x"])
DOCS = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), SCALARS, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), SCALARS | inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=8,
)


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = difference(old[key], value)
        elif key not in old or repr(old[key]) != repr(value):
            patch[key] = value
    return patch


@given(DOCS, DOCS)
def test_generated_patch_turns_one_document_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy.deepcopy((old, new))
    patch = difference(old, new)
    result = apply_merge_patch(old, patch)
    assert result == new
    assert apply_merge_patch(result, patch) is result or apply_merge_patch(result, patch) == result
    assert (old, new) == before
