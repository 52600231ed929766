"""Endpoints: the addresses behind a Service, in one object. EndpointSlice came after it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import ip_warnings, validate_endpoint_ip, validate_ip
from setpoint.kinds.core.service_validation import validate_app_protocol, validate_protocol
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain, port_number
from setpoint.meta.objects import Obj

_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_SHOWN = 3


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _addresses(obj: Obj, now: datetime) -> str:
    subsets = obj.get("subsets") or ()
    if not subsets:
        return NONE
    shown: list[str] = []
    count, more = 0, False
    for subset in subsets:
        ips = [address.get("ip", "") for address in subset.get("addresses", ())]
        for port in subset.get("ports") or (None,):
            count += len(ips)
            for ip in ips:
                if len(shown) == _SHOWN:
                    more = True
                    break
                shown.append(ip if port is None else _host_port(ip, port.get("port", 0)))
    text = ",".join(shown)
    return f"{text} + {count - _SHOWN} more..." if more else text


class EndpointsStrategy(Strategy):
    columns = (NAME, Column("Endpoints", _addresses, description="Addresses that are ready, with their ports."), AGE)
    allow_create_on_update = True

    def default(self, obj: Obj) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                if not port.get("protocol"):
                    port["protocol"] = "TCP"

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        for i, subset in enumerate(obj.get("subsets", ())):
            _validate_subset(subset, f"subsets[{i}]", errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        found: Errors = []
        self.validate(obj, found, ctx)
        # Values that an older server accepted may stay as long as they are unchanged.
        if found and obj.get("subsets") != old.get("subsets"):
            errs += found

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == "endpoint-controller":
            return []
        warnings = []
        for i, subset in enumerate(obj.get("subsets", ())):
            for part in ("addresses", "notReadyAddresses"):
                for j, address in enumerate(subset.get(part, ())):
                    warnings += ip_warnings(address.get("ip", ""), f"subsets[{i}].{part}[{j}].ip")
        return warnings


def _validate_subset(subset: Obj, path: str, errs: Errors) -> None:
    ready, not_ready = subset.get("addresses") or (), subset.get("notReadyAddresses") or ()
    if not ready and not not_ready:
        errs.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    _validate_addresses(ready, f"{path}.addresses", errs)
    _validate_addresses(not_ready, f"{path}.notReadyAddresses", errs)
    ports = subset.get("ports") or ()
    for i, port in enumerate(ports):
        _validate_port(port, len(ports) > 1, f"{path}.ports[{i}]", errs)


def _validate_addresses(addresses: Sequence[Obj], path: str, errs: Errors) -> None:
    for i, address in enumerate(addresses):
        at, ip = f"{path}[{i}]", address.get("ip", "")
        validate_ip(ip, f"{at}.ip", errs)
        if address.get("hostname"):
            for text in dns1123_label(address["hostname"]):
                errs.append(invalid(f"{at}.hostname", address["hostname"], text))
        if "nodeName" in address:
            for text in dns1123_subdomain(address["nodeName"]):
                errs.append(invalid(f"{at}.nodeName", address["nodeName"], text))
        validate_endpoint_ip(ip, f"{at}.ip", errs)


def _validate_port(port: Obj, require_name: bool, path: str, errs: Errors) -> None:
    name = port.get("name", "")
    if require_name and not name:
        errs.append(required(f"{path}.name"))
    for text in dns1123_label(name) if name else ():
        errs.append(invalid(f"{path}.name", name, text))
    for text in port_number(port.get("port", 0)):
        errs.append(invalid(f"{path}.port", port.get("port", 0), text))
    validate_protocol(port, path, errs)
    validate_app_protocol(port, path, errs)


STRATEGY = EndpointsStrategy()
