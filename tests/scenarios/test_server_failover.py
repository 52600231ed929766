"""Components of a cluster with two API servers: when the one in use dies, hangs or stops, the work goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from component_process import component_process
from server_pair import ApiServerProcess, server_pair

from setpoint.client import Client, Unreachable
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.system import SystemClock

DEPLOYMENTS, PODS = builtin("deployments", "apps"), builtin("pods")
SLICES = builtin("endpointslices", "discovery.k8s.io")
CONTROLLERS = (
    "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,node-lifecycle-controller"
)


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


@asynccontextmanager
async def client_of(server: ApiServerProcess) -> AsyncIterator[Client]:
    client = connect(find_access(str(server.kubeconfig)), SystemClock())
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 60.0) -> float:
    """Return after how many seconds it became true."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        try:
            if await condition():
                return time.monotonic() - began
        except (ApiError, Unreachable):
            pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what} not within {seconds} s")


async def both_are_listed(client: Client) -> bool:
    found = await client.list(SLICES, "default", label_selector="kubernetes.io/service-name=kubernetes")
    return sum(len(each["endpoints"]) for each in found.items) == 2


async def running_pods(client: Client) -> int:
    found = await client.list(PODS, "default")
    return sum((pod.get("status") or {}).get("phase") == "Running" for pod in found.items)


def listed_in(file: Path) -> int:
    return len(json.loads(file.read_bytes())) if file.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], ids=lambda fault: fault.name)
async def test_a_deployment_scales_after_the_server_in_use_is_lost(tmp_path: Path, fault: signal.Signals) -> None:
    with server_pair(tmp_path) as (first, second), ExitStack() as stack:
        async with client_of(second) as client:
            await until(lambda: both_are_listed(client), "both servers in the EndpointSlices")
            # The kubeconfigs name the first server, which is on this machine and so the one in use.
            for name, *flags in (("controller-manager", CONTROLLERS), ("scheduler",), ("nodes", "--nodes=2")):
                stack.enter_context(component_process(name, first.kubeconfig, *flags))
            await client.create(deployment(2))
            await until(lambda: _have(client, 2), "2 Pods Running")
            list_file = first.directory / "servers.json"
            await until(_is(lambda: listed_in(list_file) == 2), "both servers in the file")

            os.kill(first.process.pid, fault)
            await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, "default")
            took = await until(lambda: _have(client, 5), "5 Pods Running")
            assert took < 20, took

            if fault is signal.SIGKILL:
                # A component that starts now knows the other server from the file.
                stack.enter_context(component_process("scheduler", first.kubeconfig))


async def _have(client: Client, wanted: int) -> bool:
    return await running_pods(client) == wanted


def _is(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def checked() -> bool:
        return condition()

    return checked
