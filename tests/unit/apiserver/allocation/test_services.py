"""Allocation of addresses and ports of Services, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mutation_detector import MutationDetector
from server_harness import ServerHarness, YieldingStore

from setpoint.apiserver.allocation.node_ports import PREFIX
from setpoint.apiserver.api_resources import ApiResources
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.wiring import build_server
from setpoint.system import RandomIds

STORES = ("memory", "lagging")

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def addresses(harness: ServerHarness) -> dict[str, str]:
    """Return the Service of each allocated address."""
    items = (await harness.get(ADDRESSES)).json["items"]
    return {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in items}


async def reserved(harness: ServerHarness) -> set[int]:
    return {int(kv.key[len(PREFIX) :]) for kv in (await harness.store.list(PREFIX)).items}


@pytest.fixture
async def two_families(mutation_detector: MutationDetector) -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(service_cluster_ip_range="10.96.0.0/16,fd00::/108")
    await harness.make(CIDRS, {"metadata": {"name": "six"}, "spec": {"cidrs": ["fd00::/108"]}})
    yield harness
    await harness.close()


async def test_an_address_is_released_with_its_service(harness: ServerHarness) -> None:
    made = await harness.make(SERVICES, service("a"))
    ip = made["spec"]["clusterIP"]
    assert made["spec"]["clusterIPs"] == [ip]
    assert made["spec"]["ipFamilies"] == ["IPv4"]
    found = (await harness.get(f"{ADDRESSES}/{ip}")).json
    assert found["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "a"}
    assert found["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    # One transaction: the two objects are of one revision.
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert found["metadata"]["managedFields"][0]["manager"] == "kube-apiserver"
    await harness.delete(f"{SERVICES}/a")
    assert await addresses(harness) == {}


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        ("10.96.0.7", "provided IP is already allocated"),
        ("10.1.0.7", "the provided network does not match the current range"),
        ("10.96.0.0", "the provided network does not match the current range"),
        ("10.96.255.255", "the provided network does not match the current range"),
    ],
)
async def test_addresses_that_cannot_be_allocated(harness: ServerHarness, ip: str, why: str) -> None:
    await harness.make(SERVICES, service("first", clusterIP="10.96.0.7"))
    reply = await harness.post(SERVICES, service("second", clusterIP=ip))
    assert reply.status == 422
    assert reply.message == (
        f'Service "second" is invalid: spec.clusterIPs: Invalid value: ["{ip}"]: failed to allocate IP {ip}: {why}'
    )
    assert reply.json["details"]["causes"][0]["field"] == "spec.clusterIPs"


async def test_a_refused_service_allocates_nothing(harness: ServerHarness) -> None:
    bad = service("bad", clusterIP="10.96.0.8", type="NodePort", ports=[{"port": 0, "nodePort": 30500}])
    assert (await harness.post(SERVICES, bad)).status == 422
    await harness.make(SERVICES, service("a", clusterIP="10.96.0.9"))
    taken = service("a", clusterIP="10.96.0.8", type="NodePort", ports=[{"port": 80, "nodePort": 30500}])
    assert (await harness.post(SERVICES, taken)).status == 409
    assert await addresses(harness) == {"10.96.0.9": "a"}
    assert await reserved(harness) == set()


async def test_a_dry_run_allocates_nothing(harness: ServerHarness) -> None:
    reply = await harness.post(f"{SERVICES}?dryRun=All", service("a", type="NodePort"))
    assert reply.status == 201
    assert reply.json["spec"]["clusterIP"] == "10.96.0.0"
    assert reply.json["spec"]["ports"][0]["nodePort"] == 32769
    assert await addresses(harness) == {}
    assert await reserved(harness) == set()
    await harness.make(SERVICES, service("a"))
    for change in ({"type": "NodePort"}, {"type": "ExternalName", "externalName": "a.b"}):
        assert (await harness.patch(f"{SERVICES}/a?dryRun=All", {"spec": change})).status == 200
    await harness.delete(f"{SERVICES}/a?dryRun=All")
    assert list((await addresses(harness)).values()) == ["a"]
    assert await reserved(harness) == set()


async def test_allocations_follow_the_type_of_a_service(harness: ServerHarness) -> None:
    ip = (await harness.make(SERVICES, service("a")))["spec"]["clusterIP"]
    path = f"{SERVICES}/a"

    async def put(**spec: Any) -> dict[str, Any]:
        reply = await harness.put(path, service("a", **spec))
        assert reply.status == 200, reply.body
        changed: dict[str, Any] = reply.json["spec"]
        return changed

    spec = await put(type="NodePort")
    assert spec["clusterIP"] == ip
    port = spec["ports"][0]["nodePort"]
    assert await reserved(harness) == {port}
    assert (await put(type="NodePort"))["ports"][0]["nodePort"] == port
    spec = await put(type="LoadBalancer", externalTrafficPolicy="Local")
    assert spec["ports"][0]["nodePort"] == port
    assert await reserved(harness) == {port, spec["healthCheckNodePort"]}
    assert "healthCheckNodePort" not in await put(type="LoadBalancer")
    assert await reserved(harness) == {port}
    assert "nodePort" not in (await put())["ports"][0]
    assert await reserved(harness) == set()
    assert await addresses(harness) == {ip: "a"}
    assert "clusterIP" not in await put(type="ExternalName", externalName="a.b")
    assert await addresses(harness) == {}
    spec = await put(clusterIP="None")
    assert spec["clusterIPs"] == ["None"]
    assert await addresses(harness) == {}


async def test_allocations_are_retained_until_finalizers_are_gone(harness: ServerHarness) -> None:
    body = service("a", clusterIP="10.96.0.5", type="NodePort", ports=[{"port": 80, "nodePort": 30500}])
    body["metadata"]["finalizers"] = ["example.com/x"]
    await harness.make(SERVICES, body)
    await harness.delete(f"{SERVICES}/a")
    assert await addresses(harness) == {"10.96.0.5": "a"}
    await harness.patch(f"{SERVICES}/a", {"metadata": {"finalizers": None}})
    assert await addresses(harness) == {}
    assert await reserved(harness) == set()


async def test_node_ports_that_cannot_be_allocated(harness: ServerHarness) -> None:
    await harness.make(SERVICES, service("first", type="NodePort", ports=[{"port": 80, "nodePort": 30500}]))
    for port, why in (
        (30500, "provided port is already allocated"),
        (100, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ):
        reply = await harness.post(SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}]))
        assert reply.status == 422
        assert reply.message == f'Service "b" is invalid: spec.ports[0].nodePort: Invalid value: {port}: {why}'
    health = service("b", type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=30500)
    reply = await harness.post(SERVICES, health)
    assert reply.status == 500
    assert reply.message == (
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30500: "
        "provided port is already allocated"
    )


async def test_ports_of_one_number_share_a_node_port(harness: ServerHarness) -> None:
    ports = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = await harness.make(SERVICES, service("dns", type="NodePort", ports=ports))
    first, second = made["spec"]["ports"]
    assert first["nodePort"] == second["nodePort"]
    assert await reserved(harness) == {first["nodePort"]}
    await harness.delete(f"{SERVICES}/dns")
    assert await reserved(harness) == set()


async def test_a_load_balancer_without_node_ports(harness: ServerHarness) -> None:
    made = await harness.make(SERVICES, service("a", type="LoadBalancer", allocateLoadBalancerNodePorts=False))
    assert "nodePort" not in made["spec"]["ports"][0]
    reply = await harness.patch(f"{SERVICES}/a", {"spec": {"ports": [{"port": 80, "nodePort": 30500}]}})
    assert reply.status == 200
    assert await reserved(harness) == {30500}


async def test_status_writes_allocate_nothing(harness: ServerHarness) -> None:
    await harness.make(SERVICES, service("a", type="ExternalName", externalName="a.b"))
    reply = await harness.patch(f"{SERVICES}/a/status", {"spec": {"type": "ClusterIP"}, "status": {}})
    assert reply.status == 200
    assert await addresses(harness) == {}


async def test_ranges_that_are_not_ready_or_deleted_are_not_used(harness: ServerHarness) -> None:
    await harness.make(CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.7.0.0/24"]}})
    await harness.make(SERVICES, service("a", clusterIP="10.7.0.1"))
    ready = {"type": "Ready", "status": "False", "reason": "x", "message": ""}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await harness.patch(f"{CIDRS}/more/status", {"status": {"conditions": [ready]}})
    assert (await harness.post(SERVICES, service("b", clusterIP="10.7.0.2"))).status == 422
    ready["status"] = "True"
    await harness.patch(f"{CIDRS}/more/status", {"status": {"conditions": [ready]}})
    await harness.make(SERVICES, service("b", clusterIP="10.7.0.2"))
    await harness.patch(f"{CIDRS}/more", {"metadata": {"finalizers": ["example.com/x"]}})
    await harness.delete(f"{CIDRS}/more")
    assert (await harness.post(SERVICES, service("c", clusterIP="10.7.0.3"))).status == 422
    await harness.delete(f"{SERVICES}/a")
    assert await addresses(harness) == {"10.7.0.2": "b"}


async def test_concurrent_writers_never_share_and_a_full_range_is_reported(mutation_detector: MutationDetector) -> None:
    harness = await ServerHarness.open(YieldingStore(), service_node_port_range="30000-30005")
    await harness.delete(f"{CIDRS}/kubernetes")
    await harness.make(CIDRS, {"metadata": {"name": "small"}, "spec": {"cidrs": ["10.7.0.0/28"]}})
    replies = await asyncio.gather(*(harness.post(SERVICES, service(f"s{i}")) for i in range(30)))
    made = [reply.json["spec"]["clusterIP"] for reply in replies if reply.status == 201]
    assert sorted(made) == sorted(f"10.7.0.{i}" for i in range(1, 15))
    refused = next(reply for reply in replies if reply.status != 201)
    assert refused.status == 500
    assert refused.message.startswith('Internal error occurred: failed to allocate a serviceIP for Service "s')
    assert refused.message.endswith('": range is full')
    ported = [f"{SERVICES}/{name}" for name in sorted((await addresses(harness)).values())]
    replies = await asyncio.gather(*(harness.patch(path, {"spec": {"type": "NodePort"}}) for path in ported))
    ports = [reply.json["spec"]["ports"][0]["nodePort"] for reply in replies if reply.status == 200]
    assert sorted(ports) == list(range(30000, 30006))
    assert next(r for r in replies if r.status != 200).message == (
        "Internal error occurred: failed to allocate a nodePort: range is full"
    )
    await harness.close()


async def test_concurrent_requests_for_one_address_have_one_winner(contended_harness: ServerHarness) -> None:
    asked = (contended_harness.post(SERVICES, service(f"s{i}", clusterIP="10.96.0.9")) for i in range(8))
    replies = await asyncio.gather(*asked)
    assert sorted(reply.status for reply in replies) == [201] + [422] * 7
    assert all("provided IP is already allocated" in reply.message for reply in replies if reply.status == 422)


async def test_two_servers_on_one_store_never_share(mutation_detector: MutationDetector) -> None:
    store = YieldingStore()
    one = await ServerHarness.open(store)
    config = ApiServerConfig(NO_DATA_DIR, authorization_mode=["Node", "RBAC"])
    resources = ApiResources(store, one.clock, RandomIds(seed=8))
    two = ServerHarness(store, one.clock, build_server(resources, config, one.api.parts.authenticator))
    await two.api.start()
    asked = [
        harness.post(SERVICES, service(f"{name}{i}", clusterIP=f"10.96.1.{i}"))
        for i in range(10)
        for name, harness in (("a", one), ("b", two))
    ]
    replies = await asyncio.gather(*asked)
    assert sorted(reply.status for reply in replies) == [201] * 10 + [422] * 10
    await two.api.stop()
    await one.close()


async def test_two_families(two_families: ServerHarness) -> None:
    harness = two_families
    assert (await harness.make(SERVICES, service("single")))["spec"]["ipFamilies"] == ["IPv4"]
    made = (await harness.make(SERVICES, service("a", ipFamilyPolicy="PreferDualStack")))["spec"]
    assert made["ipFamilies"] == ["IPv4", "IPv6"]
    assert made["clusterIPs"][1].startswith("fd00::")
    assert set(made["clusterIPs"]) <= set(await addresses(harness))
    shrunk = (await harness.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "SingleStack"}})).json["spec"]
    assert shrunk["clusterIPs"] == made["clusterIPs"][:1]
    assert made["clusterIPs"][1] not in await addresses(harness)
    grown = (await harness.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})).json["spec"]
    assert grown["clusterIPs"][0] == made["clusterIPs"][0]
    assert set(grown["clusterIPs"]) <= set(await addresses(harness))
