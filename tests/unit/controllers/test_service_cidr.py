"""ServiceCIDRs become ready, and are protected while they are in use."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from setpoint.client.resources import builtin
from setpoint.controllers.service_cidr import FINALIZER, can_be_deleted, holds
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
CIDRS, SERVICES = builtin("servicecidrs", "networking.k8s.io"), builtin("services")


def cidr(name: str, *ranges: str) -> Obj:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"}
    return {**kind, "metadata": {"name": name}, "spec": {"cidrs": list(ranges)}}


@pytest.mark.parametrize(
    ("address", "held"),
    [("10.0.0.0", False), ("10.0.0.1", True), ("10.0.0.255", False), ("10.0.1.1", False), ("::1", False)],
)
def test_network_and_broadcast_addresses_are_excluded(address: str, held: bool) -> None:
    assert holds(ip_network("10.0.0.0/24"), ip_address(address)) is held


def test_a_range_may_be_deleted_if_another_contains_its_addresses() -> None:
    small, large, apart = cidr("small", "10.0.0.0/28"), cidr("large", "10.0.0.0/24"), cidr("apart", "10.1.0.0/24")
    used = [ip_address("10.0.0.5")]
    assert can_be_deleted(small, [small, large], used)
    assert not can_be_deleted(small, [small, apart], used)
    assert can_be_deleted(small, [small, apart], [ip_address("10.1.0.5")])
    assert not can_be_deleted(large, [large, small], [ip_address("10.0.0.77")])
    assert can_be_deleted(large, [large, small], used)


@virtual(nodes=0)
async def test_a_range_in_use_is_protected(cluster: VirtualCluster) -> None:
    await cluster.client.create(cidr("more", "10.77.0.0/24"))
    await cluster.instant()
    made = await cluster.client.get(CIDRS, "more")
    assert made["metadata"]["finalizers"] == [FINALIZER]
    ready = condition_of(made, "Ready")
    assert ready and (ready["status"], ready["message"]) == ("True", "Kubernetes Service CIDR is ready")
    spec = {"clusterIP": "10.77.0.9", "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}, "spec": spec}
    await cluster.client.create(service)
    await cluster.client.delete(CIDRS, "more")
    await cluster.sleep(60)
    ready = condition_of(await cluster.client.get(CIDRS, "more"), "Ready")
    assert ready and (ready["status"], ready["reason"]) == ("False", "Terminating")
    await cluster.client.delete(SERVICES, "s", "default")

    async def gone() -> bool:
        return await cluster.find(CIDRS, "more", "") is None

    await cluster.until(gone, within=5)


@virtual(nodes=0)
async def test_an_unused_range_is_deleted_after_the_grace_period(cluster: VirtualCluster) -> None:
    await cluster.client.create(cidr("more", "10.77.0.0/24"))
    await cluster.instant()
    await cluster.client.delete(CIDRS, "more")
    await cluster.sleep(8)
    assert await cluster.find(CIDRS, "more", "") is not None
    await cluster.sleep(3)
    assert await cluster.find(CIDRS, "more", "") is None
