"""ClusterRoles are aggregated by label."""

from __future__ import annotations

import hashlib
import json

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
ROLES = builtin("clusterroles", "rbac.authorization.k8s.io")


def role(name: str, verbs: list[str], **labels: str) -> Obj:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": verbs}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [rule],
    }


async def verbs_of(cluster: VirtualCluster, name: str) -> list[list[str]]:
    return [rule["verbs"] for rule in (await cluster.client.get(ROLES, name)).get("rules") or ()]


@virtual(nodes=0)
async def test_rules_are_aggregated_by_label(cluster: VirtualCluster) -> None:
    total = {
        **role("sum", []),
        "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"in": "sum"}}]},
    }
    await cluster.client.create(role("b", ["get"], **{"in": "sum"}))
    await cluster.client.create(total)
    await cluster.client.create(role("a", ["list"], **{"in": "sum"}))
    await cluster.client.create(role("same", ["get"], **{"in": "sum"}))
    await cluster.client.create(role("other", ["delete"]))
    await cluster.instant()
    assert await verbs_of(cluster, "sum") == [["list"], ["get"]]
    await cluster.client.delete(ROLES, "a")
    await cluster.instant()
    assert await verbs_of(cluster, "sum") == [["get"]]
    await cluster.client.patch(ROLES, "sum", {"rules": []})
    await cluster.instant()
    assert await verbs_of(cluster, "sum") == [["get"]]


@virtual(nodes=0)
async def test_default_roles_include_labelled_roles(cluster: VirtualCluster) -> None:
    before = await verbs_of(cluster, "admin")
    label = {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    await cluster.client.create(role("crons", ["handle"], **label))
    await cluster.instant()
    assert len(before) > 5
    after = await verbs_of(cluster, "admin")
    assert ["handle"] in after and len(after) == len(before) + 1


@virtual(nodes=1)
async def test_default_roles_are_those_of_upstream(cluster: VirtualCluster) -> None:
    """The checksums are those of the roles that kube-controller-manager 1.37 aggregates in a new cluster."""
    for name, count, expected in (
        ("admin", 29, "ed7af63beab2e1d3"),
        ("edit", 27, "46a447309f1b8653"),
        ("view", 12, "20e82fa0b312ea29"),
    ):
        rules = (await cluster.client.get(ROLES, name))["rules"]
        rules.remove({"verbs": ["get"], "nonResourceURLs": ["/setpoint/v1/why"]})  # our own
        digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]
        assert (len(rules), digest) == (count, expected), name
