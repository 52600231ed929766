"""Pods by plain CRI calls, for tests of the container runtime below the node agent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from real_containerd import Containerd

from setpoint.node.cri.client import CriClient, CriError
from setpoint.system import SystemClock

EXITED = 2
"""The state of a container that has ended."""
Message = dict[str, Any]
_counter = itertools.count(1)


@dataclass(frozen=True, slots=True)
class CriPod:
    """A sandbox, and the configuration that its containers need."""

    client: CriClient
    sandbox_id: str
    config: Message

    async def address(self) -> str:
        answer = await self.client.call("PodSandboxStatus", {"pod_sandbox_id": self.sandbox_id})
        return str(answer.status.network.ip)

    async def start(self, image: str, *command: str, name: str = "main", **config: Any) -> str:
        """Pull an image, start a container and return its id."""
        spec = {"image": image}
        await self.client.call("PullImage", {"image": spec})
        container = {
            "metadata": {"name": name},
            "image": spec,
            "command": list(command),
            "log_path": f"{name}.log",
            **config,
        }
        request = {"pod_sandbox_id": self.sandbox_id, "config": container, "sandbox_config": self.config}
        answer = await self.client.call("CreateContainer", request)
        await self.client.call("StartContainer", {"container_id": answer.container_id})
        return str(answer.container_id)

    async def execute(self, container_id: str, *command: str) -> str:
        """Return what a command prints in a container. Raises AssertionError if it fails."""
        request = {"container_id": container_id, "cmd": list(command), "timeout": 20}
        answer = await self.client.call("ExecSync", request, timeout=30.0)
        output = (answer.stdout + answer.stderr).decode()
        assert answer.exit_code == 0, f"{command}: {answer.exit_code}: {output}"
        return str(output)

    async def exited(self, container_id: str) -> Any:
        """Return the status of a container that has ended. Raises AssertionError if it does not end."""
        for _ in range(400):
            status = (await self.client.call("ContainerStatus", {"container_id": container_id})).status
            if status.state == EXITED:
                return status
            await asyncio.sleep(0.05)
        raise AssertionError("the container has not ended")

    async def remove(self) -> None:
        request = {"pod_sandbox_id": self.sandbox_id}
        for attempt in range(5):
            try:
                await self.client.call("StopPodSandbox", request)
                break
            except (
                CriError
            ):  # containerd cannot stop a container in the moment in which it ends; agents repeat the call
                if attempt == 4:
                    raise
                await asyncio.sleep(0.2)
        await self.client.call("RemovePodSandbox", request)


@asynccontextmanager
async def cri_client(containerd: Containerd) -> AsyncIterator[CriClient]:
    client = CriClient(containerd.endpoint, SystemClock())
    try:
        yield client
    finally:
        client.close()


async def run_sandbox(client: CriClient, containerd: Containerd, **config: Any) -> CriPod:
    """Run a sandbox with its cgroup under that of the machine."""
    name = f"pod-{next(_counter)}"
    full = {
        "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"},
        "hostname": name,
        "log_directory": str(containerd.directory / "logs" / name),
        "linux": {"cgroup_parent": f"{containerd.cgroup_root}/kubepods/{name}"},
        **config,
    }
    answer = await client.call("RunPodSandbox", {"config": full}, timeout=60.0)
    return CriPod(client, answer.pod_sandbox_id, full)
