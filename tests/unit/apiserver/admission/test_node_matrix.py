"""What a node may write: every kind that concerns it, its own objects and those of others, through the whole server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import JSON, STRATEGIC, ServerHarness

from setpoint.meta.objects import Obj

CORE, HERE = "/api/v1", "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSI, SLICES = "/apis/storage.k8s.io/v1/csinodes", "/apis/resource.k8s.io/v1/resourceslices"
AS_N1 = {"impersonate-user": "system:node:n1", "impersonate-group": "system:nodes"}
MIRROR = "kubernetes.io/config.mirror"


def pod(name: str, node: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec}}


def slice_of(name: str, node: str) -> Obj:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": "d.example", "nodeName": node, "pool": pool, "devices": [{"name": "x"}]},
    }


@pytest.fixture
async def cluster() -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(modes=("Node", "RBAC"))
    await harness.post(f"{CORE}/namespaces", {"metadata": {"name": "kube-node-lease"}}, JSON)
    for account in ("mine", "theirs"):
        await harness.make(f"{HERE}/serviceaccounts", {"metadata": {"name": account}})
    for node, account in (("n1", "mine"), ("n2", "theirs")):
        labels = {"node-role.kubernetes.io/worker": "", "team": "a"}
        await harness.make(f"{CORE}/nodes", {"metadata": {"name": node, "labels": labels}})
        for name in (account, f"{account}-2", f"{account}-3"):
            claim = {"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{account}"}}
            token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
            await harness.make(f"{HERE}/pods", pod(name, node, serviceAccountName=account, volumes=[token, claim]))
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claimed = {"metadata": {"name": f"claim-{account}"}, "spec": spec}
        await harness.make(f"{HERE}/persistentvolumeclaims", claimed)
        await harness.make(LEASES, {"metadata": {"name": node}, "spec": {}})
        await harness.make(CSI, {"metadata": {"name": node}, "spec": {"drivers": []}})
        await harness.make(SLICES, slice_of(f"slice-{account}", node))
    yield harness
    await harness.close()


async def ask(harness: ServerHarness, method: str, path: str, body: Any = None) -> tuple[int, str]:
    reply = await harness.request(method, path, body, STRATEGIC if method == "PATCH" else JSON, headers=AS_N1)
    return reply.status, "" if reply.status < 300 else str(reply.json["message"])


def labels(**changed: str | None) -> Obj:
    return {"metadata": {"labels": {key.replace("__", "/").replace("_", "."): value for key, value in changed.items()}}}


CAPACITY = {"status": {"capacity": {"storage": "1Gi"}}}
TAINTED = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
OWNED = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mine-3"}}
OTHERS = 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
RELATION = "no relationship found between node 'n1' and this object"

MATRIX: tuple[tuple[str, str, Any, int, str], ...] = (
    # Nodes: its own status and labels, but neither taints nor owners nor labels by which Pods are drawn to it.
    ("POST", f"{CORE}/nodes", {"metadata": {"name": "n3"}}, 403, 'is not allowed to modify node "n3"'),
    ("PATCH", f"{CORE}/nodes/n1/status", {"status": {"phase": "Running"}}, 200, ""),
    ("PATCH", f"{CORE}/nodes/n2/status", {"status": {"phase": "Running"}}, 403, OTHERS),
    ("PATCH", f"{CORE}/nodes/n1", labels(team="b"), 200, ""),
    ("PATCH", f"{CORE}/nodes/n1", labels(kubernetes_io__os="linux", node_kubernetes_io__x="y"), 200, ""),
    (
        "PATCH",
        f"{CORE}/nodes/n1",
        {"metadata": {"labels": {"node-role.kubernetes.io/worker": None}}},
        403,
        "is not allowed to modify labels: node-role.kubernetes.io/worker",
    ),
    (
        "PATCH",
        f"{CORE}/nodes/n1",
        {"metadata": {"labels": {"a.node-restriction.kubernetes.io/b": "c"}}},
        403,
        "is not allowed to modify labels: a.node-restriction.kubernetes.io/b",
    ),
    (
        "PATCH",
        f"{CORE}/nodes/n1/status",
        {"metadata": {"labels": {"foo.k8s.io/b": "c"}}},
        403,
        "is not allowed to modify labels: foo.k8s.io/b",
    ),
    ("PATCH", f"{CORE}/nodes/n2", labels(team="b"), 403, OTHERS),
    ("PATCH", f"{CORE}/nodes/n1", TAINTED, 403, 'node "n1" is not allowed to modify taints'),
    ("PATCH", f"{CORE}/nodes/n1/status", TAINTED, 403, 'node "n1" is not allowed to modify taints'),
    ("PATCH", f"{CORE}/nodes/n1", OWNED, 403, 'node "n1" is not allowed to modify ownerReferences'),  # CVE-2025-5187
    ("PATCH", f"{CORE}/nodes/n1/status", OWNED, 403, 'node "n1" is not allowed to modify ownerReferences'),
    ("DELETE", f"{CORE}/nodes/n1", None, 403, 'cannot delete resource "nodes"'),
    # Pods: it updates the status of its own Pods, deletes and evicts them, and creates only mirror Pods.
    ("PATCH", f"{HERE}/pods/mine/status", {"status": {"phase": "Running"}}, 200, ""),
    (
        "PATCH",
        f"{HERE}/pods/theirs/status",
        {"status": {"phase": "Running"}},
        403,
        'node "n1" can only update pod status for pods with spec.nodeName set to itself',
    ),
    ("PATCH", f"{HERE}/pods/mine/status", labels(app="web"), 403, 'node "n1" cannot update labels through pod status'),
    (
        "PATCH",
        f"{HERE}/pods/mine/status",
        {"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "x"}]}},
        403,
        'node "n1" cannot update resource claim statues',
    ),
    ("PATCH", f"{HERE}/pods/mine", labels(app="web"), 403, 'cannot patch resource "pods"'),
    ("DELETE", f"{HERE}/pods/mine-2?gracePeriodSeconds=0", None, 200, ""),
    ("DELETE", f"{HERE}/pods/theirs-2", None, 403, 'node "n1" can only delete pods with spec.nodeName set to itself'),
    ("DELETE", f"{HERE}/pods/gone", None, 404, 'pods "gone" not found'),
    ("DELETE", f"{HERE}/pods", None, 403, 'cannot deletecollection resource "pods"'),
    ("POST", f"{HERE}/pods/mine-3/eviction", EVICTION, 201, ""),
    (
        "POST",
        f"{HERE}/pods/theirs-3/eviction",
        {**EVICTION, "metadata": {"name": "theirs-3"}},
        403,
        "node n1 can only evict pods with spec.nodeName set to itself",
    ),
    ("POST", f"{HERE}/pods/gone/eviction", {**EVICTION, "metadata": {"name": "gone"}}, 404, 'pod "gone" not found'),
    (
        "POST",
        f"{HERE}/pods/mine/binding",
        {"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n1"}},
        403,
        'cannot create resource "pods/binding"',
    ),
    (
        "POST",
        f"{HERE}/pods",
        pod("made", "n1"),
        403,
        f'pod does not have "{MIRROR}" annotation, node "n1" can only create mirror pods',
    ),
    # Claims: it updates the fields of a resize in the status of claims that its Pods use.
    ("PATCH", f"{HERE}/persistentvolumeclaims/claim-mine/status", CAPACITY, 200, ""),
    (
        "PATCH",
        f"{HERE}/persistentvolumeclaims/claim-mine/status",
        {"status": {"phase": "Bound"}},
        403,
        'node "n1" is not allowed to update fields other than status.quantity and status.conditions',
    ),
    ("PATCH", f"{HERE}/persistentvolumeclaims/claim-theirs/status", CAPACITY, 403, RELATION),
    ("PATCH", f"{HERE}/persistentvolumeclaims/claim-mine", labels(a="b"), 403, "can only get individual resources"),
    # Objects with the name of the node.
    ("PATCH", f"{LEASES}/n1", {"spec": {"holderIdentity": "n1"}}, 200, ""),
    ("PATCH", f"{LEASES}/n2", {"spec": {"holderIdentity": "n1"}}, 403, "with the same name as the requesting node"),
    (
        "POST",
        LEASES,
        {"metadata": {"name": "n3"}, "spec": {}},
        403,
        "can only access node lease with the same name as the requesting node",
    ),
    (
        "POST",
        LEASES.replace("kube-node-lease", "default"),
        {"metadata": {"name": "n1"}, "spec": {}},
        403,
        'can only access leases in the "kube-node-lease" system namespace',
    ),
    ("PATCH", f"{CSI}/n1", {"spec": {"drivers": [{"name": "d", "nodeID": "n1"}]}}, 200, ""),
    ("PATCH", f"{CSI}/n2", {"spec": {"drivers": []}}, 403, "can only access CSINode with the same name"),
    (
        "POST",
        CSI,
        {"metadata": {"name": "n3"}, "spec": {"drivers": []}},
        403,
        "can only access CSINode with the same name as the requesting node",
    ),
    ("POST", SLICES, slice_of("new", "n1"), 201, ""),
    (
        "POST",
        SLICES,
        slice_of("newer", "n2"),
        403,
        "can only create ResourceSlice with the same NodeName as the requesting node",
    ),
    ("DELETE", f"{SLICES}/slice-mine", None, 200, ""),
    ("DELETE", f"{SLICES}/slice-theirs", None, 403, RELATION),
    # What nodes never write.
    ("POST", f"{HERE}/secrets", {"metadata": {"name": "s"}}, 403, "can only read resources of this type"),
    ("POST", f"{HERE}/configmaps", {"metadata": {"name": "s"}}, 403, "can only read resources of this type"),
    ("POST", f"{HERE}/services", {"metadata": {"name": "s"}}, 403, 'cannot create resource "services"'),
    (
        "POST",
        f"{HERE}/events",
        {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "mine", "namespace": "default"}},
        201,
        "",
    ),
)


async def test_the_matrix(cluster: ServerHarness) -> None:
    for method, path, body, status, why in MATRIX:
        found = await ask(cluster, method, path, body)
        assert found[0] == status and why in found[1], (method, path, body, found)
    taints = (await cluster.get(f"{CORE}/nodes/n1")).json["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["node.kubernetes.io/not-ready"]


async def test_mirror_pods(cluster: ServerHarness) -> None:
    uid = (await cluster.get(f"{CORE}/nodes/n1")).json["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}

    def mirror(name: str, node: str = "n1", owned: Obj = owner, **spec: Any) -> Obj:
        made = pod(name, node, **spec)
        made["metadata"] |= {"annotations": {MIRROR: "x"}, "ownerReferences": [owned]}
        return made

    assert await ask(cluster, "POST", f"{HERE}/pods", mirror("good")) == (201, "")
    for body, why in (
        (mirror("a", "n2"), "with spec.nodeName set to itself"),
        (mirror("b", owned={**owner, "uid": "x"}), "UID mismatch"),
        (mirror("c", serviceAccountName="mine"), "can not create pods that reference serviceaccounts"),
        (mirror("d", volumes=[{"name": "v", "secret": {"secretName": "s"}}]), "that reference secrets"),
        # CVE-2025-4563
        (mirror("e", resourceClaims=[{"name": "c", "resourceClaimName": "x"}]), "that reference resourceclaims"),
    ):
        status, message = await ask(cluster, "POST", f"{HERE}/pods", body)
        assert status == 403 and why in message, (status, message)


async def test_tokens(cluster: ServerHarness) -> None:
    uids = {name: (await cluster.get(f"{HERE}/pods/{name}")).json["metadata"]["uid"] for name in ("mine", "theirs")}

    async def wanted(account: str, pod: str, uid: str) -> tuple[int, str]:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        spec: Obj = {"audiences": [], "boundObjectRef": reference if pod else None}
        return await ask(cluster, "POST", f"{HERE}/serviceaccounts/{account}/token", {"spec": spec})

    for account, bound, uid, why in (
        ("theirs", "theirs", uids["theirs"], RELATION),
        ("mine", "", "", "node requested token not bound to a pod"),
        ("mine", "mine", "", "node requested token with a pod binding without a uid"),
        ("mine", "mine", "x", "does not match the UID in record"),
        ("mine", "theirs", uids["theirs"], "bound to a pod scheduled on a different node"),
    ):
        status, message = await wanted(account, bound, uid)
        assert status == 403 and why in message, (account, bound, message)
    assert await wanted("mine", "gone", "x") == (404, 'pod "gone" not found')
    assert await wanted("mine", "mine", uids["mine"]) == (201, "")
