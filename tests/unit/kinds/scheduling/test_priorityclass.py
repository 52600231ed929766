from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def classes(lifecycle: Any) -> Any:
    return lifecycle("scheduling.k8s.io/v1", "PriorityClass")


RESERVED = (
    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("x", 1_000_000_000, []),
        ("x", 1_000_000_001, ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]),
        ("system-node-critical", 2_000_001_000, []),
        ("system-node-critical", 1, [RESERVED + "value of system-node-critical PriorityClass must be 2000001000"]),
        ("system-x", 1, [RESERVED + "system-x is not a known system priority class"]),
    ],
)
def test_values(classes: Any, name: str, value: int, expected: list[str]) -> None:
    assert classes.errors({"metadata": {"name": name}, "value": value}) == expected


def test_value_and_preemption_policy_are_immutable(classes: Any) -> None:
    old = classes.created({"value": 1})
    assert old["preemptionPolicy"] == "PreemptLowerPriority"
    assert classes.put(old, {"value": 2, "preemptionPolicy": "Never"})[1] == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
    ]
    assert classes.put(old, {"value": 1, "description": "new"})[1] == []


def test_row(classes: Any) -> None:
    assert classes.cells(classes.created({"value": 7})) == {
        "Name": "x",
        "Value": 7,
        "Global-Default": False,
        "Age": "24h",
        "PreemptionPolicy": "PreemptLowerPriority",
    }
