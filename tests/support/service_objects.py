"""Services and EndpointSlices for tests of a node's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

Object = dict[str, Any]


def service(
    name: str, *addresses: str, ports: Sequence[Object] | None = None, namespace: str = "default", **spec: Any
) -> Object:
    """Return a Service with these cluster IPs; by default its port 80 has no name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": addresses[0],
            "clusterIPs": [*addresses],
            "ipFamilies": [f"IPv{ip_address(each).version}" for each in addresses],
            "ipFamilyPolicy": "SingleStack" if len(addresses) == 1 else "RequireDualStack",
            "ports": ports or [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
            **spec,
        },
    }


def endpoint(address: str, node: str = "node-a", **more: Any) -> Object:
    """Return an endpoint that is ready; `conditions` replaces its conditions."""
    return {"addresses": [address], "nodeName": node, "conditions": {"ready": True}, **more}


def endpoint_slice(
    service_name: str,
    *endpoints: Object,
    port: int = 8080,
    port_name: str = "",
    protocol: str = "TCP",
    namespace: str = "default",
    suffix: str = "1",
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Return an EndpointSlice of a Service, of the family of its first endpoint."""
    family = ip_address(endpoints[0]["addresses"][0]).version if endpoints else 4
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service_name}-{suffix}",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service_name, **(labels or {})},
        },
        "addressType": f"IPv{family}",
        "ports": [{"name": port_name, "port": port, "protocol": protocol}],
        "endpoints": [*endpoints],
    }
