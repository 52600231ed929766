"""The sandboxes and containers of this node's Pods, as observed in the container runtime.

Observations may arrive in another order than they were made. This is harmless, because states only advance: a container
that has exited never runs again under its id, and a sandbox that stopped working stays so.

Guarantees:

- There is one ContainerRecord for each container id, and it is updated in place.
- A run whose container vanished has ended.
- Sandboxes that were not listed as this node's are ignored, and so are their containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.cri.enums import ContainerState, NamespaceMode, SandboxState
from setpoint.node.host.runtime_labels import HASH, HASH_VERSION
from setpoint.node.host.termination_message import truncate
from setpoint.node.runtime.interface import START_ERROR, ContainerRecord, PodRecords

_LOST: Final = ("ContainerStatusUnknown", "The container could not be located when the pod was terminated")
_LOST_EXIT_CODE: Final = 137


@dataclass(slots=True)
class Sandbox:
    id: str
    uid: str
    namespace: str
    name: str
    attempt: int
    created_at: float
    ready: bool
    host_network: bool = False
    ips: tuple[str, ...] = ()
    """The addresses of the sandbox; empty if they are not known yet, and in the host's network."""
    observed: int = 0
    """The number of the observation that showed the sandbox last."""

    @property
    def works(self) -> bool:
        return self.ready and (self.host_network or bool(self.ips))


@dataclass(slots=True)
class ObservedContainer:
    id: str
    uid: str
    sandbox_id: str
    name: str
    attempt: int
    created_at: float
    state: ContainerState = ContainerState.CREATED
    record: ContainerRecord | None = None
    """The run; None until the container was started."""
    interrupted: bool = False
    """Whether the start failed and this agent did not get that answer. The runtime gives a start up if the agent that
    requested it ends, so this is no run, unless it was reported as one."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations that identify what the container was created from; empty until it was started."""
    kill_reason: str = ""
    """The reason of the terminated state, if the agent killed the container for a reason of its own."""
    observed: int = 0
    """The number of the observation that showed the container last."""

    @property
    def running(self) -> bool:
        return self.record is not None and self.record.running

    @property
    def is_run(self) -> bool:
        return self.record is not None and not self.interrupted


@dataclass(slots=True)
class _Pod:
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    containers: dict[str, ObservedContainer] = field(default_factory=dict)


