"""Addresses and ports of Services, asked for and given through the front door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from front_door import FrontDoor, YieldingStore
from mutation_detector import MutationDetector

from setpoint.apiserver.allocation.node_ports import PREFIX
from setpoint.apiserver.server import ApiServer, Options
from setpoint.cluster.config import NOWHERE, ApiServerConfig
from setpoint.cluster.wiring import wire
from setpoint.system import RandomIds

STORES = ("memory", "lagging")

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def addresses(door: FrontDoor) -> dict[str, str]:
    """Address to the name of its Service."""
    items = (await door.get(ADDRESSES)).json["items"]
    return {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in items}


async def reserved(door: FrontDoor) -> set[int]:
    return {int(kv.key[len(PREFIX) :]) for kv in (await door.store.list(PREFIX)).items}


@pytest.fixture
async def two_families(mutation_detector: MutationDetector) -> AsyncIterator[FrontDoor]:
    door = await FrontDoor.open(service_cluster_ip_range="10.96.0.0/16,fd00::/108")
    await door.make(CIDRS, {"metadata": {"name": "six"}, "spec": {"cidrs": ["fd00::/108"]}})
    yield door
    await door.close()


async def test_an_address_comes_and_goes_with_its_service(door: FrontDoor) -> None:
    made = await door.make(SERVICES, service("a"))
    ip = made["spec"]["clusterIP"]
    assert made["spec"]["clusterIPs"] == [ip]
    assert made["spec"]["ipFamilies"] == ["IPv4"]
    found = (await door.get(f"{ADDRESSES}/{ip}")).json
    assert found["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "a"}
    assert found["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }  # fmt: skip
    # One transaction: the two objects are of one revision.
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert found["metadata"]["managedFields"][0]["manager"] == "kube-apiserver"
    await door.delete(f"{SERVICES}/a")
    assert await addresses(door) == {}


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        ("10.96.0.7", "provided IP is already allocated"),
        ("10.1.0.7", "the provided network does not match the current range"),
        ("10.96.0.0", "the provided network does not match the current range"),
        ("10.96.255.255", "the provided network does not match the current range"),
    ],
)
async def test_addresses_that_cannot_be_had(door: FrontDoor, ip: str, why: str) -> None:
    await door.make(SERVICES, service("first", clusterIP="10.96.0.7"))
    reply = await door.post(SERVICES, service("second", clusterIP=ip))
    assert reply.status == 422
    assert reply.message == (
        f'Service "second" is invalid: spec.clusterIPs: Invalid value: ["{ip}"]: failed to allocate IP {ip}: {why}'
    )
    assert reply.json["details"]["causes"][0]["field"] == "spec.clusterIPs"


async def test_a_service_that_is_refused_takes_nothing(door: FrontDoor) -> None:
    bad = service("bad", clusterIP="10.96.0.8", type="NodePort", ports=[{"port": 0, "nodePort": 30500}])
    assert (await door.post(SERVICES, bad)).status == 422
    await door.make(SERVICES, service("a", clusterIP="10.96.0.9"))
    taken = service("a", clusterIP="10.96.0.8", type="NodePort", ports=[{"port": 80, "nodePort": 30500}])
    assert (await door.post(SERVICES, taken)).status == 409
    assert await addresses(door) == {"10.96.0.9": "a"}
    assert await reserved(door) == set()


async def test_a_dry_run_takes_nothing(door: FrontDoor) -> None:
    reply = await door.post(f"{SERVICES}?dryRun=All", service("a", type="NodePort"))
    assert reply.status == 201
    assert reply.json["spec"]["clusterIP"] == "10.96.0.0"
    assert reply.json["spec"]["ports"][0]["nodePort"] == 32769
    assert await addresses(door) == {}
    assert await reserved(door) == set()
    await door.make(SERVICES, service("a"))
    for change in ({"type": "NodePort"}, {"type": "ExternalName", "externalName": "a.b"}):
        assert (await door.patch(f"{SERVICES}/a?dryRun=All", {"spec": change})).status == 200
    await door.delete(f"{SERVICES}/a?dryRun=All")
    assert list((await addresses(door)).values()) == ["a"]
    assert await reserved(door) == set()


async def test_the_life_of_a_service_through_its_types(door: FrontDoor) -> None:
    ip = (await door.make(SERVICES, service("a")))["spec"]["clusterIP"]
    path = f"{SERVICES}/a"

    async def put(**spec: Any) -> dict[str, Any]:
        reply = await door.put(path, service("a", **spec))
        assert reply.status == 200, reply.body
        changed: dict[str, Any] = reply.json["spec"]
        return changed

    spec = await put(type="NodePort")
    assert spec["clusterIP"] == ip
    port = spec["ports"][0]["nodePort"]
    assert await reserved(door) == {port}
    assert (await put(type="NodePort"))["ports"][0]["nodePort"] == port
    spec = await put(type="LoadBalancer", externalTrafficPolicy="Local")
    assert spec["ports"][0]["nodePort"] == port
    assert await reserved(door) == {port, spec["healthCheckNodePort"]}
    assert "healthCheckNodePort" not in await put(type="LoadBalancer")
    assert await reserved(door) == {port}
    assert "nodePort" not in (await put())["ports"][0]
    assert await reserved(door) == set()
    assert await addresses(door) == {ip: "a"}
    assert "clusterIP" not in await put(type="ExternalName", externalName="a.b")
    assert await addresses(door) == {}
    spec = await put(clusterIP="None")
    assert spec["clusterIPs"] == ["None"]
    assert await addresses(door) == {}


async def test_what_a_deleted_service_with_a_finalizer_holds_stays_until_the_end(door: FrontDoor) -> None:
    body = service("a", clusterIP="10.96.0.5", type="NodePort", ports=[{"port": 80, "nodePort": 30500}])
    body["metadata"]["finalizers"] = ["example.com/x"]
    await door.make(SERVICES, body)
    await door.delete(f"{SERVICES}/a")
    assert await addresses(door) == {"10.96.0.5": "a"}
    await door.patch(f"{SERVICES}/a", {"metadata": {"finalizers": None}})
    assert await addresses(door) == {}
    assert await reserved(door) == set()


async def test_node_ports_that_cannot_be_had(door: FrontDoor) -> None:
    await door.make(SERVICES, service("first", type="NodePort", ports=[{"port": 80, "nodePort": 30500}]))
    for port, why in (
        (30500, "provided port is already allocated"),
        (100, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ):
        reply = await door.post(SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}]))
        assert reply.status == 422
        assert reply.message == f'Service "b" is invalid: spec.ports[0].nodePort: Invalid value: {port}: {why}'
    health = service("b", type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=30500)
    reply = await door.post(SERVICES, health)
    assert reply.status == 500
    assert reply.message == (
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30500: "
        "provided port is already allocated"
    )


async def test_ports_of_one_number_share_a_node_port(door: FrontDoor) -> None:
    ports = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = await door.make(SERVICES, service("dns", type="NodePort", ports=ports))
    first, second = made["spec"]["ports"]
    assert first["nodePort"] == second["nodePort"]
    assert await reserved(door) == {first["nodePort"]}
    await door.delete(f"{SERVICES}/dns")
    assert await reserved(door) == set()


async def test_a_balancer_may_go_without_node_ports(door: FrontDoor) -> None:
    made = await door.make(SERVICES, service("a", type="LoadBalancer", allocateLoadBalancerNodePorts=False))
    assert "nodePort" not in made["spec"]["ports"][0]
    reply = await door.patch(f"{SERVICES}/a", {"spec": {"ports": [{"port": 80, "nodePort": 30500}]}})
    assert reply.status == 200
    assert await reserved(door) == {30500}


async def test_status_writes_allocate_nothing(door: FrontDoor) -> None:
    await door.make(SERVICES, service("a", type="ExternalName", externalName="a.b"))
    reply = await door.patch(f"{SERVICES}/a/status", {"spec": {"type": "ClusterIP"}, "status": {}})
    assert reply.status == 200
    assert await addresses(door) == {}


async def test_ranges_that_are_not_ready_or_on_their_way_out_give_nothing(door: FrontDoor) -> None:
    await door.make(CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.7.0.0/24"]}})
    await door.make(SERVICES, service("a", clusterIP="10.7.0.1"))
    ready = {"type": "Ready", "status": "False", "reason": "x", "message": ""}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await door.patch(f"{CIDRS}/more/status", {"status": {"conditions": [ready]}})
    assert (await door.post(SERVICES, service("b", clusterIP="10.7.0.2"))).status == 422
    ready["status"] = "True"
    await door.patch(f"{CIDRS}/more/status", {"status": {"conditions": [ready]}})
    await door.make(SERVICES, service("b", clusterIP="10.7.0.2"))
    await door.patch(f"{CIDRS}/more", {"metadata": {"finalizers": ["example.com/x"]}})
    await door.delete(f"{CIDRS}/more")
    assert (await door.post(SERVICES, service("c", clusterIP="10.7.0.3"))).status == 422
    await door.delete(f"{SERVICES}/a")
    assert await addresses(door) == {"10.7.0.2": "b"}


async def test_writers_in_a_hurry_never_share_and_a_full_range_says_so(mutation_detector: MutationDetector) -> None:
    door = await FrontDoor.open(YieldingStore(), service_node_port_range="30000-30005")
    await door.delete(f"{CIDRS}/kubernetes")
    await door.make(CIDRS, {"metadata": {"name": "small"}, "spec": {"cidrs": ["10.7.0.0/28"]}})
    replies = await asyncio.gather(*(door.post(SERVICES, service(f"s{i}")) for i in range(30)))
    made = [reply.json["spec"]["clusterIP"] for reply in replies if reply.status == 201]
    assert sorted(made) == sorted(f"10.7.0.{i}" for i in range(1, 15))
    refused = next(reply for reply in replies if reply.status != 201)
    assert refused.status == 500
    assert refused.message.startswith('Internal error occurred: failed to allocate a serviceIP for Service "s')
    assert refused.message.endswith('": range is full')
    ported = [f"{SERVICES}/{name}" for name in sorted((await addresses(door)).values())]
    replies = await asyncio.gather(*(door.patch(path, {"spec": {"type": "NodePort"}}) for path in ported))
    ports = [reply.json["spec"]["ports"][0]["nodePort"] for reply in replies if reply.status == 200]
    assert sorted(ports) == list(range(30000, 30006))
    assert next(r for r in replies if r.status != 200).message == (
        "Internal error occurred: failed to allocate a nodePort: range is full"
    )
    await door.close()


async def test_of_many_who_ask_for_one_address_one_gets_it(busy_door: FrontDoor) -> None:
    asked = (busy_door.post(SERVICES, service(f"s{i}", clusterIP="10.96.0.9")) for i in range(8))
    replies = await asyncio.gather(*asked)
    assert sorted(reply.status for reply in replies) == [201] + [422] * 7
    assert all("provided IP is already allocated" in reply.message for reply in replies if reply.status == 422)


async def test_two_servers_on_one_store_never_share(mutation_detector: MutationDetector) -> None:
    store = YieldingStore()
    one = await FrontDoor.open(store)
    options = Options(authenticator=one.api.authenticator, authorizer=one.api.authorizer)
    two = FrontDoor(store, one.clock, ApiServer(store, one.clock, RandomIds(seed=8), options))
    wire(two.api, ApiServerConfig(NOWHERE, authorization_mode=["Node", "RBAC"]), None)
    await two.api.start()
    asked = [door.post(SERVICES, service(f"{name}{i}", clusterIP=f"10.96.1.{i}"))
             for i in range(10) for name, door in (("a", one), ("b", two))]  # fmt: skip
    replies = await asyncio.gather(*asked)
    assert sorted(reply.status for reply in replies) == [201] * 10 + [422] * 10
    await two.api.stop()
    await one.close()


async def test_two_families(two_families: FrontDoor) -> None:
    door = two_families
    assert (await door.make(SERVICES, service("single")))["spec"]["ipFamilies"] == ["IPv4"]
    made = (await door.make(SERVICES, service("a", ipFamilyPolicy="PreferDualStack")))["spec"]
    assert made["ipFamilies"] == ["IPv4", "IPv6"]
    assert made["clusterIPs"][1].startswith("fd00::")
    assert set(made["clusterIPs"]) <= set(await addresses(door))
    shrunk = (await door.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "SingleStack"}})).json["spec"]
    assert shrunk["clusterIPs"] == made["clusterIPs"][:1]
    assert made["clusterIPs"][1] not in await addresses(door)
    grown = (await door.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})).json["spec"]
    assert grown["clusterIPs"][0] == made["clusterIPs"][0]
    assert set(grown["clusterIPs"]) <= set(await addresses(door))
