"""The interface of container runtimes, in the terms of the Container Runtime Interface (CRI).

Times are seconds since the epoch, by the clock of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from setpoint.node.runtime.files import Mount

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

STDOUT, STDERR = "stdout", "stderr"


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
    """Provides environment and mounts of a container; called at most once per container, when a program needs them."""

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]: ...

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]: ...


@dataclass(slots=True)
class ContainerConfig:
    """The configuration of a container to start."""

    name: str
    image: str
    image_id: str
    attempt: int
    spec: Mapping[str, Any]
    """The container in the Pod's spec."""
    pod: Pod
    provider: EnvironmentProvider
    container_id: str = ""
    """The id of a run that outlived the agent, which is restored instead of started; empty otherwise."""


@dataclass(slots=True)
class PodRecords:
    """The containers of a Pod in the runtime, by name."""

    current: dict[str, ContainerRecord] = field(default_factory=dict)
    previous: dict[str, ContainerRecord] = field(default_factory=dict)
    """The run before the current one."""


class ContainerRuntime(Protocol):
    """A container runtime. Pods are identified by uid. No call suspends: the records show the results of operations
    that take time."""

    version: str

    # -- containers ----------------------------------------------------------------------------------------------------

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> ContainerRecord: ...

    def stop_container(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period."""
        ...

    def advance(self, uid: str, now: float) -> float | None:
        """Bring the records of a Pod up to date. Return when they change next, or None."""
        ...

    def records(self, uid: str) -> PodRecords: ...

    def power_off(self, uid: str, at: float) -> None:
        """End all containers of the Pod abruptly, as when its node loses power."""
        ...

    def remove_pod(self, uid: str) -> None:
        """Remove all containers and volumes of a deleted Pod."""
        ...

    # -- logs, exec, usage ---------------------------------------------------------------------------------------------

    def log(self, uid: str, container: str, previous: bool = False) -> ContainerLog:
        """Return the log of the current or previous run. Raise NoSuchContainer."""
        ...

    def exec(self, uid: str, container: str, argv: Sequence[str], *, stdin: bool = False) -> Execution:
        """Execute a command. With `stdin`, its input stays open until it is closed. Raise NoSuchContainer if the
        container does not run."""
        ...

    def usage(self, uid: str) -> dict[str, Usage]:
        """Return the usage of the running containers by name."""
        ...
