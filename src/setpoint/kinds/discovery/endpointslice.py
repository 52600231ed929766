"""EndpointSlice: some of the addresses behind a Service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.cell_texts import list_text
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import ip_warnings, parse_sloppy, validate_endpoint_ip, validate_ip
from setpoint.kinds.core.service_validation import PROTOCOLS, validate_app_protocol
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required, too_many
from setpoint.meta.names import dns1123_label, dns1123_subdomain, ip, label_value
from setpoint.meta.node_labels import HOSTNAME
from setpoint.meta.objectmeta import IMMUTABLE, validate_labels
from setpoint.meta.objects import Obj, ObjView

_TYPES = ("FQDN", "IPv4", "IPv6")
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_MAX_ENDPOINTS, _MAX_PORTS, _MAX_ADDRESSES, _MAX_HINTS, _MAX_TOPOLOGY = 1000, 20000, 100, 8, 16
_SHOWN = 3


def _abbreviated(items: Sequence[str]) -> str:
    return list_text(items[:_SHOWN], len(items) > _SHOWN, len(items), _SHOWN)


def _ports(obj: Obj, now: datetime) -> str:
    return _abbreviated(
        [str(port["port"]) if "port" in port else port.get("name", "*") for port in obj.get("ports") or ()]
    )


def _addresses(obj: Obj, now: datetime) -> str:
    return _abbreviated(
        [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    )


class EndpointSliceStrategy(Strategy):
    columns = (
        NAME,
        Column("AddressType", lambda obj, now: obj.get("addressType", ""), description="What the addresses are."),
        Column("Ports", _ports, description="Ports of each endpoint."),
        Column("Endpoints", _addresses, description="Addresses in this slice."),
        AGE,
    )
    has_generation = True
    spec_fields = ("addressType", "endpoints", "ports")

    def default(self, obj: Obj) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        _drop_topology(obj, frozenset())

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        if obj["metadata"].get("labels") != old["metadata"].get("labels"):
            # Labels identify the Service of a slice, so they count as content.
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if obj.get("endpoints") != old.get("endpoints"):
            known = {(each.get("deprecatedTopology") or {}).get(HOSTNAME) for each in old.get("endpoints") or ()}
            _drop_topology(obj, known)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_ports(obj.get("ports") or (), errs)
        _validate_endpoints(obj.get("endpoints") or (), obj.get("addressType", ""), errs)
        _validate_type(obj, errs)
        _validate_address_counts(obj.get("endpoints") or (), errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        endpoints = obj.get("endpoints") or ()
        changed = obj.get("endpoints") != old.get("endpoints")
        if obj.get("addressType") not in (*_TYPES, "", old.get("addressType")):
            _validate_type(obj, errs)
        _validate_ports(obj.get("ports") or (), errs)
        if changed:
            _validate_endpoints(endpoints, obj.get("addressType", ""), errs)
        if obj.get("addressType", "") != old.get("addressType", ""):
            if not obj.get("addressType"):
                errs.append(required("addressType"))
            errs.append(invalid("addressType", None, IMMUTABLE))
        if changed:
            _validate_address_counts(endpoints, errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings = self.warnings_on_update(obj, obj, ctx)
        if obj.get("addressType") == "FQDN":
            warnings.insert(0, "spec.addressType: FQDN endpoints are deprecated")
        return warnings

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) in _CONTROLLERS:
            return []
        warnings = []
        for i, endpoint in enumerate(obj.get("endpoints") or ()):
            for j, address in enumerate(endpoint.get("addresses") or ()):
                warnings += ip_warnings(address, f"endpoints[{i}].addresses[{j}]")
        return warnings


def _drop_topology(obj: Obj, known_nodes: frozenset[str] | set[str | None]) -> None:
    """Drop `deprecatedTopology`, which cannot be written; a node name in it moves to `nodeName`."""
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("deprecatedTopology", None)
        node = (topology or {}).get(HOSTNAME)
        if node and node in known_nodes and "nodeName" not in endpoint and not dns1123_subdomain(node):
            endpoint["nodeName"] = node


def _validate_type(obj: Obj, errs: Errors) -> None:
    kind = obj.get("addressType", "")
    if not kind:
        errs.append(required("addressType"))
    elif kind not in _TYPES:
        errs.append(not_supported("addressType", kind, _TYPES))


def _validate_address_counts(endpoints: Sequence[ObjView], errs: Errors) -> None:
    """Validate address counts, which upstream declares and reports after all others."""
    for i, endpoint in enumerate(endpoints):
        addresses = endpoint.get("addresses") or ()
        if not addresses:
            errs.append(required(f"endpoints[{i}].addresses"))
        elif len(addresses) > _MAX_ADDRESSES:
            errs.append(too_many(f"endpoints[{i}].addresses", len(addresses), _MAX_ADDRESSES))


def _validate_endpoints(endpoints: Sequence[ObjView], kind: str, errs: Errors) -> None:
    if len(endpoints) > _MAX_ENDPOINTS:
        errs.append(too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
        return
    for i, endpoint in enumerate(endpoints):
        path = f"endpoints[{i}]"
        for j, address in enumerate(endpoint.get("addresses") or ()):
            _validate_address(address, kind, f"{path}.addresses", j, errs)
        node, hostname = endpoint.get("nodeName"), endpoint.get("hostname")
        for text in dns1123_subdomain(node) if node is not None else ():
            errs.append(invalid(f"{path}.nodeName", node, text))
        topology = endpoint.get("deprecatedTopology") or {}
        if len(topology) > _MAX_TOPOLOGY:
            errs.append(too_many(f"{path}.deprecatedTopology", len(topology), _MAX_TOPOLOGY))
        validate_labels(topology, f"{path}.deprecatedTopology", errs)
        for text in dns1123_label(hostname) if hostname is not None else ():
            errs.append(invalid(f"{path}.hostname", hostname, text))
        if "hints" in endpoint:
            _validate_hints(endpoint["hints"], f"{path}.hints", errs)


def _validate_address(address: str, kind: str, path: str, index: int, errs: Errors) -> None:
    at = f"{path}[{index}]"
    if kind == "FQDN":
        _validate_fqdn(address, at, errs)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    before = len(errs)
    if kind == "IPv4":
        validate_ip(address, at, errs)
    else:
        errs.extend(invalid(at, address, text) for text in ip(address))
    if len(errs) == before:
        parsed = parse_sloppy(address)
        if parsed is not None and f"IPv{parsed.version}" != kind:
            errs.append(invalid(path, address, f"must be an {kind} address"))
        validate_endpoint_ip(address, at, errs)


def _validate_fqdn(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
        return
    name = name.removesuffix(".")
    problems = dns1123_subdomain(name)
    if problems:
        errs.append(invalid(path, name, ",".join(problems)))
    elif "." not in name:
        errs.append(invalid(path, name, "should be a domain with at least two segments separated by dots"))
    else:
        for label in name.split("."):
            problems = dns1123_label(label)
            if problems:
                errs.append(invalid(path, label, ",".join(problems)))
                return


def _validate_ports(ports: Sequence[ObjView], errs: Errors) -> None:
    if len(ports) > _MAX_PORTS:
        errs.append(too_many("ports", len(ports), _MAX_PORTS))
        return
    names: set[str] = set()
    for i, port in enumerate(ports):
        path, name = f"ports[{i}]", port.get("name", "")
        for text in dns1123_label(name) if name else ():
            errs.append(invalid(f"{path}.name", name, text))
        if name in names:
            errs.append(duplicate(f"{path}.name", name))
        names.add(name)
        protocol = port.get("protocol")
        if protocol is None:
            errs.append(required(f"{path}.protocol"))
        elif protocol not in PROTOCOLS:
            errs.append(not_supported(f"{path}.protocol", protocol, PROTOCOLS))
        validate_app_protocol(port, path, errs)


def _validate_hints(hints: ObjView, path: str, errs: Errors) -> None:
    for name, rule in (("forZones", label_value), ("forNodes", dns1123_subdomain)):
        items = hints.get(name) or ()
        if len(items) > _MAX_HINTS:
            errs.append(too_many(f"{path}.{name}", len(items), _MAX_HINTS))
            return
        seen: set[str] = set()
        for i, item in enumerate(items):
            value = item.get("name", "")
            if value in seen:
                errs.append(duplicate(f"{path}.{name}[{i}].name", value))
            seen.add(value)
            for text in rule(value):
                errs.append(invalid(f"{path}.{name}[{i}].name", value, text))


STRATEGY = EndpointSliceStrategy()
