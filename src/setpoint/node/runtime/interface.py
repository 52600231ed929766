"""What runs containers, as the agent of a node sees it, and as those do who show logs, run commands or read usage.

Times are seconds since the epoch, as the clock of the cluster has them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from setpoint.node.runtime.files import Mount

STDOUT, STDERR = "stdout", "stderr"


class LogLine(NamedTuple):
    """What was written in one go, with its line end if it had one."""

    at: float
    stream: str
    text: str


class ContainerLog(Protocol):
    """What one run of a container has written, as far as it is still kept: the oldest lines go first."""

    def lines(self) -> Sequence[LogLine]: ...

    def follow(self) -> AsyncIterator[LogLine]:
        """Everything that is kept, then what comes, until the run is over and all is read."""
        ...


@dataclass(slots=True)
class ContainerRecord:
    """One run of a container. Running: started and not finished."""

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
    """A command that was started in a container."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    @property
    def waits_for_input(self) -> bool:
        """It has read all that was written to it and can do nothing until there is more."""
        ...

    @property
    def output(self) -> ContainerLog: ...

    def write(self, text: str) -> None:
        """To its standard input."""
        ...

    def close_input(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        ...


class Usage(NamedTuple):
    cpu_nano: int
    """Cores, in billionths."""
    memory_bytes: int
    cpu_seconds: float
    """Used since the container was started."""


class NoSuchContainer(LookupError):
    """Nothing of that name runs or has run there."""


class Home(Protocol):
    """What a container finds around it; asked for at most once, and only for those who look."""

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]: ...

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]: ...


@dataclass(slots=True)
class Launch:
    """What a container is to be started as."""

    name: str
    image: str
    image_id: str
    attempt: int
    spec: Mapping[str, Any]
    """The container as the Pod has it."""
    pod: Mapping[str, Any]
    home: Home
    container_id: str = ""
    """Of a run that outlived the agent: it is found again rather than started."""


@dataclass(slots=True)
class PodRuns:
    """The containers of a Pod as the runtime knows them."""

    current: dict[str, ContainerRecord] = field(default_factory=dict)
    previous: dict[str, ContainerRecord] = field(default_factory=dict)
    """The run before the current one."""


class Runtime(Protocol):
    """Pods are known by their uid. No call waits: what takes time is found in the records later on."""

    version: str

    # -- for the agent ------------------------------------------------------------------------------------------------

    def start(self, uid: str, launch: Launch, at: float) -> ContainerRecord: ...

    def stop(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        """Asks it to end, and ends it after the grace period."""
        ...

    def advance(self, uid: str, now: float) -> float | None:
        """Brings the records up to date; returns when something will happen next by itself."""
        ...

    def runs(self, uid: str) -> PodRuns: ...

    def halt(self, uid: str, at: float) -> None:
        """Everything of the Pod ends at once, as when its machine loses power."""
        ...

    def forget(self, uid: str) -> None:
        """The Pod is gone for good."""
        ...

    # -- for everybody ------------------------------------------------------------------------------------------------

    def log(self, uid: str, container: str, previous: bool = False) -> ContainerLog:
        """Raises NoSuchContainer."""
        ...

    def run_command(self, uid: str, container: str, argv: Sequence[str], *, stdin: bool = False) -> Execution:
        """Raises NoSuchContainer if the container does not run. With `stdin`, input is read until it is closed."""
        ...

    def usage(self, uid: str) -> dict[str, Usage]:
        """Of the running containers, by name."""
        ...
