"""ResourceSlice: devices that a driver offers, on one node or on many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.scheduling import validate_node_selector
from setpoint.kinds.internal_form import internal
from setpoint.kinds.resource.devices import stamp_taint, validate_counters, validate_device
from setpoint.kinds.resource.identifiers import declared_unique, oversized, required_label, validate_pool_name
from setpoint.kinds.shared_names import validate_driver_name
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, required, too_many
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj

_MAX_DEVICES, _MAX_DETAILED_DEVICES, _MAX_COUNTER_SETS = 128, 64, 8
_PLACES = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
Devices = Sequence[Obj]
_LISTS = ("ints", "bools", "strings", "versions")


def _pool(spec: Obj) -> Obj:
    return spec.get("pool") or {}


def _node(obj: Obj, now: datetime) -> str:
    return obj["spec"].get("nodeName") or ""


def _driver(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("driver", ""))


def _pool_name(obj: Obj, now: datetime) -> str:
    return str(_pool(obj["spec"]).get("name", ""))


def _drop_disabled(obj: Obj) -> None:
    """Drop the fields of features that are off by default."""
    spec = obj["spec"]
    spec.pop("partitionTypeAttribute", None)
    spec.pop("skipNodeOperations", None)
    for device in spec.get("devices") or ():
        device.pop("nodeAllocatableResources", None)
        for consumed in device.get("consumesCounters") or ():
            consumed.pop("compatibilityGroups", None)
        for attribute in (device.get("attributes") or {}).values():
            for name in _LISTS:
                attribute.pop(name, None)


class ResourceSliceStrategy(Strategy):
    def unsupported_field(self, label: str) -> str | None:
        return f"field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}"

    returns_deleted = True
    has_generation = True
    columns = (
        NAME,
        Column("Node", _node, description="The node that the devices are on, if it is one."),
        Column("Driver", _driver, description="The driver that offers them."),
        Column("Pool", _pool_name, description="The pool that this slice is a part of."),
        AGE,
    )
    field_labels = frozenset({"metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name"})

    def stamp(self, obj: Obj, now: datetime) -> None:
        for device in obj["spec"].get("devices") or ():
            for taint in device.get("taints") or ():
                stamp_taint(taint, now)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        _drop_disabled(obj)
        self.stamp(obj, ctx.now)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        _drop_disabled(obj)
        self.stamp(obj, ctx.now)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj["spec"], None, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj["spec"], old["spec"], errs)

    def _validate(self, spec: Obj, old: Obj | None, errs: Errors) -> None:
        late: Errors = []
        validate_driver_name(spec.get("driver", ""), "spec.driver", errs)
        _validate_pool(_pool(spec), "spec.pool", errs)
        if old is not None:
            if _pool(spec).get("name", "") != _pool(old).get("name", ""):
                errs.append(invalid("spec.pool.name", _pool(spec).get("name", ""), IMMUTABLE))
            for name, absent in (("driver", ""), ("nodeName", None)):
                if spec.get(name, absent) != old.get(name, absent):
                    errs.append(invalid(f"spec.{name}", spec.get(name, absent), IMMUTABLE))
        _validate_node_selection(spec, errs)
        devices, sets = spec.get("devices") or (), spec.get("sharedCounters") or ()
        if devices and sets:
            errs.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
        _validate_devices(devices, (old or {}).get("devices"), bool(spec.get("perDeviceNodeSelection")), errs, late)
        path = "spec.sharedCounters"
        if not oversized(sets, _MAX_COUNTER_SETS, path, late):
            declared_unique(sets, [item.get("name", "") for item in sets], path, late)
            for i, item in enumerate(sets):
                required_label(item.get("name", ""), f"{path}[{i}].name", late)
                validate_counters(item, f"{path}[{i}]", errs, late)
        errs.extend(late)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        driver = obj["spec"].get("driver", "")
        if driver == driver.lower():
            return []
        return [f"spec.driver: driver names should be lowercase; {quote(driver)} contains uppercase characters"]

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        spec = obj["spec"]
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.driver": spec.get("driver", ""),
            "spec.pool.name": _pool(spec).get("name", ""),
        }


def _validate_pool(pool: Obj, path: str, errs: Errors) -> None:
    validate_pool_name(pool.get("name", ""), f"{path}.name", errs)
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        errs.append(invalid(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errs.append(invalid(f"{path}.generation", generation, "must be greater than or equal to zero"))


def _validate_node_selection(spec: Obj, errs: Errors) -> None:
    given = []
    name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        given.append("`nodeName`")
        errs.extend(invalid("spec.nodeName", name, text) for text in dns1123_subdomain(name))
    elif name is not None:
        errs.append(invalid("spec.nodeName", name, "must be either unset or set to a non-empty string"))
    if selector is not None:
        given.append("`nodeSelector`")
        validate_node_selector(selector, "spec.nodeSelector", errs)
        terms = selector.get("nodeSelectorTerms")
        if len(terms or ()) != 1:
            shown = [internal("NodeSelectorTerm", term) for term in terms] if terms else terms
            path = "spec.nodeSelector.nodeSelectorTerms"
            errs.append(invalid(path, shown, "must have exactly one node selector term"))
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            given.append(f"`{field}`")
        elif spec.get(field) is not None:
            errs.append(invalid(f"spec.{field}", False, "must be either unset or set to true"))
    if not given:
        errs.append(required("spec", f"exactly one of {_PLACES} is required"))
    elif len(given) > 1:
        text = f"exactly one of {_PLACES} is required, but multiple fields are set"
        errs.append(invalid("spec", "{" + ", ".join(given) + "}", text))


def _validate_devices(devices: Devices, old: Devices | None, select_nodes: bool, errs: Errors, late: Errors) -> None:
    detailed = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MAX_DETAILED_DEVICES if detailed else _MAX_DEVICES
    crowded = len(devices) > most
    if crowded:
        errs.append(too_many("spec.devices", len(devices), most))
    before: dict[str, Obj] = {}
    for device in old or ():
        before.setdefault(device.get("name", ""), device)
    for i, device in enumerate(devices):
        earlier = before.get(device.get("name", ""))
        validate_device(device, earlier, select_nodes, f"spec.devices[{i}]", [] if crowded else errs, late)
    seen: set[str] = set()
    for i, device in enumerate(() if crowded else devices):
        name = device.get("name", "")
        if name in seen:
            errs.append(duplicate(f"spec.devices[{i}]", name))
        seen.add(name)


STRATEGY = ResourceSliceStrategy()
