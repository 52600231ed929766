"""The network as the runtime and the programs in simulated containers use it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

TCP, UDP = "TCP", "UDP"
Exchange = Generator[float, None, "WebAnswer | Failure"]
"""Yields how long it waits, and returns what came of it."""


class Failure(Enum):
    """Why a connection leads to no answer; the value is what the C library calls it."""

    REFUSED = "Connection refused"
    UNREACHABLE = "No route to host"
    LOST = "Connection timed out"
    """Nothing comes back: the machine is off or cut off."""
    CLOSED = "Connection reset by peer"
    """A server accepts the connection, but it is not known what it would answer."""


class Record(NamedTuple):
    """A record of the domain name system."""

    name: str
    """Absolute, without the dot at its end."""
    kind: str
    """A, CNAME, SRV or PTR."""
    value: str


API_SERVER = "the API server"
"""Instead of the uid of a Pod."""


@dataclass(slots=True)
class Pending:
    """An answer that comes later."""

    answer: WebAnswer | Failure | None = None


class Target(NamedTuple):
    """Where a connection ends."""

    uid: str
    """Of the Pod, or API_SERVER."""
    port: int


class ClusterNetwork(Protocol):
    """What all Pods of a fleet share."""

    @property
    def ready(self) -> bool:
        """Whether Services and their endpoints are known yet. Reading this requests them."""
        ...

    def query(self, name: str, kind: str) -> list[Record] | None:
        """Ask cluster DNS for an absolute name; None means that there is no such name."""
        ...

    def route(self, node: str, client: str, address: str, port: int, protocol: str) -> Target | Failure:
        """Return where a connection from a Pod at address `client` on `node` ends."""
        ...

    def ask_api(self, client: str, request: WebRequest) -> Pending:
        """Send a request to the API server from the Pod at address `client`."""
        ...

    def echoes(self, node: str, address: str) -> Failure | None:
        """Return None if the address answers to pings from a Pod on `node`."""
        ...


class Network(Protocol):
    """What one container sees of it, through its own /etc/hosts and /etc/resolv.conf."""

    @property
    def ready(self) -> bool: ...

    @property
    def address(self) -> str:
        """Of the container's Pod."""
        ...

    @property
    def name_server(self) -> str:
        """The first one in /etc/resolv.conf; empty if there is none."""
        ...

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[Record] | Failure | None:
        """Ask the name server, with the search domains unless `search` is false.

        The result is None if there is no such name, and LOST if no name server answers."""
        ...

    def resolve(self, host: str) -> str:
        """Return the address of a host as the C library finds it; empty if it finds none."""
        ...

    def exchange(self, address: str, request: WebRequest) -> WebAnswer | Failure:
        """Return the answer of a Pod. The API server is not reached in this way."""
        ...

    def request(self, address: str, request: WebRequest) -> Exchange:
        """Return the answer of a Pod or of the API server, which takes a moment."""
        ...

    def connect(self, address: str, port: int, protocol: str = TCP) -> Failure | None:
        """Return None if something listens there."""
        ...

    def echoes(self, address: str) -> Failure | None: ...


class NoNetwork:
    """A Network for programs that run outside of any Pod: nothing is found and nothing is reached."""

    ready = True
    address = "127.0.0.1"
    name_server = ""

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[Record] | Failure | None:
        return Failure.LOST

    def resolve(self, host: str) -> str:
        return ""

    def exchange(self, address: str, request: WebRequest) -> WebAnswer | Failure:
        return Failure.UNREACHABLE

    def request(self, address: str, request: WebRequest) -> Exchange:
        return Failure.UNREACHABLE
        yield 0.0

    def connect(self, address: str, port: int, protocol: str = TCP) -> Failure | None:
        return Failure.UNREACHABLE

    def echoes(self, address: str) -> Failure | None:
        return Failure.UNREACHABLE
