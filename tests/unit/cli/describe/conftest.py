from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Any

import pytest
from local_server import LocalServer

from setpoint.cli.describe import DescribeContext, describe

Described = Callable[..., Awaitable[str]]


@pytest.fixture
def ctx(local_server: LocalServer) -> DescribeContext:
    """The administrator, in UTC, on the first of January 2030."""
    return DescribeContext(local_server.client, local_server.clock, zone=UTC)


@pytest.fixture
def described(local_server: LocalServer, ctx: DescribeContext) -> Described:
    """The text for an object that is made for it, with the status that it shall have."""

    async def make(obj: dict[str, Any], ctx: DescribeContext = ctx) -> str:
        client = local_server.client
        resource = await client.resource((obj["apiVersion"], obj["kind"]))
        about = obj["metadata"]
        if resource.namespaced:
            about.setdefault("namespace", "default")
        await client.create({key: value for key, value in obj.items() if key != "status" or not resource.subresources})
        if "status" in obj:
            patch = {"status": obj["status"]}
            await client.patch(resource, about["name"], patch, about.get("namespace", ""), subresource="status")
        return await describe(await client.get(resource, about["name"], about.get("namespace", "")), resource, ctx)

    return make
