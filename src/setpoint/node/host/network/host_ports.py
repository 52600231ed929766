"""Host ports of the Pods of a node: ports of the node's addresses that lead to a container."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.node.host.network.ruleset import ElementKey, Fragment, NftChain
from setpoint.node.host.network.service_rules import mark_connection, translation
from setpoint.node.host.network.services import Endpoint

_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}


class HostPort(NamedTuple):
    """A port of the node that leads to a port of a Pod."""

    protocol: str
    """The protocol in lower case: tcp, udp or sctp."""
    port: int
    target: Endpoint
    """The address of the Pod and the port of the container."""
    host_ip: str = ""
    """The only address of the node that has the port; empty means all addresses that are not loopback addresses."""

    @property
    def family(self) -> int:
        return ip_address(self.target.address).version


def host_ports(pod: ObjView, pod_ips: Iterable[str]) -> list[HostPort]:
    """Return the host ports of a Pod with its addresses; a Pod in the network of the host has none."""
    spec = pod.get("spec") or {}
    if spec.get("hostNetwork"):
        return []
    addresses = [str(ip_address(each)) for each in pod_ips]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return [
        made
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
        for address in addresses
        if (made := _host_port(port, address)) is not None
    ]


def _host_port(port: ObjView, address: str) -> HostPort | None:
    protocol = _PROTOCOLS.get(port.get("protocol") or "TCP")
    if protocol is None:
        return None
    wanted = port.get("hostIP") or ""
    if wanted:
        host_ip = ip_address(wanted)
        # The unspecified address of either family stands for all addresses of both.
        if not host_ip.is_unspecified:
            if host_ip.version != ip_address(address).version:
                return None
            return HostPort(protocol, port["hostPort"], Endpoint(address, port["containerPort"]), str(host_ip))
    return HostPort(protocol, port["hostPort"], Endpoint(address, port["containerPort"]))


def host_port_fragment(uid: str, ports: Iterable[HostPort]) -> Fragment:
    """Return the rules for the host ports of one Pod."""
    chains: dict[str, NftChain] = {}
    elements: dict[ElementKey, str] = {}
    for port in ports:
        family = port.family
        chain = f"svc-host{family}-{uid}/{port.protocol}/{port.port}"
        if port.host_ip:
            chain += f"/{port.host_ip.replace(':', '.')}"
        key = f"{port.protocol} . {port.port}"
        container, key = (
            (f"svc-host-ips{family}", f"{port.host_ip} . {key}") if port.host_ip else (f"svc-host-ports{family}", key)
        )
        chains[chain] = NftChain(tuple(_rules(port)))
        elements[ElementKey(container, key)] = f"goto {chain}"
        address = port.target.address
        elements[ElementKey(f"svc-hairpin{family}", f"{address} . {address}")] = ""
    return Fragment(chains=chains, elements=elements)


def _rules(port: HostPort) -> Iterator[str]:
    if port.protocol == "udp":
        yield mark_connection()
    yield translation(port.protocol, port.family, port.target)
