"""The interface of container runtimes, in the terms of the Container Runtime Interface (CRI).

Two runtimes implement it: the simulated one (`node/runtime/simulated.py`), where everything is done at once or after a
simulated time, and that of real nodes (`node/host/cri_runtime.py`), which asks a container runtime over CRI.

Guarantees:

- No call suspends. A call that starts something that takes time returns an `Operation`.
- The records of containers are observed state: the runtime updates them in place, also when a container ends by itself.
- `on_change` is called with the uid of a Pod whose records or operations changed in a way that no returned time
  announced.

Times are seconds since the epoch, by the clock of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from setpoint.meta.objects import Obj
from setpoint.node.runtime.files import Mount

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.node_state import NodeState
    from setpoint.node.pod_status import PodState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

STDOUT, STDERR = "stdout", "stderr"
START_ERROR = "StartError"
"""The reason of a container that was created and could not be started, such as one whose program does not exist."""


class Operation(Protocol[T_co]):
    """Something that the runtime was asked to do and that may take time."""

    def result(self, now: float) -> T_co | None:
        """Return the result; None while the operation is in progress."""
        ...

    @property
    def ready_at(self) -> float | None:
        """When the result will be available; None if that is not known, and the runtime calls `on_change` then."""
        ...

    def cancel(self) -> None:
        """Give the operation up; its result is not needed any more."""
        ...


class Done(Generic[T]):
    """An Operation that is complete."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def result(self, now: float) -> T | None:
        return self._value

    @property
    def ready_at(self) -> float | None:
        return None

    def cancel(self) -> None:
        """Nothing remains to be cancelled."""


class Image(NamedTuple):
    """An image that is present on a node."""

    name: str
    """The full name with registry and tag or digest, as container statuses show it."""
    id: str
    """The identifier that container statuses show as `imageID`."""
    size_bytes: int


class ImageLookup(NamedTuple):
    """The result of looking for an image on a node."""

    image: Image | None
    """The image; None if it is not there."""
    error: str = ""
    """The runtime's error if it could not answer; empty otherwise."""


class PullResult(NamedTuple):
    """The result of an image pull: the image, or why it could not be pulled."""

    image: Image | None
    error: str = ""
    """The runtime's message; empty if the pull succeeded."""
    reason: str = "ErrImagePull"
    """The reason of the container's waiting state if the pull failed."""
    seconds: float = 0.0
    """The duration of the pull, without the time that it waited for other pulls."""
    waited_seconds: float = 0.0


class SandboxResult(NamedTuple):
    """The result of the creation of a Pod's sandbox: its addresses, or why it could not be created."""

    ips: Sequence[str] = ()
    error: str = ""
    warnings: Sequence[tuple[str, str]] = ()
    """Reason and message of each Warning Event about the configuration of the sandbox, such as its DNS."""


class StartResult(NamedTuple):
    """The result of the start of a container."""

    record: ContainerRecord | None
    """The run; None if the container could not even be created. One that was created and could not be started has the
    reason `START_ERROR`."""
    error: str = ""
    reason: str = "CreateContainerError"
    """The reason of the container's waiting state if it could not be created."""


class ProbeResult(NamedTuple):
    success: bool
    output: str = ""
    """The text of the Event of a failed probe, or of one that succeeded with a warning, without its first words,
    "Liveness probe failed: "; empty if it succeeded without one."""
    errored: bool = False
    """Whether the probe could not be carried out; it then counts neither as a success nor as a failure."""


class HookResult(NamedTuple):
    """The result of a lifecycle hook."""

    success: bool
    message: str = ""


class LogLine(NamedTuple):
    """The text of one write, including its line end if it has one."""

    at: float
    stream: str
    text: str


class ContainerLog(Protocol):
    """The log of one run of a container; the oldest lines are dropped."""

    def lines(self) -> Sequence[LogLine]: ...

    def follow(self) -> AsyncIterator[LogLine]:
        """Yield the retained lines, then new ones until the run has ended."""
        ...


@dataclass(slots=True)
class ContainerRecord:
    """A run of a container, which lasts until `finished_at` is set."""

    name: str
    id: str
    image: str
    image_id: str
    attempt: int
    started_at: float
    finished_at: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    user: Obj | None = None
    """The user, group and further groups of the first process, as container statuses show them under `user.linux`; None
    if the runtime does not report them."""
    outdated: bool = False
    """Whether the run was restored, and was created with another image in the spec than the current one."""

    @property
    def running(self) -> bool:
        return self.finished_at is None


class Execution(Protocol):
    """A command that was executed in a container."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the command runs."""
        ...

    @property
    def waits_for_input(self) -> bool:
        """Whether the command has read all its input and waits for more."""
        ...

    @property
    def output(self) -> ContainerLog: ...

    def write(self, text: str) -> None:
        """Write to the command's standard input."""
        ...

    def close_input(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int:
        """Wait until the command has ended and return its exit code."""
        ...


class Usage(NamedTuple):
    """The resource usage of a container."""

    cpu_nano: int
    """CPU usage in billionths of a core."""
    memory_bytes: int
    cpu_seconds: float
    """CPU time in seconds since the container was started."""


class NoSuchContainer(LookupError):
    """There is no such container, or it does not run."""


class EnvironmentProvider(Protocol):
    """Provides what a container's configuration depends on; called when a program or the runtime needs it."""

    @property
    def pod_state(self) -> PodState:
        """The state of the Pod on its node: addresses, and the node's allocatable resources."""
        ...

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]: ...

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        """Return the simulated files that the container sees; for the simulated runtime only."""
        ...


