from __future__ import annotations

import orjson
import pytest
from running_loops import RunningLoops
from server_harness import ServerHarness

from setpoint.apiserver.allocation.node_ports import PREFIX
from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.upkeep.service_repair import AddressRepair, PortRepair
from setpoint.store.interface import Delete, Put

STORES = ("memory", "lagging")

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def hooks(harness: ServerHarness) -> ServiceHooks:
    found = harness.api.resources.env.hooks[("", "services")]
    assert isinstance(found, ServiceHooks)
    return found


def address(name: str, service: str, labels: dict[str, str] | None = None) -> dict[str, object]:
    if labels is None:
        labels = {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }
    parent = {"resource": "services", "namespace": "default", "name": service}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}}


async def owners(harness: ServerHarness) -> dict[str, str]:
    items = (await harness.get(ADDRESSES)).json["items"]
    return {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in items}


async def test_missing_address_objects_are_created(harness: ServerHarness, running: RunningLoops) -> None:
    await harness.make(
        SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}}
    )
    await harness.delete(f"{ADDRESSES}/10.96.0.5")
    repair = AddressRepair(harness.api.resources, hooks(harness).ips)
    running.start(repair.loop.run())
    await harness.clock.advance(0)
    assert await owners(harness) == {"10.96.0.5": "a"}
    await harness.delete(f"{ADDRESSES}/10.96.0.5")
    await repair.recheck()
    await harness.clock.advance(0)
    assert await owners(harness) == {"10.96.0.5": "a"}


async def test_addresses_without_a_service_are_deleted(harness: ServerHarness, running: RunningLoops) -> None:
    await harness.make(
        SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}}
    )
    await harness.make(ADDRESSES, address("10.96.0.8", "nobody"))
    await harness.make(ADDRESSES, address("10.96.0.9", "a"))
    await harness.make(ADDRESSES, address("10.96.0.10", "nobody", labels={}))
    running.start(AddressRepair(harness.api.resources, hooks(harness).ips).loop.run())
    await harness.clock.advance(7)
    assert await owners(harness) == {"10.96.0.10": "nobody", "10.96.0.5": "a", "10.96.0.8": "nobody"}
    await harness.clock.advance(60)
    assert await owners(harness) == {"10.96.0.10": "nobody", "10.96.0.5": "a"}


async def test_an_address_with_a_wrong_parent_is_replaced(harness: ServerHarness, running: RunningLoops) -> None:
    await harness.make(
        SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}}
    )
    await harness.delete(f"{ADDRESSES}/10.96.0.5")
    await harness.make(ADDRESSES, address("10.96.0.5", "nobody"))
    running.start(AddressRepair(harness.api.resources, hooks(harness).ips).loop.run())
    await harness.clock.advance(0)
    assert await owners(harness) == {"10.96.0.5": "a"}


async def reserved(harness: ServerHarness) -> dict[str, str]:
    found = (await harness.store.list(PREFIX)).items
    return {kv.key[len(PREFIX) :]: orjson.loads(kv.value)["name"] for kv in found}


async def test_ports_of_services_are_reserved(harness: ServerHarness) -> None:
    ports = hooks(harness).ports
    for name, port in (("a", 30500), ("b", 30501), ("c", 30502)):
        spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
        await harness.make(SERVICES, {"metadata": {"name": name}, "spec": spec})
    stale = orjson.dumps({"namespace": "default", "name": "gone"})
    await harness.store.txn([Delete(f"{PREFIX}30500"), Put(f"{PREFIX}30501", stale), Put(f"{PREFIX}30777", stale)])
    repair = PortRepair(harness.api.resources, ports)
    await repair.run()
    assert await reserved(harness) == {"30500": "a", "30501": "gone", "30502": "c", "30777": "gone"}
    await repair.run()
    await repair.run()
    assert await reserved(harness) == {"30500": "a", "30501": "b", "30502": "c"}
    before = harness.store.revision
    await repair.run()
    assert harness.store.revision == before


async def test_a_port_of_an_unseen_service_stays_reserved(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cache may lag behind the other, so that a Service is missing for a moment."""
    repair = PortRepair(harness.api.resources, hooks(harness).ports)
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30500}]}
    services = harness.api.resources.registry("", "services").cache
    for name in ("a", "b", "c", "d"):
        await harness.make(SERVICES, {"metadata": {"name": name}, "spec": spec})
        with monkeypatch.context() as behind:
            behind.setattr(services, "scan", lambda *_: iter(()))
            await repair.run()
        assert await reserved(harness) == {"30500": name}
        assert (await harness.delete(f"{SERVICES}/{name}")).status == 200
    assert not await reserved(harness)


async def test_a_new_reservation_of_a_port_is_counted_separately(harness: ServerHarness) -> None:
    repair = PortRepair(harness.api.resources, hooks(harness).ports)
    gone = orjson.dumps({"namespace": "default", "name": "gone"})
    for _ in range(5):
        await harness.store.txn([Put(f"{PREFIX}30777", gone)])
        await repair.run()
        await repair.run()
    assert await reserved(harness) == {"30777": "gone"}
    await repair.run()
    assert not await reserved(harness)
