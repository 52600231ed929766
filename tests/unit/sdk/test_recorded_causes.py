"""Operators state the triggers of their writes without doing anything, and their reasons with one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from setpoint.meta.cause import WriteCause, decode
from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator
from setpoint.testing import VirtualCluster, virtual


@dataclass
class Spec:
    pages: int = 1


Website = Kind("example.com/v1", "Website", spec=Spec)
ConfigMap = Kind("v1", "ConfigMap")


@virtual(nodes=0)
async def test_the_writes_of_an_operator_have_triggers_and_a_reason(cluster: VirtualCluster) -> None:
    async def publish(ctx: Context[Any, Any], website: Object[Any, Any]) -> None:
        ctx.because(f"{website.spec.pages} pages are wanted")
        page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}}
        await ctx.apply({**page, "data": {"pages": str(website.spec.pages)}})

    async def cause_of(obj: Obj) -> WriteCause:
        revision = int(obj["metadata"]["resourceVersion"])
        (found,) = await cluster.embedded.api.resources.store.causes(revision - 1, 1)
        return decode(found.cause)

    async with cluster.running(Operator("website", Controller(Website, publish, owns=(ConfigMap,)))):
        meta = {"name": "home", "namespace": "default"}
        await cluster.client.create({"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {}})
        await cluster.settle()
        changed = await cluster.client.patch(Website.ref, "home", {"spec": {"pages": 2}}, "default")
        await cluster.settle()
        cause = await cause_of(await cluster.client.get(ConfigMap.ref, "page", "default"))
        assert cause.verb == "apply" and cause.claim.reconcile.startswith("website-operator/")
        assert cause.claim.triggers == (int(changed["metadata"]["resourceVersion"]),)
        assert cause.claim.key == "default/home" and cause.claim.reason == "2 pages are wanted"
    # An operator that starts acts on what exists.
    await cluster.client.delete(ConfigMap.ref, "page", "default")
    async with cluster.running(Operator("website", Controller(Website, publish, owns=(ConfigMap,)))):
        await cluster.settle()
        cause = await cause_of(await cluster.client.get(ConfigMap.ref, "page", "default"))
        assert cause.claim.besides == "start"