_NO_IMAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class ContainerConfig:
    """The configuration of a container to start."""

    name: str
    image: str
    """The full name of the image."""
    image_id: str
    attempt: int
    """The number of earlier runs, which is the restart count."""
    spec: Mapping[str, Any]
    """The container in the Pod's spec."""
    pod: Pod
    provider: EnvironmentProvider
    image_volumes: Mapping[str, str] = field(default_factory=lambda: _NO_IMAGES)
    """The ids of the images that the Pod mounts as volumes, by the name of the volume."""


@dataclass(slots=True)
class PodRecords:
    """The containers of a Pod in the runtime, by name."""

    current: dict[str, ContainerRecord] = field(default_factory=dict)
    previous: dict[str, ContainerRecord] = field(default_factory=dict)
    """The run before the current one."""


class ContainerRuntime(Protocol):
    """A container runtime. Pods are identified by uid."""

    version: str
    on_change: Callable[[str], None]

    @property
    def initial_backoff(self) -> float:
        """Seconds of the first back-off after a failed container or pull."""
        ...

    # -- volumes and sandbox -------------------------------------------------------------------------------------------

    def mount_volumes(self, pod: Pod, provider: EnvironmentProvider) -> Operation[Sequence[str]]:
        """Mount the Pod's volumes, or verify that they are mounted. The result are the kubelet's messages about volumes
        that cannot be mounted; none if all are. Mounted volumes follow the objects that they are projected from."""
        ...

    def create_sandbox(self, pod: Pod, node: NodeState) -> Operation[SandboxResult]:
        """Create a sandbox for the Pod. One that exists and is not ready is removed first, with its containers; one
        that is ready is the result."""
        ...

    def sandbox_ready(self, uid: str) -> bool:
        """Return whether the Pod has a sandbox that works, as observed last."""
        ...

    def restore_sandbox(self, pod: Pod, node: NodeState) -> Sequence[str] | None:
        """Return the addresses of a sandbox that outlived the agent and works, or None."""
        ...

    def stop_pod(self, uid: str) -> Operation[str]:
        """Release what the Pod uses, after its containers have ended: stop the sandbox, unmount the volumes. The
        result is an error message, after which the operation may be repeated, or empty."""
        ...

    def remove_pod(self, uid: str) -> None:
        """Remove everything of a deleted Pod: containers, sandboxes, logs and volumes."""
        ...

    # -- images --------------------------------------------------------------------------------------------------------

    def find_image(self, image: str, pod: Pod, node: NodeState) -> Operation[ImageLookup]:
        """Look for an image on the node."""
        ...

    def pull_image(self, image: str, pod: Pod, node: NodeState, at: float) -> Operation[PullResult]: ...

    # -- containers ----------------------------------------------------------------------------------------------------

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> Operation[StartResult]:
        """Create and start a container. The run before it, if any, becomes the previous one."""
        ...

    def stop_container(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A repeated call can only shorten the grace period."""
        ...

    def kill_container(self, uid: str, name: str, at: float, reason: str) -> None:
        """Kill a container at once; `reason` is that of its terminated state."""
        ...

    def update_resources(self, uid: str, config: ContainerConfig) -> Operation[str]:
        """Apply the resources of the spec to a running container. The result is an error message, or empty."""
        ...

    def update_pod(self, uid: str, pod: Pod) -> None:
        """Take over a new version of the Pod."""
        ...

    def restore_container(
        self, uid: str, config: ContainerConfig, reported: Mapping[str, Any], now: float
    ) -> ContainerRecord | None:
        """Return the latest run of a container that outlived the agent, or None. `reported` is the container's status
        in the API; empty if there is none."""
        ...

    def advance(self, uid: str, now: float) -> float | None:
        """Bring the records of a Pod up to date. Return when they change next, or None if that is not known."""
        ...

    def records(self, uid: str) -> PodRecords: ...

    def power_off(self, uid: str, at: float) -> None:
        """End all containers of the Pod abruptly, as when its node loses power."""
        ...

    # -- probes and hooks ----------------------------------------------------------------------------------------------

    def probe(
        self, uid: str, container: Mapping[str, Any], kind: str, spec: Mapping[str, Any], pod: Pod, ip: str
    ) -> Operation[ProbeResult]:
        """Run a probe once. `kind` is startup, liveness or readiness, `spec` the probe, `ip` the Pod's address."""
        ...

    def run_hook(
        self, uid: str, container: Mapping[str, Any], hook: Mapping[str, Any], at: float, *, pre_stop: bool
    ) -> Operation[HookResult]:
        """Run a lifecycle hook. A pre-stop hook runs at most once for each run of the container, also if the agent
        restarts in between."""
        ...
