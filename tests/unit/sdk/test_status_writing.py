"""The status of a reconcile: which parts of it are written, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from setpoint.sdk import Conflict, Context, Controller, Kind, Object, Operator, Result, Scale
from setpoint.testing import VirtualCluster, virtual


@dataclass
class PotSpec:
    size: int = 1


@dataclass
class PotStatus:
    seen: dict[str, int] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    sum: int = 0


Pot = Kind(
    "example.com/v1",
    "Pot",
    spec=PotSpec,
    status=PotStatus,
    scale=Scale(".spec.size", ".status.sum", ".status.selector"),
)


def pot(size: int = 1) -> dict[str, Any]:
    meta = {"name": "brown", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Pot", "metadata": meta, "spec": {"size": size}}


async def status(cluster: VirtualCluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.client.get(Pot.ref, "brown", "default"))["status"]
    return found


@virtual(nodes=0)
async def test_fields_that_are_no_longer_set_are_removed_at_any_depth(cluster: VirtualCluster) -> None:
    async def count(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        ctx.set_status(PotStatus(seen={str(size): size for size in range(obj.spec.size)}))
        return None

    async with cluster.running(Operator("pots", Controller(Pot, count))):
        await cluster.client.create(pot(3))
        await cluster.settle()
        assert (await status(cluster))["seen"] == {"0": 0, "1": 1, "2": 2}
        await cluster.client.patch(Pot.ref, "brown", {"spec": {"size": 1}}, "default")
        await cluster.settle()
        assert (await status(cluster))["seen"] == {"0": 0}


@virtual(nodes=0)
async def test_status_can_be_written_before_a_side_effect(cluster: VirtualCluster) -> None:
    noted: list[list[str]] = []

    async def step(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        if ctx.status.get("steps"):
            return None
        ctx.set_status(steps=["begun"])
        await ctx.save_status()
        noted.append((await status(cluster))["steps"])
        ctx.set_status(steps=["begun", "done"])
        await ctx.save_status()  # twice in one look, on what it wrote itself
        return None

    async with cluster.running(Operator("pots", Controller(Pot, step))):
        await cluster.client.create(pot())
        await cluster.settle()
        assert noted[0] == ["begun"]
        assert (await status(cluster))["steps"] == ["begun", "done"]


@virtual(nodes=0)
async def test_an_early_status_write_fails_on_a_stale_object(cluster: VirtualCluster) -> None:
    conflicts: list[Conflict] = []

    async def late(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        if not conflicts:
            await cluster.client.patch(Pot.ref, "brown", {"metadata": {"labels": {"a": "b"}}}, "default")
            ctx.set_status(steps=["begun"])
            with pytest.raises(Conflict) as caught:
                await ctx.save_status()
            conflicts.append(caught.value)
            raise caught.value
        return None

    async with cluster.running(Operator("pots", Controller(Pot, late))):
        await cluster.client.create(pot())
        await cluster.settle()
        assert len(conflicts) == 1


def test_the_definition_has_the_paths_of_the_scale_subresource() -> None:
    (version,) = Pot.definition()["spec"]["versions"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.sum",
        "labelSelectorPath": ".status.selector",
    }
