"""Rules of a Pod beyond its spec: fields that the server sets, creation, updates, and resizing in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.annotations import (
    APP_ARMOR,
    MIRROR,
    validate_annotation_updates,
    validate_pod_annotations,
    validate_profiles_match,
)
from setpoint.kinds.core.podspec.containers import validate_image_padding
from setpoint.kinds.core.podspec.options import PodOptions, all_containers
from setpoint.kinds.core.podspec.resources import is_sidecar, qos_class
from setpoint.kinds.core.podspec.scheduling import PREFERRED, REQUIRED, validate_only_added_tolerations
from setpoint.kinds.core.podspec.spec import validate_pod_spec
from setpoint.kinds.core.podspec.warnings import OLD_APP_ARMOR, app_armor_profile
from setpoint.kinds.internal_form import as_json, internal, internal_diff, same, shown
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import in_range
from setpoint.meta.objects import Obj, ObjView

_MAX_PROFILE_LENGTH = 4095


def merge_match_label_keys(pod: Obj) -> None:
    """Merge keys whose values come from the pod's own labels into the selectors."""
    spec = pod["spec"]
    labels = pod["metadata"].get("labels") or {}
    affinity = spec.get("affinity")
    if affinity:
        for kind in ("podAffinity", "podAntiAffinity"):
            terms = affinity.get(kind)
            if terms:
                for weighted in terms.get(PREFERRED, ()):
                    _merge(weighted.get("podAffinityTerm") or {}, labels)
                for term in terms.get(REQUIRED, ()):
                    _merge(term, labels)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _merge(constraint, labels)


