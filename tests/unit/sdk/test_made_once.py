"""Children that an operator creates once and never changes, with injected faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator
from setpoint.testing import VirtualCluster, explore, virtual

SECRET, CONFIG_MAP = ("v1", "Secret"), ("v1", "ConfigMap")


@dataclass
class SafeSpec:
    locked: bool = True
    names: list[str] = field(default_factory=lambda: ["a"])


Safe = Kind("example.com/v1", "Safe", spec=SafeSpec)
OWNS = (Kind(*SECRET), Kind(*CONFIG_MAP))


class Codes:
    """Each is another, also after a restart."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.seen: set[str] = set()

    def __call__(self) -> str:
        return f"code-{next(self._numbers)}"

    def state(self) -> None:
        return None


def operator(codes: Codes) -> Operator:
    async def lock(ctx: Context[SafeSpec, Any], safe: Object[SafeSpec, Any]) -> None:
        if safe.spec.locked:
            meta = {"name": safe.name, "labels": {"kept": "yes"}}
            await ctx.make_once({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"c": codes()}})
            meta = {"name": f"{safe.name}-log"}
            await ctx.make_once({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}, owned=False)
        children = ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in safe.spec.names)
        await ctx.apply(*children)

    return Operator("safes", Controller(Safe, lock, owns=OWNS))


def safe(**spec: Any) -> Obj:
    meta = {"name": "s", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Safe", "metadata": meta, "spec": spec}


async def change(cluster: VirtualCluster, **spec: Any) -> None:
    await cluster.client.patch(Safe.ref, "s", {"spec": spec}, "default")
    await cluster.settle()


async def names(cluster: VirtualCluster) -> list[str]:
    found = [each["metadata"]["name"] for each in await cluster.all(CONFIG_MAP)]
    return [name for name in found if name != "kube-root-ca.crt"]


@virtual(nodes=0, controllers=("garbage-collector-controller",), scheduler=False)
async def test_it_is_not_changed_and_is_deleted_with_its_owner(cluster: VirtualCluster) -> None:
    async with cluster.running(operator(Codes())):
        await cluster.client.create(safe())
        await cluster.settle()
        made = await cluster.client.get(SECRET, "s", "default")
        assert made["metadata"]["ownerReferences"][0]["name"] == "s"
        assert await names(cluster) == ["a", "s-log"]

        await cluster.client.patch(SECRET, "s", {"metadata": {"labels": {"kept": "mine"}}}, "default")
        await change(cluster, names=["b"])
        assert await names(cluster) == ["b", "s-log"], "what was applied before is pruned"
        await change(cluster, locked=False, names=[])
        assert await names(cluster) == ["s-log"]
        kept = await cluster.client.get(SECRET, "s", "default")
        assert (kept["metadata"]["uid"], kept["data"]) == (made["metadata"]["uid"], made["data"])
        assert kept["metadata"]["labels"] == {"kept": "mine"}

        await cluster.client.delete(SECRET, "s", "default")
        await change(cluster, locked=True)
        assert (await cluster.client.get(SECRET, "s", "default"))["data"] != made["data"], "nothing is remembered"

        await cluster.client.delete(Safe.ref, "s", "default")
        await cluster.sleep(60)
        assert await cluster.find(SECRET, "s") is None
        assert await names(cluster) == ["s-log"], "owned by nobody"


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_an_existing_object_is_not_changed(cluster: VirtualCluster) -> None:
    mine = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await cluster.client.create({**mine, "stringData": {"c": "chosen by me"}})
    async with cluster.running(operator(Codes())):
        await cluster.client.create(safe())
        await cluster.settle()
    found = await cluster.client.get(SECRET, "s", "default")
    assert "ownerReferences" not in found["metadata"] and "labels" not in found["metadata"]


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_child_that_was_applied_can_become_one_that_is_created_once(cluster: VirtualCluster) -> None:
    async def applied(ctx: Context[SafeSpec, Any], safe: Object[SafeSpec, Any]) -> None:
        await ctx.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": safe.name}})

    async with cluster.running(Operator("safes", Controller(Safe, applied, owns=OWNS))):
        await cluster.client.create(safe())
        await cluster.settle()
    before = await cluster.client.get(SECRET, "s", "default")
    async with cluster.running(operator(Codes())):
        await cluster.settle()
    assert await cluster.client.get(SECRET, "s", "default") == before


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_child_in_another_scope_cannot_be_owned(cluster: VirtualCluster) -> None:
    refused: list[str] = []

    async def out_of_reach(ctx: Context[SafeSpec, Any], safe: Object[SafeSpec, Any]) -> None:
        elsewhere = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "kube-system"}}
        everywhere = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
        for child in (elsewhere, everywhere):
            with pytest.raises(ValueError, match="own a") as error:
                await ctx.make_once(child)
            refused.append(str(error.value))
            await ctx.make_once(child, owned=False)

    async with cluster.running(Operator("safes", Controller(Safe, out_of_reach))):
        await cluster.client.create(safe())
        await cluster.settle()
    assert len(refused) == 2
    assert await cluster.find(SECRET, "x", "kube-system") and await cluster.find(("v1", "Namespace"), "x", "")


async def look_at_the_code(cluster: VirtualCluster, codes: Codes) -> None:
    codes.seen.add((await cluster.client.get(SECRET, "s", "default"))["data"]["c"])
    assert len(codes.seen) == 1, "whenever one looks, it is the same"


async def story(cluster: VirtualCluster, codes: Codes) -> None:
    await cluster.client.create(safe())
    await cluster.until(lambda: cluster.find(SECRET, "s"))
    await look_at_the_code(cluster, codes)
    await cluster.client.patch(Safe.ref, "s", {"spec": {"names": ["b"]}}, "default")


def test_a_random_value_is_chosen_once_despite_faults() -> None:
    explore(
        operator,
        story,
        outside=Codes,
        check=look_at_the_code,
        leave_out=("secrets:data.c",),
        faults=("crash-before", "crash-after", "lost-answer", "conflict", "rewind", "stale+crash-after"),
        limit=6,
        controllers=(),
        scheduler=False,
    )
