from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def limits(lifecycle: Any) -> Any:
    return lifecycle("v1", "LimitRange")


@pytest.fixture
def quotas(lifecycle: Any) -> Any:
    return lifecycle("v1", "ResourceQuota")


def items(*each: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"limits": list(each)}}


def test_limits_of_containers_fill_their_defaults(limits: Any) -> None:
    [item] = limits.created(items({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}}))[
        "spec"
    ]["limits"]
    assert item["default"] == {"cpu": "2"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}
    [pod] = limits.created(items({"type": "Pod", "max": {"cpu": "2"}}))["spec"]["limits"]
    assert "default" not in pod
    assert limits.created({"spec": {"limits": []}})["spec"]["limits"] in (None, [])


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"type": "Foo"},
            ['spec.limits[0].type: Invalid value: "Foo": must be a standard limit type or fully qualified'],
        ),
        (
            {"type": "Pod", "default": {"cpu": "1"}},
            ["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
        ),
        (
            {"type": "PersistentVolumeClaim"},
            [
                "spec.limits[0].limits: Required value: "
                "either minimum or maximum storage value is required, but neither was provided"
            ],
        ),
        (
            {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            ['spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'],
        ),
        (
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
            [
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "2": '
                "default request value 2 is greater than default limit value 1"
            ],
        ),
        (
            {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}},
            [
                'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000'
            ],
        ),
        ({"type": "Pod", "min": {"cpu": "0"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}, []),
        (
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}},
            ['spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
        ),
        (
            {"type": "Container", "default": {"hugepages-2Mi": "2Mi"}, "defaultRequest": {"hugepages-2Mi": "1Mi"}},
            [
                'spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value: "1Mi": '
                "default value 2Mi must equal to defaultRequest value 1Mi in hugepages-2Mi"
            ],
        ),
    ],
)
def test_limit_rules(limits: Any, item: dict[str, Any], expected: list[str]) -> None:
    assert limits.errors(items(item)) == expected


def test_each_type_once(limits: Any) -> None:
    assert limits.errors(items({"type": "Pod"}, {"type": "Pod"})) == ['spec.limits[1].type: Duplicate value: "Pod"']


def quota(hard: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"spec": {"hard": hard, **more}}


def selector(scope: str, operator: str, *values: str) -> dict[str, Any]:
    expression = {"scopeName": scope, "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            quota({"bogus": "1"}),
            [
                'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource type or fully qualified',
                'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource for quota',
            ],
        ),
        (quota({"count/jobs.batch": "1", "requests.nvidia.com/gpu": "2"}), []),
        (quota({"pods": "1.5"}), ['spec.hard[pods]: Invalid value: "1500m": must be an integer']),
        (
            quota({"pods": "1"}, scopes=["BestEffort", "NotBestEffort"]),
            ['spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes'],
        ),
        (
            quota({"services": "1"}, scopes=["Terminating"]),
            ['spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource'],
        ),
        (
            quota({"pods": "1"}, **selector("PriorityClass", "In")),
            [
                "spec.scopeSelector.matchExpressions.values: Required value: "
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            ],
        ),
        (
            quota({"services": "1"}, **selector("PriorityClass", "Exists")),
            [
                'spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"PriorityClass",'
                '"Operator":"Exists","Values":null}]}: unsupported scope applied to resource'
            ],
        ),
    ],
)
def test_quota_rules(quotas: Any, body: dict[str, Any], expected: list[str]) -> None:
    assert quotas.errors(body) == expected


def test_scopes_are_immutable(quotas: Any) -> None:
    old = quotas.created(quota({"pods": "1"}, scopes=["BestEffort"]))
    errors = quotas.put(old, quota({"pods": "2"}, scopes=["NotBestEffort"]))[1]
    assert errors == ['spec.scopes: Invalid value: ["NotBestEffort"]: field is immutable']


def test_status_is_validated_on_status_updates(quotas: Any) -> None:
    old = quotas.created(quota({"pods": "1"}))
    obj, errors = quotas.put(old, {"status": {"used": {"pods": "-1"}}}, "status")
    assert errors == ['status.used[pods]: Invalid value: "-1": must be greater than or equal to 0']
    assert obj["spec"] is old["spec"]
    assert quotas.put(old, {**quota({"pods": "1"}), "status": {"used": {"pods": "5"}}})[0]["status"] == old["status"]


def test_quota_warnings_and_row(quotas: Any) -> None:
    assert quotas.warnings(quota({"cpu": "2", "limits.cpu": "1"})) == [
        "ResourceQuota cpu (2) should be less than limits.cpu (1)"
    ]
    obj = quotas.created({})
    obj["status"] = {"hard": {"pods": "9", "limits.cpu": "4", "cpu": "1"}, "used": {"pods": "3"}}
    row = quotas.cells(obj)
    assert (row["Request"], row["Limit"]) == ("cpu: 0/1, pods: 3/9", "limits.cpu: 0/4")
