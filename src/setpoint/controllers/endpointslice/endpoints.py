"""Converts Pods to the endpoints and ports of slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from setpoint.controllers.endpoints import in_slices
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pods import is_ready
from setpoint.controllers.service_pods import (
    HEADLESS,
    addresses_of,
    has_hostname,
    is_headless,
    target_port,
    target_reference,
)
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.node_labels import ZONE
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod, Service

PortsKey = tuple[tuple[Any, ...], ...]
EndpointKey = tuple[tuple[str, ...], str, str, str]

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)
_COMPARED = ("nodeName", "zone", "conditions")


def families_of(service: Service) -> list[str]:
    """Return the address types for which the Service has slices."""
    spec = service["spec"]
    families = [family for family in spec.get("ipFamilies") or () if family in ("IPv4", "IPv6")]
    if families:
        return families
    if is_headless(service):
        return ["IPv4", "IPv6"]
    return ["IPv6" if ":" in spec["clusterIP"] else "IPv4"]


def endpoint_of(pod: Pod, node: Node | None, service: Service, family: str) -> Obj:
    serving, terminating = is_ready(pod), "deletionTimestamp" in pod["metadata"]
    ready = bool(service["spec"].get("publishNotReadyAddresses")) or (serving and not terminating)
    made: Obj = {
        "addresses": addresses_of(pod, family),
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": target_reference(pod),
    }
    if pod["spec"].get("nodeName"):
        made["nodeName"] = pod["spec"]["nodeName"]
    if node is not None and (zone := (node["metadata"].get("labels") or {}).get(ZONE)):
        made["zone"] = zone
    if has_hostname(pod, service):
        made["hostname"] = pod["spec"]["hostname"]
    return made


def ports_of(service: Service, pod: Pod) -> list[Obj]:
    made = []
    for port in service["spec"].get("ports") or ():
        number = target_port(pod, port)
        if number is None:
            continue
        found: Obj = {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol", "TCP")}
        if port.get("appProtocol"):
            found["appProtocol"] = port["appProtocol"]
        made.append(found)
    return in_order(made)


def in_order(ports: list[Obj]) -> list[Obj]:
    """Sort ports in upstream's order."""

    def place(port: Obj) -> bytes:
        return in_slices(port["name"], port.get("protocol", "TCP"), port["port"], port.get("appProtocol"))

    return sorted(ports, key=place) if len(ports) > 1 else ports


def ports_key(ports: Iterable[Obj] | None) -> PortsKey:
    """Return a key that is equal for equal ports in any order."""
    if not ports:
        return ()
    return tuple(
        sorted(
            (port.get("name") or "", port.get("protocol") or "", port.get("port") or 0, port.get("appProtocol") or "")
            for port in ports
        )
    )


def endpoint_key(endpoint: Obj) -> EndpointKey:
    """Return the identity of an endpoint, independent of its other fields."""
    target = endpoint.get("targetRef") or {}
    addresses = tuple(endpoint["addresses"])
    if len(addresses) > 1:
        addresses = tuple(sorted(addresses))
    return addresses, endpoint.get("hostname") or "", target.get("namespace") or "", target.get("name") or ""


def is_equivalent(one: Obj, other: Obj) -> bool:
    """Compare two endpoints with the same key, without their hints and Pod revisions."""
    for field in _COMPARED:
        if one.get(field) != other.get(field):
            return False
    return one.get("targetRef") == other.get("targetRef") or _target(one) == _target(other)


def _target(endpoint: Obj) -> Obj:
    return {key: value for key, value in (endpoint.get("targetRef") or {}).items() if key != "resourceVersion"}


def labels_of(service: Service, manager: str) -> dict[str, str]:
    """Return the labels of a slice: those of its Service and the controller's own."""
    labels = own_labels(service)
    if is_headless(service):
        labels[HEADLESS] = ""
    return {**labels, SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: manager}


def own_labels(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels without those that the controller sets."""
    labels = obj["metadata"].get("labels") or {}
    return {key: value for key, value in labels.items() if key not in _RESERVED}


def new_slice(service: Service, family: str, ports: list[Obj], endpoints: list[Obj], manager: str) -> Obj:
    name = service["metadata"]["name"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_prefix(name),
            "namespace": service["metadata"]["namespace"],
            "labels": labels_of(service, manager),
            "ownerReferences": [controller_reference(service)],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    }


def slice_prefix(name: str) -> str:
    return name if dns1123_subdomain(f"{name}-x") else f"{name}-"


def is_owned_by(found: ObjView, owner: ObjView) -> bool:
    return any(
        each["uid"] == owner["metadata"]["uid"] and each["kind"] == owner["kind"]
        for each in found["metadata"].get("ownerReferences") or ()
    )
