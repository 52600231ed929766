"""Runtimes of real nodes for tests: on a fake or a real container runtime, with volumes and cgroups that do nothing."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from setpoint.kinds.typed import Pod
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.events import RuntimeEvents
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cri_runtime import CriRuntime
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.pod_config import PodConfigSettings
from setpoint.node.host.sandbox_manager import RuntimeHandler
from setpoint.node.node_state import POD_NETWORK, AddressPool, NodeState
from setpoint.node.pod_status import PodState
from setpoint.node.runtime.files import Mount
from setpoint.node.runtime.interface import ContainerConfig, EnvironmentProvider, Operation, T
from setpoint.system import SystemClock
from setpoint.wire.grpc import Code

NODE_NAME = "node-1"
_TIMEOUT = 30.0
_uids = count(1)


class RecordingVolumes:
    """Volumes of Pods without any: remembers what it was asked for, and removes the directories of Pods."""

    def __init__(self, directories: NodeDirectories) -> None:
        self._directories = directories
        self.calls: list[tuple[str, str]] = []
        self.error = ""
        self.mounts: list[Obj] = []

    async def mount(self, pod: Pod, provider: EnvironmentProvider) -> None:
        self.calls.append(("mount", pod["metadata"]["uid"]))
        if self.error:
            raise RuntimeError(self.error)

    async def container_mounts(
        self,
        pod: Pod,
        container: Mapping[str, Any],
        environment: Mapping[str, str],
        image_volumes: Mapping[str, str],
    ) -> list[Obj]:
        return self.mounts

    async def refresh(self, pod: Pod, provider: EnvironmentProvider) -> None:
        self.calls.append(("refresh", pod["metadata"]["uid"]))

    async def unmount(self, uid: str) -> None:
        self.calls.append(("unmount", uid))

    async def remove(self, uid: str) -> None:
        self.calls.append(("remove", uid))
        shutil.rmtree(self._directories.pod(uid), ignore_errors=True)


class RecordingCgroups:
    """Cgroups that the container runtime creates itself."""

    def __init__(self, root: str = "/setpoint-test") -> None:
        self._root = root
        self.calls: list[tuple[str, str]] = []
        self.error = ""
        """The error of the removal of a Pod's cgroup."""

    async def create_pod(self, pod: Pod) -> None:
        self.calls.append(("create", pod["metadata"]["uid"]))

    async def update_pod(self, pod: Pod) -> None:
        self.calls.append(("update", pod["metadata"]["uid"]))

    async def remove_pod(self, uid: str) -> None:
        self.calls.append(("remove", uid))
        if self.error:
            raise OSError(self.error)

    def parent(self, pod: Pod) -> str:
        return f"{self._root}/pod{pod['metadata']['uid']}"


class Secrets(dict[str, ObjView]):
    """Secrets by name."""

    def secret(self, namespace: str, name: str) -> ObjView | None:
        return self.get(name)

    def add(self, name: str, text: str, kind: str = "kubernetes.io/dockerconfigjson") -> None:
        key = ".dockerconfigjson" if kind.endswith("json") else ".dockercfg"
        data = {key: b64encode(text.encode()).decode()}
        self[name] = {"metadata": {"name": name, "namespace": "default"}, "type": kind, "data": data}


class PlainProvider:
    """An environment without variables of other objects."""

    def __init__(self) -> None:
        self.pod_state = PodState("192.0.2.1")
        self.variables: dict[str, str] = {"PATH": "/bin:/usr/bin"}

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        return self.variables

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        return []


def make_pod(*containers: Obj, name: str = "web", uid: str = "", **spec: Any) -> Pod:
    """A Pod with a uid of its own."""
    uid = uid or f"00000000-0000-0000-0000-{next(_uids):012}"
    meta = {"name": name, "namespace": "default", "uid": uid, "labels": {"app": name}}
    defaults = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "dnsPolicy": "Default"}
    return cast(Pod, {"metadata": meta, "spec": {**defaults, **spec, "containers": list(containers)}})


def shell(script: str, name: str = "main", image: str = "busybox:1", **fields: Any) -> Obj:
    """A container that runs a script."""
    return {
        "name": name,
        "image": image,
        "command": ["/bin/sh", "-c", script],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **fields,
    }


