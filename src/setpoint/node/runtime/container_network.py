"""The network as one container sees it: its own host and resolver files, and then the network of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Protocol

from setpoint.node.runtime.files import Files
from setpoint.node.runtime.network import API_SERVER, TCP, UDP, ClusterNetwork, Exchange, Failure, Record, Target
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

CLUSTER_DNS = "10.96.0.10"
"""Where cluster DNS answers, as /etc/resolv.conf of a Pod says."""
_MOST_SEARCHES = 32
_LOOKS, _BETWEEN_LOOKS = 3000, 0.01
"""How often, and after how many seconds each, a program looks for the answer of the API server."""


class Delivery(Protocol):
    """The servers of all Pods, which are known by their uids."""

    def deliver(self, uid: str, request: WebRequest) -> WebAnswer | Failure: ...

    def listens(self, uid: str, port: int, protocol: str) -> Failure | None: ...


class ContainerNetwork:
    def __init__(
        self,
        pod: Mapping[str, Any],
        address: str,
        files: Callable[[], Files],
        cluster: ClusterNetwork,
        servers: Delivery,
    ) -> None:
        self._uid = pod["metadata"]["uid"]
        self._node = pod["spec"].get("nodeName") or ""
        self._of_node = bool(pod["spec"].get("hostNetwork"))
        self.address = address
        self._files = files
        self._cluster = cluster
        self._servers = servers

    @property
    def ready(self) -> bool:
        return self._cluster.ready

    @property
    def name_server(self) -> str:
        return next(iter(self._configured("nameserver")), "")

    def lookup(self, name: str, kind: str = "A", *, search: bool = True) -> list[Record] | Failure | None:
        if self.name_server != CLUSTER_DNS:
            return Failure.LOST
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

    def exchange(self, address: str, request: WebRequest) -> WebAnswer | Failure:
        target = self._route(address, request.port, TCP if request.datagram is None else UDP)
        if isinstance(target, Failure):
            return target
        if target.uid == API_SERVER:
            return Failure.UNREACHABLE
        return self._servers.deliver(target.uid, request._replace(port=target.port))

    def request(self, address: str, request: WebRequest) -> Exchange:
        target = self._route(address, request.port, TCP)
        if isinstance(target, Failure) or target.uid != API_SERVER:
            return self.exchange(address, request)
        pending = self._cluster.ask_api(self.address, request)
        for _ in range(_LOOKS):
            if pending.answer is not None:
                return pending.answer
            yield _BETWEEN_LOOKS
        return Failure.LOST

    def connect(self, address: str, port: int, protocol: str = TCP) -> Failure | None:
        target = self._route(address, port, protocol)
        if isinstance(target, Failure):
            return target
        return None if target.uid == API_SERVER else self._servers.listens(target.uid, target.port, protocol)

    def echoes(self, address: str) -> Failure | None:
        return None if self._is_own(address) else self._cluster.echoes(self._node, address)

    def _route(self, address: str, port: int, protocol: str) -> Target | Failure:
        if self._is_own(address):
            if not self._of_node:
                return Target(self._uid, port)
            address = self.address
        return self._cluster.route(self._node, self.address, address, port, protocol)

    def _is_own(self, address: str) -> bool:
        return address == self.address or address.startswith("127.") or address in ("::1", "0.0.0.0")

    def _configured(self, key: str) -> list[str]:
        lines = (self._files().read("/etc/resolv.conf") or "").splitlines()
        return [word for line in lines if line.split()[:1] == [key] for word in line.split()[1:]]

    def _candidates(self, name: str) -> list[str]:
        """The absolute names that a resolver tries, in its order."""
        if name.endswith("."):
            return [name[:-1]]
        enough = next((each[6:] for each in self._configured("options") if each.startswith("ndots:")), "1")
        searched = [f"{name}.{domain.rstrip('.')}" for domain in self._configured("search")[:_MOST_SEARCHES]]
        as_it_is_first = enough.isdigit() and name.count(".") >= int(enough)
        return [name, *searched] if as_it_is_first else [*searched, name]


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
