"""Implements the kubelet API's interface to nodes for the real node of this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.node.cri.client import CriError
from setpoint.node.cri.enums import ContainerState
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cri_sessions import CriSessions
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.disk_usage import PodDiskUsage
from setpoint.node.host.log_files import LogFiles
from setpoint.node.host.log_rotation import ContainerLogFile, LogRotation
from setpoint.node.host.pod_connections import PodConnections
from setpoint.node.host.runtime_labels import is_owned
from setpoint.node.host.stats import Measurement, container_usage, node_usage, pod_usage
from setpoint.node.host.summary import summary
from setpoint.node.kubelet_api.interface import (
    KubeletApiError,
    LogOptions,
    NodeUsage,
    PodUsage,
    PortSession,
    ProbeCount,
    StreamOptions,
    StreamSession,
)
from setpoint.node.kubelet_api.logs import container_id_of, require_container
from setpoint.node.kubelet_api.worker_views import WorkerView, as_reported, probe_counts
from setpoint.node.runtime.interface import NoSuchContainer
from setpoint.wire.message import RawConnection

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_MAX_KNOWN_LOGS: Final = 4096


class Runtime(Protocol):
    """Calls methods of the Container Runtime Interface."""

    async def call(self, method: str, request: Mapping[str, Any] | None = None, *, timeout: float = ...) -> Any: ...


class NodeView(Protocol):
    """The state of the node."""

    @property
    def name(self) -> str: ...

    @property
    def object(self) -> ObjView | None:
        """The Node as last observed; None before its registration."""
        ...


class AgentView(Protocol):
    """The parts of the node agent that the kubelet's API uses."""

    @property
    def node(self) -> NodeView: ...

    def worker(self, namespace: str, name: str) -> WorkerView | None: ...

    def workers(self) -> Iterable[WorkerView]: ...


class StatsSource(Protocol):
    """Measures the usage of the machine, its Pods and their containers."""

    async def measure(self) -> Measurement:
        """Return a recent measurement. Raise CriError."""
        ...


class DiskStats(Protocol):
    """Measures the disk usage of Pods."""

    @property
    def pods(self) -> Mapping[str, PodDiskUsage]:
        """The usage by the uid of the Pod, as measured last."""
        ...


