from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.core.pod_binding import delete_options, validate_eviction
from setpoint.meta.errors import PlainServerError
from setpoint.meta.field import Errors

SELECTOR = {"matchLabels": {"a": "b"}}
LABEL = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"


@pytest.fixture
def budgets(lifecycle: Any) -> Any:
    return lifecycle("policy/v1", "PodDisruptionBudget")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"minAvailable": 1, "maxUnavailable": 1, "selector": SELECTOR},
            [
                'spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":1,'
                '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set'
            ],
        ),
        ({"minAvailable": "101%"}, ['spec.minAvailable: Invalid value: "101%": must not be greater than 100%']),
        ({"maxUnavailable": -1}, ["spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"unhealthyPodEvictionPolicy": "X"},
            [
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "X": '
                'supported values: "AlwaysAllow", "IfHealthyBudget"'
            ],
        ),
    ],
)
def test_rules(budgets: Any, spec: dict[str, Any], expected: list[str]) -> None:
    assert budgets.errors({"spec": spec}) == expected


def test_the_reserved_label_is_removed_from_other_selectors(budgets: Any) -> None:
    nothing = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
    assert budgets.created({"spec": {"selector": nothing}})["spec"]["selector"] == nothing
    assert budgets.created({"spec": {"selector": {**nothing, **SELECTOR}}})["spec"]["selector"] == SELECTOR


def test_status_and_row(budgets: Any) -> None:
    old = budgets.created({"spec": {"maxUnavailable": "50%"}})
    assert budgets.put(old, {"status": {"disruptionsAllowed": -1}}, "status")[1] == [
        "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"
    ]
    assert budgets.cells(old) == {
        "Name": "x",
        "Min Available": "N/A",
        "Max Unavailable": "50%",
        "Allowed Disruptions": 0,
        "Age": "24h",
    }


def test_evictions() -> None:
    errs: Errors = []
    validate_eviction({"deleteOptions": {"ignoreStoreReadErrorWithClusterBreakingPotential": True}}, errs)
    assert len(errs) == 1
    assert delete_options({}, ["All"]) == {"dryRun": ["All"]}
    assert delete_options({"deleteOptions": {"gracePeriodSeconds": 0}}, []) == {"gracePeriodSeconds": 0}
    with pytest.raises(PlainServerError):
        delete_options({"deleteOptions": {"dryRun": ["All"]}}, ["None"])
