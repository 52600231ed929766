"""User-managed Endpoints are mirrored to EndpointSlices."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.endpointslice_mirroring import mirror_of
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
SERVICES, ENDPOINTS = builtin("services"), builtin("endpoints")
SLICES = builtin("endpointslices", "discovery.k8s.io")
MANAGER = "endpointslicemirroring-controller.k8s.io"


def service(**spec: Any) -> Obj:
    meta = {"name": "db", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 5432}], **spec}}


def endpoints(*ips: str, **meta: Any) -> Obj:
    subset = {"addresses": [{"ip": ip} for ip in ips], "ports": [{"port": 5432}]}
    found = {"name": "db", "namespace": "default", **meta}
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": found, "subsets": [subset] if ips else []}


async def mirrored(cluster: VirtualCluster) -> list[Obj]:
    return await cluster.all(SLICES, selector="kubernetes.io/service-name=db")


async def addresses(cluster: VirtualCluster) -> set[str]:
    return {
        address for found in await mirrored(cluster) for each in found["endpoints"] for address in each["addresses"]
    }


@virtual(nodes=0)
async def test_changes_of_endpoints_are_mirrored(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(endpoints("10.1.0.1", "10.1.0.2", labels={"team": "x"}, annotations={"note": "y"}))
    await cluster.instant()
    (found,) = await mirrored(cluster)
    meta = found["metadata"]
    assert meta["labels"] == {
        "team": "x",
        "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": MANAGER,
    }
    assert meta["annotations"] == {"note": "y"}
    assert meta["ownerReferences"][0]["kind"] == "Endpoints" and meta["generateName"] == "db-"
    assert found["ports"] == [{"name": "", "port": 5432, "protocol": "TCP"}]
    assert all(each["conditions"] == {"ready": True} for each in found["endpoints"])
    await cluster.client.update(endpoints("10.1.0.2", "10.1.0.3", "fd00::1"))
    await cluster.instant()
    assert await addresses(cluster) == {"10.1.0.2", "10.1.0.3", "fd00::1"}
    assert sorted(each["addressType"] for each in await mirrored(cluster)) == ["IPv4", "IPv6"]
    await cluster.client.delete(SLICES, meta["name"], "default")
    await cluster.instant()
    assert await addresses(cluster) == {"10.1.0.2", "10.1.0.3", "fd00::1"}
    await cluster.client.delete(ENDPOINTS, "db", "default")
    await cluster.sleep(1)
    assert not await mirrored(cluster)


@virtual(nodes=0)
async def test_which_endpoints_are_mirrored(cluster: VirtualCluster) -> None:
    await cluster.client.create(endpoints("10.1.0.1"))
    await cluster.instant()
    assert not await mirrored(cluster)
    await cluster.client.create(service())
    await cluster.instant()
    assert await mirrored(cluster)
    skip = {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}
    await cluster.client.patch(ENDPOINTS, "db", skip, "default")
    await cluster.instant()
    assert not await mirrored(cluster)
    await cluster.client.patch(ENDPOINTS, "db", {"metadata": {"labels": None}}, "default")
    await cluster.instant()
    assert await mirrored(cluster)
    await cluster.client.patch(SERVICES, "db", {"spec": {"selector": {"app": "db"}}}, "default")
    await cluster.sleep(2)
    labels = [found["metadata"]["labels"] for found in await mirrored(cluster)]
    assert [each["endpointslice.kubernetes.io/managed-by"] for each in labels] == ["endpointslice-controller.k8s.io"]


@virtual(nodes=0, controller_options=ControllerOptions(mirroring_max_endpoints_per_subset=2))
async def test_addresses_beyond_the_limit_are_reported(cluster: VirtualCluster) -> None:
    await cluster.client.create(service())
    await cluster.client.create(endpoints("10.1.0.1", "10.1.0.2", "10.1.0.3"))
    await cluster.sleep(1)
    assert await addresses(cluster) == {"10.1.0.1", "10.1.0.2"}
    message = "A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 1 addresses were skipped"
    assert ("Warning", "TooManyAddressesToMirror", message) in await cluster.events("db")


def test_invalid_addresses_are_counted_and_left_out() -> None:
    mirror = mirror_of(endpoints("10.1.0.1", "nonsense"), 1000)
    assert (mirror.invalid, mirror.skipped) == (1, 1)
    assert [len(found) for _, found in mirror.groups.values()] == [1]
