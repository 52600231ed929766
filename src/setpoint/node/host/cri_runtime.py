"""The container runtime of a real node: implements ContainerRuntime over CRI.

What takes time runs as an operation of `PodExecutor`; what the runtime has is in `ObservedState`. Nothing else is kept
that a restart of the agent would lose.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from setpoint.meta.clock import Clock
from setpoint.node.container_state import INITIAL_BACKOFF
from setpoint.node.cri.client import CriClient
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.container_manager import ContainerManager, PodVolumes
from setpoint.node.host.hooks import HookRunner, HookTarget
from setpoint.node.host.images import NodeImages, SecretReader
from setpoint.node.host.observed_state import ObservedContainer
from setpoint.node.host.pod_config import PodConfigSettings
from setpoint.node.host.pod_executor import PodExecutor, concurrent_starts
from setpoint.node.host.probes import HostProber
from setpoint.node.host.runtime_labels import is_outdated
from setpoint.node.host.runtime_observer import EventStream, RuntimeObserver
from setpoint.node.host.sandbox_manager import PodCgroups, RuntimeHandler, SandboxManager
from setpoint.node.host.termination_message import message_limit, truncate
from setpoint.node.host.volumes.interface import VolumeError
from setpoint.node.runtime.interface import (
    ContainerConfig,
    ContainerRecord,
    EnvironmentProvider,
    HookResult,
    ImageLookup,
    Operation,
    PodRecords,
    ProbeResult,
    PullResult,
    SandboxResult,
    StartResult,
)
from setpoint.tasks import run_all

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.node_state import NodeState

_REFRESH_SECONDS: Final = 60.0
"""Seconds after which the contents of a Pod's volumes are brought up to date again."""
_ORPHAN_GRACE: Final = 2
"""Seconds between SIGTERM and SIGKILL for the containers of a Pod that is not known any more."""
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 60.0
"""Seconds between two attempts to remove a Pod."""

log = logging.getLogger("setpoint.node")


