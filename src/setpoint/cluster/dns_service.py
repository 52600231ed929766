"""The Service `kube-dns`, at whose address the Pods of real nodes reach the DNS server of their node.

It has the tenth address of the service range, and no Pods. An administrator may create it with other addresses, or with
Pods of another DNS server: nodes use what they find.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.cluster.node_certificates import write_durably
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, Invalid, NotFound
from setpoint.meta.objects import Obj
from setpoint.node.host.blocking import BlockingPool
from setpoint.tasks import within

log = logging.getLogger("setpoint.node")

NAME, NAMESPACE = "kube-dns", "kube-system"
_ADDRESS_INDEX: Final = 10
"""The position of the address in the range of Services, as kubeadm chooses it."""
_PORT: Final = 53
_DEFAULT_ADDRESS: Final = "10.96.0.10"
_TIMEOUT: Final = 5.0
_SERVICES = builtin("services")
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


async def dns_addresses(client: Client, file: Path, pool: BlockingPool, clock: Clock) -> tuple[str, ...]:
    """Return the addresses of the cluster's DNS for the Pods of a node: those of the Service, or those that `file` has
    from an earlier start, while no API server answers. Raises OSError."""
    try:
        service = await within(clock, _TIMEOUT, client.get(_SERVICES, NAME, NAMESPACE))
    except NotFound:
        log.warning("the cluster has no Service %s/%s; Pods use %s for names", NAMESPACE, NAME, _DEFAULT_ADDRESS)
        return (_DEFAULT_ADDRESS,)
    except (ApiError, Unreachable, TimeoutError):
        return await pool.run(_stored_addresses, file) or (_DEFAULT_ADDRESS,)
    found = _valid_addresses(service["spec"].get("clusterIPs") or ())
    if found:
        await pool.run(write_durably, file, json.dumps(found).encode() + b"\n")
    return found or (_DEFAULT_ADDRESS,)


def _stored_addresses(file: Path) -> tuple[str, ...]:
    try:
        return _valid_addresses(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return ()


def _valid_addresses(texts: object) -> tuple[str, ...]:
    found = []
    for text in texts if isinstance(texts, list | tuple) else ():
        with suppress(ValueError):  # a headless Service has `None`
            found.append(str(ip_address(str(text))))
    return tuple(found)