class ObservedState:
    """The known state of one container runtime. Nothing here suspends."""

    def __init__(self, clock: Clock) -> None:
        self.on_change: Callable[[str], None] = lambda uid: None
        self.message_limit: Callable[[str], int] = lambda uid: 4096
        """Returns the maximum length of the termination messages of a Pod, in bytes."""
        self.runtime_name = ""
        """The name of the runtime, with which the ids of containers begin; empty before it is known."""
        self._clock = clock
        self._pods: dict[str, _Pod] = {}
        self._uids: dict[str, str] = {}
        """The uids of Pods by the ids of their sandboxes and containers."""
        self._last_observation = 0
        """The number of the latest observation; they are numbered in the order in which they begin."""
        self._open_observations: set[int] = set()
        self._removed: dict[str, int] = {}
        """The latest observation when a sandbox or container was removed, by id. Kept while an observation is open that
        began earlier, and may therefore still show it."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def uids(self) -> set[str]:
        return set(self._pods)

    def sandboxes(self, uid: str) -> list[Sandbox]:
        """Return the sandboxes of a Pod, the newest first."""
        pod = self._pods.get(uid)
        found = pod.sandboxes.values() if pod is not None else ()
        return sorted(found, key=lambda each: (each.attempt, each.created_at), reverse=True)

    def containers(self, uid: str, name: str = "") -> list[ObservedContainer]:
        """Return the containers of a Pod, by default all of them, the newest first."""
        pod = self._pods.get(uid)
        found = pod.containers.values() if pod is not None else ()
        chosen = [each for each in found if not name or each.name == name]
        return sorted(chosen, key=lambda each: (each.attempt, each.created_at), reverse=True)

    def ready_sandbox(self, uid: str) -> Sandbox | None:
        """Return the newest sandbox of a Pod if it works."""
        newest = self.sandboxes(uid)[:1]
        return newest[0] if newest and newest[0].works else None

    def records(self, uid: str) -> PodRecords:
        records = PodRecords()
        for container in self.containers(uid):
            if container.record is None or container.interrupted:
                continue
            if container.name not in records.current:
                records.current[container.name] = container.record
            elif container.name not in records.previous:
                records.previous[container.name] = container.record
        return records

    def is_known(self, identifier: str) -> bool:
        """Return whether there is a sandbox or container with this id."""
        return identifier in self._uids

    def current(self, uid: str, name: str) -> ObservedContainer | None:
        """Return the latest run of a container."""
        return next((each for each in self.containers(uid, name) if each.is_run), None)

    def sandbox(self, identifier: str) -> Sandbox | None:
        pod = self._pods.get(self._uids.get(identifier, ""))
        return pod.sandboxes.get(identifier) if pod is not None else None

    def container(self, identifier: str) -> ObservedContainer | None:
        pod = self._pods.get(self._uids.get(identifier, ""))
        return pod.containers.get(identifier) if pod is not None else None

    def is_final(self, identifier: str) -> bool:
        """Return whether a sandbox or container has ended, or is not known."""
        sandbox, container = self.sandbox(identifier), self.container(identifier)
        if sandbox is not None:
            return not sandbox.ready
        return container is None or (container.record is not None and not container.running)

    # -- changes by the agent itself -----------------------------------------------------------------------------------

    def add_sandbox(self, sandbox: Sandbox) -> Sandbox:
        """Take over a sandbox that was just created."""
        sandbox.observed = self._last_observation
        pod = self._pods.setdefault(sandbox.uid, _Pod())
        self._uids[sandbox.id] = sandbox.uid
        return pod.sandboxes.setdefault(sandbox.id, sandbox)

    def add_container(self, container: ObservedContainer) -> ObservedContainer:
        """Take over a container that was just created, before it is started, so that no event about it is missed."""
        container.observed = self._last_observation
        pod = self._pods.setdefault(container.uid, _Pod())
        self._uids[container.id] = container.uid
        return pod.containers.setdefault(container.id, container)

    def forget_sandbox(self, identifier: str) -> None:
        """Drop a sandbox that does not exist any more, and its containers."""
        uid = self._uids.get(identifier)
        pod = self._pods.get(uid) if uid is not None else None
        if uid is None or pod is None:
            return
        for container in [each for each in pod.containers.values() if each.sandbox_id == identifier]:
            self.forget_container(container.id)
        if pod.sandboxes.pop(identifier, None) is not None:
            self._dropped(identifier, uid)

    def forget_container(self, identifier: str) -> None:
        """Drop a container that does not exist any more. A run whose end was not observed ends now."""
        uid = self._uids.get(identifier)
        pod = self._pods.get(uid) if uid is not None else None
        container = pod.containers.pop(identifier, None) if pod is not None else None
        if uid is None or container is None:
            return
        self._end_unobserved(container)
        self._dropped(identifier, uid)

    # -- observations --------------------------------------------------------------------------------------------------

    @contextmanager
    def observation(self) -> Iterator[int]:
        """Begin to observe the runtime. Return the number of the observation, with which its result is merged."""
        self._last_observation += 1
        number = self._last_observation
        self._open_observations.add(number)
        try:
            yield number
        finally:
            self._open_observations.discard(number)
            oldest = min(self._open_observations, default=number + 1)
            self._removed = {each: at for each, at in self._removed.items() if at >= oldest}

    def merge_lists(self, sandboxes: Iterable[Any], containers: Iterable[Any], number: int) -> list[str]:
        """Merge the lists of an observation. Return the ids of which the status is needed."""
        incomplete = []
        for each in sandboxes:
            if self._removed.get(each.id, -1) >= number:
                continue
            known = self.sandbox(each.id)
            if known is None:
                known = self.add_sandbox(_sandbox_of(each))
                self.on_change(known.uid)
            elif known.ready and each.state != SandboxState.READY:
                known.ready = False
                self.on_change(known.uid)
            known.observed = max(known.observed, number)
            if known.ready and not known.works:
                incomplete.append(each.id)
        for each in containers:
            sandbox = self.sandbox(each.pod_sandbox_id)
            if sandbox is None or self._removed.get(each.id, -1) >= number:
                continue
            container = self.container(each.id)
            if container is None:
                container = self.add_container(_container_of(each, sandbox.uid))
            container.observed = max(container.observed, number)
            if _progress(each.state) > _progress(container.state):
                incomplete.append(each.id)
        return incomplete

    def remove_unlisted(self, listed: set[str], number: int, uid: str = "") -> None:
        """Drop what a complete list, by default of all Pods, did not show, unless it was added after the observation
        began."""
        for pod in [pod for each, pod in self._pods.items() if not uid or each == uid]:
            for container in [*pod.containers.values()]:
                if container.id not in listed and container.observed < number:
                    self.forget_container(container.id)
            for sandbox in [*pod.sandboxes.values()]:
                if sandbox.id not in listed and sandbox.observed < number:
                    self.forget_sandbox(sandbox.id)

    def apply_sandbox_status(self, sandbox: Sandbox, status: Any) -> None:
        before = (sandbox.ready, sandbox.ips, sandbox.host_network)
        sandbox.ready = sandbox.ready and status.state == SandboxState.READY
        sandbox.host_network = status.linux.namespaces.options.network == NamespaceMode.NODE
        addresses = [status.network.ip, *(each.ip for each in status.network.additional_ips)]
        sandbox.ips = tuple(filter(None, addresses)) or sandbox.ips
        if before != (sandbox.ready, sandbox.ips, sandbox.host_network):
            self.on_change(sandbox.uid)

    def apply_container_status(self, container: ObservedContainer, status: Any, message: str = "") -> None:
        """Update a container and its record. `message` is the termination message."""
        if self.container(container.id) is container and self._apply(container, status, message):
            self.on_change(container.uid)

    def _apply(self, container: ObservedContainer, status: Any, message: str) -> bool:
        """Return whether something changed."""
        if _progress(status.state) <= _progress(container.state) and container.record is not None:
            return False
        if status.state == ContainerState.CREATED:
            return False
        changed = bool(status.state != container.state)
        container.state = ContainerState(status.state)
        record = container.record
        if record is None:
            container.interrupted = _start_failed(status)
            container.annotations = {key: status.annotations.get(key, "") for key in (HASH, HASH_VERSION)}
            record = container.record = ContainerRecord(
                name=container.name,
                id=f"{self.runtime_name}://{container.id}",
                image=status.image.image,
                image_id=status.image_ref,
                attempt=container.attempt,
                started_at=status.started_at / 1e9,
                user=_linux_user(status),
            )
            changed = True
        if status.state == ContainerState.EXITED and record.running:
            record.exit_code = status.exit_code
            record.reason = container.kill_reason or status.reason or ("Error" if status.exit_code else "Completed")
            record.message = truncate(message, self.message_limit(container.uid))
            # A program that ends at once may end before the runtime has noted its start.
            record.finished_at = max(status.finished_at / 1e9, record.started_at)
        elif status.state == ContainerState.UNKNOWN:
            self._end_unobserved(container)
        return changed

    def _end_unobserved(self, container: ObservedContainer) -> None:
        record = container.record
        if record is not None and record.running:
            record.exit_code = _LOST_EXIT_CODE
            record.reason, record.message = _LOST
            record.reason = container.kill_reason or record.reason
            record.finished_at = self._clock.now().timestamp()

    def _dropped(self, identifier: str, uid: str) -> None:
        del self._uids[identifier]
        if self._open_observations:
            self._removed[identifier] = self._last_observation
        pod = self._pods[uid]
        if not pod.sandboxes and not pod.containers:
            del self._pods[uid]
        self.on_change(uid)


def _linux_user(status: Any) -> Obj | None:
    """Return the user of a container, which containerd reports since version 2.0."""
    if not status.HasField("user") or not status.user.HasField("linux"):
        return None
    user = status.user.linux
    return {"uid": user.uid, "gid": user.gid, "supplementalGroups": [*user.supplemental_groups]}


def _start_failed(status: Any) -> bool:
    return bool(status.state == ContainerState.EXITED and status.reason == START_ERROR and not status.started_at)


def _progress(state: int) -> int:
    """Return how advanced a state is: created, running, ended."""
    return min(int(state), int(ContainerState.EXITED))


def _sandbox_of(listed: Any) -> Sandbox:
    meta = listed.metadata
    return Sandbox(
        id=listed.id,
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        attempt=meta.attempt,
        created_at=listed.created_at / 1e9,
        ready=listed.state == SandboxState.READY,
    )


def _container_of(listed: Any, uid: str) -> ObservedContainer:
    """Return a container whose state is not known yet: its status is requested."""
    meta = listed.metadata
    return ObservedContainer(listed.id, uid, listed.pod_sandbox_id, meta.name, meta.attempt, listed.created_at / 1e9)
