"""CSIStorageCapacity: the free capacity of a driver for a class, in a segment of the cluster."""

from __future__ import annotations

from setpoint.kinds.core.podspec.warnings import DEPRECATED_NODE_LABELS
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objectmeta import IMMUTABLE, validate_label_selector
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare


class CSIStorageCapacityStrategy(Strategy):
    allow_unconditional_update = False

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs, False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        already: Errors = []
        validate_label_selector(old.get("nodeTopology"), "", already)
        _validate(obj, errs, bool(already))
        if obj.get("nodeTopology") != old.get("nodeTopology"):
            errs.append(invalid("nodeTopology", obj.get("nodeTopology"), IMMUTABLE))
        if obj.get("storageClassName", "") != old.get("storageClassName", ""):
            errs.append(invalid("storageClassName", obj.get("storageClassName", ""), IMMUTABLE))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        topology = obj.get("nodeTopology") or {}
        warnings = []
        for i, expression in enumerate(topology.get("matchExpressions", ())):
            key = expression.get("key", "")
            if key in DEPRECATED_NODE_LABELS:
                warnings.append(f"nodeTopology.matchExpressions[{i}].key: {key} is {DEPRECATED_NODE_LABELS[key]}")
        for key in topology.get("matchLabels", ()):
            if key in DEPRECATED_NODE_LABELS:
                warnings.append(f"nodeTopology.matchLabels.{key}: {DEPRECATED_NODE_LABELS[key]}")
        return warnings


def _validate(obj: Obj, errs: Errors, allow_invalid_values: bool) -> None:
    topology, class_name = obj.get("nodeTopology"), obj.get("storageClassName", "")
    validate_label_selector(topology, "nodeTopology", errs, allow_invalid_values=allow_invalid_values)
    errs.extend(invalid("storageClassName", class_name, text) for text in dns1123_subdomain(class_name))
    capacity = obj.get("capacity")
    if capacity is not None and compare(capacity, "0") < 0:
        errs.append(invalid("capacity", capacity, "must be greater than or equal to 0"))


STRATEGY = CSIStorageCapacityStrategy()
