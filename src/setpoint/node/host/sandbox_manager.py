"""Creates, stops and removes the sandboxes of Pods.

Every method can be repeated after a lost answer, or a crash of the agent or of the runtime: it observes the runtime
first, and does what is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.observed_state import Sandbox
from setpoint.node.host.pod_config import PodConfigSettings, describe_pod, sandbox_config
from setpoint.node.host.pod_dns import PodDns, parse_resolv_conf, pod_dns
from setpoint.node.host.runtime_observer import RuntimeObserver
from setpoint.wire.grpc import Code

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_RUN_TIMEOUT: Final = 240.0
_TIMEOUT: Final = 120.0


RuntimeHandler: TypeAlias = "Callable[[Pod], str | None]"
"""Returns the handler of a Pod's RuntimeClass: empty for the default one, None if the class does not exist."""


class PodCgroups(Protocol):
    """The cgroups of Pods."""

    async def create_pod(self, pod: Pod) -> None: ...

    async def update_pod(self, pod: Pod) -> None:
        """Apply the Pod's resources to its cgroup."""
        ...

    async def remove_pod(self, uid: str) -> None:
        """Remove the cgroup of a Pod, if there is one."""
        ...

    def parent(self, pod: Pod) -> str:
        """Return the cgroup in which the runtime creates those of the Pod's containers."""
        ...


class SandboxFailed(Exception):
    """A sandbox cannot be created or stopped. The text is that of the kubelet's Event."""


class SandboxManager:
    """The sandboxes of a node's Pods."""

    def __init__(
        self,
        client: CriClient,
        observer: RuntimeObserver,
        cgroups: PodCgroups,
        settings: PodConfigSettings,
        pool: BlockingPool,
        clock: Clock,
        resolv_conf: Path,
        runtime_handler: RuntimeHandler,
    ) -> None:
        self._client = client
        self._observer = observer
        self._state = observer.state
        self._cgroups = cgroups
        self._settings = settings
        self._pool = pool
        self._clock = clock
        self._resolv_conf = resolv_conf
        self._runtime_handler = runtime_handler

    async def ensure(self, pod: Pod) -> Sandbox:
        """Return a sandbox that works. Others of the Pod are removed first, with their containers. Raise SandboxFailed,
        CriError or ContainerConfigError."""
        uid = pod["metadata"]["uid"]
        await self._observer.relist(uid)
        existing = self._state.sandboxes(uid)
        working = self._state.ready_sandbox(uid)
        for sandbox in existing:
            if sandbox is not working:
                await self._remove(sandbox)
        if working is not None:
            return working
        attempt = max((each.attempt + 1 for each in existing), default=0)
        return await self._create(pod, attempt)

    async def config(self, pod: Pod, attempt: int) -> Obj:
        """Return CRI's PodSandboxConfig."""
        dns = await self.dns(pod)
        return sandbox_config(pod, attempt, self._settings, self._cgroups.parent(pod), dns.config)

    async def dns(self, pod: Pod) -> PodDns:
        """Return the resolver configuration of a Pod, with warnings about what does not fit into it."""
        try:
            text = await self._pool.run(self._resolv_conf.read_text, errors="replace")
        except FileNotFoundError:
            text = ""
        return pod_dns(pod, parse_resolv_conf(text), self._settings)

    async def stop(self, uid: str) -> None:
        """Stop all sandboxes of a Pod: their containers end, and their addresses are released. Raise SandboxFailed."""
        try:
            await self._observer.relist(uid)
            for sandbox in self._state.sandboxes(uid):
                await self._stop(sandbox)
        except CriError as error:
            text = f'failed to "KillPodSandbox" for {quote(uid)} with KillPodSandboxError: {quote(str(error))}'
            raise SandboxFailed(text) from None

    async def remove(self, uid: str) -> None:
        """Remove all sandboxes of a Pod with their containers. Raise CriError."""
        await self._observer.relist(uid)
        for sandbox in self._state.sandboxes(uid):
            await self._remove(sandbox)

    async def _create(self, pod: Pod, attempt: int) -> Sandbox:
        meta = pod["metadata"]
        handler = self._runtime_handler(pod)
        if handler is None:
            raise SandboxFailed(f"runtimeclass.node.k8s.io {quote(pod['spec']['runtimeClassName'])} not found")
        # The directory of a Pod exists as long as anything else of it: by its directory, a restarted agent and
        # `setpoint node leave` know the Pod.
        directory = self._settings.directories.pod(meta["uid"])
        try:
            await self._pool.run(directory.mkdir, mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxFailed(
                f"Failed to create data directory for pod {quote(describe_pod(pod))}: {error}"
            ) from None
        try:
            await self._cgroups.create_pod(pod)
        except OSError as error:
            raise SandboxFailed(f"unable to ensure pod container exists: {error}") from None
        config = await self.config(pod, attempt)
        try:
            await self._pool.run(Path(config["log_directory"]).mkdir, mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            text = f"Failed to create log directory for pod {quote(describe_pod(pod))}: {error}"
            raise SandboxFailed(text) from None
        request = {"config": config, "runtime_handler": handler}
        answer = await self._client.call("RunPodSandbox", request, timeout=_RUN_TIMEOUT)
        sandbox = self._state.add_sandbox(
            Sandbox(
                id=answer.pod_sandbox_id,
                uid=meta["uid"],
                namespace=meta["namespace"],
                name=meta["name"],
                attempt=attempt,
                created_at=self._clock.now().timestamp(),
                ready=True,
            )
        )
        observed = await self._observer.observe_sandbox(sandbox.id)
        if observed is None or not observed.works:
            raise SandboxFailed(f"sandbox {quote(sandbox.id)} of pod {quote(describe_pod(pod))} has no network")
        return observed

    async def _stop(self, sandbox: Sandbox) -> None:
        try:
            await self._client.call("StopPodSandbox", {"pod_sandbox_id": sandbox.id}, timeout=_TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
            self._state.forget_sandbox(sandbox.id)
            return
        await self._observer.relist(sandbox.uid)

    async def _remove(self, sandbox: Sandbox) -> None:
        await self._stop(sandbox)
        try:
            await self._client.call("RemovePodSandbox", {"pod_sandbox_id": sandbox.id}, timeout=_TIMEOUT)
        except CriError as error:
            if error.code != Code.NOT_FOUND:
                raise
        self._state.forget_sandbox(sandbox.id)
