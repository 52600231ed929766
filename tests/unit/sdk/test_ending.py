"""Stopping a controller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from setpoint.cluster.virtual.link import Link, LinkedClient
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual


@dataclass
class PotSpec:
    size: int = 1


Pot = Kind("example.com/v1", "Pot", spec=PotSpec)


@virtual(nodes=0, controllers=())
async def test_a_controller_stops_while_the_server_is_unreachable(cluster: VirtualCluster) -> None:
    async def endless(ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        ctx.condition("Ready", False, "Working")
        await asyncio.Event().wait()
        return None

    link = Link("pots")
    operator = Operator("pots", Controller(Pot, endless))
    await operator.install(cluster.client, cluster.clock)
    manager = operator.manager(LinkedClient(cluster.client, link), cluster.clock, RandomIds(7))
    running = asyncio.ensure_future(manager.run())
    meta = {"name": "brown", "namespace": "default"}
    await cluster.client.create({"apiVersion": "example.com/v1", "kind": "Pot", "metadata": meta, "spec": {}})
    await cluster.sleep(1)
    link.severed = True
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=60)
    assert done
