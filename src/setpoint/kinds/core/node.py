"""Node: a machine that runs Pods. Its status may be set when it is created.

Legacy annotations and `configSource`, removed as a feature, are still validated where they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from setpoint.kinds.cell_texts import NONE, UNKNOWN
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import cidr_warnings, validate_cidr, validate_dual_stack_cidrs
from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.kinds.core.resources import validate_resource_amount
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, FieldError, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import quote
from setpoint.meta.json_syntax import unmarshal
from setpoint.meta.names import config_map_key, dns1123_label, dns1123_subdomain, label_value
from setpoint.meta.objectmeta import validate_label_name
from setpoint.meta.objects import Obj, ObjView

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_taints(taints: Sequence[Obj], path: str, errs: Errors) -> None:
    seen = set()
    for i, taint in enumerate(taints):
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        validate_label_name(key, f"{path}[{i}].key", errs)
        problems = label_value(value)
        if problems:
            errs.append(invalid(f"{path}[{i}].value", value, ";".join(problems)))
        if not effect:
            errs.append(required(f"{path}[{i}].effect"))
        elif effect not in EFFECTS:
            errs.append(not_supported(f"{path}[{i}].effect", effect, EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            detail = "taints must be unique by key and effect pair"
            errs.append(FieldError("FieldValueDuplicate", f"{path}[{i}]", shown, detail))
        seen.add((key, effect))


_ONE = "exactly one reference subfield must be non-nil"


def _validate_config_source(source: Obj, path: str, errs: Errors) -> None:
    config_map = source.get("configMap")
    if config_map is None:
        errs.append(invalid(path, {"ConfigMap": None}, _ONE))
        return
    at = f"{path}.configMap"
    for name in ("uid", "resourceVersion"):
        if config_map.get(name):
            errs.append(forbidden(f"{at}.{name}", f"{name} must not be set in spec"))
    _validate_reference(config_map, at, errs)


def _validate_config_status(status: Obj, path: str, errs: Errors) -> None:
    for part in ("assigned", "active", "lastKnownGood"):
        if part not in status:
            continue
        config_map = status[part].get("configMap")
        if config_map is None:
            errs.append(invalid(f"{path}.{part}", {"ConfigMap": None}, _ONE))
            continue
        at = f"{path}.{part}.configMap"
        for name in ("uid", "resourceVersion"):
            if not config_map.get(name):
                errs.append(required(f"{at}.{name}"))
        _validate_reference(config_map, at, errs)


def _validate_reference(config_map: Obj, path: str, errs: Errors) -> None:
    for name, rule in (
        ("namespace", dns1123_label),
        ("name", dns1123_subdomain),
        ("kubeletConfigKey", config_map_key),
    ):
        value = config_map.get(name, "")
        if not value:
            errs.append(required(f"{path}.{name}"))
        for text in rule(value) if value else ():
            errs.append(invalid(f"{path}.{name}", value, text))


_TAINTS = "scheduler.alpha.kubernetes.io/taints"
_AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"


def _validate_node_annotations(annotations: Mapping[str, str], path: str, errs: Errors) -> None:
    if annotations.get(_TAINTS):
        _validate_taints(annotations[_TAINTS], path, errs)
    if annotations.get(_AVOID_PODS):
        _validate_avoid_pods(annotations[_AVOID_PODS], path, errs)


def _folded(item: ObjView, name: str) -> Any:
    """Return the value of a key, matched case-insensitively as Go matches the keys of JSON objects."""
    return next((value for key, value in item.items() if key.lower() == name.lower()), None)


def _validate_taints(text: str, path: str, errs: Errors) -> None:
    try:
        items = unmarshal(text.encode(), list, "[]core.Taint") or []
        if not all(isinstance(item, dict) for item in items):
            raise ValueError("json: cannot unmarshal value into Go value of type core.Taint")
    except ValueError as error:
        errs.append(invalid(path, _TAINTS, str(error)))
        return
    taints = []
    for item in items:
        taint = {name: _folded(item, name) for name in ("key", "value", "effect", "timeAdded")}
        taints.append({name: value for name, value in taint.items() if value is not None})
    validate_taints(taints, f"{path}.{_TAINTS}", errs)


def _validate_avoid_pods(text: str, path: str, errs: Errors) -> None:
    try:
        avoid = unmarshal(text.encode(), dict, "v1.AvoidPods") or {}
    except ValueError as error:
        errs.append(invalid(f"{path}.AvoidPods", _AVOID_PODS, str(error)))
        return
    for i, entry in enumerate(avoid.get("preferAvoidPods") or ()):
        at = f"{path}.{_AVOID_PODS}[{i}].PodSignature"
        owner = (entry.get("podSignature") or {}).get("podController")
        if owner is None:
            errs.append(required(at))
        elif not owner.get("controller"):
            errs.append(invalid(f"{at}.PodController.Controller", False, "must point to a controller"))


_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")


def _status_text(obj: Obj, now: datetime) -> str:
    text = "Unknown"
    for condition in obj.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Ready":
            text = "Ready" if condition.get("status") == "True" else "NotReady"
    return text + ",SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else text


def _roles(obj: Obj, now: datetime) -> str:
    roles = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX):
            roles.add(key[len(_ROLE_PREFIX) :])
        elif key == _ROLE_LABEL:
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _info(name: str, missing: str = UNKNOWN) -> Any:
    return lambda obj, now: obj.get("status", {}).get("nodeInfo", {}).get(name) or missing


def _kernel(obj: Obj, now: datetime) -> str:
    info = obj.get("status", {}).get("nodeInfo", {})
    text = info.get("kernelVersion") or UNKNOWN
    return f"{text} ({info['architecture']})" if info.get("architecture") else text


def _address(kind: str) -> Any:
    def cell(obj: Obj, now: datetime) -> str:
        for address in obj.get("status", {}).get("addresses", ()):
            if address.get("type") == kind:
                return str(address.get("address", ""))
        return NONE

    return cell


class NodeStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", _status_text, description="Whether the node is ready, and takes new Pods."),
        Column("Roles", _roles, description="Roles of the node, from its labels."),
        AGE,
        Column("Version", _info("kubeletVersion", ""), description="Version that the kubelet reports."),
        Column("Internal-IP", _address("InternalIP"), priority=1, description="Address inside the cluster network."),
        Column("External-IP", _address("ExternalIP"), priority=1, description="Address outside the cluster network."),
        Column("OS-Image", _info("osImage"), priority=1, description="Operating system that the node reports."),
        Column("Kernel-Version", _kernel, priority=1, description="Kernel that the node reports."),
        Column(
            "Container-Runtime",
            _info("containerRuntimeVersion"),
            priority=1,
            description="Container runtime that the node reports.",
        ),
    )
    field_labels = frozenset({"metadata.name", "spec.unschedulable"})
    has_status = True

    def __init__(self) -> None:
        self.subresources = {"status": NodeStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec, status = obj.get("spec"), obj.get("status")
        if spec:
            _align_pod_cidrs(spec)
        if status:
            capacity = status.get("capacity")
            if capacity and "allocatable" not in status:
                status["allocatable"] = dict(capacity)
            round_up_to_milli(capacity or {})
            round_up_to_milli(status.get("allocatable") or {})

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        obj.get("spec", {}).pop("configSource", None)
        obj.get("spec", {}).pop("podPreemptionPolicy", None)
        obj.get("status", {}).pop("config", None)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        for name in ("configSource", "podPreemptionPolicy"):
            if name not in old.get("spec", {}):
                obj.get("spec", {}).pop(name, None)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        _validate_node_annotations(obj["metadata"].get("annotations") or {}, "metadata.annotations", errs)
        # Upstream reports taints under metadata.
        validate_taints(spec.get("taints", ()), "metadata.taints", errs)
        _validate_resources(status, errs)
        capacity = (status.get("nodeInfo", {}).get("swap") or {}).get("capacity")
        if capacity is not None and capacity <= 0:
            errs.append(invalid("metadata.nodeSwapStatus.capacity", capacity, "must be greater than zero"))
        _validate_features(status.get("declaredFeatures", ()), errs)
        _validate_pod_cidrs(spec.get("podCIDRs", []), errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate(obj, errs, ctx)
        _validate_change(obj, old, errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec = obj.get("spec") or {}
        warnings = []
        if "configSource" in spec:
            warnings.append("spec.configSource: the feature is removed")
        if spec.get("externalID"):
            warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        for i, value in enumerate(spec.get("podCIDRs", ())):
            warnings += cidr_warnings(value, f"spec.podCIDRs[{i}]")
        return warnings

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}


class NodeStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        if "config" not in old.get("status", {}):
            obj.get("status", {}).pop("config", None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_change(obj, old, errs)


def _align_pod_cidrs(spec: Obj) -> None:
    """Make `podCIDR` the first of `podCIDRs`; if they differ, the single field of older clients wins."""
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single and (not several or several[0] != single):
        spec["podCIDRs"] = [single]
    elif several:
        spec["podCIDR"] = several[0]


def _validate_resources(status: Obj, errs: Errors) -> None:
    for part in ("capacity", "allocatable"):
        for name, quantity in (status.get(part) or {}).items():
            validate_resource_amount(name, quantity, f"status.{part}.{name}", errs)


def _validate_features(features: Sequence[str], errs: Errors) -> None:
    for i, feature in enumerate(features):
        if len(feature.encode()) > 253:
            text = f"invalid feature name {quote(feature)}: must be no more than 253 characters"
            errs.append(invalid(f"status.declaredFeatures[{i}]", feature, text))
        elif not _FEATURE.fullmatch(feature):
            text = (
                f"invalid feature name {quote(feature)}: must start with an UpperCamelCase segment, with subsequent "
                "segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            errs.append(invalid(f"status.declaredFeatures[{i}]", feature, text))
        if i + 1 < len(features):
            following = features[i + 1]
            if feature == following:
                errs.append(duplicate(f"status.declaredFeatures[{i + 1}]", following))
            elif feature > following:
                text = "list must be sorted alphabetically"
                errs.append(invalid(f"status.declaredFeatures[{i + 1}]", following, text))


def _validate_pod_cidrs(cidrs: list[str], errs: Errors) -> None:
    for i, value in enumerate(cidrs):
        validate_cidr(value, f"spec.podCIDRs[{i}]", errs)
    if len(cidrs) > 1:
        validate_dual_stack_cidrs(cidrs, "spec.podCIDRs", errs)


def _validate_change(obj: Obj, old: Obj, errs: Errors) -> None:
    spec, status, old_spec = obj.get("spec") or {}, obj.get("status") or {}, old.get("spec") or {}
    _validate_node_annotations(obj["metadata"].get("annotations") or {}, "metadata.annotations", errs)
    _validate_resources(status, errs)
    _validate_features(status.get("declaredFeatures", ()), errs)
    seen = set()
    for i, address in enumerate(status.get("addresses", ())):
        pair = address.get("type", ""), address.get("address", "")
        if pair in seen:
            errs.append(duplicate(f"status.addresses[{i}]", {"Type": pair[0], "Address": pair[1]}))
        seen.add(pair)
    _validate_spec_change(spec, old_spec, errs)
    if "configSource" in spec:
        _validate_config_source(spec["configSource"], "spec.configSource", errs)
    if "config" in status:
        _validate_config_status(status["config"], "status.config", errs)
    validate_taints(spec.get("taints", ()), "metadata.taints", errs)
    if spec.get("externalID", "") != old_spec.get("externalID", ""):
        errs.append(forbidden("spec.externalID", "may not be updated"))


def _validate_spec_change(spec: Obj, old: Obj, errs: Errors) -> None:
    cidrs, old_cidrs = spec.get("podCIDRs", []), old.get("podCIDRs", [])
    if old_cidrs:
        text = 'node updates may not change podCIDR except from "" to valid'
        differing = 1 if len(cidrs) != len(old_cidrs) else sum(a != b for a, b in zip(cidrs, old_cidrs))
        errs.extend([forbidden("spec.podCIDRs", text)] * differing)
    provider, old_provider = spec.get("providerID"), old.get("providerID")
    if old_provider and provider != old_provider:
        text = "field cannot be modified once set" if provider else "field cannot be cleared once set"
        errs.append(invalid("spec.providerID", None, text))


STRATEGY = NodeStrategy()
