"""`wait`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from command_line import Result, Typed
from local_server import LocalServer

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


async def begun(typed: Typed, line: str) -> asyncio.Future[Result]:
    waiting = asyncio.ensure_future(typed.run(line))
    for _ in range(60):
        await asyncio.sleep(0)
    return waiting


async def set_status(server: LocalServer, **status: Any) -> None:
    await server.client.patch(("v1", "Pod"), "web", {"status": status}, "default", subresource="status")


async def test_wait_for_a_condition(typed: Typed, local_server: LocalServer) -> None:
    await local_server.client.create(POD)
    waiting = await begun(typed, "wait --for=condition=ready pod/web")
    await set_status(local_server, conditions=[{"type": "Ready", "status": "False"}])
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    await set_status(local_server, conditions=[{"type": "Ready", "status": "True"}])
    done = await asyncio.wait_for(waiting, 5)
    assert (done.code, done.out) == (0, "pod/web condition met\n")


async def test_wait_for_values_deletion_and_creation(typed: Typed, local_server: LocalServer) -> None:
    waiting = await begun(typed, "wait --for=create --for=jsonpath='{.status.phase}'=Pending pod/web")
    await local_server.client.create(POD)
    await local_server.clock.advance(1)
    done = await asyncio.wait_for(waiting, 5)
    assert (done.code, done.out) == (0, "pod/web condition met\npod/web condition met\n")
    waiting = await begun(typed, "wait --for=delete pods -l app=web")
    await local_server.client.delete(("v1", "Pod"), "web", "default", grace_period=0)
    assert (await asyncio.wait_for(waiting, 5)).out == "pod/web condition met\n"
    assert await typed("wait --for=delete pod/web") == ""


async def test_wait_times_out(typed: Typed, local_server: LocalServer) -> None:
    await local_server.client.create(POD)
    waiting = await begun(typed, "wait --for=condition=Ready pod/web --timeout=5s")
    await local_server.clock.advance(5)
    done = await asyncio.wait_for(waiting, 5)
    assert (done.code, done.err) == (1, "error: timed out waiting for the condition on pods/web\n")
    assert "condition not met for pods/web" in await typed.refused("wait --for=condition=Ready pod/web --timeout=0")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("wait pod/web", "unrecognized condition: []"),
        ("wait --for=odd pod/web", 'unrecognized condition: "odd"'),
        ("wait --for=jsonpath='{.a}'= pod/web", "jsonpath wait has to have a value after equal sign"),
        ("wait --for=jsonpath='{.a}'=b=c pod/web", "jsonpath wait format must be"),
        ("wait --for=condition=Ready pod/none", 'Error from server (NotFound): pods "none" not found'),
        ("wait --for=condition=Ready pods --all", "no matching resources found"),
        ("wait --for=jsonpath='{.metadata.labels}'=b pod/web", "leads to a nested object or list which is not"),
    ],
)
async def test_invalid_conditions_are_rejected(
    typed: Typed, local_server: LocalServer, line: str, complaint: str
) -> None:
    if "--all" not in line:
        await local_server.client.create(POD)
    assert complaint in await typed.refused(line)
