"""The kubelet API's requests and responses, independent of the transport, and its interface to nodes.

Logs, commands and connections are byte streams here, so that simulated and real nodes implement one interface.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.meta.objects import Obj, ObjView
from setpoint.node.runtime.interface import STDERR, STDOUT, Usage
from setpoint.wire.message import RawConnection

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.kubelet_api.remote_streams import RemoteStreams

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


class LogOptions(NamedTuple):
    """A selection of lines of a log, and the form in which they are returned."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    """The number of lines at the end; None means all."""
    since: float | None = None
    """Seconds since the epoch; lines that were written earlier are left out."""
    limit_bytes: int | None = None
    streams: tuple[str, ...] = (STDOUT, STDERR)


class StreamOptions(NamedTuple):
    """The streams that the client of a command requests."""

    stdin: bool
    stdout: bool
    stderr: bool
    """Whether standard error is a stream of its own; false with a terminal, which has a single output stream."""
    tty: bool


class NodeUsage(NamedTuple):
    """The resource usage of a node and its Pods."""

    total: Usage
    """The usage of the whole machine."""
    pods: Sequence[PodUsage]


class PodUsage(NamedTuple):
    """The resource usage of a Pod that runs."""

    pod: Pod
    total: Usage
    containers: Mapping[str, Usage]
    """The usage of the running containers by name."""
    details: ObjView = MappingProxyType({})
    """The Pod in the form of the Summary API, with everything that was measured; empty on simulated nodes."""


StreamSession = Callable[["RemoteStreams"], Awaitable[None]]
"""Connects the streams of a client to a command until either side ends, and reports to the client how it ended."""

PortSession = Callable[[RawConnection], Awaitable[str]]
"""Connects a client to a port of a Pod until either side ends. Returns the error that ended it; empty if there was
none. The client's end of input is b"" from `read`."""


class NodeHost(Protocol):
    """Access to one or more nodes. Pods are returned with the status that the agent has reported."""

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def pods_on(self, node: str) -> Sequence[Pod]: ...

    def node(self, name: str) -> ObjView | None: ...

    async def read_log(
        self, pod: Pod, container: str, container_id: str, options: LogOptions
    ) -> bytes | AsyncGenerator[bytes, None]:
        """Return the log of the run with this id, as a whole or in pieces. Raise NoSuchContainer."""
        ...

    async def exec(self, pod: Pod, container: str, argv: Sequence[str], options: StreamOptions) -> StreamSession:
        """Return a session that executes a command in a running container. Raise KubeletApiError, before the client's
        connection is upgraded; later errors are reported to the client's streams."""
        ...

    async def attach(self, pod: Pod, container: str, container_id: str, options: StreamOptions) -> StreamSession:
        """Return a session with the main program of a running container. Raise KubeletApiError, or NoSuchContainer."""
        ...

    def connect(self, pod: Pod, port: int) -> PortSession:
        """Return a session with the server that listens on a TCP port of the Pod."""
        ...

    async def summary(self, node: str) -> Obj:
        """Return the usage of the node and its Pods in the form of the kubelet's Summary API. Raise KubeletApiError."""
        ...

    async def usage(self, node: str) -> NodeUsage:
        """Return the usage of the node and its Pods. Raise KubeletApiError."""
        ...

    def probe_counts(self, pod: Pod) -> Sequence[ProbeCount]: ...

    def configuration(self) -> Obj | None:
        """Return the agent's settings as a KubeletConfiguration; None if they are not served."""
        ...

    async def checkpoint(self, pod: Pod, container: str) -> Sequence[str]:
        """Write a checkpoint of a running container and return the paths of its files. Raise KubeletApiError."""
        ...
