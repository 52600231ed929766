"""Nodes get Pod CIDRs from the cluster's ranges."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.client.resources import builtin
from setpoint.controllers.node_ipam import CidrPool, RangeFull, pools_of
from setpoint.controllers.options import ControllerOptions
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
NODES = builtin("nodes")
ON = ControllerOptions(allocate_node_cidrs=True, cluster_cidr="10.244.0.0/16")


def test_cidrs_are_allocated_in_order_and_released_ones_last() -> None:
    pool = CidrPool(ip_network("10.0.0.0/30"), 32)
    assert [pool.allocate("a"), pool.allocate("b")] == ["10.0.0.0/32", "10.0.0.1/32"]
    pool.release(ip_network("10.0.0.0/32"), "a")
    assert [pool.allocate("c"), pool.allocate("d"), pool.allocate("e")] == ["10.0.0.2/32", "10.0.0.3/32", "10.0.0.0/32"]
    with pytest.raises(RangeFull):
        pool.allocate("f")


def test_service_cidrs_are_excluded() -> None:
    options = ControllerOptions(
        cluster_cidr="10.0.0.0/8,fd00::/48", node_cidr_mask_size_ipv4=10, service_cluster_ip_range="10.64.0.0/12"
    )
    four, six = pools_of(options)
    assert [four.allocate("a"), four.allocate("b"), four.allocate("c")] == [
        "10.0.0.0/10",
        "10.128.0.0/10",
        "10.192.0.0/10",
    ]
    assert [six.allocate("a"), six.allocate("b")] == ["fd00::/64", "fd00:0:0:1::/64"]


@given(st.lists(st.integers(0, 15)))
def test_no_cidr_is_allocated_twice(steps: list[int]) -> None:
    pool = CidrPool(ip_network("10.0.0.0/28"), 31)
    held: dict[int, str] = {}
    for step in steps:
        if step in held:
            pool.release(ip_network(held.pop(step)), str(step))
        elif len(held) < 8:
            held[step] = pool.allocate(str(step))
    assert len(set(held.values())) == len(held)


@virtual(nodes=3, controller_options=ON)
async def test_each_node_gets_a_range_and_keeps_it(cluster: VirtualCluster) -> None:
    async def ranges() -> dict[str, Any]:
        return {node["metadata"]["name"]: node["spec"].get("podCIDRs") for node in await cluster.all(NODES, "")}

    async def all_have() -> bool:
        return all((await ranges()).values())

    await cluster.until(all_have, within=5)
    before = await ranges()
    assert sorted(each for (each,) in before.values()) == ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"]
    for node in await cluster.all(NODES, ""):
        assert node["spec"]["podCIDR"] == node["spec"]["podCIDRs"][0]
    await cluster.kill("controllers")
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}})
    await cluster.start("controllers")
    await cluster.until(all_have, within=5)
    after = await ranges()
    assert after.pop("late") == ["10.244.3.0/24"]
    assert after == before


@virtual(nodes=1, controller_options=ControllerOptions(allocate_node_cidrs=True, cluster_cidr="10.244.0.0/24"))
async def test_an_exhausted_range_is_reported_and_retried(cluster: VirtualCluster) -> None:
    await cluster.until(lambda: _range(cluster, "node-1"), within=5)
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}})
    await cluster.sleep(1)
    message = "Node late status is now: CIDRNotAvailable"
    assert ("Normal", "CIDRNotAvailable", message) in await cluster.events("late")
    await cluster.kill("fleet")
    await cluster.client.delete(NODES, "node-1")
    await cluster.until(lambda: _range(cluster, "late"), within=5)


async def _range(cluster: VirtualCluster, name: str) -> bool:
    return bool((await cluster.client.get(NODES, name))["spec"].get("podCIDR"))
