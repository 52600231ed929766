"""What nodes may read, depending on the Pods that are bound to them, through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import JSON, ServerHarness

CORE, HERE = "/api/v1", "/api/v1/namespaces/default"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
STRANGE = "no relationship found between node 'n1' and this object"


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **more}


def pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container()], **spec}}


EVERYTHING = pod(
    "mine",
    "n1",
    serviceAccountName="account",
    imagePullSecrets=[{"name": "of-images"}],
    initContainers=[
        container(name="i", env=[{"name": "E", "valueFrom": {"secretKeyRef": {"name": "of-env", "key": "k"}}}]),
    ],
    containers=[
        container(
            envFrom=[{"secretRef": {"name": "of-envfrom"}}, {"configMapRef": {"name": "of-envfrom"}}],
            resources={"limits": {"example.com/x": "1"}, "requests": {"example.com/x": "1"}},
        )
    ],
    volumes=[
        {"name": "a", "secret": {"secretName": "of-volume"}},
        {"name": "b", "configMap": {"name": "of-volume"}},
        {
            "name": "c",
            "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}}]},
        },
        {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
        {
            "name": "e",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        },
        {"name": "f", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "of-driver"}}},
    ],
    resourceClaims=[
        {"name": "named", "resourceClaimName": "given"},
        {"name": "made", "resourceClaimTemplateName": "t"},
    ],
)


def volume(name: str, claim: str, **source: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": claim},
        **source,
    }
    return {"metadata": {"name": name}, "spec": spec}


def csi(**secrets: str) -> dict[str, Any]:
    named = {key: {"namespace": "other", "name": name} for key, name in secrets.items()}
    return {"csi": {"driver": "d", "volumeHandle": "h", **named}}


@pytest.fixture
async def nodes() -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(modes=("Node", "RBAC"))
    yield harness
    await harness.close()


async def fill(harness: ServerHarness) -> None:
    await harness.make(f"{HERE}/pods", EVERYTHING)
    await harness.make(f"{HERE}/pods", pod("theirs", "n2", imagePullSecrets=[{"name": "of-n2"}]))
    await harness.make(
        f"{HERE}/pods",
        {
            "metadata": {"name": "nowhere"},
            "spec": {"containers": [container()], "imagePullSecrets": [{"name": "of-nobody"}]},
        },
    )
    volumes = f"{CORE}/persistentvolumes"
    secrets = {
        "nodePublishSecretRef": "publish",
        "nodeStageSecretRef": "stage",
        "nodeExpandSecretRef": "expand",
        "controllerPublishSecretRef": "control",
        "controllerExpandSecretRef": "control",
    }
    await harness.make(volumes, volume("bound", "claim", **csi(**secrets)))
    await harness.make(volumes, volume("made-for-it", "mine-e", hostPath={"path": "/x"}))
    await harness.make(volumes, volume("theirs", "other-claim", **csi(nodePublishSecretRef="of-theirs")))
    storage = "/apis/storage.k8s.io/v1"
    for name in ("n1", "n2"):
        spec: dict[str, Any] = {"attacher": "d", "nodeName": name, "source": {"persistentVolumeName": "bound"}}
        await harness.make(f"{storage}/volumeattachments", {"metadata": {"name": f"to-{name}"}, "spec": spec})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example", "nodeName": name, "pool": pool, "devices": [{"name": "x"}]}
        await harness.make(
            "/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": f"of-{name}"}, "spec": spec}
        )


async def ask(
    harness: ServerHarness,
    verb: str,
    resource: str,
    name: str = "",
    namespace: str = "",
    group: str = "",
    fields: str = "",
    node: str = "n1",
    groups: tuple[str, ...] = ("system:nodes",),
) -> str:
    """Return `yes`, or the reason of the refusal."""
    resource, _, subresource = resource.partition("/")
    wanted: dict[str, Any] = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    if fields:
        wanted["fieldSelector"] = {"rawSelector": fields}
    spec = {"user": f"system:node:{node}", "groups": list(groups), "resourceAttributes": wanted}
    reply = await harness.post(REVIEWS, {"spec": spec}, JSON)
    assert reply.status == 201, reply.body
    status = reply.json["status"]
    reason = str(status.get("reason", ""))
    return "yes" if status["allowed"] else reason.removeprefix("node: ")


async def test_objects_that_pods_refer_to(nodes: ServerHarness) -> None:
    await fill(nodes)
    reachable = {
        "secrets": {"of-images", "of-env", "of-envfrom", "of-volume", "projected", "of-driver"},
        "configmaps": {"of-envfrom", "of-volume", "projected"},
        "serviceaccounts": {"account"},
        "persistentvolumeclaims": {"claim", "mine-e"},
    }
    for resource, names in reachable.items():
        for name in (*sorted(names), "of-n2", "of-nobody", "unknown", "theirs"):
            expected = "yes" if name in names else STRANGE
            assert await ask(nodes, "get", resource, name, "default") == expected, (resource, name)
            assert await ask(nodes, "get", resource, name, "other") == STRANGE
            assert (await ask(nodes, "get", resource, name, "default", node="n2") == "yes") == (
                resource == "secrets" and name == "of-n2"
            )
    assert await ask(nodes, "get", "resourceclaims", "given", "default", "resource.k8s.io") == "yes"
    assert await ask(nodes, "create", "serviceaccounts/token", "account", "default") == "yes"
    assert await ask(nodes, "create", "serviceaccounts/token", "default", "default") == STRANGE
    for verb in ("update", "patch"):
        assert await ask(nodes, verb, "persistentvolumeclaims/status", "claim", "default") == "yes"
        assert await ask(nodes, verb, "persistentvolumeclaims/status", "other-claim", "default") == STRANGE


async def test_objects_that_volumes_refer_to(nodes: ServerHarness) -> None:
    await fill(nodes)
    for name, allowed in (("bound", True), ("made-for-it", True), ("theirs", False), ("unknown", False)):
        assert await ask(nodes, "get", "persistentvolumes", name) == ("yes" if allowed else STRANGE), name
    for name in ("publish", "stage", "expand", "control", "of-theirs"):
        expected = "yes" if name in ("publish", "stage", "expand") else STRANGE
        assert await ask(nodes, "get", "secrets", name, "other") == expected, name
        assert await ask(nodes, "get", "secrets", name, "other", node="n2") != "yes"
    # A released, rebound or deleted volume takes effect at once.
    path = f"{CORE}/persistentvolumes/bound"
    assert (await nodes.patch(path, {"spec": {"claimRef": None}})).status == 200
    assert await ask(nodes, "get", "persistentvolumes", "bound") == STRANGE
    assert await ask(nodes, "get", "secrets", "stage", "other") == STRANGE
    claim = {"namespace": "default", "name": "claim"}
    assert (await nodes.patch(path, {"spec": {"claimRef": claim}})).status == 200
    assert await ask(nodes, "get", "secrets", "stage", "other") == "yes"
    assert (await nodes.patch(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await nodes.delete(path)).status == 200
    assert await ask(nodes, "get", "secrets", "stage", "other") == STRANGE


async def test_relations_follow_the_pods(nodes: ServerHarness) -> None:
    assert await ask(nodes, "get", "secrets", "of-late", "default") == STRANGE
    late = {
        "metadata": {"name": "late"},
        "spec": {"containers": [container()], "imagePullSecrets": [{"name": "of-late"}]},
    }
    await nodes.make(f"{HERE}/pods", late)
    assert await ask(nodes, "get", "secrets", "of-late", "default") == STRANGE
    assert await ask(nodes, "get", "pods", "late", "default") == STRANGE
    binding = {"metadata": {"name": "late"}, "target": {"kind": "Node", "name": "n1"}}
    bound = await nodes.post(f"{HERE}/pods/late/binding", binding, JSON)
    assert bound.status == 201, bound.body
    assert await ask(nodes, "get", "secrets", "of-late", "default") == "yes"
    assert await ask(nodes, "get", "pods", "late", "default") == "yes"
    assert await ask(nodes, "get", "configmaps", "of-debugger", "default") == STRANGE
    added = [container(name="debug", envFrom=[{"configMapRef": {"name": "of-debugger"}}])]
    reply = await nodes.patch(f"{HERE}/pods/late/ephemeralcontainers", {"spec": {"ephemeralContainers": added}})
    assert reply.status == 200, reply.body
    assert await ask(nodes, "get", "configmaps", "of-debugger", "default") == "yes"
    assert (await nodes.delete(f"{HERE}/pods/late?gracePeriodSeconds=0")).status == 200
    assert await ask(nodes, "get", "secrets", "of-late", "default") == STRANGE
    assert await ask(nodes, "get", "configmaps", "of-debugger", "default") == STRANGE


async def test_claims_created_for_a_pod(nodes: ServerHarness) -> None:
    await fill(nodes)
    how: dict[str, Any] = {"namespace": "default", "group": "resource.k8s.io"}
    assert await ask(nodes, "get", "resourceclaims", "mine-made-x", **how) == STRANGE
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "mine-made-x"}]}
    assert (await nodes.patch(f"{HERE}/pods/mine/status", {"status": status})).status == 200
    assert await ask(nodes, "get", "resourceclaims", "mine-made-x", **how) == "yes"
    assert await ask(nodes, "get", "resourceclaims", "given", **how) == "yes"
    extended = {
        "resourceClaimName": "extended",
        "requestMappings": [{"containerName": "c", "resourceName": "example.com/x", "requestName": "r"}],
    }
    reply = await nodes.patch(f"{HERE}/pods/mine/status", {"status": {"extendedResourceClaimStatus": extended}})
    assert reply.status == 200, reply.body
    assert await ask(nodes, "get", "resourceclaims", "extended", **how) == "yes"


async def test_mirror_pods_grant_no_access(nodes: ServerHarness) -> None:
    mirror = pod("mirror", "n1", imagePullSecrets=[{"name": "wanted"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    await nodes.make(f"{HERE}/pods", mirror)
    assert await ask(nodes, "get", "pods", "mirror", "default") == "yes"
    assert await ask(nodes, "get", "secrets", "wanted", "default") == STRANGE


INDIVIDUAL = "can only get individual resources of this type"
READING = "can only read resources of this type"
LEASE = "can only get, create, update, patch, or delete a node lease"
OWN_LEASE = "can only access node lease with the same name as the requesting node"
CSI = "can only get, create, update, patch, or delete a CSINode"
OWN_CSI = "can only access CSINode with the same name as the requesting node"
SLICES = "can only list/watch/deletecollection resourceslices with nodeName field selector"
REQUESTS = "can only list/watch podcertificaterequests with nodeName field selector"
TOKENS = "can only create tokens for individual service accounts"
PODS = "can only list/watch pods with spec.nodeName field selector"
ON_N1 = "spec.nodeName=n1"

MATRIX: tuple[tuple[str, str, str, str, str, str, str], ...] = (
    # verb, group, resource, namespace, name, field selector, answer
    ("list", "", "secrets", "default", "", "", "No Object name found"),
    ("list", "", "secrets", "", "", "", "can only read namespaced object of this type"),
    ("list", "", "secrets", "default", "of-volume", "", "yes"),
    ("watch", "", "configmaps", "default", "of-volume", "", "yes"),
    ("watch", "", "configmaps", "default", "unknown", "", STRANGE),
    ("create", "", "secrets", "default", "of-volume", "", READING),
    ("get", "", "secrets/x", "default", "of-volume", "", "cannot read subresource"),
    ("list", "", "persistentvolumeclaims", "default", "claim", "", INDIVIDUAL),
    ("get", "", "persistentvolumeclaims/x", "default", "claim", "", "cannot get subresource"),
    ("get", "", "persistentvolumeclaims/status", "default", "claim", "", "can only get/update/patch this type"),
    ("update", "", "persistentvolumeclaims", "default", "claim", "", INDIVIDUAL),
    ("list", "", "persistentvolumes", "", "", "", INDIVIDUAL),
    ("list", "resource.k8s.io", "resourceclaims", "default", "", "", INDIVIDUAL),
    ("get", "storage.k8s.io", "volumeattachments", "", "to-n1", "", "yes"),
    ("get", "storage.k8s.io", "volumeattachments", "", "to-n2", "", STRANGE),
    ("list", "storage.k8s.io", "volumeattachments", "", "", "", INDIVIDUAL),
    ("list", "", "serviceaccounts", "default", "", "", TOKENS),
    ("create", "", "serviceaccounts/token", "default", "", "", TOKENS),
    ("create", "", "serviceaccounts", "default", "x", "", "can only create token subresource of serviceaccount"),
    ("get", "", "serviceaccounts", "default", "", "", "No Object name found"),
    ("get", "", "nodes", "", "n1", "", "yes"),
    ("watch", "", "nodes", "", "n1", "", "yes"),
    ("get", "", "nodes", "", "n2", "", "node 'n1' cannot read 'n2', only its own Node object"),
    ("list", "", "nodes", "", "", "", "node 'n1' cannot read all nodes, only its own Node object"),
    ("create", "", "nodes", "", "", "", "yes"),
    ("patch", "", "nodes", "", "n2", "", "yes"),
    ("patch", "", "nodes/status", "", "n2", "", "yes"),
    ("get", "", "nodes/status", "", "n1", "", ""),
    ("get", "", "nodes/proxy", "", "n1", "", ""),
    ("delete", "", "nodes", "", "n1", "", ""),
    ("get", "", "pods", "default", "mine", "", "yes"),
    ("get", "", "pods", "default", "theirs", "", STRANGE),
    ("get", "", "pods", "default", "", "", "No Object name found"),
    ("list", "", "pods", "", "", "", PODS),
    ("list", "", "pods", "", "", ON_N1, "yes"),
    ("watch", "", "pods", "", "", f"{ON_N1},status.phase=Running", "yes"),
    ("list", "", "pods", "", "", "spec.nodeName=n2", PODS),
    ("list", "", "pods", "", "", "spec.nodeName!=n1", PODS),
    ("list", "", "pods", "default", "mine", "", "yes"),
    ("watch", "", "pods", "default", "theirs", "", STRANGE),
    ("deletecollection", "", "pods", "default", "", ON_N1, ""),
    ("create", "", "pods", "default", "", "", "yes"),
    ("delete", "", "pods", "default", "theirs", "", "yes"),
    ("update", "", "pods", "default", "mine", "", ""),
    ("patch", "", "pods/status", "default", "theirs", "", "yes"),
    ("create", "", "pods/eviction", "default", "theirs", "", "yes"),
    ("get", "", "pods/log", "default", "mine", "", ""),
    ("create", "", "pods/binding", "default", "mine", "", ""),
    ("get", "coordination.k8s.io", "leases", "kube-node-lease", "n1", "", "yes"),
    ("update", "coordination.k8s.io", "leases", "kube-node-lease", "n2", "", OWN_LEASE),
    ("create", "coordination.k8s.io", "leases", "kube-node-lease", "", "", "yes"),
    ("list", "coordination.k8s.io", "leases", "kube-node-lease", "", "", LEASE),
    (
        "get",
        "coordination.k8s.io",
        "leases",
        "default",
        "n1",
        "",
        'can only access leases in the "kube-node-lease" system namespace',
    ),
    ("get", "storage.k8s.io", "csinodes", "", "n1", "", "yes"),
    ("delete", "storage.k8s.io", "csinodes", "", "n2", "", OWN_CSI),
    ("create", "storage.k8s.io", "csinodes", "", "", "", "yes"),
    ("list", "storage.k8s.io", "csinodes", "", "", "", CSI),
    (
        "get",
        "storage.k8s.io",
        "csinodes/status",
        "",
        "n1",
        "",
        "CSINode status access requires CSIVolumeHealth feature",
    ),
    ("get", "storage.k8s.io", "csinodes/x", "", "n1", "", "cannot authorize CSINode subresources"),
    ("create", "resource.k8s.io", "resourceslices", "", "", "", "yes"),
    ("get", "resource.k8s.io", "resourceslices", "", "of-n1", "", "yes"),
    ("patch", "resource.k8s.io", "resourceslices", "", "of-n2", "", STRANGE),
    ("list", "resource.k8s.io", "resourceslices", "", "", "", SLICES),
    ("deletecollection", "resource.k8s.io", "resourceslices", "", "", ON_N1, "yes"),
    ("get", "resource.k8s.io", "resourceslices/x", "", "of-n1", "", "cannot authorize ResourceSlice subresources"),
    (
        "use",
        "resource.k8s.io",
        "resourceslices",
        "",
        "of-n1",
        "",
        "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, "
        "deletecollection",
    ),
    ("create", "certificates.k8s.io", "podcertificaterequests", "default", "", "", "yes"),
    ("get", "certificates.k8s.io", "podcertificaterequests", "default", "x", "", STRANGE),
    ("list", "certificates.k8s.io", "podcertificaterequests", "", "", "", REQUESTS),
    ("list", "certificates.k8s.io", "podcertificaterequests", "", "", ON_N1, "yes"),
    (
        "update",
        "certificates.k8s.io",
        "podcertificaterequests",
        "default",
        "x",
        "",
        "nodes may not update podcertificaterequests",
    ),
    (
        "update",
        "certificates.k8s.io",
        "podcertificaterequests/status",
        "default",
        "x",
        "",
        "nodes may not access the status subresource of PodCertificateRequests",
    ),
    ("list", "", "services", "", "", "", "yes"),
    ("create", "", "services", "default", "", "", ""),
    ("get", "", "endpoints", "default", "x", "", "yes"),
    ("create", "", "events", "default", "", "", "yes"),
    ("list", "", "namespaces", "", "", "", ""),
    ("watch", "storage.k8s.io", "csidrivers", "", "", "", "yes"),
    ("list", "node.k8s.io", "runtimeclasses", "", "", "", "yes"),
    ("create", "certificates.k8s.io", "certificatesigningrequests", "", "", "", "yes"),
    ("list", "certificates.k8s.io", "clustertrustbundles", "", "", "", "yes"),
    ("create", "authorization.k8s.io", "subjectaccessreviews", "", "", "", "yes"),
    ("get", "apps", "deployments", "default", "x", "", ""),
)


async def test_the_matrix(nodes: ServerHarness) -> None:
    await fill(nodes)
    for verb, group, resource, namespace, name, fields, expected in MATRIX:
        found = await ask(nodes, verb, resource, name, namespace, group, fields)
        assert found == expected, (verb, group, resource, namespace, name, fields)


async def test_which_users_are_nodes(nodes: ServerHarness) -> None:
    await fill(nodes)
    assert await ask(nodes, "get", "nodes", "n1", groups=("system:authenticated",)) == ""
    assert await ask(nodes, "get", "nodes", "n1", node="") == 'unknown node for user "system:node:"'
    reply = await nodes.post(
        REVIEWS,
        {
            "spec": {
                "user": "alice",
                "groups": ["system:nodes"],
                "resourceAttributes": {"verb": "get", "resource": "nodes", "name": "n1"},
            }
        },
        JSON,
    )
    assert reply.json["status"] == {"allowed": False}


AS_N1 = {"impersonate-user": "system:node:n1", "impersonate-group": "system:nodes"}


async def test_requests_and_their_selectors(nodes: ServerHarness) -> None:
    await fill(nodes)
    for path, status in (
        (f"{CORE}/pods", 403),
        (f"{CORE}/pods?fieldSelector=spec.nodeName%3Dn1", 200),
        (f"{CORE}/pods?fieldSelector=spec.nodeName%3Dn1&watch=1", 200),
        (f"{CORE}/pods?fieldSelector=spec.nodeName%3Dn2", 403),
        (f"{CORE}/pods?fieldSelector=spec.nodeName", 403),
        (f"{CORE}/watch/pods?fieldSelector=spec.nodeName%3Dn1", 403),
        (f"{HERE}/pods?fieldSelector=metadata.name%3Dmine", 200),
        (f"{HERE}/pods?fieldSelector=metadata.name%3Dtheirs", 403),
        (f"{HERE}/pods/mine", 200),
        (f"{HERE}/secrets?fieldSelector=metadata.name%3Dof-volume&watch=1", 200),
        (f"{HERE}/secrets", 403),
        (f"{CORE}/nodes?fieldSelector=metadata.name%3Dn1", 200),
    ):
        assert (await nodes.get(path, headers=AS_N1)).status == status, path
    reply = await nodes.get(f"{HERE}/secrets/of-n2", headers=AS_N1)
    assert reply.message == (
        'secrets "of-n2" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the '
        f'namespace "default": node: {STRANGE}'
    )


async def test_its_rules_cannot_be_listed() -> None:
    nodes = await ServerHarness.open(modes=("Node", "RBAC"), full=True)
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    body = {"spec": {"namespace": "default"}}
    status = (await nodes.post(path, body, JSON, headers=AS_N1)).json["status"]
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"
    status = (await nodes.post(path, body, JSON, headers={"impersonate-user": "alice"})).json["status"]
    assert status["incomplete"] is False and "evaluationError" not in status
    await nodes.close()
