"""The kubelet API's requests and responses, independent of the transport, and its interface to nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.meta.objects import ObjView
from setpoint.node.runtime.interface import ContainerLog, Execution, Usage
from setpoint.node.runtime.network import ConnectionFailure, PodRequest, PodResponse
from setpoint.wire.message import RawConnection

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

Headers = list[tuple[str, str]]
PLAIN = ("Content-Type", "text/plain; charset=utf-8")
JSON = ("Content-Type", "application/json")


@dataclass(slots=True)
class NodeRequest:
    """A request to the kubelet's API."""

    node: str
    """The name of the node, where one endpoint serves several; empty if it is not known."""
    method: str
    path: str
    """The decoded path."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header values by lower-case name."""

    repeated_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """All values of the headers that occurred more than once, by lower-case name."""

    def header_values(self, name: str) -> Sequence[str]:
        """Return all values of a header."""
        return self.repeated_headers.get(name) or ([self.headers[name]] if name in self.headers else [])

    def option(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return a boolean parameter as Go parses it: present, and neither `false` nor `0`."""
        return name in self.query and self.option(name) not in ("false", "0")


@dataclass(slots=True)
class BufferedResponse:
    """A response with a complete body."""

    status: int
    body: bytes
    headers: Headers = field(default_factory=lambda: [PLAIN])


@dataclass(slots=True)
class StreamedResponse:
    """A response in chunks. A consumer that stops reading must close the generator."""

    chunks: AsyncGenerator[bytes, None]
    headers: Headers = field(default_factory=lambda: [PLAIN])


@dataclass(slots=True)
class UpgradedResponse:
    """A 101 response, after which the connection belongs to `run` until it returns."""

    headers: Headers
    run: Callable[[RawConnection], Awaitable[None]]


NodeResponse = BufferedResponse | StreamedResponse | UpgradedResponse


class KubeletApiError(Exception):
    """The request fails with this status and the kubelet's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class ProbeCount(NamedTuple):
    """The number of runs of one probe by result."""

    container: str
    kind: str
    failed: int
    successful: int


class NodeHost(Protocol):
    """Access to one or more nodes. Pods are returned with the status that the agent has reported."""

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def pods_on(self, node: str) -> Sequence[Pod]: ...

    def node(self, name: str) -> ObjView | None: ...

    def container_log(self, pod: Pod, container: str, container_id: str) -> ContainerLog:
        """Return the log of the run with this id. Raise NoSuchContainer."""
        ...

    def command_error(self, argv: Sequence[str]) -> str:
        """Return why the program cannot be executed; empty if it can."""
        ...

    async def prepare(self, pod: Pod, argv: Sequence[str]) -> None:
        """Prepare what the command needs and what takes time, such as tokens and the network."""
        ...

    def exec(self, pod: Pod, container: str, argv: Sequence[str], *, stdin: bool) -> Execution:
        """Execute a command. Raise NoSuchContainer if the container does not run."""
        ...

    def attach(self, pod: Pod, container: str) -> tuple[Sequence[str], Execution] | None:
        """Return the command line and the execution of a main program that reads its input; None if it does not."""
        ...

    def listens(self, pod: Pod, port: int) -> bool:
        """Return whether a server in the Pod listens on the TCP port."""
        ...

    def deliver(self, pod: Pod, request: PodRequest) -> PodResponse | ConnectionFailure:
        """Return the response of the server on a port of the Pod, or why there is none."""
        ...

    def usage(self, pod: Pod) -> Mapping[str, Usage]:
        """Return the usage of the running containers by name."""
        ...

    def probe_counts(self, pod: Pod) -> Sequence[ProbeCount]: ...
