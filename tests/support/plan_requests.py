"""Requests for predictions, and a cluster to make them for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from why_scenarios import plain, workload

from setpoint.cluster.fork_endpoints import ForkEndpoints
from setpoint.testing import VirtualCluster

PATH = "/setpoint/v1/plan"
WEB = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default", "name": "web"}


@asynccontextmanager
async def planning(cluster: VirtualCluster, tolerations: tuple[int, int] = (300, 300)) -> AsyncIterator[None]:
    """Serve forks and plans, and begin with a Deployment and its Service."""
    endpoints = ForkEndpoints(cluster.embedded.api.resources, tolerations)
    for path, handler in endpoints.paths.items():
        cluster.embedded.api.serve_path(path, handler)
    task = asyncio.ensure_future(endpoints.run())
    await cluster.client.create(workload("Deployment", "web", 3))
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await cluster.client.create(plain("v1", "Service", "web", "default", spec=service))
    await cluster.settle()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def plan(cluster: VirtualCluster, *changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await cluster.client.sender.json("POST", PATH, body={"changes": [*changes], **more})
