"""Starts, stops and removes the containers of Pods.

Every method can be repeated after a lost answer, or a crash of the agent or of the runtime: it observes the runtime
first, and does what is left to do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import ContainerState
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.container_config import (
    container_config,
    hosts_path,
    log_path,
    mounts_hosts_file,
    termination_log_path,
)
from setpoint.node.host.hooks import marker_path
from setpoint.node.host.observed_state import ObservedContainer, Sandbox
from setpoint.node.host.pod_config import PodConfigSettings
from setpoint.node.host.pod_hostname import hosts_file
from setpoint.node.host.resources import container_resources
from setpoint.node.host.runtime_labels import is_outdated
from setpoint.node.host.runtime_observer import RuntimeObserver
from setpoint.node.host.sandbox_manager import SandboxManager
from setpoint.node.host.security import ImageUser
from setpoint.node.runtime.interface import ContainerConfig, EnvironmentProvider, StartResult
from setpoint.wire.grpc import Code

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_TIMEOUT: Final = 120.0
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 10.0
"""Seconds between two attempts to stop a container."""
_START_PAUSES: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between attempts to remove a container that an earlier agent may be starting."""
_NO_ANSWER: Final = (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE)
"""Errors of a call whose result is not known."""
_NODE_HOSTS: Final = Path("/etc/hosts")
_CONFIG_ERROR: Final = "CreateContainerConfigError"
_RUN_ERROR: Final = "RunContainerError"

log = logging.getLogger("setpoint.node")


class PodVolumes(Protocol):
    """The volumes of Pods."""

    async def mount(self, pod: Pod, provider: EnvironmentProvider) -> None:
        """Mount the volumes of a Pod, or verify that they are mounted. Raises an exception with the kubelet's
        message."""
        ...

    async def container_mounts(
        self,
        pod: Pod,
        container: Mapping[str, Any],
        environment: Mapping[str, str],
        image_volumes: Mapping[str, str],
    ) -> list[Obj]:
        """Return CRI's Mounts of a container's volumeMounts. `image_volumes` are the ids of the images that are mounted
        as volumes, by the name of the volume. Raise ContainerConfigError."""
        ...

    async def refresh(self, pod: Pod, provider: EnvironmentProvider) -> None:
        """Bring the contents of volumes up to date that follow other objects."""
        ...

    async def unmount(self, uid: str) -> None: ...

    async def remove(self, uid: str) -> None:
        """Unmount all volumes of a Pod, and remove its directory with everything in it."""
        ...


