from __future__ import annotations

import orjson
import pytest
from front_door import FrontDoor

from setpoint.apiserver.allocation.node_ports import PREFIX
from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.upkeep.address_repair import AddressRepair
from setpoint.apiserver.upkeep.port_repair import PortRepair
from setpoint.store.interface import Delete, Put

STORES = ("memory", "lagging")

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def hooks(door: FrontDoor) -> ServiceHooks:
    found = door.api.env.hooks[("", "services")]
    assert isinstance(found, ServiceHooks)
    return found


def address(name: str, service: str, labels: dict[str, str] | None = None) -> dict[str, object]:
    if labels is None:
        labels = {
            "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }  # fmt: skip
    parent = {"resource": "services", "namespace": "default", "name": service}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}}


async def owners(door: FrontDoor) -> dict[str, str]:
    items = (await door.get(ADDRESSES)).json["items"]
    return {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in items}


async def test_a_missing_address_object_is_made_at_the_start_and_at_every_turn(door: FrontDoor, running) -> None:
    await door.make(SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}})
    await door.delete(f"{ADDRESSES}/10.96.0.5")
    repair = AddressRepair(door.api, hooks(door).ips)
    running.start(repair.loop.run())
    await door.clock.advance(0)
    assert await owners(door) == {"10.96.0.5": "a"}
    await door.delete(f"{ADDRESSES}/10.96.0.5")
    await repair.recheck()
    await door.clock.advance(0)
    assert await owners(door) == {"10.96.0.5": "a"}


async def test_addresses_without_a_service_go_after_a_while(door: FrontDoor, running) -> None:
    await door.make(SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}})
    await door.make(ADDRESSES, address("10.96.0.8", "nobody"))
    await door.make(ADDRESSES, address("10.96.0.9", "a"))
    await door.make(ADDRESSES, address("10.96.0.10", "nobody", labels={}))
    running.start(AddressRepair(door.api, hooks(door).ips).loop.run())
    await door.clock.advance(7)
    assert await owners(door) == {"10.96.0.10": "nobody", "10.96.0.5": "a", "10.96.0.8": "nobody"}
    await door.clock.advance(60)
    assert await owners(door) == {"10.96.0.10": "nobody", "10.96.0.5": "a"}


async def test_an_address_that_names_another_is_made_again(door: FrontDoor, running) -> None:
    await door.make(SERVICES, {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}})
    await door.delete(f"{ADDRESSES}/10.96.0.5")
    await door.make(ADDRESSES, address("10.96.0.5", "nobody"))
    running.start(AddressRepair(door.api, hooks(door).ips).loop.run())
    await door.clock.advance(0)
    assert await owners(door) == {"10.96.0.5": "a"}


async def reserved(door: FrontDoor) -> dict[str, str]:
    found = (await door.store.list(PREFIX)).items
    return {kv.key[len(PREFIX) :]: orjson.loads(kv.value)["name"] for kv in found}


async def test_ports_are_reserved_for_those_who_hold_them(door: FrontDoor) -> None:
    ports = hooks(door).ports
    for name, port in (("a", 30500), ("b", 30501), ("c", 30502)):
        spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
        await door.make(SERVICES, {"metadata": {"name": name}, "spec": spec})
    stale = orjson.dumps({"namespace": "default", "name": "gone"})
    await door.store.txn([Delete(f"{PREFIX}30500"), Put(f"{PREFIX}30501", stale), Put(f"{PREFIX}30777", stale)])
    repair = PortRepair(door.api, ports)
    await repair.run()
    assert await reserved(door) == {"30500": "a", "30501": "gone", "30502": "c", "30777": "gone"}
    await repair.run()
    await repair.run()
    assert await reserved(door) == {"30500": "a", "30501": "b", "30502": "c"}
    before = door.store.revision
    await repair.run()
    assert door.store.revision == before


async def test_a_port_whose_service_is_not_seen_yet_stays_reserved(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two caches are filled one after the other: a Service may be missing in one of them for a moment."""
    repair = PortRepair(door.api, hooks(door).ports)
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30500}]}
    services = door.api.registry("", "services").cache
    for name in ("a", "b", "c", "d"):
        await door.make(SERVICES, {"metadata": {"name": name}, "spec": spec})
        with monkeypatch.context() as behind:
            behind.setattr(services, "scan", lambda *_: iter(()))
            await repair.run()
        assert await reserved(door) == {"30500": name}
        assert (await door.delete(f"{SERVICES}/{name}")).status == 200
    assert not await reserved(door)


async def test_a_port_that_is_reserved_anew_is_not_taken_for_the_former_one(door: FrontDoor) -> None:
    repair = PortRepair(door.api, hooks(door).ports)
    gone = orjson.dumps({"namespace": "default", "name": "gone"})
    for _ in range(5):
        await door.store.txn([Put(f"{PREFIX}30777", gone)])
        await repair.run()
        await repair.run()
    assert await reserved(door) == {"30777": "gone"}
    await repair.run()
    assert not await reserved(door)