def _merge(term: Obj, labels: Mapping[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys, ()):
            if key in labels:
                expressions = selector.setdefault("matchExpressions", [])
                expressions.append({"key": key, "operator": operator, "values": [labels[key]]})


class ProfileFromAnnotation(Obj):
    """An AppArmor profile from the legacy annotation, not from the field, which warnings distinguish."""


def copy_app_armor_annotations(pod: Obj) -> None:
    annotations, spec = pod["metadata"].get("annotations"), pod["spec"]
    if not annotations or not any(key.startswith(APP_ARMOR) for key in annotations):
        return
    if (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    container: Any
    for container in all_containers(spec):
        annotation = annotations.get(APP_ARMOR + container.get("name", ""))
        if annotation is None or "appArmorProfile" in (container.get("securityContext") or {}):
            continue
        profile = _valid_profile(annotation)
        if profile is not None and profile != of_pod:
            container.setdefault("securityContext", {})["appArmorProfile"] = ProfileFromAnnotation(profile)


def _valid_profile(annotation: str) -> dict[str, str] | None:
    profile = app_armor_profile(annotation)
    name = (profile or {}).get("localhostProfile", "")
    return None if name.strip() != name or len(name.encode()) > _MAX_PROFILE_LENGTH else profile


def app_armor_warnings(pod: Obj) -> list[str]:
    """Return warnings for annotations without a corresponding field in the request."""
    annotations, spec = pod["metadata"].get("annotations"), pod["spec"]
    if not annotations or (spec.get("os") or {}).get("name") == "windows":
        return []
    found = []
    for container in all_containers(spec):
        key = APP_ARMOR + container.get("name", "")
        if key not in annotations:
            continue
        profile = (container.get("securityContext") or {}).get("appArmorProfile")
        if isinstance(profile, ProfileFromAnnotation) or (profile is None and _valid_profile(annotations[key]) is None):
            found.append(f"metadata.annotations[{key}]: {OLD_APP_ARMOR}")
    return found


_NOTHING: ObjView = {}
_MAX_INT32 = 2**31 - 1
_UPDATABLE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)


def validate_new_pod(pod: ObjView, errs: Errors, options: PodOptions) -> None:
    validate_pod_and_annotations(pod, errs, options)
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        errs.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errs.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    annotations = pod["metadata"].get("annotations")
    if annotations:
        validate_profiles_match(annotations, spec, "spec", errs)


def validate_pod_and_annotations(pod: ObjView, errs: Errors, options: PodOptions) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    if "annotations" in meta:
        _validate_annotations_of(pod, errs, options)
    validate_pod_spec(spec, "spec", errs, meta=meta, options=options)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes", ())):
            for j, source in enumerate((volume.get("projected") or _NOTHING).get("sources") or ()):
                if "serviceAccountToken" in source:
                    text = "must not be specified when serviceAccountName is not set"
                    errs.append(forbidden(f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken", text))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        errs.append(invalid("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    for key in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(key) or ()):
            validate_image_padding(container, f"spec.{key}[{i}]", errs)


def _validate_annotations_of(pod: ObjView, errs: Errors, options: PodOptions) -> None:
    validate_pod_annotations(
        pod["metadata"].get("annotations") or _NOTHING,
        pod["spec"],
        "metadata.annotations",
        errs,
        allow_invalid_deletion_cost=options.allow_invalid_deletion_cost,
        allow_comparison=options.allow_toleration_comparison,
    )


def validate_annotations_update(new: ObjView, old: ObjView, errs: Errors, options: PodOptions) -> None:
    annotations = new["metadata"].get("annotations") or _NOTHING
    before = old["metadata"].get("annotations") or _NOTHING
    if annotations or before:
        validate_annotation_updates(annotations, before, "metadata.annotations", errs)
        _validate_annotations_of(new, errs, options)


def validate_changed_pod(new: ObjView, old: ObjView, errs: Errors, options: PodOptions) -> None:
    """Validate a plain update: few fields of the spec may change, and only in few ways."""
    validate_pod_and_annotations(new, errs, options)
    validate_annotations_update(new, old, errs, options)
    spec, old_spec = new["spec"], old["spec"]
    for key in ("containers", "initContainers"):
        if not _validate_container_updates(spec.get(key) or (), old_spec.get(key) or (), f"spec.{key}", errs):
            return
    if not _validate_deadline(spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds"), errs):
        return
    validate_only_added_tolerations(
        spec.get("tolerations", ()),
        old_spec.get("tolerations", ()),
        "spec.tolerations",
        errs,
        allow_comparison=options.allow_toleration_comparison,
    )
    _validate_gates(spec.get("schedulingGates", ()), old_spec.get("schedulingGates", ()), errs)
    if same(spec, old_spec):
        return
    masked = _mask_updatable(spec, old_spec)
    if old_spec.get("schedulingGates"):
        _mask_scheduling(masked, old_spec, errs)
    if not same(masked, old_spec):
        difference = internal_diff("PodSpec", old_spec, masked)
        text = f"pod updates may not change fields other than {_UPDATABLE}\n{difference}"
        errs.append(forbidden("spec", text))


def _validate_container_updates(new: Sequence[ObjView], old: Sequence[ObjView], path: str, errs: Errors) -> bool:
    """Validate containers; return False if further checks are meaningless."""
    if len(new) != len(old):
        errs.append(forbidden(path, "pod updates may not add or remove containers"))
        return False
    for i, container in enumerate(new):
        if not container.get("image"):
            errs.append(required(f"{path}[{i}].image", ""))
        validate_image_padding(container, f"{path}[{i}]", errs)
    return True


def _validate_deadline(new: int | None, old: int | None, errs: Errors) -> bool:
    at = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            errs.append(invalid(at, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= new <= _MAX_INT32:
        errs.append(invalid(at, new, in_range(0, _MAX_INT32)))
        return False
    if old is not None and old < new:
        errs.append(invalid(at, new, "must be less than or equal to previous value"))
        return False
    return True


def _validate_gates(new: Sequence[ObjView], old: Sequence[ObjView], errs: Errors) -> None:
    known = {gate.get("name", "") for gate in old}
    added = {gate.get("name", ""): i for i, gate in enumerate(new)}
    for name, i in added.items():
        if name not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errs.append(forbidden(f"spec.schedulingGates[{i}].name", text))


def _mask_updatable(spec: ObjView, old_spec: ObjView) -> Obj:
    """Return the new spec with the fields that may change as they were."""
    masked = dict(spec)
    for key in ("containers", "initContainers"):
        if masked.get(key):
            masked[key] = [
                {**container, "image": before.get("image", "")} for container, before in zip(spec[key], old_spec[key])
            ]
            for container, before in zip(masked[key], old_spec[key]):
                if "image" not in before:
                    del container["image"]
    for key in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _copy_field(masked, old_spec, key)
    if old_spec.get("terminationGracePeriodSeconds", 0) < 0 and masked.get("terminationGracePeriodSeconds") == 1:
        _copy_field(masked, old_spec, "terminationGracePeriodSeconds")
    return masked


def _copy_field(masked: Obj, old: ObjView, key: str) -> None:
    if key in old:
        masked[key] = old[key]
    else:
        masked.pop(key, None)


def _mask_scheduling(masked: Obj, old_spec: ObjView, errs: Errors) -> None:
    """Mask the scheduling of a gated pod, whose constraints may only be tightened."""
    selector, old_selector = masked.get("nodeSelector") or {}, old_spec.get("nodeSelector") or {}
    if selector != old_selector:
        if any(selector.get(key) != value for key, value in old_selector.items()):
            text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            errs.append(invalid("spec.nodeSelector", as_json(dict(sorted(selector.items())) or None), text))
        _copy_field(masked, old_spec, "nodeSelector")
    affinity, old_affinity = masked.get("affinity"), old_spec.get("affinity")
    node, old_node = (affinity or {}).get("nodeAffinity"), (old_affinity or {}).get("nodeAffinity")
    if node == old_node:
        return
    _validate_node_affinity(node, old_node, errs)
    if affinity is None:
        masked["affinity"] = {"nodeAffinity": old_node}
    elif old_affinity is None and "podAffinity" not in affinity and "podAntiAffinity" not in affinity:
        del masked["affinity"]
    else:
        masked["affinity"] = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
        if old_node is not None:
            masked["affinity"]["nodeAffinity"] = old_node


def _validate_node_affinity(new: ObjView | None, old: ObjView | None, errs: Errors) -> None:
    before = ((old or _NOTHING).get(REQUIRED) or _NOTHING).get("nodeSelectorTerms") or []
    after = ((new or _NOTHING).get(REQUIRED) or _NOTHING).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if before and len(before) != len(after):
        given = as_json([internal("NodeSelectorTerm", term) for term in after] or None)
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errs.append(invalid(path, given, text))
        return
    for i, (old_term, new_term) in enumerate(zip(before, after)):
        if not _only_adds(new_term, old_term):
            text = "only additions are allowed (no mutations or deletions)"
            errs.append(invalid(f"{path}[{i}]", shown("NodeSelectorTerm", new_term), text))


def _only_adds(new: ObjView, old: ObjView) -> bool:
    parts = ("matchExpressions", "matchFields")
    # An empty term matches nothing; with additions it would match.
    if not any(old.get(part) for part in parts) and any(new.get(part) for part in parts):
        return False
    return all(new.get(part, [])[: len(old.get(part, ()))] == old.get(part, []) for part in parts)


_RESIZABLE = ("cpu", "memory")
_LISTS = ("requests", "limits")


def validate_resize(new: ObjView, old: ObjView, errs: Errors, options: PodOptions) -> None:
    spec, old_spec = new["spec"], old["spec"]
    # If resizing is not possible at all, no other error is reported.
    if MIRROR in (old["metadata"].get("annotations") or ()):
        errs.append(forbidden("[]", "static pods cannot be resized"))
        return
    if (old_spec.get("os") or {}).get("name") == "windows":
        errs.append(forbidden("[]", "windows pods cannot be resized"))
        return
    validate_pod_and_annotations(new, errs, options)
    status = old.get("status") or {}
    if (status.get("qosClass") or qos_class(old)) != qos_class(new):
        shown = (new.get("status") or {}).get("qosClass", "")
        errs.append(invalid("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    if not _node_can_resize(status):
        errs.append(forbidden("spec", "Pod running on node without support for resize"))
    masked = dict(spec)
    if _has_amounts(spec.get("resources")) or _has_amounts(old_spec.get("resources")):
        _validate_pod_level(masked, old_spec, errs)
    if not _validate_order(spec, old_spec, errs):
        return
    for key in ("initContainers", "containers"):
        for i, (container, before) in enumerate(zip(spec.get(key) or (), old_spec.get(key) or ())):
            path = f"spec.{key}[{i}].resources"
            _validate_not_removed(container.get("resources"), before.get("resources"), path, "", errs)
    if spec.get("containers"):
        masked["containers"] = [_mask_container(c, o) for c, o in zip(spec["containers"], old_spec["containers"])]
        for container, before in zip(masked["containers"], old_spec["containers"]):
            if not same(container, before):
                errs.append(forbidden("spec", "only cpu and memory resources are mutable"))
    if spec.get("initContainers"):
        masked["initContainers"] = _mask_init_containers(spec["initContainers"], old_spec["initContainers"], errs)
    if not same(spec.get("volumes", []), old_spec.get("volumes", [])):
        text = (
            "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled"
        )
        errs.append(forbidden("spec.volumes", text))
    if not errs and not same(masked, old_spec):
        errs.append(forbidden("spec", "only cpu and memory resources are mutable"))


def _has_amounts(resources: ObjView | None) -> bool:
    return bool(resources and (resources.get("requests") or resources.get("limits")))


def _node_can_resize(status: ObjView) -> bool:
    """Return whether the node can resize: it then reports the resources of running containers. Unknown before one
    runs."""
    for container in status.get("containerStatuses", ()):
        if "running" in (container.get("state") or {}):
            return "resources" in container
    return True


def _mask_amounts(resources: ObjView | None, before: ObjView | None) -> Obj:
    """Return the new requirements with cpu and memory as they were."""
    masked = dict(resources or {})
    for which in _LISTS:
        old = (before or {}).get(which) or {}
        amounts = {name: amount for name, amount in (masked.get(which) or {}).items() if name not in _RESIZABLE}
        amounts.update({name: old[name] for name in _RESIZABLE if name in old})
        if amounts:
            masked[which] = amounts
        else:
            masked.pop(which, None)
    return masked


def _mask_container(container: ObjView, before: ObjView) -> Obj:
    masked = dict(container)
    resources = _mask_amounts(container.get("resources"), before.get("resources"))
    if resources or "resources" in before:
        masked["resources"] = resources
    else:
        masked.pop("resources", None)
    return masked


def _mask_init_containers(containers: Sequence[ObjView], before: Sequence[ObjView], errs: Errors) -> list[Obj]:
    out = []
    for i, (container, old) in enumerate(zip(containers, before)):
        masked = _mask_container(container, old)
        if not same(masked, old):
            text = "only cpu and memory resources for init or sidecar containers are mutable"
            errs.append(forbidden(f"spec.initContainers[{i}]", text))
        if not is_sidecar(container) and not same(dict(container), dict(old)):
            for policy in container.get("resizePolicy", ()):
                if policy.get("restartPolicy") == "RestartContainer":
                    text = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                    errs.append(forbidden(f"spec.initContainers[{i}]", text))
        out.append(masked)
    return out


def _validate_order(spec: ObjView, old_spec: ObjView, errs: Errors) -> bool:
    count = len(errs)
    for key in ("containers", "initContainers"):
        containers, before = spec.get(key) or (), old_spec.get(key) or ()
        if len(containers) != len(before):
            errs.append(forbidden(f"spec.{key}", f"{key} may not be added or removed on resize"))
            continue
        for i, (container, old) in enumerate(zip(containers, before)):
            if container.get("name", "") != old.get("name", ""):
                errs.append(forbidden(f"spec.{key}[{i}].name", f"{key} may not be renamed or reordered on resize"))
    return len(errs) == count


def _validate_not_removed(new: ObjView | None, old: ObjView | None, path: str, prefix: str, errs: Errors) -> None:
    """Validate that amounts are not removed; they may change."""
    for which in _LISTS:
        before, after = (old or {}).get(which) or {}, (new or {}).get(which) or {}
        if before.keys() - after.keys():
            errs.append(forbidden(f"{path}.{which}", f"{prefix}resource {which} cannot be removed"))


def _validate_pod_level(masked: Obj, old_spec: ObjView, errs: Errors) -> None:
    new, old = masked.get("resources"), old_spec.get("resources")
    if old is not None:
        if new is None:
            errs.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
            return
        _validate_not_removed(new, old, "spec.resources", "pod-level ", errs)
    resources = _mask_amounts(new, old)
    if resources or old is not None:
        masked["resources"] = resources
    else:
        masked.pop("resources", None)
    if not same(masked.get("resources"), old):
        errs.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
