"""ResourceClaim: a request for devices; its status lists the allocated devices and the consumers."""

from __future__ import annotations

from datetime import datetime
from ipaddress import ip_interface

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.scheduling import validate_node_selector
from setpoint.kinds.resource.claims import (
    default_claim,
    drop_disabled,
    validate_claim,
    validate_configuration,
    validate_raw,
)
from setpoint.kinds.resource.devices import default_tolerations, validate_binding_conditions, validate_toleration
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
from setpoint.kinds.shared_names import validate_driver_name
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.field import (
    Errors,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from setpoint.meta.objectmeta import IMMUTABLE, validate_conditions
from setpoint.meta.objects import Obj, ObjView

_SOURCES = ("FromClaim", "FromClass")
_RESERVED = "status.reservedFor"
_MAX_CONDITIONS = 8
DeviceKey = tuple[str, str, str, str | None]


def _device_key(device: ObjView) -> DeviceKey:
    return device.get("driver", ""), device.get("pool", ""), device.get("device", ""), device.get("shareID")


def _validate_claim_status(obj: Obj, old: Obj, errs: Errors) -> None:
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
    allocated = {_device_key(result) for result in results}
    devices = status.get("devices") or ()
    declared_unique(devices, [_device_key(device) for device in devices], "status.devices", declared_devices)
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


def _validate_allocation(allocation: Obj, requests: Requests, path: str, errs: Errors, late: Errors) -> None:
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


def _validate_result(result: Obj, requests: Requests, path: str, errs: Errors, late: Errors) -> None:
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


def _validate_device(device: Obj, allocated: set[DeviceKey], path: str, errs: Errors, late: Errors) -> None:
    validate_driver_name(device.get("driver", ""), f"{path}.driver", errs)
    validate_pool_name(device.get("pool", ""), f"{path}.pool", errs)
    label_rule(device.get("device", ""), f"{path}.device", errs)
    declared_uuid(device.get("shareID"), f"{path}.shareID", late)
    key = _device_key(device)
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


def _validate_network(network: Obj, path: str, errs: Errors, late: Errors) -> None:
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


def _state(obj: Obj, now: datetime) -> str:
    status, deleted = obj.get("status") or {}, bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return ",".join(states)


class ResourceClaimStrategy(Strategy):
    returns_deleted = True
    has_status = True
    columns = (NAME, Column("State", _state, description="Pending, allocated, reserved, deleted."), AGE)

    def __init__(self) -> None:
        self.subresources = {"status": ResourceClaimStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        default_claim(obj["spec"])
        allocation = (obj.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            default_tolerations(result)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled(obj["spec"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled(obj["spec"])

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        late: Errors = []
        validate_claim(obj["spec"], "spec", errs, late)
        errs.extend(late)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj["spec"] != old["spec"]:
            errs.append(invalid("spec", None, IMMUTABLE))


class ResourceClaimStatusStrategy(BareStatusStrategy):
    """The status of a claim. The server checks whether the caller may bind or act for a driver."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        status, old_status = obj.setdefault("status", {}), old.get("status") or {}
        allocation = status.get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        for result in results:
            result.pop("skipNodeOperations", None)  # not on by default
        # The status of a device is removed when the device is deallocated.
        old_results = ((old_status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        gone = {_device_key(result) for result in old_results} - {_device_key(result) for result in results}
        devices = [device for device in status.get("devices") or () if _device_key(device) not in gone]
        if devices:
            status["devices"] = devices
        else:
            status.pop("devices", None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_claim_status(obj, old, errs)


STRATEGY = ResourceClaimStrategy()