def make_node() -> NodeState:
    return NodeState(NODE_NAME, "192.0.2.1", AddressPool(POD_NETWORK))


def uid_of(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def settings_for(directory: Path) -> PodConfigSettings:
    directories = NodeDirectories(directory / "node", directory / "logs", directory / "run")
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
    return PodConfigSettings(NODE_NAME, memory_capacity=4 << 30, directories=directories, cgroup_version=version)


class LossyClient(CriClient):
    """A client that loses one message: the request does not arrive, or its answer does not come back."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, SystemClock())
        self.calls: list[str] = []
        self.lose_at: int | None = None
        """The number of the call whose message is lost; None loses nothing."""
        self.lose_answer = True
        self.cut = False
        """Whether all calls after the lost one fail too, as when the agent has ended."""

    async def call(self, method: str, request: Mapping[str, Any] | None = None, *, timeout: float = 120.0) -> Any:
        number = len(self.calls)
        self.calls.append(method)
        lost = self.lose_at is not None and (number == self.lose_at or (self.cut and number > self.lose_at))
        if lost and (number != self.lose_at or not self.lose_answer):
            raise CriError(Code.UNAVAILABLE, "the request was lost")
        answer = await super().call(method, request, timeout=timeout)
        if lost:
            raise CriError(Code.UNAVAILABLE, "the answer was lost")
        return answer


class HostHarness:
    """A CriRuntime, and what tests need to wait for it."""

    def __init__(self, runtime: CriRuntime, client: CriClient, settings: PodConfigSettings) -> None:
        self.runtime = runtime
        self.client = client
        self.settings = settings
        self.volumes = cast(RecordingVolumes, runtime._volumes)
        self.cgroups = cast(RecordingCgroups, runtime._cgroups)
        self.secrets = cast(Secrets, runtime.images._secrets)
        self.node = make_node()
        self.provider = PlainProvider()
        self.changes: list[str] = []
        self._changed = asyncio.Event()
        runtime.on_change = self._on_change

    def _on_change(self, uid: str) -> None:
        self.changes.append(uid)
        self._changed.set()

    @property
    def now(self) -> float:
        return SystemClock().now().timestamp()

    async def wait(self, operation: Operation[T]) -> T:
        """Return the result of an operation."""
        await self.until(lambda: operation.result(self.now) is not None)
        result = operation.result(self.now)
        assert result is not None
        return result

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when a condition holds, which is checked after each change that the runtime announces."""
        async with asyncio.timeout(_TIMEOUT):
            while not condition():
                await self._changed.wait()
                self._changed.clear()

    async def poll(self, condition: Callable[[], bool]) -> None:
        """Return when a condition holds that no change announces."""
        async with asyncio.timeout(_TIMEOUT):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def config(self, pod: Pod, name: str = "main", attempt: int = 0) -> ContainerConfig:
        spec = next(each for each in pod["spec"]["containers"] if each["name"] == name)
        return ContainerConfig(name, spec["image"], spec["image"], attempt, spec, pod, self.provider)


@asynccontextmanager
async def host_runtime(
    endpoint: str,
    directory: Path,
    *,
    client: CriClient | None = None,
    cgroup_root: str = "/setpoint-test",
    runtime_handler: RuntimeHandler = lambda pod: "",
) -> AsyncIterator[HostHarness]:
    """Run a CriRuntime on a container runtime."""
    clock = SystemClock()
    client = client or CriClient(endpoint, clock)
    settings, pool = settings_for(directory), BlockingPool(4)
    runtime = CriRuntime(
        client,
        RuntimeEvents(endpoint, clock),
        RecordingVolumes(settings.directories),
        RecordingCgroups(cgroup_root),
        Secrets(),
        settings,
        pool,
        clock,
        cores=2,
        resolv_conf=directory / "resolv.conf",
        runtime_handler=runtime_handler,
    )
    harness = HostHarness(runtime, client, settings)
    running = asyncio.get_running_loop().create_task(runtime.run())
    try:
        await asyncio.wait_for(runtime.listed(), _TIMEOUT)
        yield harness
    finally:
        running.cancel()
        await asyncio.wait([running])
        client.close()
        pool.close()
        if not running.cancelled():
            running.result()
