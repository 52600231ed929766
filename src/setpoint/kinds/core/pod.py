"""Pod, with its subresources status, ephemeralcontainers and resize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from setpoint.kinds.core.pod_binding import SCHEDULING_GATED, with_pod_condition
from setpoint.kinds.core.pod_columns import COLUMNS
from setpoint.kinds.core.pod_rules import (
    app_armor_warnings,
    copy_app_armor_annotations,
    merge_match_label_keys,
    validate_annotations_update,
    validate_changed_pod,
    validate_new_pod,
    validate_pod_and_annotations,
    validate_resize,
)
from setpoint.kinds.core.pod_status_rules import validate_pod_status
from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.kinds.core.podspec.defaults import default_pod_spec
from setpoint.kinds.core.podspec.options import CREATE_POD
from setpoint.kinds.core.podspec.ratcheting import drop_disabled_fields, drop_disabled_status_fields, pod_options
from setpoint.kinds.core.podspec.resources import default_pod_level_resources, qos_class, round_up_to_milli
from setpoint.kinds.core.podspec.warnings import ip_warnings, pod_warnings
from setpoint.kinds.internal_form import internal_diff, same
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, forbidden
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label
from setpoint.meta.objects import Obj

_FROM_STORED = ("generation", "labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
"""Metadata that subresources other than status do not change."""
_RETAINED_IF_OMITTED = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "qosClass",
)


class PodStrategy(Strategy):
    has_status = True
    returns_deleted = True
    columns = COLUMNS
    field_labels = frozenset(
        {
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        }
    )

    def default(self, obj: Obj) -> None:
        spec = obj.get("spec")
        if spec is None:
            spec = obj["spec"] = {}
        default_pod_spec(spec)
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        spec.setdefault("enableServiceLinks", True)
        _default_requests(spec.get("containers") or ())
        if "initContainers" in spec:
            _default_requests(spec["initContainers"])
        if spec.get("hostNetwork"):
            for key in ("containers", "initContainers"):
                for container in spec.get(key) or ():
                    for port in container.get("ports", ()):
                        if "hostPort" not in port and port.get("containerPort"):
                            port["hostPort"] = port["containerPort"]
        status = obj.get("status")
        if status:
            _default_status(status)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        obj["metadata"]["generation"] = 1
        status: Obj = {"phase": "Pending"}
        spec = obj["spec"]
        drop_disabled_fields(spec, obj["metadata"])
        if spec.get("schedulingGates"):
            status = with_pod_condition(
                status,
                "PodScheduled",
                "False",
                ctx.now,
                reason=SCHEDULING_GATED,
                message="Scheduling is blocked due to non-empty scheduling gates",
            )
        if "affinity" in spec or "topologySpreadConstraints" in spec:
            merge_match_label_keys(obj)
        copy_app_armor_annotations(obj)
        if "resources" in spec:
            default_pod_level_resources(spec)
        status["qosClass"] = qos_class(obj)
        obj["status"] = status

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_new_pod(obj, errs, CREATE_POD)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        found = app_armor_warnings(obj)
        texts = dns1123_label(obj["metadata"].get("name", ""))
        if texts:
            why = "this is used in the Pod's hostname, which can result in surprising behavior"
            found.append(f"metadata.name: {why}; a DNS label is recommended: [{' '.join(texts)}]")
        return found + pod_warnings(obj)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        _retain_pod_level_resources(obj, old)
        drop_disabled_fields(obj["spec"], obj["metadata"], old["spec"])
        _set_generation(obj, old)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj["spec"] == old["spec"]:
            # The spec was valid when it was stored; only annotations can have become invalid.
            if obj["metadata"].get("annotations") != old["metadata"].get("annotations"):
                validate_annotations_update(obj, old, errs, pod_options(old, is_pod=True))
            return
        validate_changed_pod(obj, old, errs, pod_options(old, is_pod=True))

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []

    def row_conditions(self, obj: Obj) -> list[dict[str, str]]:
        phase = (obj.get("status") or {}).get("phase", "")
        message = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}.get(phase)
        return [{"type": "Completed", "status": "True", "reason": phase, "message": message}] if message else []

    def grace_period(self, obj: Obj, requested: int | None) -> int | None:
        spec = obj.get("spec") or {}
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return 0
        period: int = spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
        return 1 if period < 0 else period

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        ips = status.get("podIPs")
        node = spec.get("nodeName", "")
        return {
            "spec.nodeName": node,
            "spec.host": node,
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": ips[0].get("ip", "") if ips else "",
            "status.podIPs": "",
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }


def _default_requests(containers: Sequence[Obj]) -> None:
    for container in containers:
        resources = container.get("resources")
        if resources and "limits" in resources:
            requests = resources.setdefault("requests", {})
            for name, amount in resources["limits"].items():
                if name not in requests:
                    requests[name] = amount


def _default_status(status: Obj) -> None:
    # The single address and the list must agree; the single one takes precedence.
    ip, ips = status.get("podIP"), status.get("podIPs")
    if ip and (not ips or ips[0].get("ip") != ip):
        status["podIPs"] = [{"ip": ip}]
    elif ips and not ip:
        status["podIP"] = ips[0].get("ip", "")
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(key, ()):
            _round_status(one)
    _round_status(status)


def _round_status(holder: Obj) -> None:
    if "allocatedResources" in holder:
        round_up_to_milli(holder["allocatedResources"])
    for which in ("limits", "requests"):
        amounts = (holder.get("resources") or {}).get(which)
        if amounts:
            round_up_to_milli(amounts)


def _retain_pod_level_resources(obj: Obj, old: Obj) -> None:
    """Restore pod-level resources that a client without the field would remove."""
    if "resources" not in obj["spec"] and "resources" in old["spec"]:
        obj["spec"]["resources"] = old["spec"]["resources"]


def _set_generation(obj: Obj, old: Obj) -> None:
    generation = old["metadata"].get("generation", 0)
    if not same(obj["spec"], old["spec"]):
        generation += 1
    if generation:
        obj["metadata"]["generation"] = generation
    else:
        obj["metadata"].pop("generation", None)


class _PodSubresource(Strategy):
    """A subresource of a Pod that is decoded, defaulted and read as a Pod is."""

    def __init__(self, main: PodStrategy) -> None:
        self.main = main

    def default(self, obj: Obj) -> None:
        self.main.default(obj)

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return self.main.selectable_fields(obj)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []


class PodStatusStrategy(_PodSubresource):
    def default(self, obj: Obj) -> None:
        # Status updates are the most frequent writes of nodes, and the spec is replaced by the stored one anyway.
        status = obj.get("status")
        if status:
            _default_status(status)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        obj["spec"] = old["spec"]
        for name in ("ownerReferences", "deletionTimestamp"):
            _copy_field(obj["metadata"], old["metadata"], name)
        before = old.get("status") or {}
        status = obj.setdefault("status", {})
        for name in _RETAINED_IF_OMITTED:
            if name not in status and name in before:
                status[name] = before[name]
        _retain_observed_generations(status, before)
        drop_disabled_status_fields(status, before)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        # The spec is as stored, so annotations that did not change are still valid.
        if obj["metadata"].get("annotations") != old["metadata"].get("annotations"):
            validate_annotations_update(obj, old, errs, pod_options(old, is_pod=True))
        validate_pod_status(obj, old, errs)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        found: list[str] = []
        for name in ("podIPs", "hostIPs"):
            for i, one in enumerate((obj.get("status") or {}).get(name, ())):
                found += ip_warnings(one.get("ip", ""), f"status.{name}[{i}].ip")
        return found


def _retain_observed_generations(status: Obj, before: Obj) -> None:
    """Restore values that a client without the field would clear; conditions of one type are matched by position."""
    if "observedGeneration" in before and "observedGeneration" not in status:
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions", ()):
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions", ()):
        generations = known.get(condition.get("type", ""))
        if generations:
            generation = generations.pop(0)
            if generation and "observedGeneration" not in condition:
                condition["observedGeneration"] = generation


class PodEphemeralContainersStrategy(_PodSubresource):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        containers = obj["spec"].get("ephemeralContainers")
        _retain_all_but_spec(obj, old)
        obj["spec"] = {key: value for key, value in old["spec"].items() if key != "ephemeralContainers"}
        if containers:
            obj["spec"]["ephemeralContainers"] = containers
            drop_disabled_fields(obj["spec"], obj["metadata"], old["spec"])
        _set_generation(obj, old)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if MIRROR in (old["metadata"].get("annotations") or ()):
            errs.append(forbidden("[]", "static pods do not support ephemeral containers"))
            return
        options = pod_options(old, is_pod=True)
        validate_pod_and_annotations(obj, errs, options)
        validate_annotations_update(obj, old, errs, options)
        path = "spec.ephemeralContainers"
        new = {container.get("name", ""): container for container in obj["spec"].get("ephemeralContainers", ())}
        for container in old["spec"].get("ephemeralContainers", ()):
            name = container.get("name", "")
            shown = f"existing ephemeral containers {quote(name)} may not be"
            if name not in new:
                errs.append(forbidden(path, f"{shown} removed\n"))
            elif not same(container, new[name]):
                difference = internal_diff("EphemeralContainer", container, new[name])
                errs.append(forbidden(path, f"{shown} changed\n{difference}"))


class PodResizeStrategy(_PodSubresource):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        _copy_resize_only(obj, old)
        _retain_pod_level_resources(obj, old)
        if "resources" in obj["spec"]:
            default_pod_level_resources(obj["spec"])
        drop_disabled_fields(obj["spec"], obj["metadata"], old["spec"])
        _set_generation(obj, old)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_resize(obj, old, errs, pod_options(old, is_pod=True))


def _copy_resize_only(obj: Obj, old: Obj) -> None:
    """Copy resources and resize policies only; validation rejects added or removed containers."""
    spec, old_spec = obj["spec"], old["spec"]
    lists = ("containers", "initContainers")
    if any(len(spec.get(key) or ()) != len(old_spec.get(key) or ()) for key in lists):
        return
    merged = dict(old_spec)
    for key in lists:
        if spec.get(key):
            merged[key] = _with_resources(spec[key], old_spec[key])
    _copy_field(merged, spec, "resources")
    _retain_all_but_spec(obj, old)
    obj["spec"] = merged


def _with_resources(containers: list[Obj], before: list[Obj]) -> list[Obj]:
    out = []
    for container, old in zip(containers, before):
        if container.get("name", "") != old.get("name", ""):
            return containers
        one = dict(old)
        for key in ("resources", "resizePolicy"):
            _copy_field(one, container, key)
        out.append(one)
    return out


def _retain_all_but_spec(obj: Obj, old: Obj) -> None:
    _copy_field(obj, old, "status")
    for name in _FROM_STORED:
        _copy_field(obj["metadata"], old["metadata"], name)


def _copy_field(holder: Obj, source: Mapping[str, object], name: str) -> None:
    if name in source:
        holder[name] = source[name]
    else:
        holder.pop(name, None)


STRATEGY = PodStrategy()
STRATEGY.subresources = {
    "status": PodStatusStrategy(STRATEGY),
    "ephemeralcontainers": PodEphemeralContainersStrategy(STRATEGY),
    "resize": PodResizeStrategy(STRATEGY),
}
