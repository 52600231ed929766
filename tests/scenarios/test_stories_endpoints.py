"""Stories B1, C5 and E1 as far as endpoints go: from a Deployment to the addresses behind its Service, and back."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual

PODS, NODES, SERVICES = builtin("pods"), builtin("nodes"), builtin("services")
ENDPOINTS, SLICES = builtin("endpoints"), builtin("endpointslices", "discovery.k8s.io")
DEPLOYMENTS = builtin("deployments", "apps")

Obj = dict[str, Any]


def deployment(name: str = "web", replicas: int = 3, **labels: str) -> Obj:
    labels = {"app": name, **labels}
    container = {"name": "c", "image": "nginx", "ports": [{"name": "http", "containerPort": 8080}]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }  # fmt: skip


def service(name: str = "web", **spec: Any) -> Obj:
    port = {"name": "http", "port": 80, "targetPort": "http"}
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [port], **spec},
    }  # fmt: skip


async def slices_of(cluster: VirtualCluster, name: str = "web") -> list[Obj]:
    return await cluster.all(SLICES, selector=f"kubernetes.io/service-name={name}")


async def ready_in_slices(cluster: VirtualCluster, name: str = "web") -> set[str]:
    return {
        endpoint["addresses"][0]
        for found in await slices_of(cluster, name)
        for endpoint in found.get("endpoints") or ()
        if endpoint["conditions"]["ready"]
    }


async def ready_in_endpoints(cluster: VirtualCluster, name: str = "web") -> set[str]:
    found = await cluster.find(ENDPOINTS, name)
    subsets = (found or {}).get("subsets") or ()
    return {address["ip"] for subset in subsets for address in subset.get("addresses") or ()}


async def pod_addresses(cluster: VirtualCluster) -> set[str]:
    return {pod["status"]["podIP"] for pod in await cluster.all(PODS) if pod["status"].get("podIP")}


@virtual(nodes=3)
async def test_b1_from_a_deployment_to_the_addresses_behind_its_service(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(deployment())

    async def served() -> bool:
        addresses = await pod_addresses(cluster)
        return len(addresses) == 3 and addresses == await ready_in_slices(cluster)

    await cluster.until(served, within=30)
    (found,) = await slices_of(cluster)
    made = await cluster.client.get(SERVICES, "web", "default")
    assert found["metadata"]["generateName"] == "web-"
    assert found["metadata"]["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Service", made["metadata"]["uid"], True)
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    by_name = {pod["metadata"]["name"]: pod for pod in await cluster.all(PODS)}
    for endpoint in found["endpoints"]:
        pod = by_name[endpoint["targetRef"]["name"]]
        assert endpoint["nodeName"] == pod["spec"]["nodeName"]
        assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
        assert endpoint["targetRef"] == {
            "kind": "Pod", "namespace": "default", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
        }  # fmt: skip
