"""Groups addresses with equal ports into subsets."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any

from setpoint.controllers.endpoints.ordering import by_hash, subset_by_hash
from setpoint.controllers.pods import is_ready
from setpoint.controllers.service_pods import (
    addresses_of,
    can_serve,
    has_hostname,
    is_headless,
    target_port,
    target_reference,
)

Obj = dict[str, Any]
_Port = tuple[str, int, str, str | None] | None
"""Name, number, protocol and application protocol; None means no port."""
_Address = tuple[str, str]
"""IP and uid of the target: Pods on the host network share an IP."""

CAPACITY = 1000


def subsets_of(service: Obj, pods: Iterable[Obj]) -> list[Obj]:
    spec = service["spec"]
    unready_too = bool(spec.get("publishNotReadyAddresses"))
    addresses: dict[_Address, Obj] = {}
    offers: dict[_Port, dict[_Address, bool]] = {}
    for pod in pods:
        if not can_serve(pod, terminating=unready_too):
            continue
        address = _address_of(service, pod)
        if address is None:
            continue
        key = (address["ip"], address["targetRef"]["uid"])
        addresses[key] = address
        for port in _ports_of(service, pod):
            offers.setdefault(port, {})[key] = unready_too or is_ready(pod)
    return _packed(addresses, offers)


def repacked(subsets: Iterable[Obj]) -> list[Obj]:
    """Return the subsets in the canonical form that this controller writes."""
    addresses: dict[_Address, Obj] = {}
    offers: dict[_Port, dict[_Address, bool]] = {}
    for subset in subsets:
        ports: list[_Port] = [
            (port.get("name") or "", port["port"], port.get("protocol") or "TCP", port.get("appProtocol"))
            for port in subset.get("ports") or ()
        ]
        for part, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(part) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid") or "")
                addresses.setdefault(key, address)
                for port in ports or [None]:
                    at = offers.setdefault(port, {})
                    # An address that is listed as both ready and not ready counts as not ready.
                    at[key] = at.get(key, True) and ready
    return _packed(addresses, offers)


def _packed(addresses: dict[_Address, Obj], offers: dict[_Port, dict[_Address, bool]]) -> list[Obj]:
    groups: dict[tuple[tuple[_Address, bool], ...], list[Obj]] = {}
    for port, at in offers.items():
        ports = groups.setdefault(tuple(sorted(at.items())), [])
        if port is not None:
            name, number, protocol, application = port
            made: Obj = {"name": name} if name else {}
            made |= {"port": number, "protocol": protocol}
            ports.append(made if application is None else {**made, "appProtocol": application})
    subsets = []
    for at_once, ports in groups.items():
        parts = {
            "addresses": [addresses[key] for key, ready in at_once if ready],
            "notReadyAddresses": [addresses[key] for key, ready in at_once if not ready],
            "ports": sorted(ports, key=by_hash),
        }
        subsets.append({name: part for name, part in parts.items() if part})
    return sorted(subsets, key=subset_by_hash) if len(subsets) > 1 else subsets


def _ports_of(service: Obj, pod: Obj) -> list[_Port]:
    asked = service["spec"].get("ports") or ()
    if not asked:
        return [None] if is_headless(service) else []
    found: list[_Port] = []
    for port in asked:
        number = target_port(pod, port)
        if number is not None:
            found.append((port.get("name") or "", number, port.get("protocol", "TCP"), port.get("appProtocol")))
    return found


def _address_of(service: Obj, pod: Obj) -> Obj | None:
    found = addresses_of(pod, _family(service, pod))
    if not found:
        return None
    made: Obj = {"ip": found[0], "nodeName": pod["spec"].get("nodeName") or "", "targetRef": target_reference(pod)}
    if has_hostname(pod, service):
        made["hostname"] = pod["spec"]["hostname"]
    return made


def _family(service: Obj, pod: Obj) -> str:
    """Return the address family: Endpoints support only the first one of the Service."""
    families = service["spec"].get("ipFamilies")
    if families:
        return str(families[0])
    address = (pod.get("status") or {}).get("podIP") if is_headless(service) else service["spec"]["clusterIP"]
    return "IPv6" if ":" in (address or "") else "IPv4"


def truncated(subsets: list[Obj]) -> list[Obj]:
    """Truncate to what fits into one object: ready addresses first, proportionally from each subset."""
    ready = sum(len(subset.get("addresses") or ()) for subset in subsets)
    unready = sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets)
    if ready + unready <= CAPACITY:
        return subsets
    cut = "addresses" if ready > CAPACITY else "notReadyAddresses"
    total, most = (ready, CAPACITY) if ready > CAPACITY else (unready, CAPACITY - ready)
    left, result = most, []
    for subset in subsets:
        held = subset.get(cut) or []
        share = min(ceil(len(held) / total * most), left)
        kept = {**subset, cut: held[:share]}
        left -= len(kept[cut])
        if cut == "addresses":
            kept.pop("notReadyAddresses", None)
        result.append({name: part for name, part in kept.items() if part})
    return result