class PodNetwork(Protocol):
    """The packet rules for Pods."""

    async def connect(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Put the rules for a Pod in force. Called when its sandbox has addresses, before its containers start."""
        ...

    def disconnect(self, uid: str) -> None:
        """Remove the rules for a Pod whose sandbox has ended."""
        ...


class NoPodNetwork:
    """A PodNetwork without rules, for nodes whose network others provide."""

    async def connect(self, pod: Pod, addresses: Sequence[str]) -> None:
        """There is nothing to put in force."""

    def disconnect(self, uid: str) -> None:
        """There is nothing to remove."""


class CriRuntime:
    """Implements ContainerRuntime for the Pods of one real node."""

    def __init__(
        self,
        client: CriClient,
        events: EventStream,
        volumes: PodVolumes,
        cgroups: PodCgroups,
        secrets: SecretReader,
        settings: PodConfigSettings,
        pool: BlockingPool,
        clock: Clock,
        *,
        cores: int = 1,
        network: PodNetwork | None = None,
        resolv_conf: Path = Path("/etc/resolv.conf"),
        runtime_handler: RuntimeHandler = lambda pod: "",
    ) -> None:
        """Create the runtime of the node in `settings`. `cores` are those of the machine, and `resolv_conf` is its
        resolver configuration."""
        self.version = ""
        """The version of the container runtime; empty before its first answer."""
        self.on_change: Callable[[str], None] = lambda uid: None
        self.observer = RuntimeObserver(client, events, settings.node_name, pool, clock)
        self.state = self.observer.state
        self.images = NodeImages(client, secrets, clock)
        self._executor = PodExecutor(concurrent_starts(cores))
        self._sandboxes = SandboxManager(
            client, self.observer, cgroups, settings, pool, clock, resolv_conf, runtime_handler
        )
        self._containers = ContainerManager(client, self.observer, self._sandboxes, volumes, settings, pool, clock)
        self._prober = HostProber(client, clock)
        self._hooks = HookRunner(client, settings.directories, pool, clock)
        self._volumes = volumes
        self._network: PodNetwork = network or NoPodNetwork()
        self._cgroups = cgroups
        self._directories = settings.directories
        self._pool = pool
        self._clock = clock
        self._pods: dict[str, Pod] = {}
        """The Pods that the agent has requested something for, by uid."""
        self._removing: set[str] = set()
        """The uids of deleted Pods of which something is left."""
        self._refreshing: dict[str, bool] = {}
        """The uids of Pods whose volumes are being refreshed, and whether that must be done again afterwards."""
        self._mounted: dict[str, EnvironmentProvider] = {}
        """The providers of the Pods whose volumes are mounted, by uid."""
        self._executor.on_change = self.state.on_change = lambda uid: self.on_change(uid)
        self.state.message_limit = self._message_limit

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Observe the container runtime until cancelled. Containers outlive this."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.observer.run())
                group.create_task(self._refresh_periodically())
                await self.observer.listed.wait()
                self.version = self.observer.runtime_version
        finally:
            await self._executor.stop()
            await self.images.stop()

    async def listed(self) -> None:
        """Return when the container runtime has been listed completely for the first time. Before that, nothing is
        known about containers that outlived the agent."""
        await self.observer.listed.wait()

    def runtime_error(self) -> str:
        """Return why the node is not ready because of its container runtime; empty if there is no reason."""
        return self.observer.runtime_error()

    @property
    def initial_backoff(self) -> float:
        return INITIAL_BACKOFF

    # -- volumes and sandbox -------------------------------------------------------------------------------------------

    def mount_volumes(self, pod: Pod, provider: EnvironmentProvider) -> Operation[Sequence[str]]:
        uid = self._know(pod)

        async def mount() -> Sequence[str]:
            await self._volumes.mount(pod, provider)
            if uid in self._pods:
                self._mounted[uid] = provider
            return ()

        return self._executor.run_in_order(uid, mount, _mount_messages)

    def create_sandbox(self, pod: Pod, node: NodeState) -> Operation[SandboxResult]:
        uid = self._know(pod)

        async def create() -> SandboxResult:
            sandbox = await self._sandboxes.ensure(pod)
            await self._network.connect(pod, sandbox.ips)
            warnings = (await self._sandboxes.dns(pod)).warnings
            return SandboxResult(sandbox.ips or node.addresses, warnings=warnings)

        return self._executor.run_in_order(uid, create, lambda error: SandboxResult((), _text(error)), is_start=True)

    def sandbox_ready(self, uid: str) -> bool:
        return self.state.ready_sandbox(uid) is not None

    def restore_sandbox(self, pod: Pod, node: NodeState) -> Sequence[str] | None:
        sandbox = self.state.ready_sandbox(self._know(pod))
        return None if sandbox is None else sandbox.ips or node.addresses

    def stop_pod(self, uid: str) -> Operation[str]:
        async def stop() -> str:
            await self._sandboxes.stop(uid)
            self._network.disconnect(uid)
            self._mounted.pop(uid, None)
            await self._volumes.unmount(uid)
            await self._cgroups.remove_pod(uid)
            return ""

        return self._executor.run_in_order(uid, stop, _text)

    def remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._mounted.pop(uid, None)
        if uid not in self._removing:
            self._removing.add(uid)
            self._executor.start(self._remove_until_done(uid))

    def is_removing(self, uid: str) -> bool:
        """Return whether something of a deleted Pod is left."""
        return uid in self._removing

    async def orphans(self, known: Collection[str]) -> set[str]:
        """Return the uids of Pods in the container runtime, or with a directory, that are neither `known` nor being
        removed. Call it only when all Pods of the node are known, and the container runtime has been listed."""
        directories = await self._pool.run(_names, self._directories.pods)
        return (self.state.uids() | directories) - set(known) - self._removing

    async def remove_orphan(self, uid: str) -> None:
        """End and remove everything of a Pod that does not exist any more. What fails is logged, and may be
        repeated."""
        running = [each for each in self.state.containers(uid) if each.running]
        await run_all(*(self._containers.try_stop(each, _ORPHAN_GRACE) for each in running))
        await self._try_remove(uid)

    async def _remove_until_done(self, uid: str) -> None:
        pause = _FIRST_PAUSE
        while not await self._try_remove(uid):
            await self._clock.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        self._removing.discard(uid)

    async def _try_remove(self, uid: str) -> bool:
        """Return whether everything of a Pod is removed."""
        try:
            async with self._executor.in_order(uid):
                await self._remove(uid)
        except Exception as error:
            log.warning("Pod %s cannot be removed yet: %s", uid, error)
            return False
        return True

    async def _remove(self, uid: str) -> None:
        await self._sandboxes.remove(uid)
        self._network.disconnect(uid)
        await self._volumes.unmount(uid)
        await self._cgroups.remove_pod(uid)
        await self._pool.run(self._remove_logs, uid)
        # The directory of a Pod is removed last: while it exists, a restarted agent and `setpoint node leave` know
        # that something of the Pod may be left.
        await self._volumes.remove(uid)

    def _remove_logs(self, uid: str) -> None:
        """Remove the logs of a Pod. Blocks."""
        for logs in self._directories.logs.glob(f"*_*_{escape(uid)}"):
            shutil.rmtree(logs)

    # -- images --------------------------------------------------------------------------------------------------------

    def find_image(self, image: str, pod: Pod, node: NodeState) -> Operation[ImageLookup]:
        uid = self._know(pod)
        return self._executor.run(uid, lambda: self.images.find(image), lambda error: ImageLookup(None, _text(error)))

    def pull_image(self, image: str, pod: Pod, node: NodeState, at: float) -> Operation[PullResult]:
        uid = self._know(pod)
        return self._executor.run(
            uid, lambda: self.images.pull(image, pod), lambda error: PullResult(None, _text(error))
        )

    # -- containers ----------------------------------------------------------------------------------------------------

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> Operation[StartResult]:
        self._know(config.pod)
        return self._executor.run_in_order(
            uid,
            lambda: self._containers.start(config),
            lambda error: StartResult(None, _text(error)),
            is_start=True,
        )

    def stop_container(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        container = self.state.current(uid, name)
        if container is not None and container.running:
            self._executor.start(self._containers.stop(container, grace_seconds))

    def kill_container(self, uid: str, name: str, at: float, reason: str) -> None:
        container = self.state.current(uid, name)
        if container is not None and container.running:
            container.kill_reason = reason
            self._executor.start(self._containers.stop(container, 0.0))

    def update_resources(self, uid: str, config: ContainerConfig) -> Operation[str]:
        pod = config.pod

        async def update() -> str:
            await self._containers.update_resources(config)
            await self._cgroups.update_pod(pod)
            return ""

        return self._executor.run_in_order(self._know(pod), update, _text)

    def update_pod(self, uid: str, pod: Pod) -> None:
        before = self._pods.get(uid)
        if before is None:
            return
        self._pods[uid] = pod
        fields = ("labels", "annotations")
        if any(before["metadata"].get(field) != pod["metadata"].get(field) for field in fields):
            self.refresh_volumes(uid)

    def restore_container(
        self, uid: str, config: ContainerConfig, reported: Mapping[str, Any], now: float
    ) -> ContainerRecord | None:
        self._know(config.pod)
        for each in self.state.containers(uid, config.name):
            if each.record is not None and each.record.id == reported.get("containerID"):
                each.interrupted = False
        container = self.state.current(uid, config.name)
        if container is None or container.record is None:
            return None
        container.record.outdated = is_outdated(container.annotations, config.spec)
        container.record.message = truncate(container.record.message, self._message_limit(uid))
        return container.record

    def advance(self, uid: str, now: float) -> float | None:
        return None

    def records(self, uid: str) -> PodRecords:
        return self.state.records(uid)

    def power_off(self, uid: str, at: float) -> None:
        for container in self.state.containers(uid):
            if container.running:
                self._executor.start(self._containers.stop(container, 0.0))

    # -- probes and hooks ----------------------------------------------------------------------------------------------

    def probe(
        self, uid: str, container: Mapping[str, Any], kind: str, spec: Mapping[str, Any], pod: Pod, ip: str
    ) -> Operation[ProbeResult]:
        def container_id() -> str:
            found = self._running(uid, container["name"])
            return found.id if found is not None else ""

        return self._executor.run(
            uid,
            lambda: self._prober.probe(container, spec, pod, ip, container_id),
            lambda error: ProbeResult(False, _text(error), errored=True),
        )

    def run_hook(
        self, uid: str, container: Mapping[str, Any], hook: Mapping[str, Any], at: float, *, pre_stop: bool
    ) -> Operation[HookResult]:
        async def run() -> HookResult:
            found = self._running(uid, container["name"])
            sandbox = next(iter(self.state.sandboxes(uid)), None)
            if found is None or sandbox is None:
                return HookResult(False, f"container {container['name']} is not running")
            pod = f"{sandbox.name}_{sandbox.namespace}({uid})"
            target = HookTarget(uid, pod, found.id, sandbox.ips[0] if sandbox.ips else "")
            return await self._hooks.run(target, container, hook, pre_stop=pre_stop)

        return self._executor.run(uid, run, lambda error: HookResult(False, _text(error)))

    # -- volumes that follow other objects -----------------------------------------------------------------------------

    def refresh_volumes(self, uid: str) -> None:
        """Bring the contents of the Pod's mounted volumes up to date soon, because an object that they are projected
        from has changed."""
        if uid in self._refreshing:
            self._refreshing[uid] = True
        elif uid in self._mounted:
            self._refreshing[uid] = False
            self._executor.start(self._refresh(uid))

    async def _refresh_periodically(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_SECONDS)
            for uid in [*self._mounted]:
                self.refresh_volumes(uid)

    async def _refresh(self, uid: str) -> None:
        again = True
        while again:
            self._refreshing[uid] = False
            # Volumes that were unmounted must not be mounted again.
            async with self._executor.in_order(uid):
                pod, provider = self._pods.get(uid), self._mounted.get(uid)
                if pod is None or provider is None:
                    break
                try:
                    await self._volumes.refresh(pod, provider)
                except Exception as error:
                    log.warning("the volumes of Pod %s are not up to date: %s", uid, error)
            again = self._refreshing[uid]
        del self._refreshing[uid]

    # -- internal ------------------------------------------------------------------------------------------------------

    def _know(self, pod: Pod) -> str:
        uid: str = pod["metadata"]["uid"]
        self._pods[uid] = pod
        return uid

    def _message_limit(self, uid: str) -> int:
        pod = self._pods.get(uid)
        return message_limit(len(_containers(pod)) if pod is not None else 1)

    def _running(self, uid: str, name: str) -> ObservedContainer | None:
        container = self.state.current(uid, name)
        return container if container is not None and container.running else None


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    spec: Mapping[str, Any] = pod["spec"]
    return [each for name in ("initContainers", "containers", "ephemeralContainers") for each in spec.get(name) or ()]


def _mount_messages(error: Exception) -> Sequence[str]:
    return error.messages if isinstance(error, VolumeError) else (_text(error),)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _names(directory: Path) -> set[str]:
    """Return the names of the entries of a directory; none if it does not exist. Blocks."""
    with suppress(FileNotFoundError):
        return {each.name for each in directory.iterdir()}
    return set()
