"""The roles and bindings that a cluster begins with, and what they let everybody do whom they name, are those of a
kube-apiserver 1.37. Its answers are not kept here, only sums over them: a sum that differs says that something does."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from front_door import FrontDoor

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """What somebody wrote down, without what a server adds to it."""
    meta = obj["metadata"]
    written = {key: meta[key] for key in ("namespace", "name", "labels", "annotations") if key in meta}
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")} | {"metadata": written}


@pytest.mark.parametrize(
    ("plural", "count", "expected"),
    [
        ("clusterroles", 73, "b3a7a9361e15781c"),
        ("clusterrolebindings", 54, "a568cc914d19198e"),
        ("roles", 7, "36b65e8bf7f8723a"),
        ("rolebindings", 7, "0d575242af1b1be2"),
    ],
)
async def test_what_a_cluster_begins_with(full_door: FrontDoor, plural: str, count: int, expected: str) -> None:
    found = [bare(obj) for obj in (await full_door.get(f"{RBAC}/{plural}")).json["items"]]
    found.sort(key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
    assert (len(found), digest(found)) == (count, expected)


async def test_what_everybody_may_do_whom_the_bindings_name(full_door: FrontDoor) -> None:
    """As `kubectl auth can-i --list` asks."""
    subjects = {
        (subject["kind"], subject.get("namespace", ""), subject["name"])
        for plural in ("clusterrolebindings", "rolebindings")
        for binding in (await full_door.get(f"{RBAC}/{plural}")).json["items"]
        for subject in binding.get("subjects", [])
    }
    assert len(subjects) == 56
    expected = {"default": "3cfbf1114e464593", "kube-system": "cb7dd53857d14333", "kube-public": "cfe7149ecfd6732d"}
    for namespace, sum_of_rules in expected.items():
        found = {}
        for kind, home, name in sorted(subjects):
            as_user = {"User": name, "ServiceAccount": f"system:serviceaccount:{home}:{name}"}.get(kind, "somebody")
            headers = {"impersonate-user": as_user} | ({"impersonate-group": name} if kind == "Group" else {})
            reply = await full_door.post(RULES, {"spec": {"namespace": namespace}}, headers=headers)
            # Who has not said who they are may not even ask.
            status = reply.json["status"] if name != "system:unauthenticated" else {}
            assert reply.status == (201 if status else 403)
            found[f"{kind} {home} {name}"] = [
                sorted(status.get(rules, ()), key=lambda rule: json.dumps(rule, sort_keys=True))
                for rules in ("resourceRules", "nonResourceRules")
            ]
        assert digest(found) == sum_of_rules, namespace
