"""The network as the runtime and the programs in simulated containers use it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.node.runtime.files import Files

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
TCP, UDP = "TCP", "UDP"
API_SERVER = "the API server"
"""Stands for the API server in place of a Pod's uid."""
CLUSTER_DNS = "10.96.0.10"
"""The address of cluster DNS in the /etc/resolv.conf of Pods."""
_MAX_SEARCH_DOMAINS = 32
_MAX_POLLS, _POLL_INTERVAL = 3000, 0.01
"""The maximum number of polls for the response of the API server, and the seconds between them."""


class PodRequest(NamedTuple):
    """An HTTP request or UDP datagram to a port of a simulated Pod, or from a Pod to the API server."""

    port: int
    path: str = "/"
    query: str = ""
    method: str = "GET"
    tls: bool = False
    datagram: str | None = None
    """The payload of a UDP datagram; None if this is an HTTP request."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers with names in lower case. Only the API server uses them."""
    stream: str | None = None
    """The data that the client sends over a TCP connection, in whatever protocol; the body of the response is then all
    that the server sends. None if this is an HTTP request or a datagram."""


class PodResponse(NamedTuple):
    """The response to a PodRequest."""

    status: int
    body: str
    content_type: str = TEXT
    delay: float = 0.0
    """Seconds until the response is sent."""


def response_head(found: PodResponse, now: float) -> str:
    """Return the status line and the headers of a response."""
    phrase = HTTPStatus(found.status).phrase if found.status in HTTPStatus._value2member_map_ else ""
    size = len(found.body.encode("utf-8", "surrogateescape"))
    return (
        f"HTTP/1.1 {found.status} {phrase}\r\nDate: {datetime.fromtimestamp(now, UTC):%a, %d %b %Y %H:%M:%S GMT}\r\n"
        f"Content-Type: {found.content_type}\r\nContent-Length: {size}\r\n\r\n"
    )


Exchange = Generator[float, None, "PodResponse | ConnectionFailure"]
"""Yields how many seconds to wait, and returns the response."""


class ConnectionFailure(Enum):
    """The failures of a connection; the value is the message of the C library."""

    REFUSED = "Connection refused"
    UNREACHABLE = "No route to host"
    TIMED_OUT = "Connection timed out"
    """Nothing responds: the node is stopped or partitioned."""
    RESET = "Connection reset by peer"
    """A server accepts the connection, but its responses are not simulated."""


class DnsRecord(NamedTuple):
    """A DNS record."""

    name: str
    """The absolute name, without the trailing dot."""
    kind: str
    """The type: A, CNAME, SRV or PTR."""
    value: str


@dataclass(slots=True)
class PendingResponse:
    """A response that arrives later; None until then."""

    response: PodResponse | ConnectionFailure | None = None


class Target(NamedTuple):
    """The Pod and port at which a connection ends."""

    uid: str
    """The uid of the Pod, or API_SERVER."""
    port: int


class ClusterNetwork(Protocol):
    """The cluster's network, which all Pods of a fleet share."""

    @property
    def ready(self) -> bool:
        """Whether Services and their endpoints are known. Reading this starts their watch."""
        ...

    def query(self, name: str, kind: str) -> list[DnsRecord] | None:
        """Query cluster DNS for an absolute name. Return None if the name does not exist."""
        ...

    def route(self, node: str, client: str, address: str, port: int, protocol: str) -> Target | ConnectionFailure:
        """Return where a connection from a Pod at address `client` on `node` ends. A loopback address is the node's."""
        ...

    def request_api(self, client: str, request: PodRequest) -> PendingResponse:
        """Send a request to the API server from the Pod at address `client`."""
        ...

    def ping(self, node: str, address: str) -> ConnectionFailure | None:
        """Return None if the address responds to pings from a Pod on `node`."""
        ...


class Network(Protocol):
    """The network as one container sees it, through its own /etc/hosts and /etc/resolv.conf."""

    @property
    def ready(self) -> bool: ...

    @property
    def address(self) -> str:
        """The address of the container's Pod."""
        ...

    @property
    def name_server(self) -> str:
        """The first name server in /etc/resolv.conf; empty if there is none."""
        ...

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[DnsRecord] | ConnectionFailure | None:
        """Query the name server, with the search domains unless `search` is false.

        Return None if the name does not exist, and TIMED_OUT if no name server responds."""
        ...

    def resolve(self, host: str) -> str:
        """Return the address of a host as the C library resolves it; empty if it cannot."""
        ...

    def exchange(self, address: str, request: PodRequest) -> PodResponse | ConnectionFailure:
        """Return the response of a Pod. The API server cannot be reached in this way."""
        ...

    def request(self, address: str, request: PodRequest) -> Exchange:
        """Return the response of a Pod or, after some time, of the API server."""
        ...

    def connect(self, address: str, port: int, protocol: str = TCP) -> ConnectionFailure | None:
        """Return None if something listens on the port."""
        ...

    def ping(self, address: str) -> ConnectionFailure | None: ...


