"""What cluster DNS answers: the names of Services, of their endpoints and of Pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from setpoint.node.runtime.network import Record

Obj = Mapping[str, Any]

DOMAIN = "cluster.local"
_REVERSE = ".in-addr.arpa"
_MOST_ALIASES = 8
"""How many CNAME records are followed, one after the other."""


class Endpoint(NamedTuple):
    """One address behind a Service, with the ports of its EndpointSlice by name."""

    address: str
    hostname: str
    node: str
    ready: bool
    serving_while_ending: bool
    ports: tuple[tuple[str, str, int], ...]
    """Name, protocol and number."""


class Names(Protocol):
    """The objects that names are made of."""

    def service(self, namespace: str, name: str) -> Obj | None: ...

    def services_at(self, address: str) -> Iterable[Obj]: ...

    def has_services(self, namespace: str) -> bool: ...

    def endpoints(self, namespace: str, service: str) -> list[Endpoint]:
        """Return the endpoints of a Service, in a fixed order."""
        ...


def query(names: Names, name: str, kind: str) -> list[Record] | None:
    """Return the records of an absolute name; None if there is no such name, empty if it has none of this kind."""
    name = name.lower().rstrip(".")
    found: list[Record] = []
    for _ in range(_MOST_ALIASES):
        records = _records(names, name, kind)
        if records is None:
            return found or None
        found += records
        if not records or records[-1].kind != "CNAME" or kind == "CNAME":
            return found
        name = records[-1].value
    return found


def _records(names: Names, name: str, kind: str) -> list[Record] | None:
    if name.endswith(_REVERSE):
        return _reverse(names, name) if kind == "PTR" else None
    if not name.endswith(f".{DOMAIN}"):
        return None
    *labels, category = name.removesuffix(f".{DOMAIN}").split(".")
    if category == "svc":
        return _of_service(names, name, labels, kind)
    if category == "pod" and len(labels) == 2:
        address = labels[0].replace("-", ".")
        if address.count(".") != 3 or not all(part.isdigit() and int(part) < 256 for part in address.split(".")):
            return None
        return [Record(name, "A", address)] if kind == "A" else []
    return None


def _of_service(names: Names, name: str, labels: list[str], kind: str) -> list[Record] | None:
    match labels:
        case [namespace]:
            return [] if names.has_services(namespace) else None
        case [service, namespace]:
            host = port = ""
        case [host, service, namespace]:
            port = ""
        case [port, protocol, service, namespace] if port.startswith("_") and protocol.startswith("_"):
            host = ""
            return _service_records(names, name, service, namespace, kind, (port[1:], protocol[1:].upper()))
        case _:
            return None
    found = names.service(namespace, service)
    if found is None:
        return None
    spec = found["spec"]
    if spec.get("type") == "ExternalName":
        if host:
            return None
        return [Record(name, "CNAME", str(spec.get("externalName", "")).rstrip("."))]
    if not is_headless(found):
        if host:
            return None
        return [Record(name, "A", str(spec["clusterIP"]))] if kind == "A" and "." in spec["clusterIP"] else []
    addresses = [
        each.address
        for each in names.endpoints(namespace, service)
        if each.ready and "." in each.address and (not host or host == host_name(each))
    ]
    if not addresses:
        # A headless Service without endpoints has no addresses, but the name of one endpoint needs the endpoint.
        return None if host else []
    return [Record(name, "A", each) for each in dict.fromkeys(addresses)] if kind == "A" else []


def _service_records(
    names: Names, name: str, service: str, namespace: str, kind: str, wanted: tuple[str, str]
) -> list[Record] | None:
    found = names.service(namespace, service)
    if found is None:
        return None
    base, values = f"{service}.{namespace}.svc.{DOMAIN}", []
    if is_headless(found):
        for each in names.endpoints(namespace, service):
            numbers = [number for title, protocol, number in each.ports if (title, protocol) == wanted]
            values += [f"0 100 {number} {host_name(each)}.{base}." for number in numbers if each.ready]
    else:
        ports = [
            each for each in found["spec"].get("ports") or () if (each.get("name", ""), each["protocol"]) == wanted
        ]
        values = [f"0 100 {each['port']} {base}." for each in ports]
    if not values:
        return None
    return [Record(name, "SRV", value) for value in values] if kind == "SRV" else []


def _reverse(names: Names, name: str) -> list[Record] | None:
    address = ".".join(reversed(name.removesuffix(_REVERSE).split(".")))
    found = [*_names_at(names, address)]
    return [Record(name, "PTR", f"{each}.") for each in found] or None


def _names_at(names: Names, address: str) -> Iterator[str]:
    for service in names.services_at(address):
        if service["spec"].get("clusterIP") == address:
            meta = service["metadata"]
            yield f"{meta['name']}.{meta['namespace']}.svc.{DOMAIN}"


def host_name(endpoint: Endpoint) -> str:
    """Return the name of an endpoint below its Service."""
    return endpoint.hostname or endpoint.address.replace(".", "-").replace(":", "-")


def is_headless(service: Obj) -> bool:
    return service["spec"].get("clusterIP") in ("None", "", None)
