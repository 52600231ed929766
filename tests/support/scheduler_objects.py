"""Nodes and Pods for tests of the scheduler, and a cluster in which nothing but it runs."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, NODES = builtin("pods"), builtin("nodes")
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

alone = virtual(nodes=0, controllers=["serviceaccount-controller"])
"""A test whose nodes are what it makes of them."""


def a_node(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: int = 110,
    more: dict[str, str] | None = None,
    images: list[Obj] | None = None,
    **spec: Any,
) -> Any:
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods), **(more or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, **({"images": images} if images else {})},
    }


def a_pod(
    name: str,
    node: str = "",
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    cpu: str = "",
    memory: str = "",
    more: dict[str, str] | None = None,
    **spec: Any,
) -> Any:
    requests = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(more or {})}
    resources = {"requests": requests, **({"limits": more} if more else {})} if requests else {}
    container: Obj = {"name": "c", "image": "i", **({"resources": resources} if resources else {})}
    made: Obj = {"containers": [container], **({"nodeName": node} if node else {}), **spec}
    meta = {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made}


async def add_node(cluster: VirtualCluster, node: Obj) -> None:
    await cluster.client.create(node)
    # Every new node is tainted until it is found to be ready.
    taints = node["spec"].get("taints")
    await cluster.client.patch(NODES, node["metadata"]["name"], {"spec": {"taints": taints}})


async def node_of(cluster: VirtualCluster, name: str, namespace: str = "default") -> str:
    pod = await cluster.client.get(PODS, name, namespace)
    return str(pod["spec"].get("nodeName") or "")


async def condition(cluster: VirtualCluster, name: str, kind: str = "PodScheduled") -> Obj:
    pod = await cluster.client.get(PODS, name, "default")
    return next((found for found in pod["status"].get("conditions") or () if found["type"] == kind), {})
