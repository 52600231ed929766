"""An operator on a real control plane in virtual time: children, status, finalizers and watches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from setpoint.sdk import Column, Context, Controller, Kind, Object, Operator, Result, Watch, is_true
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

CONFIG_MAP = ("v1", "ConfigMap")


@dataclass
class TeapotSpec:
    """A teapot, as it should be."""

    cups: int = field(default=4, metadata={"schema": {"minimum": 1, "maximum": 12}})
    teas: list[str] = field(default_factory=lambda: ["green"])


@dataclass
class TeapotStatus:
    brewed: int = 0


Teapot = Kind(
    "example.com/v1",
    "Teapot",
    spec=TeapotSpec,
    status=TeapotStatus,
    short=("tp",),
    columns=(Column("Cups", ".spec.cups", "integer"),),
)
ConfigMap = Kind("v1", "ConfigMap")
ServiceAccount = Kind("v1", "ServiceAccount")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def brew(ctx: Context[Any, Any], teapot: Object[TeapotSpec, TeapotStatus]) -> Result | None:
    await ctx.apply(*(config_map(f"{teapot.name}-{tea}", cups=str(teapot.spec.cups)) for tea in teapot.spec.teas))
    ctx.set_status(TeapotStatus(brewed=len(teapot.spec.teas)))
    ctx.condition("Ready", True, "Brewed", f"{teapot.spec.cups} cups")
    ctx.event("Brewed", "tea is ready")
    return None


def teapot(name: str = "brown", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": spec}


@asynccontextmanager
async def at_work(cluster: VirtualCluster, controller: Controller[Any, Any]) -> AsyncIterator[Operator]:
    operator = Operator("tea", controller)
    client = cluster.client.named("tea")
    await operator.install(client, cluster.clock)
    async with operator.running(client, cluster.clock, RandomIds(7)):
        yield operator


async def names(cluster: VirtualCluster) -> set[str]:
    return {one["metadata"]["name"] for one in await cluster.all(CONFIG_MAP)} - {"kube-root-ca.crt"}


@virtual(nodes=0)
async def test_children_are_created_repaired_and_pruned(cluster: VirtualCluster) -> None:
    async with at_work(cluster, Controller(Teapot, brew, owns=(ConfigMap,))):
        await cluster.client.create(teapot(cups=2, teas=["green", "black"]))
        await cluster.sleep(1)
        assert await names(cluster) == {"brown-green", "brown-black"}

        await cluster.client.delete(CONFIG_MAP, "brown-green", "default")
        await cluster.client.patch(CONFIG_MAP, "brown-black", {"data": {"cups": "77", "mine": "x"}}, "default")
        await cluster.sleep(1)
        found = await cluster.client.get(CONFIG_MAP, "brown-black", "default")
        assert found["data"] == {"cups": "2", "mine": "x"}, "ours is restored, what others wrote stays"
        assert await names(cluster) == {"brown-green", "brown-black"}

        await cluster.client.patch(Teapot.ref, "brown", {"spec": {"teas": ["green"]}}, "default")
        await cluster.sleep(1)
        assert await names(cluster) == {"brown-green"}

        await cluster.client.delete(Teapot.ref, "brown", "default")
        await cluster.until(lambda: names(cluster), within=0.1)
        await cluster.sleep(60)
        assert await names(cluster) == set(), "children go with their owner"


@virtual(nodes=0)
async def test_status_is_written_once(cluster: VirtualCluster) -> None:
    async with at_work(cluster, Controller(Teapot, brew, owns=(ConfigMap,))):
        await cluster.client.create(teapot())
        await cluster.sleep(1)
        found = await cluster.client.get(Teapot.ref, "brown", "default")
        assert found["spec"] == {"cups": 4, "teas": ["green"]}, "defaults of the model are the schema's"
        assert is_true(found, "Ready")
        assert found["status"]["brewed"] == 1
        (condition,) = found["status"]["conditions"]
        assert (condition["reason"], condition["observedGeneration"]) == ("Brewed", 1)
        assert ("Normal", "Brewed", "tea is ready") in await cluster.events("brown")
        await cluster.sleep(600)
        assert await cluster.client.get(Teapot.ref, "brown", "default") == found, "at rest nothing is written"


@virtual(nodes=0)
async def test_cleanup_runs_before_the_object_is_deleted(cluster: VirtualCluster) -> None:
    outside: dict[str, int] = {}

    async def make(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        outside[obj.name] = obj.spec.cups
        return None

    async def clean(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        if outside.pop(obj.name, None) is not None:
            return Result(requeue_after=5)
        return None

    async with at_work(cluster, Controller(Teapot, make, finalizer="example.com/tea", finalize=clean)):
        await cluster.client.create(teapot())
        await cluster.sleep(1)
        assert outside == {"brown": 4}
        await cluster.client.delete(Teapot.ref, "brown", "default")
        await cluster.sleep(1)
        held = await cluster.client.get(Teapot.ref, "brown", "default")
        assert held["metadata"]["finalizers"] == ["example.com/tea"]
        await cluster.sleep(6)
        assert await cluster.find(Teapot.ref, "brown") is None


@virtual(nodes=0)
async def test_failures_are_retried_and_watched_objects_enqueue(cluster: VirtualCluster) -> None:
    looks: list[str] = []

    async def picky(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        looks.append(obj.name)
        accounts = await ctx.client.list(ServiceAccount.ref, "default")
        if not any(one["metadata"]["name"] == "butler" for one in accounts.items):
            ctx.condition("Ready", False, "NoButler")
            raise RuntimeError("there is nobody to serve")
        ctx.condition("Ready", True, "Served")
        return None

    watch = Watch(ServiceAccount, lambda obj: ["default/brown"], when=lambda old, new: old is None)
    async with at_work(cluster, Controller(Teapot, picky, watches=(watch,))):
        await cluster.client.create(teapot())
        await cluster.sleep(100)
        tried = len(looks)
        assert 5 < tried < 30, "with back-off"
        assert not is_true(await cluster.client.get(Teapot.ref, "brown", "default"), "Ready")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "butler", "namespace": "default"}}
        await cluster.client.create(account)
        await cluster.sleep(1)
        assert is_true(await cluster.client.get(Teapot.ref, "brown", "default"), "Ready")


@virtual(nodes=0)
async def test_the_server_rejects_what_the_model_forbids(cluster: VirtualCluster) -> None:
    from setpoint.meta.errors import Invalid

    async with at_work(cluster, Controller(Teapot, brew, owns=(ConfigMap,))):
        with pytest.raises(Invalid, match=r"spec\.cups"):
            await cluster.client.create(teapot(cups=100))


@virtual(nodes=0)
async def test_a_child_that_cannot_be_owned_is_not_created(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    meta = {"name": "x", "namespace": "kube-system"}

    async def overreach(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        if obj.spec.cups == 1:
            await ctx.apply(config_map("fine"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
        await ctx.apply({**config_map("x"), "metadata": meta})

    async with at_work(cluster, Controller(Teapot, overreach, owns=(ConfigMap,))):
        await cluster.client.create(teapot(cups=1))
        await cluster.client.create(teapot("white", cups=2))
        await cluster.sleep(1)
    assert "<Teapot default/brown> is in a namespace and cannot own a Namespace, which is in none" in caplog.text
    assert "<Teapot default/white> cannot own a ConfigMap in another namespace" in caplog.text
    assert await names(cluster) == set()


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_an_outdated_definition_is_updated(cluster: VirtualCluster) -> None:
    async def nothing(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None: ...

    async def installed(kind: Kind[Any, Any]) -> dict[str, Any]:
        await Operator("tea", Controller(kind, nothing)).install(cluster.client, cluster.clock)
        definitions = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        found = await cluster.client.get(definitions, "teapots.example.com")
        spec: dict[str, Any] = found["spec"]
        return spec

    first = await installed(Teapot)
    assert first["versions"][0]["additionalPrinterColumns"][0]["name"] == "Cups"
    assert await installed(Teapot) == first
    second = await installed(Kind("example.com/v1", "Teapot", spec=TeapotStatus))
    assert "additionalPrinterColumns" not in second["versions"][0], "what is no longer said goes"
    properties = second["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert list(properties["spec"]["properties"]) == ["brewed"]
