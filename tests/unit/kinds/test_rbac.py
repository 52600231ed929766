from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.rbac import STRATEGIES

API = "rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
ROLE = {"kind": "ClusterRole", "name": "admin"}


@pytest.mark.parametrize(
    ("kind", "rule", "messages"),
    [
        ("Role", {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, []),
        ("ClusterRole", {"verbs": ["get"], "nonResourceURLs": ["/x"]}, []),
        (
            "Role",
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
            ['rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'],
        ),
        (
            "ClusterRole",
            {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["p"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/x"]: '
                "rules cannot apply to both regular resources and non-resource URLs"
            ],
        ),
        (
            "Role",
            {"verbs": [], "apiGroups": [""]},
            [
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[0].verbs: Required value",
            ],
        ),
    ],
)
def test_rules(lifecycle: Any, kind: str, rule: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, kind).create({"rules": [rule]})[1] == messages


def test_aggregation_needs_selectors(lifecycle: Any) -> None:
    roles = lifecycle(API, "ClusterRole")
    assert roles.create({"aggregationRule": {}})[1] == [
        "aggregationRule.clusterRoleSelectors: Required value: "
        "at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]
    assert roles.create({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}})[1] == []


def test_names_may_contain_colons_and_upper_case() -> None:
    strategy = STRATEGIES["Role"]
    assert strategy.validate_name("system:Node", False) == []
    assert strategy.validate_name("a/b", False) == ["may not contain '/'"]


def test_binding_defaults_and_cells(lifecycle: Any) -> None:
    bindings = lifecycle(API, "RoleBinding")
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s"},
    ]
    obj, errs, _ = bindings.create({"roleRef": ROLE, "subjects": subjects})
    assert errs == []
    assert obj["roleRef"]["apiGroup"] == GROUP
    assert [subject.get("apiGroup") for subject in obj["subjects"]] == [GROUP, GROUP, None]
    cells = bindings.cells(obj)
    assert (cells["Role"], cells["Users"], cells["ServiceAccounts"]) == ("ClusterRole/admin", "u", "/s")


@pytest.mark.parametrize(
    ("kind", "body", "messages"),
    [
        (
            "RoleBinding",
            {},
            [
                'roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"',
                "roleRef.name: Required value",
            ],
        ),
        (
            "ClusterRoleBinding",
            {"roleRef": {"kind": "Role", "name": "a"}},
            ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'],
        ),
        (
            "ClusterRoleBinding",
            {"roleRef": ROLE, "subjects": [{"kind": "ServiceAccount", "name": "s"}]},
            ["subjects[0].namespace: Required value"],
        ),
        (
            "RoleBinding",
            {"roleRef": ROLE, "subjects": [{"kind": "User", "apiGroup": "x"}, {"kind": "Z", "name": "n"}]},
            [
                f'subjects[0].apiGroup: Unsupported value: "x": supported values: "{GROUP}"',
                'subjects[1].kind: Unsupported value: "Z": supported values: "ServiceAccount", "User", "Group"',
                "subjects[0].name: Required value",
            ],
        ),
    ],
)
def test_binding_rules(lifecycle: Any, kind: str, body: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, kind).create(body)[1] == messages


def test_the_role_of_a_binding_never_changes(lifecycle: Any) -> None:
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        bindings = lifecycle(API, kind)
        obj, _, _ = bindings.create({"roleRef": ROLE})
        assert bindings.update(obj, roleRef={**ROLE, "name": "other"})[1] == [
            f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"other"}}: field is immutable'
        ]
        assert bindings.update(obj, roleRef={"kind": "ClusterRole"}, subjects=[{"kind": "User"}])[1] == [
            "roleRef.name: Required value",
            f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":""}}: field is immutable',
            "subjects[0].name: Required value",
        ]