class NoNetwork:
    """A Network for programs outside of any Pod: every lookup and connection fails."""

    ready = True
    address = "127.0.0.1"
    name_server = ""

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[DnsRecord] | ConnectionFailure | None:
        return ConnectionFailure.TIMED_OUT

    def resolve(self, host: str) -> str:
        return ""

    def exchange(self, address: str, request: PodRequest) -> PodResponse | ConnectionFailure:
        return ConnectionFailure.UNREACHABLE

    def request(self, address: str, request: PodRequest) -> Exchange:
        return ConnectionFailure.UNREACHABLE
        yield 0.0

    def connect(self, address: str, port: int, protocol: str = TCP) -> ConnectionFailure | None:
        return ConnectionFailure.UNREACHABLE

    def ping(self, address: str) -> ConnectionFailure | None:
        return ConnectionFailure.UNREACHABLE


class RequestDelivery(Protocol):
    """Access to the servers of all Pods by uid."""

    def deliver(self, uid: str, request: PodRequest) -> PodResponse | ConnectionFailure: ...

    def listens(self, uid: str, port: int, protocol: str) -> ConnectionFailure | None: ...


class ContainerNetwork:
    """Implements Network for a container of a Pod in the cluster."""

    def __init__(
        self,
        pod: Pod,
        address: str,
        files: Callable[[], Files],
        cluster: ClusterNetwork,
        servers: RequestDelivery,
    ) -> None:
        self._uid = pod["metadata"]["uid"]
        self._node = pod["spec"].get("nodeName") or ""
        self._host_network = bool(pod["spec"].get("hostNetwork"))
        self.address = address
        self._files = files
        self._cluster = cluster
        self._servers = servers

    @property
    def ready(self) -> bool:
        return self._cluster.ready

    @property
    def name_server(self) -> str:
        return next(iter(self._resolver_options("nameserver")), "")

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[DnsRecord] | ConnectionFailure | None:
        if self.name_server != CLUSTER_DNS:
            return ConnectionFailure.TIMED_OUT
        for each in self._candidates(name) if search else [name.rstrip(".")]:
            found = self._cluster.query(each, kind)
            if found is not None:
                return found
        return None

    def resolve(self, host: str) -> str:
        if is_address(host):
            return host
        for line in (self._files().read("/etc/hosts") or "").splitlines():
            words = line.partition("#")[0].split()
            if host in words[1:] and ":" not in words[0]:
                return words[0]
        found = self.lookup(host)
        records = found if isinstance(found, list) else []
        return next((each.value for each in records if each.kind == "A"), "")

    def exchange(self, address: str, request: PodRequest) -> PodResponse | ConnectionFailure:
        target = self._route(address, request.port, TCP if request.datagram is None else UDP)
        if isinstance(target, ConnectionFailure):
            return target
        if target.uid == API_SERVER:
            return ConnectionFailure.UNREACHABLE
        return self._servers.deliver(target.uid, request._replace(port=target.port))

    def request(self, address: str, request: PodRequest) -> Exchange:
        target = self._route(address, request.port, TCP)
        if isinstance(target, ConnectionFailure) or target.uid != API_SERVER:
            return self.exchange(address, request)
        pending = self._cluster.request_api(self.address, request)
        for _ in range(_MAX_POLLS):
            if pending.response is not None:
                return pending.response
            yield _POLL_INTERVAL
        return ConnectionFailure.TIMED_OUT

    def connect(self, address: str, port: int, protocol: str = TCP) -> ConnectionFailure | None:
        target = self._route(address, port, protocol)
        if isinstance(target, ConnectionFailure):
            return target
        return None if target.uid == API_SERVER else self._servers.listens(target.uid, target.port, protocol)

    def ping(self, address: str) -> ConnectionFailure | None:
        return None if self._is_own(address) else self._cluster.ping(self._node, address)

    def _route(self, address: str, port: int, protocol: str) -> Target | ConnectionFailure:
        if self._is_own(address):
            if not self._host_network:
                return Target(self._uid, port)
            address = address if is_loopback(address) else self.address
        return self._cluster.route(self._node, self.address, address, port, protocol)

    def _is_own(self, address: str) -> bool:
        return address == self.address or is_loopback(address) or address == "0.0.0.0"

    def _resolver_options(self, key: str) -> list[str]:
        lines = (self._files().read("/etc/resolv.conf") or "").splitlines()
        return [word for line in lines if line.split()[:1] == [key] for word in line.split()[1:]]

    def _candidates(self, name: str) -> list[str]:
        """Return the absolute names that a resolver tries, in order.

        The option ndots is not needed: no name of cluster DNS also exists below a search domain."""
        if name.endswith("."):
            return [name[:-1]]
        domains = self._resolver_options("search")[:_MAX_SEARCH_DOMAINS]
        return [*(f"{name}.{domain.rstrip('.')}" for domain in domains), name]


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
