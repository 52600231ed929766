"""Predicates: which changes enqueue a reconcile."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.sdk import (
    all_of,
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
    resource_version_changed,
)
from setpoint.sdk.controller import Predicate

ALL = (generation_changed, labels_changed, annotations_changed, resource_version_changed)


def obj(**meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **meta}}


@pytest.mark.parametrize("predicate", ALL)
def test_creations_and_deletions_pass(predicate: Predicate) -> None:
    assert predicate(None, obj())
    assert predicate(obj(), None)
    assert not predicate(obj(), obj())


@pytest.mark.parametrize(
    ("predicate", "field", "before", "after"),
    [
        (generation_changed, "generation", 1, 2),
        (labels_changed, "labels", {"a": "1"}, {"a": "2"}),
        (annotations_changed, "annotations", None, {"a": "2"}),
        (resource_version_changed, "resourceVersion", "5", "6"),
    ],
)
def test_each_predicate_compares_only_its_field(predicate: Predicate, field: str, before: Any, after: Any) -> None:
    old, new = obj(**{field: before}), obj(**{field: after})
    assert [each for each in ALL if each(old, new)] == [predicate]


def test_missing_labels_equal_an_empty_map() -> None:
    assert not labels_changed(obj(labels={}), obj())


def test_predicates_can_be_combined() -> None:
    old, new = obj(generation=1, labels={}), obj(generation=2, labels={})
    assert any_of(generation_changed, labels_changed)(old, new)
    assert not all_of(generation_changed, labels_changed)(old, new)
    assert not any_of()(old, new)
    assert all_of()(old, new)