class HostNode:
    """A NodeHost for the Pods of an agent that runs real containers."""

    def __init__(
        self,
        agent: AgentView,
        runtime: Runtime,
        stats: StatsSource,
        disks: DiskStats,
        directories: NodeDirectories,
        pool: BlockingPool,
        clock: Clock,
        configuration: Obj | None = None,
    ) -> None:
        """`configuration` are the agent's settings as a KubeletConfiguration, which `/configz` shows."""
        self._agent = agent
        self._runtime = runtime
        self._stats = stats
        self._disks = disks
        self._directories = directories
        self._pool = pool
        self._clock = clock
        self._configuration = configuration
        self._log_files = LogFiles(pool, clock)
        self._sessions = CriSessions(runtime, clock)
        self._connections = PodConnections(runtime, clock)
        self._log_paths: dict[str, Path] = {}
        """The paths of the logs of running containers by the container's id."""

    def close(self) -> None:
        self._connections.close()

    # -- objects -------------------------------------------------------------------------------------------------------

    def names(self) -> Sequence[str]:
        return [self._agent.node.name]

    def is_reachable(self, node: str) -> bool:
        return node == self._agent.node.name

    def pod(self, namespace: str, name: str) -> Pod | None:
        worker = self._agent.worker(namespace, name)
        return as_reported(worker) if worker is not None else None

    def pods_on(self, node: str) -> Sequence[Pod]:
        return [as_reported(worker) for worker in self._agent.workers()] if node == self._agent.node.name else []

    def node(self, name: str) -> ObjView | None:
        return self._agent.node.object if name == self._agent.node.name else None

    def probe_counts(self, pod: Pod) -> Sequence[ProbeCount]:
        worker = self._agent.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return probe_counts(worker) if worker is not None else []

    def configuration(self) -> Obj | None:
        return self._configuration

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def read_log(
        self, pod: Pod, container: str, container_id: str, options: LogOptions
    ) -> bytes | AsyncGenerator[bytes, None]:
        identity = _bare(container_id)
        try:
            status = (await self._runtime.call("ContainerStatus", {"container_id": identity})).status
        except CriError:
            raise NoSuchContainer(container) from None
        path = Path(status.log_path)
        try:
            resolved = await self._pool.run(path.resolve, strict=True)
        except OSError as error:
            why = (error.strerror or "").lower()
            return f'failed to try resolving symlinks in path "{path}": lstat {path}: {why}\n'.encode()

        async def is_running() -> bool:
            try:
                now = (await self._runtime.call("ContainerStatus", {"container_id": identity})).status
            except CriError:
                return False
            return bool(now.state == ContainerState.RUNNING)

        if status.state != ContainerState.RUNNING:
            options = options._replace(follow=False)  # the log is complete
        return self._log_files.read(resolved, options, is_running)

    def log_rotation(self, max_size: int, max_files: int) -> LogRotation:
        """Return the rotation of the logs of this node's containers; the caller runs it. A log is rotated at `max_size`
        bytes, and `max_files` files of it are kept."""
        return LogRotation(
            self._running_logs, self._reopen_log, self._pool, self._clock, max_size=max_size, max_files=max_files
        )

    async def _running_logs(self) -> Iterable[ContainerLogFile]:
        wanted = {"state": {"state": ContainerState.RUNNING}}
        containers = (await self._runtime.call("ListContainers", {"filter": wanted})).containers
        own = [each.id for each in containers if is_owned(each.labels, self._agent.node.name)]
        self._log_paths = {known: path for known, path in self._log_paths.items() if known in own}
        for identity in own:
            if identity not in self._log_paths and len(self._log_paths) < _MAX_KNOWN_LOGS:
                status = (await self._runtime.call("ContainerStatus", {"container_id": identity})).status
                if status.log_path:
                    self._log_paths[identity] = Path(status.log_path)
        return [ContainerLogFile(identity, path) for identity, path in self._log_paths.items()]

    async def _reopen_log(self, container_id: str) -> None:
        await self._runtime.call("ReopenContainerLog", {"container_id": container_id})

    # -- streams -------------------------------------------------------------------------------------------------------

    async def exec(self, pod: Pod, container: str, argv: Sequence[str], options: StreamOptions) -> StreamSession:
        identity = _bare(container_id_of(pod, container, previous=False))
        return await self._sessions.exec(identity, argv, options)

    async def attach(self, pod: Pod, container: str, container_id: str, options: StreamOptions) -> StreamSession:
        tty = bool(require_container(pod, container).get("tty"))
        return await self._sessions.attach(_bare(container_id), options, tty=tty)

    def connect(self, pod: Pod, port: int) -> PortSession:
        async def run(client: RawConnection) -> str:
            return await self._connections.run(pod, port, client)

        return run

    async def checkpoint(self, pod: Pod, container: str) -> Sequence[str]:
        meta = pod["metadata"]
        directory = self._directories.root / "checkpoints"
        name = f"checkpoint-{meta['name']}_{meta['namespace']}-{container}-{format_time(self._clock.now())}.tar"
        location = str(directory / name)
        identity = _bare(container_id_of(pod, container, previous=False))
        try:
            await self._pool.run(directory.mkdir, mode=0o700, parents=True, exist_ok=True)
            await self._runtime.call("CheckpointContainer", {"container_id": identity, "location": location})
        except (CriError, OSError) as error:
            failed = f"checkpointing of {meta['namespace']}/{meta['name']}/{container} failed ({error})"
            raise KubeletApiError(500, failed) from None
        return [location]

    # -- usage ---------------------------------------------------------------------------------------------------------

    async def summary(self, node: str) -> Obj:
        return summary(node, await self._measured(), self.pods_on(node), self._disks.pods)

    async def usage(self, node: str) -> NodeUsage:
        measured, pods = await self._measured(), self.pods_on(node)
        details = {each["podRef"]["uid"]: each for each in summary(node, measured, pods, self._disks.pods)["pods"]}
        found: list[PodUsage] = []
        for pod in pods:
            uid = pod["metadata"]["uid"]
            stats = measured.pods.get(uid)
            if stats is not None and stats.containers:
                containers = {name: container_usage(each) for name, each in stats.containers.items()}
                found.append(PodUsage(pod, pod_usage(stats), containers, details[uid]))
        return NodeUsage(node_usage(measured.node), found)

    async def _measured(self) -> Measurement:
        try:
            return await self._stats.measure()
        except CriError as error:
            raise KubeletApiError(500, f"Internal Error: failed to list pod stats: {error}") from None


def _bare(container_id: str) -> str:
    """Return the runtime's id of a container, whose status shows it as `containerd://id`."""
    return container_id.rpartition("://")[2]
