"""The Service `kube-dns`, at whose address the Pods of real nodes reach the DNS server of their node."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_network
from typing import Final

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.errors import AlreadyExists, Invalid, NotFound
from setpoint.meta.objects import Obj

NAME, NAMESPACE = "kube-dns", "kube-system"
_ADDRESS_INDEX: Final = 10
"""The position of the address in the range of Services, as kubeadm chooses it."""
_PORT: Final = 53
_RANGES = builtin("servicecidrs", "networking.k8s.io")
_DEFAULT_RANGE: Final = "kubernetes"


def dns_address(service_range: str) -> str | None:
    """Return the address of the cluster's DNS in a range of Service addresses; None if the range is too small."""
    network = ip_network(service_range)
    return str(network[_ADDRESS_INDEX]) if network.num_addresses > _ADDRESS_INDEX + 1 else None


def dns_service(address: str) -> Obj:
    """Return the Service. It has no selector: each node sends its traffic to the server of its own agent."""
    labels = {"k8s-app": NAME, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "KubeDNS"}
    ports = [
        {"name": "dns", "port": _PORT, "protocol": "UDP", "targetPort": _PORT},
        {"name": "dns-tcp", "port": _PORT, "protocol": "TCP", "targetPort": _PORT},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {"clusterIP": address, "clusterIPs": [address], "ports": ports},
    }


async def ensure_dns_service(client: Client) -> None:
    """Create the Service if it is missing. An existing one stays as it is, and so does another Service that has its
    address: the cluster has a DNS server of its own then. Raises ApiError."""
    try:
        ranges = (await client.get(_RANGES, _DEFAULT_RANGE))["spec"]["cidrs"]
    except NotFound:
        return
    address = dns_address(ranges[0])
    if address is not None:
        with suppress(AlreadyExists, Invalid):
            await client.create(dns_service(address))
