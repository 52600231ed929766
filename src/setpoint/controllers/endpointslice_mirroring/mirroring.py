"""Converts an Endpoints object to slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from setpoint.controllers.endpoints.subsets import repacked
from setpoint.controllers.endpointslice.endpoints import (
    MANAGED_BY,
    SERVICE_NAME,
    EndpointKey,
    PortsKey,
    endpoint_key,
    in_order,
    is_equivalent,
    is_owned_by,
    ports_key,
    slice_prefix,
)
from setpoint.controllers.endpointslice.planning import Plan
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.service_pods import LAST_CHANGE
from setpoint.meta.names import parse_ip

Obj = dict[str, Any]

MANAGER = "endpointslicemirroring-controller.k8s.io"
_LEFT_OUT = (LAST_CHANGE, "kubectl.kubernetes.io/last-applied-configuration")
_Key = tuple[str, PortsKey]


@dataclass(slots=True)
class Mirror:
    groups: dict[_Key, tuple[list[Obj], dict[EndpointKey, Obj]]] = field(default_factory=dict)
    """Ports and endpoints by address family and ports."""
    invalid: int = 0
    skipped: int = 0
    """The number of addresses that are not mirrored, including invalid ones."""


def mirror_of(endpoints: Obj, most: int) -> Mirror:
    """Convert the subsets, with at most `most` addresses of each."""
    mirror = Mirror()
    for subset in repacked(endpoints.get("subsets") or ()):
        ports = in_order([{**port, "name": port.get("name") or ""} for port in subset.get("ports") or ()])
        added = 0
        addresses = [(each, True) for each in subset.get("addresses") or ()]
        addresses += [(each, False) for each in subset.get("notReadyAddresses") or ()]
        for address, ready in addresses:
            if added >= most:
                break
            ip = parse_ip(address["ip"])
            if ip is None:
                mirror.invalid += 1
                continue
            key = f"IPv{ip.version}", ports_key(ports)
            endpoint = _endpoint(address, str(ip), ready)
            mirror.groups.setdefault(key, (ports, {}))[1][endpoint_key(endpoint)] = endpoint
            added += 1
        mirror.skipped += len(addresses) - added
    return mirror


def _endpoint(address: Obj, ip: str, ready: bool) -> Obj:
    made: Obj = {"addresses": [ip], "conditions": {"ready": ready}}
    for name in ("targetRef", "nodeName", "hostname"):
        if address.get(name):
            made[name] = address[name]
    return made


def plan_mirror(endpoints: Obj, mirror: Mirror, slices: Sequence[Obj]) -> Plan:
    """Plan one slice for each group. Surplus slices are deleted or reused."""
    result = Plan()
    by_key: dict[_Key, list[Obj]] = {}
    for found in slices:
        by_key.setdefault((found["addressType"], ports_key(found.get("ports"))), []).append(found)
    for key, (ports, wanted) in mirror.groups.items():
        there = by_key.pop(key, [])
        first = there[0] if there else None
        result.delete += there[1:]
        if first is not None and _is_mirrored(endpoints, first, wanted):
            continue
        made = _slice(endpoints, key[0], ports, list(wanted.values()))
        if first is None:
            result.create.append(made)
        else:
            result.update.append(_in_place_of(first, made))
    for left in by_key.values():
        result.delete += left
    _recycle(result)
    return result


def _is_mirrored(endpoints: Obj, found: Obj, wanted: dict[EndpointKey, Obj]) -> bool:
    there = {endpoint_key(endpoint): endpoint for endpoint in found.get("endpoints") or ()}
    if there.keys() != wanted.keys() or not all(is_equivalent(wanted[key], there[key]) for key in there):
        return False
    made = _slice(endpoints, "", [], [])["metadata"]
    meta = found["metadata"]
    if (meta.get("labels") or {}) != made["labels"] or (meta.get("annotations") or {}) != made["annotations"]:
        return False
    return is_owned_by(found, endpoints)


def _slice(endpoints: Obj, family: str, ports: list[Obj], found: list[Obj]) -> Obj:
    meta = endpoints["metadata"]
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _LEFT_OUT}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_prefix(meta["name"]),
            "namespace": meta["namespace"],
            "labels": {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER},
            "annotations": annotations,
            "ownerReferences": [controller_reference(endpoints)],
        },
        "addressType": family,
        "endpoints": found,
        "ports": ports,
    }


def _in_place_of(old: Obj, made: Obj) -> Obj:
    kept = {name: old["metadata"][name] for name in ("name", "uid", "resourceVersion")}
    return {**made, "metadata": {**made["metadata"], **kept}}


def _recycle(result: Plan) -> None:
    for made in tuple(result.create):
        doomed = next((found for found in result.delete if found["addressType"] == made["addressType"]), None)
        if doomed is not None:
            result.create.remove(made)
            result.delete.remove(doomed)
            result.update.append(_in_place_of(doomed, made))
