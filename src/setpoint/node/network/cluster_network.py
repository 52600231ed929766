"""From an address to the Pod that a connection ends at, as kube-proxy and the nodes' routes have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

from setpoint.meta.clock import Ids
from setpoint.node.annotations import RUNNING
from setpoint.node.network import dns
from setpoint.node.network.directory import Directory
from setpoint.node.network.dns import Endpoint
from setpoint.node.node_state import NodeState
from setpoint.node.runtime.container_network import Delivery
from setpoint.node.runtime.network import API_SERVER, Failure, Pending, Record, Target
from setpoint.node.runtime.web_messages import WebRequest

Obj = Mapping[str, Any]

_USERS = re.compile(r"\b(curl|wget|nslookup|dig|host|getent|ping|nc|netcat|telnet|netexec|connect|psql|pg_[a-z]+)\b")
"""Programs that ask for names or connections."""
_API_SERVICE = ("default", "kubernetes")


class Placed(Protocol):
    """The runtime, as far as it knows where Pods are."""

    def uid_at(self, address: str) -> str | None: ...

    def node_of(self, uid: str) -> str: ...

    @property
    def servers(self) -> Delivery: ...


class FleetNetwork:
    """A ClusterNetwork."""

    def __init__(
        self,
        directory: Directory,
        placed: Placed,
        nodes: Mapping[str, NodeState],
        ids: Ids,
        pods_on: Callable[[str], Iterable[Obj]],
    ) -> None:
        self.directory = directory
        self._placed = placed
        self._nodes = nodes
        self._ids = ids
        self._pods_on = pods_on
        self.api: Callable[[str, WebRequest], Pending] | None = None
        """Sends a request to the API server; None where that is another process."""

    @property
    def ready(self) -> bool:
        self.directory.want()
        return self.directory.ready

    async def prepare(self, spec: Obj, command: Sequence[str] = ()) -> None:
        """Have the network ready before programs run that use it. A command of one word is a shell for somebody."""
        if not self.directory.ready and (
            len(command) == 1 or any(_USERS.search(word) for word in command or _words(spec))
        ):
            await self.directory.prepared()

    def query(self, name: str, kind: str) -> list[Record] | None:
        return dns.query(self.directory, name, kind)

    def route(self, node: str, client: str, address: str, port: int, protocol: str) -> Target | Failure:
        services = [*self.directory.services_at(address)]
        for service in services:
            spec = service["spec"]
            for each in spec.get("ports") or ():
                if (each["port"], each["protocol"]) == (port, protocol):
                    here = node if spec.get("internalTrafficPolicy") == "Local" else ""
                    return self._through(service, each, node, client, here)
        if services:
            return Failure.REFUSED
        machine = self._machine_at(address)
        if machine is not None:
            return self._to_node(machine, node, client, port, protocol)
        uid = self._placed.uid_at(address)
        if uid is None:
            return Failure.UNREACHABLE
        return self._lost(node, self._placed.node_of(uid)) or Target(uid, port)

    def ask_api(self, client: str, request: WebRequest) -> Pending:
        return self.api(client, request) if self.api is not None else Pending(Failure.UNREACHABLE)

    def echoes(self, node: str, address: str) -> Failure | None:
        machine, uid = self._machine_at(address), self._placed.uid_at(address)
        if machine is not None:
            return self._lost(node, machine.name)
        # The address of a Service answers at its ports only.
        return self._lost(node, self._placed.node_of(uid)) if uid is not None else Failure.LOST

    def _machine_at(self, address: str) -> NodeState | None:
        return next((each for each in self._nodes.values() if each.address == address), None)

    def _through(self, service: Obj, port: Obj, node: str, client: str, here: str) -> Target | Failure:
        """`here`: only endpoints on this node are used."""
        meta = service["metadata"]
        endpoints = self.directory.endpoints(meta["namespace"], meta["name"])
        ready = [each for each in endpoints if each.ready] or [each for each in endpoints if each.serving_while_ending]
        if not ready:
            return Failure.REFUSED
        chosen = [*_numbered(ready, port, here)]
        if not chosen:
            return Failure.LOST if here else Failure.REFUSED
        if service["spec"].get("sessionAffinity") == "ClientIP":
            number = int.from_bytes(sha256(client.encode()).digest()[:4], "big") % len(chosen)
        else:
            number = self._ids.below(len(chosen))
        address, target = chosen[number]
        uid = self._placed.uid_at(address)
        if uid is None and self.api is not None and (meta["namespace"], meta["name"]) == _API_SERVICE:
            found = self._nodes.get(node)
            return Target(API_SERVER, target) if found is not None and found.state == RUNNING else Failure.LOST
        if uid is None:
            return Failure.UNREACHABLE
        return self._lost(node, self._placed.node_of(uid)) or Target(uid, target)

    def _to_node(self, machine: NodeState, node: str, client: str, port: int, protocol: str) -> Target | Failure:
        if lost := self._lost(node, machine.name):
            return lost
        for service in self.directory.services_on_node_port(port):
            for each in service["spec"]["ports"]:
                if (each.get("nodePort"), each["protocol"]) == (port, protocol):
                    here = machine.name if service["spec"].get("externalTrafficPolicy") == "Local" else ""
                    return self._through(service, each, node, client, here)
        for pod in self._pods_on(machine.name):
            for container in pod["spec"].get("containers") or ():
                for each in container.get("ports") or ():
                    if (each.get("hostPort"), each.get("protocol", "TCP")) == (port, protocol):
                        return Target(pod["metadata"]["uid"], int(each["containerPort"]))
        for pod in self._pods_on(machine.name):
            uid = pod["metadata"]["uid"]
            if pod["spec"].get("hostNetwork") and self._placed.servers.listens(uid, port, protocol) is None:
                return Target(uid, port)
        return Failure.REFUSED

    def _lost(self, one: str, other: str) -> Failure | None:
        """Two nodes reach each other if both are switched on and connected; a Pod reaches the others on its node."""
        states = [found.state if (found := self._nodes.get(name)) is not None else "" for name in (one, other)]
        return None if one == other or states == [RUNNING, RUNNING] else Failure.LOST


def _numbered(endpoints: Iterable[Endpoint], port: Obj, here: str) -> Iterator[tuple[str, int]]:
    for each in endpoints:
        for title, protocol, number in each.ports:
            if (title, protocol) == (port.get("name") or "", port["protocol"]) and here in ("", each.node):
                yield each.address, number


def _words(spec: Obj) -> Iterator[str]:
    """What the containers of a Pod run, their probes and hooks included."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            hooks = (container.get("lifecycle") or {}).values()
            probes = (container.get(name) or {} for name in ("startupProbe", "livenessProbe", "readinessProbe"))
            yield from container.get("command") or ()
            yield from container.get("args") or ()
            for each in (*hooks, *probes):
                yield from (each.get("exec") or {}).get("command") or ()
            if any((each.get("httpGet") or {}).get("host") for each in hooks):
                yield "curl"
