"""The fake runtime behaves like containerd where tests depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_cri import FakeCri

from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import ContainerState, SandboxState
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks
from setpoint.wire.grpc import Code

POD = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "log_directory": "/logs"}


class Calls:
    """Calls with the requests of these tests."""

    def __init__(self, cri: FakeCri) -> None:
        self.cri = cri
        self.client = CriClient(cri.endpoint, SystemClock())

    async def sandbox(self) -> str:
        return str((await self.client.call("RunPodSandbox", {"config": POD})).pod_sandbox_id)

    async def create(self, sandbox: str, name: str = "main", attempt: int = 0) -> str:
        image = {"image": self.cri.add_image("busybox")}
        config = {"metadata": {"name": name, "attempt": attempt}, "image": image, "log_path": f"{name}.log"}
        return str(
            (await self.client.call("CreateContainer", {"pod_sandbox_id": sandbox, "config": config})).container_id
        )

    async def started(self, sandbox: str, name: str = "main") -> str:
        made = await self.create(sandbox, name)
        await self.client.call("StartContainer", {"container_id": made})
        return made

    async def stop(self, container: str, timeout: int = 30) -> None:
        await self.client.call("StopContainer", {"container_id": container, "timeout": timeout})

    async def status(self, container: str) -> Any:
        return (await self.client.call("ContainerStatus", {"container_id": container})).status


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    with FakeCri() as cri:
        made = Calls(cri)
        yield made
        made.client.close()


async def test_a_container_runs_from_creation_to_removal(calls: Calls) -> None:
    sandbox = await calls.sandbox()
    container = await calls.create(sandbox)
    assert len(container) == 64
    status = await calls.status(container)
    assert (status.state, status.started_at, status.log_path) == (ContainerState.CREATED, 0, "/logs/main.log")
    await calls.client.call("StartContainer", {"container_id": container})
    assert (await calls.status(container)).started_at >= status.created_at > 10**18
    await calls.stop(container)
    await calls.stop(container)
    status = await calls.status(container)
    assert (status.state, status.exit_code, status.reason) == (ContainerState.EXITED, 143, "Error")
    for _ in range(2):
        await calls.client.call("RemoveContainer", {"container_id": container})
    assert calls.cri.containers == {}


async def test_names_are_reserved_for_each_attempt(calls: Calls) -> None:
    sandbox = await calls.sandbox()
    await calls.create(sandbox)
    await calls.create(sandbox, attempt=1)
    with pytest.raises(CriError, match=r'failed to reserve container name "main_a_n_u_1": name .* is reserved for'):
        await calls.create(sandbox, attempt=1)
    with pytest.raises(CriError, match='failed to reserve sandbox name "a_n_u_0": name "a_n_u_0" is reserved for'):
        await calls.sandbox()


async def test_a_stopped_sandbox_ends_its_containers_and_has_no_address(calls: Calls) -> None:
    sandbox = await calls.sandbox()
    container = await calls.started(sandbox)
    for _ in range(2):
        await calls.client.call("StopPodSandbox", {"pod_sandbox_id": sandbox})
    status = (await calls.client.call("PodSandboxStatus", {"pod_sandbox_id": sandbox})).status
    assert (status.state, status.network.ip) == (SandboxState.NOT_READY, "")
    assert (await calls.status(container)).exit_code == 137
    with pytest.raises(CriError) as caught:
        await calls.create(sandbox, "other")
    assert caught.value.code is Code.NOT_FOUND
    await calls.client.call("RemovePodSandbox", {"pod_sandbox_id": sandbox})
    assert (calls.cri.sandboxes, calls.cri.containers) == ({}, {})


async def test_a_container_that_cannot_start_has_exited(calls: Calls) -> None:
    calls.cri.start_errors["main"] = 'exec: "/none": no such file or directory'
    container = await calls.create(await calls.sandbox())
    with pytest.raises(CriError, match="no such file"):
        await calls.client.call("StartContainer", {"container_id": container})
    status = await calls.status(container)
    assert (status.state, status.exit_code, status.reason) == (ContainerState.EXITED, 128, "StartError")
    assert status.message == calls.cri.start_errors["main"]


async def test_a_container_that_ignores_sigterm_is_killed_after_its_grace_period(calls: Calls) -> None:
    calls.cri.ignore_sigterm.add("main")
    container = await calls.started(await calls.sandbox())
    await calls.stop(container, timeout=1)
    assert (await calls.status(container)).exit_code == 137


async def test_a_call_that_waits_when_the_runtime_is_killed_has_no_effect(calls: Calls) -> None:
    calls.cri.ignore_sigterm.add("main")
    container = await calls.started(await calls.sandbox())
    calls.cri.second = 1000.0
    held = calls.cri.hold("RunPodSandbox")
    waiting = calls.client.call("RunPodSandbox", {"config": POD | {"hostname": "b"}})
    async with child_tasks(calls.stop(container, timeout=1), waiting) as both:
        await asyncio.to_thread(held.arrived)
        await asyncio.to_thread(calls.cri.stop)
        for one in both:
            with pytest.raises(CriError, match="code = Unavailable"):
                await one
    await asyncio.to_thread(calls.cri.start)
    assert (await calls.status(container)).state == ContainerState.RUNNING
    assert len(calls.cri.sandboxes) == 1


async def test_a_reboot_ends_everything_without_exit_codes(calls: Calls) -> None:
    container = await calls.started(await calls.sandbox())
    calls.cri.reboot()
    status = await calls.status(container)
    assert (status.exit_code, status.reason) == (255, "Unknown")
    assert calls.cri.sandbox("a").state == SandboxState.NOT_READY
