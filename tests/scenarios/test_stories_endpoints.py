"""Stories B1, C5 and E1: from a Deployment to the endpoints of its Service, and back."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, NODES, SERVICES = builtin("pods"), builtin("nodes"), builtin("services")
ENDPOINTS, SLICES = builtin("endpoints"), builtin("endpointslices", "discovery.k8s.io")
DEPLOYMENTS = builtin("deployments", "apps")


def deployment(name: str = "web", replicas: int = 3, **labels: str) -> Obj:
    labels = {"app": name, **labels}
    container = {"name": "c", "image": "nginx", "ports": [{"name": "http", "containerPort": 8080}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service(name: str = "web", **spec: Any) -> Obj:
    port = {"name": "http", "port": 80, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [port], **spec},
    }


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
async def test_b1_from_a_deployment_to_the_endpoints_of_its_service(cluster: VirtualCluster) -> None:
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
            "kind": "Pod",
            "namespace": "default",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }

    async def also_as_endpoints() -> bool:
        return await ready_in_endpoints(cluster) == await pod_addresses(cluster)

    await cluster.until(also_as_endpoints, within=5)
    endpoints = await cluster.client.get(ENDPOINTS, "web", "default")
    assert endpoints["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    (subset,) = endpoints["subsets"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert [address["ip"] for address in subset["addresses"]] == sorted(await pod_addresses(cluster))


@virtual(nodes=2)
async def test_c5_an_unready_pod_is_removed_from_endpoints_and_returns(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(deployment(replicas=2))

    async def both() -> bool:
        return len(await ready_in_slices(cluster)) == 2 == len(await ready_in_endpoints(cluster))

    await cluster.until(both, within=30)
    await cluster.kill("fleet")  # so that nobody else has a say about the Pod
    pod = (await cluster.all(PODS))[0]

    async def say_ready(status: str) -> None:
        stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        change = {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": stamp}]}
        await cluster.client.patch(
            PODS, pod["metadata"]["name"], {"status": change}, "default", kind="strategic", subresource="status"
        )

    await say_ready("False")
    await cluster.instant()
    assert pod["status"]["podIP"] not in await ready_in_slices(cluster) | await ready_in_endpoints(cluster)
    (found,) = await slices_of(cluster)
    (unready,) = [each for each in found["endpoints"] if not each["conditions"]["ready"]]
    assert unready["addresses"] == [pod["status"]["podIP"]]
    (subset,) = (await cluster.client.get(ENDPOINTS, "web", "default"))["subsets"]
    assert [address["ip"] for address in subset["notReadyAddresses"]] == [pod["status"]["podIP"]]
    await say_ready("True")
    await cluster.instant()
    assert pod["status"]["podIP"] in await ready_in_slices(cluster) & await ready_in_endpoints(cluster)


@virtual(nodes=1)
async def test_deleting_a_service_deletes_its_endpoints(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())

    async def there() -> bool:
        return len(await slices_of(cluster)) == 1 and await cluster.find(ENDPOINTS, "web") is not None

    await cluster.until(there, within=5)
    (found,) = await slices_of(cluster)
    assert not found.get("endpoints") and not found.get("ports")
    await cluster.client.delete(SERVICES, "web", "default")

    async def gone() -> bool:
        return not await slices_of(cluster) and await cluster.find(ENDPOINTS, "web") is None

    await cluster.until(gone, within=30)


@virtual(nodes=1)
async def test_changed_endpoints_are_repaired(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(deployment(replicas=1))
    await cluster.until(lambda: ready_in_slices(cluster), within=30)
    (found,) = await slices_of(cluster)
    await cluster.client.update({**found, "endpoints": []})
    await cluster.until(lambda: ready_in_slices(cluster), within=5)
    await cluster.client.delete(SLICES, found["metadata"]["name"], "default")
    await cluster.until(lambda: ready_in_slices(cluster), within=5)
    await cluster.client.delete(ENDPOINTS, "web", "default")
    await cluster.until(lambda: ready_in_endpoints(cluster), within=5)


@virtual(nodes=2)
async def test_endpoints_are_updated_after_a_controller_outage(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(service("gone"))
    await cluster.client.create(deployment(replicas=2))

    async def served(count: int) -> bool:
        addresses = await pod_addresses(cluster)
        slices, endpoints = await ready_in_slices(cluster), await ready_in_endpoints(cluster)
        return len(addresses) == count and addresses == slices == endpoints

    await cluster.until(lambda: served(2), within=30)
    await cluster.kill("controllers")
    await cluster.client.delete(SERVICES, "gone", "default")
    for pod in await cluster.all(PODS):
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_period=0)
    await cluster.start("controllers")
    await cluster.until(lambda: served(2), within=30)
    await cluster.until(lambda: _is_gone(cluster, "gone"), within=30)


async def _is_gone(cluster: VirtualCluster, name: str) -> bool:
    return not await slices_of(cluster, name) and await cluster.find(ENDPOINTS, name) is None


@virtual(nodes=3)
async def test_e1_service_policy_and_budget_select_the_same_pods(cluster: VirtualCluster) -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}],
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": selector},
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"podSelector": selector},
    }
    await cluster.client.create(service())
    await cluster.client.create(budget)
    await cluster.client.create(policy)
    await cluster.client.create(deployment(replicas=3, tier="front"))
    await cluster.client.create(deployment("other", replicas=2, tier="front"))
    budgets = builtin("poddisruptionbudgets", "policy")

    async def all_see(count: int) -> bool:
        seen = await cluster.client.get(budgets, "web", "default")
        return bool(len(await ready_in_slices(cluster)) == seen["status"].get("currentHealthy") == count)

    await cluster.until(lambda: all_see(3), within=30)
    assert len(await cluster.all(PODS, selector="app=web,tier in (front)")) == 3
    assert len(await cluster.all(PODS, selector="tier,app!=web")) == 2
    # One label less: no longer the budget's, still the Service's.
    pod = (await cluster.all(PODS, selector="app=web"))[0]
    await cluster.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": {"tier": None}}}, "default")

    async def only_the_budget_changed() -> bool:
        seen = await cluster.client.get(budgets, "web", "default")
        return len(await ready_in_slices(cluster)) == 3 and seen["status"].get("currentHealthy") == 2

    await cluster.until(only_the_budget_changed, within=30)
    # None links to another: each goes alone.
    await cluster.client.delete(SERVICES, "web", "default")
    await cluster.until(lambda: _is_gone(cluster, "web"), within=30)
    assert await cluster.find(budgets, "web") is not None
    assert await cluster.find(builtin("networkpolicies", "networking.k8s.io"), "web") is not None
    assert len(await cluster.all(PODS, selector="app=web")) == 3


@virtual(nodes=2)
async def test_a_terminating_pod_is_serving_but_not_ready(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(deployment(replicas=1))
    await cluster.until(lambda: ready_in_slices(cluster), within=30)
    await cluster.kill("fleet", "controllers")
    (pod,) = await cluster.all(PODS)
    await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
    await cluster.start("controllers")
    await cluster.instant()
    (found,) = await slices_of(cluster)
    assert [each["conditions"] for each in found["endpoints"]] == [
        {"ready": False, "serving": True, "terminating": True}
    ]
    assert not await ready_in_endpoints(cluster)


@virtual(nodes=3)
async def test_topology_hints_by_zone(cluster: VirtualCluster) -> None:
    for node in await cluster.all(NODES, ""):
        name = node["metadata"]["name"]
        await cluster.client.patch(NODES, name, {"metadata": {"labels": {"topology.kubernetes.io/zone": f"z-{name}"}}})
    await cluster.client.create(service(trafficDistribution="PreferSameZone"))
    await cluster.client.create(deployment(replicas=3))

    async def hinted() -> bool:
        endpoints = [each for found in await slices_of(cluster) for each in found.get("endpoints") or ()]
        return len(endpoints) == 3 and all(
            each["conditions"]["ready"] and each.get("hints") == {"forZones": [{"name": each["zone"]}]}
            for each in endpoints
        )

    await cluster.until(hinted, within=30)
    await cluster.client.patch(SERVICES, "web", {"spec": {"trafficDistribution": None}}, "default")
    await cluster.instant()
    (found,) = await slices_of(cluster)
    assert not any("hints" in each for each in found["endpoints"])
    mode = {"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}}
    await cluster.client.patch(SERVICES, "web", mode, "default")
    await cluster.until(hinted, within=5)
    message = "Topology Aware Hints has been enabled, addressType: IPv4"
    await cluster.sleep(1)
    assert ("Normal", "TopologyAwareHintsEnabled", message) in await cluster.events("web")


@virtual(nodes=1)
async def test_a_pod_whose_node_is_missing_waits_for_it(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.client.create(service())
    await cluster.client.create(deployment(replicas=1))
    template = deployment()["spec"]["template"]
    early: Obj = {"apiVersion": "v1", "kind": "Pod", "spec": {**template["spec"], "nodeName": "later"}}
    early["metadata"] = {**template["metadata"], "name": "early", "namespace": "default"}
    await cluster.client.create(early)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}], "conditions": ready}
    await cluster.client.patch(PODS, "early", {"status": status}, "default", subresource="status")

    async def the_other_serves() -> bool:
        return len(await ready_in_slices(cluster)) == 1

    await cluster.until(the_other_serves, within=30)
    await cluster.sleep(5)
    assert "10.9.9.9" not in await ready_in_slices(cluster)
    messages = [each["message"] for each in await cluster.all(builtin("events")) if each["type"] == "Warning"]
    problem = "skipping Pod early for Service default/web: Node later Not Found"
    assert f"Error updating Endpoint Slices for Service default/web: {problem}" in messages
    assert not [record for record in caplog.records if record.exc_info], "it is expected"
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "later"}})

    async def both_serve() -> bool:
        return "10.9.9.9" in await ready_in_slices(cluster)

    await cluster.until(both_serve, within=60)
