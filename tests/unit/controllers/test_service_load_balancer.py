"""Services of type LoadBalancer get addresses of a pool, and give them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.service_load_balancer import FINALIZER, AddressPool, wanted_addresses
from setpoint.meta.conditions import ADDRESS_FROM_POOL, condition_of
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

if TYPE_CHECKING:
    from setpoint.kinds.typed import Service

STORES = ("memory", "lagging")
SERVICES = builtin("services")
TWO = ControllerOptions(load_balancer_pool="192.0.2.8-192.0.2.9,2001:db8::10/127")


def service(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
    }


async def addresses(cluster: VirtualCluster, name: str) -> list[str]:
    found = await cluster.client.get(SERVICES, name, "default")
    return [each["ip"] for each in found["status"]["loadBalancer"].get("ingress") or ()]


async def events(cluster: VirtualCluster, name: str) -> list[tuple[str, str]]:
    """Return reasons and messages, the earliest first, when all are written: that takes longer than an instant."""
    await cluster.sleep(1)
    found = [each for each in await cluster.all(builtin("events")) if each["involvedObject"]["name"] == name]
    return [(each["reason"], each["message"]) for each in sorted(found, key=lambda each: int(_revision(each)))]


def _revision(obj: Obj) -> str:
    revision: str = obj["metadata"]["resourceVersion"]
    return revision


def test_a_pool_has_addresses_of_cidrs_and_ranges() -> None:
    pool = AddressPool("192.0.2.0/31, 192.0.2.7-192.0.2.8,2001:db8::/64")
    assert pool.free(4) == "192.0.2.0"
    assert all(each in pool for each in ("192.0.2.1", "192.0.2.8", "2001:db8::ffff"))
    assert not any(each in pool for each in ("192.0.2.2", "2001:db9::", "name", ""))
    for i, address in enumerate(("192.0.2.0", "192.0.2.1", "192.0.2.7", "192.0.2.8")):
        assert pool.free(4) == address
        pool.hold(f"default/{i}", {address})
    assert pool.free(4) is None
    assert not pool.hold("default/other", {"192.0.2.1"}), "it is held by another Service"
    assert pool.holder("192.0.2.1") == "default/1"
    assert pool.hold("default/1", set())
    assert pool.free(4) == "192.0.2.1"
    assert pool.free(6) == "2001:db8::"


@pytest.mark.parametrize(
    "text",
    ["192.0.2.1/24", "192.0.2.9-192.0.2.8", "192.0.2.1-2001:db8::", "x", "192.0.2.1-", "127.0.0.0/8", "ff02::/64"],
)
def test_an_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("/")[0]):
        AddressPool(text)


@virtual(nodes=1, controller_options=TWO)
async def test_addresses_are_assigned_and_released(cluster: VirtualCluster) -> None:
    await cluster.client.create(service("one"))
    await cluster.instant()
    made = await cluster.client.get(SERVICES, "one", "default")
    assert made["status"]["loadBalancer"] == {"ingress": [{"ip": "192.0.2.8", "ipMode": "VIP"}]}
    assert made["metadata"]["finalizers"] == [FINALIZER]
    condition = condition_of(made, ADDRESS_FROM_POOL)
    assert condition and (condition["status"], condition["reason"]) == ("True", "Assigned")
    assert made["spec"]["ports"][0]["nodePort"]
    assert await events(cluster, "one") == [
        ("EnsuringLoadBalancer", "Ensuring load balancer"),
        ("EnsuredLoadBalancer", "Ensured load balancer"),
    ]
    # An address may be asked for; a class belongs to another implementation; node ports are not needed.
    await cluster.client.create(service("two", loadBalancerIP="192.0.2.9", allocateLoadBalancerNodePorts=False))
    await cluster.client.create(service("classed", loadBalancerClass="example.com/other"))
    await cluster.instant()
    assert await addresses(cluster, "two") == ["192.0.2.9"]
    assert "nodePort" not in (await cluster.client.get(SERVICES, "two", "default"))["spec"]["ports"][0]
    classed = await cluster.client.get(SERVICES, "classed", "default")
    assert "ingress" not in classed["status"]["loadBalancer"] and "finalizers" not in classed["metadata"]

    # The pool has no address left. The Service gets the first one that is released, at once.
    await cluster.client.create(service("three"))
    await cluster.sleep(20)
    assert await addresses(cluster, "three") == []
    assert (await events(cluster, "three"))[1] == (
        "SyncLoadBalancerFailed",
        "Error syncing load balancer: failed to ensure load balancer: no IPv4 address of --load-balancer-pool is free",
    )
    await cluster.client.delete(SERVICES, "one", "default")
    await cluster.instant()
    assert await cluster.find(SERVICES, "one") is None
    assert await addresses(cluster, "three") == ["192.0.2.8"]
    assert [reason for reason, _ in await events(cluster, "one")][2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]

    # Another type needs no address. The condition and the finalizer go too.
    change = {"spec": {"type": "ClusterIP", "loadBalancerIP": None, "allocateLoadBalancerNodePorts": None}}
    await cluster.client.patch(SERVICES, "two", change, "default")
    await cluster.instant()
    made = await cluster.client.get(SERVICES, "two", "default")
    assert made["status"] == {"loadBalancer": {}} and "finalizers" not in made["metadata"]
    assert ("Type", "LoadBalancer -> ClusterIP") in await events(cluster, "two")
    # An address that is asked for must be free and of the pool.
    for address, why in (
        ("192.0.2.8", "loadBalancerIP 192.0.2.8 is the address of the Service default/three"),
        ("192.0.2.77", "loadBalancerIP 192.0.2.77 is not an address of --load-balancer-pool"),
        ("2001:db8::10", "the Service has no address family of loadBalancerIP 2001:db8::10"),
    ):
        change = {"spec": {"type": "LoadBalancer", "loadBalancerIP": address}}
        await cluster.client.patch(SERVICES, "two", change, "default")
        await cluster.instant()
        prefix = "Error syncing load balancer: failed to ensure load balancer: "
        assert ("SyncLoadBalancerFailed", prefix + why) in await events(cluster, "two")
    await cluster.client.patch(SERVICES, "two", {"spec": {"loadBalancerIP": "192.0.2.9"}}, "default")
    await cluster.instant()
    assert await addresses(cluster, "two") == ["192.0.2.9"]
    assert ("LoadbalancerIP", "2001:db8::10 -> 192.0.2.9") in await events(cluster, "two")


@virtual(nodes=0, controller_options=ControllerOptions(load_balancer_pool="2001:db8::10/127"))
async def test_a_family_that_the_pool_does_not_have(cluster: VirtualCluster) -> None:
    await cluster.client.create(service("one"))
    await cluster.instant()
    prefix = "Error syncing load balancer: failed to ensure load balancer: "
    assert sorted(await events(cluster, "one")) == [
        ("EnsuringLoadBalancer", "Ensuring load balancer"),
        ("SyncLoadBalancerFailed", f"{prefix}--load-balancer-pool has no IPv4 addresses"),
        ("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer"),
    ]


def test_dual_stack_services_get_an_address_of_each_family() -> None:
    pool = AddressPool(TWO.load_balancer_pool)
    both = cast("Service", service("both", ipFamilies=["IPv6", "IPv4"]))
    assert wanted_addresses(both, pool, []) == ["2001:db8::10", "192.0.2.8"]
    assert wanted_addresses(both, pool, ["192.0.2.9"]) == ["2001:db8::10", "192.0.2.9"]
    asking = cast("Service", service("both", ipFamilies=["IPv4", "IPv6"], loadBalancerIP="2001:db8::11"))
    assert wanted_addresses(asking, pool, ["2001:db8::10"]) == ["192.0.2.8", "2001:db8::11"]
    assert wanted_addresses(both, AddressPool("192.0.2.1/32"), []) == ["192.0.2.1"]


@virtual(nodes=0)
async def test_without_a_pool_nothing_is_assigned_and_former_addresses_are_cleaned_up(cluster: VirtualCluster) -> None:
    await cluster.client.create(service("one"))
    await cluster.sleep(60)
    assert await addresses(cluster, "one") == [] and await events(cluster, "one") == []
    # Another implementation uses the same finalizer.
    patch: Obj = {"metadata": {"finalizers": [FINALIZER]}}
    await cluster.client.patch(SERVICES, "one", patch, "default", subresource="status")
    await cluster.client.delete(SERVICES, "one", "default")
    await cluster.sleep(1)
    assert await cluster.find(SERVICES, "one") is not None
    condition = {"type": ADDRESS_FROM_POOL, "status": "True", "reason": "Assigned", "message": ""}
    patch = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    await cluster.client.patch(SERVICES, "one", patch, "default", subresource="status")
    await cluster.instant()
    assert await cluster.find(SERVICES, "one") is None
