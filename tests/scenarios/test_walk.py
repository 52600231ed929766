"""The path of one request: a Deployment enters through the API and returns as a status, through every package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.meta.objects import Obj
from setpoint.store.memory import MemoryStore
from setpoint.system import SystemClock

DEPLOYMENTS, SETS = builtin("deployments", "apps"), builtin("replicasets", "apps")
PODS, NODES, LEASES = builtin("pods"), builtin("nodes"), builtin("leases", "coordination.k8s.io")
REPLICAS = 3
WEB: Obj = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        },
    },
}


async def until(client: Client, resource: Any, done: Callable[[dict[str, Obj]], bool]) -> dict[str, Obj]:
    """The objects of the namespace by name, as soon as they are as wanted. Waits on the watch, not on time."""
    found = await client.list(resource, "default")
    items = {item["metadata"]["name"]: item for item in found.items}
    async with asyncio.timeout(20), client.watch(resource, "default", resource_version=found.resource_version) as watch:
        while not done(items):
            kind, obj = await watch.__anext__()
            if kind == "DELETED":
                items.pop(obj["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                items[obj["metadata"]["name"]] = obj
    return items


def owner(obj: Obj) -> tuple[str, str]:
    (reference,) = obj["metadata"]["ownerReferences"]
    return reference["kind"], reference["name"]


def managers(obj: Obj) -> set[str]:
    return {entry["manager"] for entry in obj["metadata"]["managedFields"]}


def is_true(obj: Obj, kind: str) -> bool:
    return any(found["type"] == kind and found["status"] == "True" for found in obj["status"].get("conditions", ()))


async def test_a_deployment_passes_through_every_package(tmp_path: Path) -> None:
    config = ApiServerConfig(tmp_path, port=0, authorization_mode=["Node", "RBAC"])
    store = MemoryStore()
    async with cluster(config, nodes=2, store=store) as running:
        # wire: over TLS, with a client certificate.
        admin = connect(find_access(str(running.apiserver.kubeconfig)), SystemClock(), user_agent="walker")

        # filters: the certificate says who it is; without rights nothing goes further.
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        me = await admin.sender.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "", review)
        assert me["status"]["userInfo"]["username"] == "kubernetes-admin"

        # handlers, meta, kinds: applied, defaulted.
        applied = await admin.apply(WEB, field_manager="walker")
        assert applied["spec"]["strategy"]["type"] == "RollingUpdate"
        assert applied["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"

        # registry: an identity, a generation, owners of fields.
        assert applied["metadata"]["generation"] == 1
        assert managers(applied) == {"walker"}

        # store: kept under its revision, as bytes.
        kept = await store.get("apps/deployments/default/web")
        assert kept is not None
        assert orjson.loads(kept.value)["spec"]["replicas"] == REPLICAS
        assert kept.create_revision == int(applied["metadata"]["resourceVersion"])

        # watch_cache -> reconcile -> controllers/deployment: one ReplicaSet, made in the controller's name.
        (replica_set,) = (await until(admin, SETS, lambda sets: len(sets) == 1)).values()
        assert owner(replica_set) == ("Deployment", "web")
        digest = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert replica_set["metadata"]["name"] == f"web-{digest}"
        assert "kube-controller-manager" in managers(replica_set)

        # controllers/replicaset, admission: Pods, with what nobody wrote into the template.
        # scheduler: each bound; node: each running.
        pods = await until(
            admin, PODS, lambda pods: len(pods) == REPLICAS and all(is_true(pod, "Ready") for pod in pods.values())
        )
        for pod in pods.values():
            assert owner(pod) == ("ReplicaSet", replica_set["metadata"]["name"])
            assert pod["spec"]["serviceAccountName"] == "default"
            assert pod["status"]["phase"] == "Running"
            assert is_true(pod, "PodScheduled")
            assert managers(pod) >= {"kube-controller-manager", "kubelet"}
            (container,) = pod["status"]["containerStatuses"]
            assert "running" in container["state"]
            assert container["imageID"]
        assert len({pod["status"]["podIP"] for pod in pods.values()}) == REPLICAS
        assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"node-1", "node-2"}

        # reconcile/informer: what the components see is what is.
        leading = running.components.controllers.running.manager
        assert leading is not None
        cached = leading.informer(PODS).items
        assert {key for key in cached if key.startswith("default/")} == {f"default/{name}" for name in pods}

        # back through the API: the status, written by the controller, seen by the client that applied.
        web = (
            await until(admin, DEPLOYMENTS, lambda found: found["web"]["status"].get("availableReplicas") == REPLICAS)
        )["web"]
        assert web["status"]["observedGeneration"] == web["metadata"]["generation"] == 1
        assert is_true(web, "Available")
        assert web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        assert web["spec"] == applied["spec"], "the status was written, the spec was left alone"

        # The loop holds: a Pod that goes is replaced.
        victim = sorted(pods)[0]
        await admin.delete(PODS, victim, "default")
        await until(
            admin,
            PODS,
            lambda now: (
                victim not in now
                and len(now) == REPLICAS
                and all(pod["status"]["phase"] == "Running" for pod in now.values())
            ),
        )

        # Every node has a name, a lease and its own hand in the writing.
        for node in (await admin.list(NODES)).items:
            assert is_true(node, "Ready")
            lease = await admin.get(LEASES, node["metadata"]["name"], "kube-node-lease")
            assert lease["spec"]["holderIdentity"] == node["metadata"]["name"]
        await admin.close()
