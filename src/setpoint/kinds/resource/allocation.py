"""The status of a claim: devices allocated to it, what their drivers report, who has it reserved."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_interface
from typing import Any

from setpoint.kinds.core.podspec.affinity import validate_node_selector
from setpoint.kinds.resource.binding import validate_binding_conditions
from setpoint.kinds.resource.configuration import validate_configuration, validate_raw
from setpoint.kinds.resource.identifiers import (
    Requests,
    declared_driver_name,
    declared_pool_name,
    declared_unique,
    declared_uuid,
    label_rule,
    oversized,
    request_names,
    validate_pool_name,
    validate_reference,
    validate_references,
)
from setpoint.kinds.resource.tolerations import validate_toleration
from setpoint.kinds.storage.driver_name import validate_driver_name
from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required, too_long, too_many
from setpoint.meta.objectmeta import validate_conditions

_SOURCES = ("FromClaim", "FromClass")
_RESERVED = "status.reservedFor"
_MAX_CONDITIONS = 8
DeviceKey = tuple[str, str, str, str | None]


def device_key(device: Mapping[str, Any]) -> DeviceKey:
    return device.get("driver", ""), device.get("pool", ""), device.get("device", ""), device.get("shareID")


def validate_claim_status(obj: Obj, old: Obj, errs: Errors) -> None:
    status, old_status = obj.get("status") or {}, old.get("status") or {}
    requests = request_names(obj["spec"].get("devices") or {})
    allocation, old_allocation = status.get("allocation"), old_status.get("allocation")
    declared_allocation: Errors = []
    declared_users: Errors = []
    declared_devices: Errors = []

    users = status.get("reservedFor") or ()
    if not oversized(users, 256, _RESERVED, declared_users):
        declared_unique(users, [user.get("uid", "") for user in users], _RESERVED, declared_users)
        for i, user in enumerate(users):
            for name in ("resource", "name", "uid"):
                if not user.get(name):
                    errs.append(required(f"{_RESERVED}[{i}].{name}"))

    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    allocated = {device_key(result) for result in results}
    devices = status.get("devices") or ()
    declared_unique(devices, [device_key(device) for device in devices], "status.devices", declared_devices)
    for i, device in enumerate(devices):
        at = f"status.devices[{i}]"
        declared = [] if device in (old_status.get("devices") or ()) else declared_devices
        _validate_device(device, allocated, at, errs, declared)

    if users:
        if allocation is None:
            errs.append(forbidden(_RESERVED, "may not be specified when `allocated` is not set"))
        elif obj["metadata"].get("deletionTimestamp") and any(
            user not in (old_status.get("reservedFor") or ()) for user in users
        ):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errs.append(forbidden(_RESERVED, text))

    if allocation is not None:
        if old_allocation is None:
            _validate_allocation(allocation, requests, "status.allocation", errs, declared_allocation)
        elif allocation != old_allocation:
            declared_allocation.append(invalid("status.allocation", None, "field cannot be modified once set"))
    errs += declared_allocation + declared_users + declared_devices


def _validate_allocation(allocation: dict[str, Any], requests: Requests, path: str, errs: Errors, late: Errors) -> None:
    devices = allocation.get("devices") or {}
    results, at = devices.get("results") or (), f"{path}.devices.results"
    if not oversized(results, 32, at, late):
        for i, result in enumerate(results):
            _validate_result(result, requests, f"{at}[{i}]", errs, late)
    configs, at = devices.get("config") or (), f"{path}.devices.config"
    if not oversized(configs, 64, at, late):
        for i, config in enumerate(configs):
            source = config.get("source", "")
            if not source:
                late.append(required(f"{at}[{i}].source"))
            elif source not in _SOURCES:
                late.append(not_supported(f"{at}[{i}].source", source, _SOURCES))
            validate_references(config.get("requests"), requests, f"{at}[{i}].requests", errs, late)
            validate_configuration(config, f"{at}[{i}]", errs, late)
    selector = allocation.get("nodeSelector")
    if selector is not None:
        validate_node_selector(selector, f"{path}.nodeSelector", errs)


def _validate_result(result: dict[str, Any], requests: Requests, path: str, errs: Errors, late: Errors) -> None:
    validate_reference(result.get("request", ""), requests, f"{path}.request", errs)
    declared_driver_name(result.get("driver", ""), f"{path}.driver", late)
    declared_pool_name(result.get("pool", ""), f"{path}.pool", late)
    label_rule(result.get("device", ""), f"{path}.device", errs)
    sizes: Errors = []
    validate_binding_conditions(result, path, errs, sizes)
    for i, toleration in enumerate(result.get("tolerations") or ()):
        validate_toleration(toleration, f"{path}.tolerations[{i}]", errs, late)
    late.extend(sizes)
    declared_uuid(result.get("shareID"), f"{path}.shareID", late)


def _validate_device(device: dict[str, Any], allocated: set[DeviceKey], path: str, errs: Errors, late: Errors) -> None:
    validate_driver_name(device.get("driver", ""), f"{path}.driver", errs)
    validate_pool_name(device.get("pool", ""), f"{path}.pool", errs)
    label_rule(device.get("device", ""), f"{path}.device", errs)
    declared_uuid(device.get("shareID"), f"{path}.shareID", late)
    key = device_key(device)
    if key not in allocated:
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), (part or "" for part in key)))
        errs.append(invalid(path, shown, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or []
    if len(conditions) > _MAX_CONDITIONS:
        errs.append(too_many(f"{path}.conditions", len(conditions), _MAX_CONDITIONS))
    validate_conditions(conditions, f"{path}.conditions", errs)
    if device.get("data") is not None:
        validate_raw(device["data"], f"{path}.data", errs)
    if (network := device.get("networkData")) is not None:
        _validate_network(network, f"{path}.networkData", errs, late)


def _validate_network(network: dict[str, Any], path: str, errs: Errors, late: Errors) -> None:
    if len(network.get("interfaceName", "").encode()) > 256:
        late.append(too_long(f"{path}.interfaceName", 256))
    addresses, at = network.get("ips") or (), f"{path}.ips"
    if not oversized(addresses, 16, at, late):
        declared_unique(addresses, addresses, at, late)
        for i, address in enumerate(addresses):
            _validate_address(address, f"{at}[{i}]", errs)
    if len(network.get("hardwareAddress", "").encode()) > 128:
        late.append(too_long(f"{path}.hardwareAddress", 128))


def _validate_address(value: str, path: str, errs: Errors) -> None:
    try:
        if "/" not in value:
            raise ValueError
        canonical = str(ip_interface(value))
    except ValueError:
        text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        errs.append(invalid(path, value, text))
        return
    if canonical != value:
        errs.append(invalid(path, value, f'must be in canonical form ("{canonical}")'))