class ContainerManager:
    """The containers of a node's Pods."""

    def __init__(
        self,
        client: CriClient,
        observer: RuntimeObserver,
        sandboxes: SandboxManager,
        volumes: PodVolumes,
        settings: PodConfigSettings,
        pool: BlockingPool,
        clock: Clock,
    ) -> None:
        self._client = client
        self._observer = observer
        self._state = observer.state
        self._sandboxes = sandboxes
        self._volumes = volumes
        self._settings = settings
        self._directories = settings.directories
        self._pool = pool
        self._clock = clock
        self._deadlines: dict[str, float] = {}
        """The monotonic times at which containers that are being stopped are killed, by id."""

    # -- starting ------------------------------------------------------------------------------------------------------

    async def start(self, config: ContainerConfig) -> StartResult:
        """Create and start a container, unless this run of it exists already."""
        uid = config.pod["metadata"]["uid"]
        try:
            await self._observer.relist(uid)
            sandbox = self._state.ready_sandbox(uid)
            if sandbox is None:
                return StartResult(None, "the sandbox of the Pod is not ready")
            existing = await self._adopt(uid, config)
            if existing is not None and existing.record is not None:
                # The spec may have changed after the request whose answer was lost.
                existing.record.outdated = is_outdated(existing.annotations, config.spec)
                return StartResult(existing.record)
            request = await self._prepare(config, sandbox)
            answer = await self._client.call("CreateContainer", request, timeout=_TIMEOUT)
        except ContainerConfigError as problem:
            return StartResult(None, str(problem), _CONFIG_ERROR)
        except CriError as error:
            return StartResult(None, error.message)
        # The container is known before it runs, so that the event of its end is not missed.
        container = self._state.add_container(
            ObservedContainer(
                id=answer.container_id,
                uid=uid,
                sandbox_id=sandbox.id,
                name=config.name,
                attempt=config.attempt,
                created_at=self._clock.now().timestamp(),
            )
        )
        result = await self._start(container)
        await self._remove_old_runs(uid, config)
        return result

    async def _adopt(self, uid: str, config: ContainerConfig) -> ObservedContainer | None:
        """Return the run that is to be started if it exists, because the answer to an earlier attempt was lost. Remove
        one that was created only, and end one whose state the runtime does not know."""
        for container in self._state.containers(uid, config.name):
            if container.interrupted and container.record is not None:
                log.warning("the start of container %s was given up: %s", container.id, container.record.message)
            if not container.is_run and await self._remove_unstarted(container):
                continue
            if container.running and container.attempt != config.attempt:
                log.warning("container %s runs although another run of it is to be started", container.id)
                await self._stop_once(container, 0)
            elif container.state == ContainerState.UNKNOWN:
                await self._stop_once(container, 0)
            elif container.attempt == config.attempt:
                return container
        return None

    async def _remove_unstarted(self, container: ObservedContainer) -> bool:
        """Remove a container that was created and not started. Return False if it has been started in the meantime: the
        runtime may not have noticed yet that the agent that requested it has ended. Raise CriError."""
        for pause in _START_PAUSES:
            if await self._observer.observe_container(container.id) is None:
                return True
            if container.is_run:
                return False
            try:
                await self.remove(container)
                return True
            except CriError as error:
                log.info("container %s cannot be removed yet: %s", container.id, error)
            await self._clock.sleep(pause)
        await self.remove(container)
        return True

    async def _prepare(self, config: ContainerConfig, sandbox: Sandbox) -> Obj:
        """Create the files that the container needs, and return the request CreateContainer."""
        pod, spec, provider = config.pod, config.spec, config.provider
        environment = provider.environment(spec)
        mounts = await self._volumes.container_mounts(pod, spec, environment, config.image_volumes)
        user, image_ref = await self._image(config)
        ips = sandbox.ips or tuple(provider.pod_state.pod_ips)
        made = container_config(
            config,
            mounts,
            environment,
            self._settings,
            image_user=user,
            pod_ips=ips,
            image_ref=image_ref,
            target_id=self._target(sandbox.uid, spec),
        )
        await self._pool.run(self._create_files, config, sandbox, ips)
        sandbox_config = await self._sandboxes.config(pod, sandbox.attempt)
        return {"pod_sandbox_id": sandbox.id, "config": made, "sandbox_config": sandbox_config}

    async def _image(self, config: ContainerConfig) -> tuple[ImageUser, str]:
        """Return the user of the image, and the id by which the runtime finds it."""
        spec = {"image": config.image_id or config.image}
        image = (await self._client.call("ImageStatus", {"image": spec}, timeout=_TIMEOUT)).image
        uid = int(image.uid.value) if image.HasField("uid") else None
        return ImageUser.of(uid, image.username), image.id or config.image

    def _target(self, uid: str, spec: Mapping[str, Any]) -> str:
        """Return the id of the container whose processes an ephemeral container sees; empty if it has no target."""
        name = spec.get("targetContainerName") or ""
        if not name:
            return ""
        target = self._state.current(uid, name)
        if target is None:
            raise ContainerConfigError(f"unable to find target container {name}")
        return target.id

    def _create_files(self, config: ContainerConfig, sandbox: Sandbox, ips: tuple[str, ...]) -> None:
        """Create the log directory, the file /etc/hosts and the file for the termination message. Blocks."""
        uid, pod = sandbox.uid, config.pod
        logs = self._directories.pod_logs(sandbox.namespace, sandbox.name, uid)
        (logs / log_path(config.name, config.attempt)).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        message = termination_log_path(self._directories, uid, config.name, config.attempt)
        message.parent.mkdir(parents=True, exist_ok=True)
        _write(message, "", 0o666)
        if mounts_hosts_file(pod, config.spec, ips):
            of_node = _NODE_HOSTS.read_text() if pod["spec"].get("hostNetwork") and _NODE_HOSTS.exists() else ""
            content = hosts_file(pod, ips, self._settings.cluster_domain, of_node)
            path = hosts_path(self._directories, uid)
            if not path.exists() or path.read_text() != content:
                _write(path, content, 0o644)

    async def _start(self, container: ObservedContainer) -> StartResult:
        """Start a container that was created. If that fails, the runtime says whether there is a run nevertheless."""
        problem, answered = "", True
        try:
            await self._client.call("StartContainer", {"container_id": container.id}, timeout=_TIMEOUT)
        except CriError as error:
            problem, answered = error.message, error.code not in _NO_ANSWER
        try:
            observed = await self._observer.observe_container(container.id)
            if observed is not None:
                observed.interrupted = observed.interrupted and not answered
            if observed is not None and observed.record is not None and observed.is_run:
                return StartResult(observed.record)
            await self.remove(container)
        except CriError as error:
            problem = problem or error.message
        return StartResult(None, problem or "the container does not exist any more", _RUN_ERROR)

    async def _remove_old_runs(self, uid: str, config: ContainerConfig) -> None:
        """Remove the runs of a container before its previous one."""
        ended = [each for each in self._state.containers(uid, config.name) if each.record and not each.running]
        for container in [each for each in ended if each.attempt < config.attempt][1:]:
            try:
                await self.remove(container)
            except CriError as error:
                log.info("an old container of %s is not removed yet: %s", config.name, error)
                return
            await self._pool.run(self._remove_files, config.pod, config.name, container)

    def _remove_files(self, pod: Pod, name: str, container: ObservedContainer) -> None:
        """Remove the agent's files of a run, and its log. Blocks."""
        meta = pod["metadata"]
        logs = self._directories.pod_logs(meta["namespace"], meta["name"], meta["uid"])
        current = logs / log_path(name, container.attempt)
        for path in (current, *current.parent.glob(f"{current.name}.*")):
            path.unlink(missing_ok=True)
        message = termination_log_path(self._directories, meta["uid"], name, container.attempt)
        for path in (message, marker_path(message.parent, container.id)):
            path.unlink(missing_ok=True)

    # -- stopping and removing -----------------------------------------------------------------------------------------

    async def stop(self, container: ObservedContainer, grace_seconds: float) -> None:
        """Stop a container. Returns when it has ended, or when another call with a shorter grace period has taken over.
        Repeats what fails."""
        deadline = self._clock.monotonic() + grace_seconds
        if self._deadlines.get(container.id, float("inf")) <= deadline:
            return
        self._deadlines[container.id] = deadline
        pause = _FIRST_PAUSE
        try:
            while container.running and self._deadlines.get(container.id) == deadline:
                try:
                    await self._stop_once(container, max(0, ceil(deadline - self._clock.monotonic())))
                except CriError as error:
                    log.warning("container %s cannot be stopped: %s", container.id, error)
                if container.running:
                    await self._clock.sleep(pause)
                    pause = min(2 * pause, _MAX_PAUSE)
        finally:
            if self._deadlines.get(container.id) == deadline:
                del self._deadlines[container.id]

    async def try_stop(self, container: ObservedContainer, grace_seconds: int) -> None:
        """Stop a container; do nothing else if that fails."""
        try:
            await self._stop_once(container, grace_seconds)
        except CriError as error:
            log.warning("container %s cannot be stopped: %s", container.id, error)

    async def remove(self, container: ObservedContainer) -> None:
        """Remove a container. Raise CriError."""
        try:
            await self._client.call("RemoveContainer", {"container_id": container.id}, timeout=_TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
        self._state.forget_container(container.id)

    async def _stop_once(self, container: ObservedContainer, seconds: int) -> None:
        request = {"container_id": container.id, "timeout": seconds}
        try:
            await self._client.call("StopContainer", request, timeout=seconds + _TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
        await self._observer.observe_container(container.id)

    # -- resources -----------------------------------------------------------------------------------------------------

    async def update_resources(self, config: ContainerConfig) -> None:
        """Apply the resources of the spec to a running container. Raise CriError or LookupError."""
        container = self._state.current(config.pod["metadata"]["uid"], config.name)
        if container is None or not container.running:
            raise LookupError(f"container {config.name} is not running")
        resources = container_resources(config.pod, config.spec, self._settings)
        request = {"container_id": container.id, "linux": resources}
        await self._client.call("UpdateContainerResources", request, timeout=_TIMEOUT)


def _write(path: Path, content: str, mode: int) -> None:
    """Write a file in place, because it may be mounted, with the mode whatever the umask is."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
