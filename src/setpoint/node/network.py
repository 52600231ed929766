"""The network between simulated Pods: cluster DNS, and routing from addresses to Pods.

No packets are sent. Names and routes are computed from the Services, EndpointSlices, Pods and nodes in the fleet's
informers when a simulated program needs them. EndpointSlices are watched from the first such request on. Names have
the same records as on real nodes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.client.resources import builtin
from setpoint.meta.clock import Ids
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.node_state import NodeState
from setpoint.node.runtime.network import (
    API_SERVER,
    ConnectionFailure,
    DnsRecord,
    PendingResponse,
    PodRequest,
    RequestDelivery,
    Target,
    is_loopback,
)
from setpoint.node.simulation_annotations import RUNNING
from setpoint.reconcile import Informer, Manager
from setpoint.tasks import within

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, Service
    from setpoint.node.cluster_names import ClusterNames


_SERVICES, _SLICES = builtin("services"), builtin("endpointslices", "discovery.k8s.io")
_SERVICE_LABEL = "kubernetes.io/service-name"
_ADDRESS, _NODE_PORT, _SERVICE = "address", "node port", "service"
_MAX_WAIT = 5.0
"""Seconds for which a Pod waits for the first list of EndpointSlices, without which no Service is reachable."""
_NETWORK_PROGRAMS = re.compile(
    r"\b(curl|wget|nslookup|dig|host|getent|ping|nc|netcat|telnet|netexec|connect|psql|pg_[a-z]+)\b"
)
"""Matches programs that use DNS or connections."""
_API_SERVICE = ("default", "kubernetes")


class Endpoint(NamedTuple):
    """An address of a Service with the ports of its EndpointSlice."""

    address: str
    node: str
    ready: bool
    serving_while_terminating: bool
    ports: tuple[tuple[str, str, int], ...]
    """Name, protocol and number of each port."""


class ServiceDirectory:
    """Looks up Services and their endpoints by name, address and node port."""

    def __init__(self, manager: Manager, pods: Informer[Pod]) -> None:
        self._pods = pods
        self._services: Informer[Service] = manager.informer(_SERVICES)
        self._services.add_index(_ADDRESS, _addresses)
        self._services.add_index(_NODE_PORT, _node_ports)
        self._slices = Informer[Obj](manager.client, _SLICES, manager.clock)
        self._slices.add_index(_SERVICE, _service_of)
        self._clock = manager.clock
        self.names: ClusterNames | None = None
        """The names of cluster DNS; None until endpoints are requested."""
        self._endpoints_requested = asyncio.Event()

    async def run(self) -> None:
        await self._endpoints_requested.wait()
        # Most clusters need no names: this shortens the start.
        from setpoint.node.cluster_names import ClusterNames

        self.names = ClusterNames(self._clock, self._services, self._slices, self._pods)
        await self._slices.run()

    def request_endpoints(self) -> None:
        self._endpoints_requested.set()

    @property
    def ready(self) -> bool:
        return self._slices.synced.is_set()

    async def wait_until_ready(self) -> None:
        """Wait until EndpointSlices are listed, or for at most a few seconds."""
        self.request_endpoints()
        if self.ready:
            return
        with suppress(TimeoutError):
            await within(self._clock, _MAX_WAIT, self._slices.synced.wait())

    # -- lookups -------------------------------------------------------------------------------------------------------

    def services_at(self, address: str) -> Iterable[Service]:
        return self._services.by_index(_ADDRESS, address)

    def services_on_node_port(self, port: int) -> Iterable[Service]:
        return self._services.by_index(_NODE_PORT, str(port))

    def endpoints(self, namespace: str, service: str) -> list[Endpoint]:
        found: dict[str, Endpoint] = {}
        for each in self._slices.by_index(_SERVICE, f"{namespace}/{service}"):
            if each.get("addressType") == "FQDN":
                continue
            ports = tuple(
                (port.get("name") or "", port.get("protocol") or "TCP", int(port["port"]))
                for port in each.get("ports") or ()
                if port.get("port") is not None
            )
            for endpoint in each.get("endpoints") or ():
                converted = _endpoint(endpoint, ports)
                found.setdefault(f"{converted.address} {ports}", converted)
        return [found[key] for key in sorted(found)]


def _endpoint(endpoint: ObjView, ports: tuple[tuple[str, str, int], ...]) -> Endpoint:
    conditions = endpoint.get("conditions") or {}
    return Endpoint(
        str(endpoint["addresses"][0]),
        endpoint.get("nodeName") or "",
        conditions.get("ready") is not False,
        bool(conditions.get("serving")) and bool(conditions.get("terminating")),
        ports,
    )


def _addresses(service: Service) -> list[str]:
    spec, balancer = service["spec"], (service.get("status") or {}).get("loadBalancer") or {}
    found = [spec.get("clusterIP"), *(spec.get("clusterIPs") or ()), *(spec.get("externalIPs") or ())]
    found += [each.get("ip") for each in balancer.get("ingress") or ()]
    return [*dict.fromkeys(each for each in found if each and each != "None")]


def _node_ports(service: Service) -> list[str]:
    return [str(each["nodePort"]) for each in service["spec"].get("ports") or () if each.get("nodePort")]


def _service_of(endpoint_slice: ObjView) -> tuple[str, ...]:
    meta = endpoint_slice["metadata"]
    name = (meta.get("labels") or {}).get(_SERVICE_LABEL)
    return (f"{meta['namespace']}/{name}",) if name else ()


class PodLocations(Protocol):
    """The part of the runtime that knows the addresses and nodes of Pods."""

    def uid_at(self, address: str) -> str | None: ...

    def node_of(self, uid: str) -> str: ...

    @property
    def servers(self) -> RequestDelivery: ...


class FleetNetwork:
    """Implements ClusterNetwork for a fleet."""

    def __init__(
        self,
        directory: ServiceDirectory,
        locations: PodLocations,
        nodes: Mapping[str, NodeState],
        ids: Ids,
        pods_on: Callable[[str], Iterable[Pod]],
    ) -> None:
        self.directory = directory
        self._locations = locations
        self._nodes = nodes
        self._ids = ids
        self._pods_on = pods_on
        self.api: Callable[[str, PodRequest], PendingResponse] | None = None
        """Sends a request to the API server from a client address; None if the server runs in another process."""

    @property
    def ready(self) -> bool:
        self.directory.request_endpoints()
        return self.directory.ready

    async def prepare(self, spec: ObjView, command: Sequence[str] = ()) -> None:
        """Wait for the network if the command, or a program of the Pod, may use it. A command of one word is an
        interactive shell."""
        if not self.directory.ready and (
            len(command) == 1 or any(_NETWORK_PROGRAMS.search(word) for word in command or _command_words(spec))
        ):
            await self.directory.wait_until_ready()

    def query(self, name: str, kind: str) -> list[DnsRecord] | None:
        names = self.directory.names
        return names.query(name, kind) if names is not None else None

    def route(self, node: str, client: str, address: str, port: int, protocol: str) -> Target | ConnectionFailure:
        services = [*self.directory.services_at(address)]
        for service in services:
            spec = service["spec"]
            for each in spec.get("ports") or ():
                if (each["port"], each["protocol"]) == (port, protocol):
                    local_node = node if spec.get("internalTrafficPolicy") == "Local" else ""
                    return self._service_endpoint(service, each, node, client, local_node)
        if services:
            return ConnectionFailure.REFUSED
        target_node = self._nodes.get(node) if is_loopback(address) else self._node_at(address)
        if target_node is not None:
            return self._node_endpoint(target_node, address, node, client, port, protocol)
        uid = self._locations.uid_at(address)
        if uid is None:
            return ConnectionFailure.UNREACHABLE
        return self._partitioned(node, self._locations.node_of(uid)) or Target(uid, port)

    def request_api(self, client: str, request: PodRequest) -> PendingResponse:
        return self.api(client, request) if self.api is not None else PendingResponse(ConnectionFailure.UNREACHABLE)

    def ping(self, node: str, address: str) -> ConnectionFailure | None:
        target_node, uid = self._node_at(address), self._locations.uid_at(address)
        if target_node is not None:
            return self._partitioned(node, target_node.name)
        # The address of a Service does not respond to pings.
        return self._partitioned(node, self._locations.node_of(uid)) if uid is not None else ConnectionFailure.TIMED_OUT

    def _node_at(self, address: str) -> NodeState | None:
        return next((each for each in self._nodes.values() if each.address == address), None)

    def _service_endpoint(
        self, service: Service, port: ObjView, node: str, client: str, local_node: str
    ) -> Target | ConnectionFailure:
        """Return an endpoint of the Service; if `local_node` is not empty, only endpoints on that node are used."""
        meta = service["metadata"]
        endpoints = self.directory.endpoints(meta["namespace"], meta["name"])
        ready = [each for each in endpoints if each.ready] or [
            each for each in endpoints if each.serving_while_terminating
        ]
        if not ready:
            return ConnectionFailure.REFUSED
        chosen = [*_endpoint_ports(ready, port, local_node)]
        if not chosen:
            return ConnectionFailure.TIMED_OUT if local_node else ConnectionFailure.REFUSED
        if service["spec"].get("sessionAffinity") == "ClientIP":
            number = int.from_bytes(sha256(client.encode()).digest()[:4], "big") % len(chosen)
        else:
            number = self._ids.below(len(chosen))
        address, target = chosen[number]
        uid = self._locations.uid_at(address)
        if uid is None and self.api is not None and (meta["namespace"], meta["name"]) == _API_SERVICE:
            return Target(API_SERVER, target)
        if uid is None:
            target_node = self._node_at(address)
            if target_node is None:
                return ConnectionFailure.UNREACHABLE
            return self._partitioned(node, target_node.name) or self._host_network_target(
                target_node, target, port["protocol"]
            )
        return self._partitioned(node, self._locations.node_of(uid)) or Target(uid, target)

    def _node_endpoint(
        self, target_node: NodeState, address: str, node: str, client: str, port: int, protocol: str
    ) -> Target | ConnectionFailure:
        if failure := self._partitioned(node, target_node.name):
            return failure
        for service in self.directory.services_on_node_port(port):
            for each in service["spec"]["ports"]:
                if (each.get("nodePort"), each["protocol"]) == (port, protocol):
                    local_node = target_node.name if service["spec"].get("externalTrafficPolicy") == "Local" else ""
                    return self._service_endpoint(service, each, node, client, local_node)
        for pod in self._pods_on(target_node.name):
            for container in pod["spec"].get("containers") or ():
                for exposed in container.get("ports") or ():
                    if (exposed.get("hostPort"), exposed.get("protocol", "TCP")) != (port, protocol):
                        continue
                    if exposed.get("hostIP") in (None, "", "0.0.0.0", "::", address):
                        return Target(pod["metadata"]["uid"], exposed["containerPort"])
        return self._host_network_target(target_node, port, protocol)

    def _host_network_target(self, target_node: NodeState, port: int, protocol: str) -> Target | ConnectionFailure:
        """Return the Pod in the network of the node that listens on the port."""
        for pod in self._pods_on(target_node.name):
            uid = pod["metadata"]["uid"]
            if pod["spec"].get("hostNetwork") and self._locations.servers.listens(uid, port, protocol) is None:
                return Target(uid, port)
        return ConnectionFailure.REFUSED

    def _partitioned(self, one: str, other: str) -> ConnectionFailure | None:
        """Return TIMED_OUT if one of the two nodes is not running."""
        states = [found.state if (found := self._nodes.get(name)) is not None else "" for name in (one, other)]
        return None if states == [RUNNING, RUNNING] else ConnectionFailure.TIMED_OUT


def _endpoint_ports(endpoints: Iterable[Endpoint], port: ObjView, local_node: str) -> Iterator[tuple[str, int]]:
    for each in endpoints:
        for name, protocol, number in each.ports:
            if (name, protocol) == (port.get("name") or "", port["protocol"]) and local_node in ("", each.node):
                yield each.address, number


def _command_words(spec: ObjView) -> Iterator[str]:
    """Yield the words of all commands of a Pod's containers, probes and hooks."""
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
