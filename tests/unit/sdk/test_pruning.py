"""Children that are no longer declared are deleted once, after a reconcile that succeeded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import VirtualCluster, virtual

Reconcile = Callable[[Context[Any, Any], Object[Any, Any]], Awaitable[Result | None]]


@dataclass
class Spec:
    pages: int = 3


Website = Kind("example.com/v1", "Website", spec=Spec)
ConfigMap = Kind("v1", "ConfigMap")
Service = Kind("v1", "Service")


def page(number: int) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"page-{number}"}, "data": {"a": "b"}}


def service() -> Obj:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "home"}, "spec": {"ports": [{"port": 80}]}}


def operator(reconcile: Reconcile) -> Operator:
    return Operator("website", Controller(Website, reconcile, owns=(ConfigMap, Service)))


async def create_home(cluster: VirtualCluster) -> None:
    meta = {"name": "home", "namespace": "default"}
    await cluster.client.create({"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {}})


async def set_pages(cluster: VirtualCluster, pages: int) -> None:
    await cluster.client.patch(Website.ref, "home", {"spec": {"pages": pages}}, "default")
    await cluster.settle()


async def names(cluster: VirtualCluster) -> set[str]:
    found = [*await cluster.all(ConfigMap.ref), *await cluster.all(Service.ref)]
    return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt", "kubernetes"}


async def one_by_one(ctx: Context[Any, Any], website: Object[Any, Any]) -> None:
    for number in range(website.spec.pages):
        await ctx.apply(page(number))
    await ctx.apply(service())


@virtual(nodes=0)
async def test_several_calls_declare_the_children_together(cluster: VirtualCluster) -> None:
    async with cluster.running(operator(one_by_one)):
        await create_home(cluster)
        await cluster.settle()
        assert await names(cluster) == {"page-0", "page-1", "page-2", "home"}
        uid = (await cluster.client.get(Service.ref, "home", "default"))["metadata"]["uid"]
        await cluster.at_rest()
        await set_pages(cluster, 1)
        assert await names(cluster) == {"page-0", "home"}
        assert (await cluster.client.get(Service.ref, "home", "default"))["metadata"]["uid"] == uid


@pytest.mark.parametrize("ending", ["raises", "retries", "keeps"])
def test_a_reconcile_that_did_not_finish_deletes_nothing(ending: str) -> None:
    async def reconcile(ctx: Context[Any, Any], website: Object[Any, Any]) -> Result | None:
        if website.spec.pages:
            await one_by_one(ctx, website)
            return None
        await ctx.apply(service(), prune=ending != "keeps")
        if ending == "raises":
            raise RuntimeError("the page store cannot be reached")
        return Result(retry=True) if ending == "retries" else None

    @virtual(nodes=0)
    async def run(cluster: VirtualCluster) -> None:
        async with cluster.running(operator(reconcile)):
            await create_home(cluster)
            await cluster.settle()
            await set_pages(cluster, 0)
            assert await names(cluster) == {"page-0", "page-1", "page-2", "home"}

    run()


@virtual(nodes=0)
async def test_a_reconcile_that_applies_nothing_deletes_nothing(cluster: VirtualCluster) -> None:
    async def reconcile(ctx: Context[Any, Any], website: Object[Any, Any]) -> None:
        if website.spec.pages == 2:
            return
        await ctx.apply(*map(page, range(website.spec.pages)))

    async with cluster.running(operator(reconcile)):
        await create_home(cluster)
        await cluster.settle()
        await set_pages(cluster, 2)
        assert await names(cluster) == {"page-0", "page-1", "page-2"}
        await set_pages(cluster, 0)
        assert await names(cluster) == set()


@virtual(nodes=0)
async def test_a_kind_that_is_not_served_is_named(cluster: VirtualCluster) -> None:
    foreign = Operator("website", Controller(Kind("example.com/v1", "Page"), one_by_one, owns=(ConfigMap,)))
    with pytest.raises(ValueError, match=r'operator website: .* kind "Page" in version "example.com/v1"'):
        async with cluster.running(foreign):
            pass
