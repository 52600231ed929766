from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def classes(lifecycle: Any) -> Any:
    return lifecycle("node.k8s.io/v1", "RuntimeClass")


def test_handler(classes: Any) -> None:
    assert classes.errors({}) == ["handler: Required value"]
    assert classes.errors({"handler": "a.b"}) == ['handler: Invalid value: "a.b": must not contain dots']
    old = classes.created({"handler": "a"})
    assert classes.put(old, {"handler": "b"})[1] == ["handler: Invalid value: null: field is immutable"]
    assert classes.put(old, {"handler": "a", "metadata": {"labels": {"x": "y"}}})[1] == []


def test_scheduling_and_overhead(classes: Any) -> None:
    same = {"key": "a", "operator": "Exists"}
    assert classes.errors({"handler": "a", "scheduling": {"tolerations": [same, same]}}) == [
        'scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"","Effect":"",'
        '"TolerationSeconds":null}'
    ]
    assert classes.errors({"handler": "a", "overhead": {"podFixed": {"foo": "1"}}}) == [
        'overhead.limits[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
        'overhead.limits[foo]: Invalid value: "foo": must be a standard resource for containers',
    ]
    assert classes.warnings({"handler": "a", "scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}) == [
        'scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/os" instead'
    ]
    assert classes.cells(classes.created({"handler": "a"}))["Handler"] == "a"
