"""The initial roles and bindings of a cluster, and the rights that they grant, are those of a kube-apiserver 1.37.

Only hashes of upstream's answers are stored here; a different hash means that something differs.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from server_harness import ServerHarness

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object without what a server adds to it."""
    meta = obj["metadata"]
    written = {key: meta[key] for key in ("namespace", "name", "labels", "annotations") if key in meta}
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")} | {"metadata": written}


OWN_ROLES = ("setpoint:history", "setpoint:loops", "setpoint:why")
"""ClusterRoles that upstream does not have."""


@pytest.mark.parametrize(
    ("plural", "count", "expected"),
    [
        ("clusterroles", 73, "b3a7a9361e15781c"),
        ("clusterrolebindings", 54, "a568cc914d19198e"),
        ("roles", 7, "36b65e8bf7f8723a"),
        ("rolebindings", 7, "0d575242af1b1be2"),
    ],
)
async def test_initial_roles_and_bindings(full_harness: ServerHarness, plural: str, count: int, expected: str) -> None:
    found = [bare(obj) for obj in (await full_harness.get(f"{RBAC}/{plural}")).json["items"]]
    found = [obj for obj in found if obj["metadata"]["name"] not in OWN_ROLES]
    found.sort(key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
    assert (len(found), digest(found)) == (count, expected)


OWN_RULE = (
    "system:kube-scheduler",
    {"verbs": ["get", "list", "watch"], "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
)
"""The scheduler reads the addresses of the API servers, which upstream does not allow it."""


async def test_rights_of_all_bound_subjects(full_harness: ServerHarness) -> None:
    """Compare the rules of all subjects of bindings, as `kubectl auth can-i --list` requests them."""
    subjects = {
        (subject["kind"], subject.get("namespace", ""), subject["name"])
        for plural in ("clusterrolebindings", "rolebindings")
        for binding in (await full_harness.get(f"{RBAC}/{plural}")).json["items"]
        for subject in binding.get("subjects", [])
    }
    assert len(subjects) == 56
    expected = {"default": "3cfbf1114e464593", "kube-system": "cb7dd53857d14333", "kube-public": "cfe7149ecfd6732d"}
    for namespace, sum_of_rules in expected.items():
        found = {}
        for kind, home, name in sorted(subjects):
            as_user = {"User": name, "ServiceAccount": f"system:serviceaccount:{home}:{name}"}.get(kind, "somebody")
            headers = {"impersonate-user": as_user} | ({"impersonate-group": name} if kind == "Group" else {})
            reply = await full_harness.post(RULES, {"spec": {"namespace": namespace}}, headers=headers)
            # Anonymous users may not send the review.
            status = reply.json["status"] if name != "system:unauthenticated" else {}
            assert reply.status == (201 if status else 403)
            found[f"{kind} {home} {name}"] = [
                sorted(
                    (rule for rule in status.get(rules, ()) if (name, rule) != OWN_RULE),
                    key=lambda rule: json.dumps(rule, sort_keys=True),
                )
                for rules in ("resourceRules", "nonResourceRules")
            ]
        assert digest(found) == sum_of_rules, namespace
