"""Validation of a Pod beyond its spec, at creation and at every update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.affinity import REQUIRED
from setpoint.kinds.core.podspec.annotations import (
    validate_annotation_updates,
    validate_pod_annotations,
    validate_profiles_match,
)  # fmt: skip
from setpoint.kinds.core.podspec.containers import validate_image_padding
from setpoint.kinds.core.podspec.equality import same
from setpoint.kinds.core.podspec.internal import as_json, internal, internal_diff, shown
from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.core.podspec.spec import validate_pod_spec
from setpoint.kinds.core.podspec.tolerations import validate_only_added_tolerations
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import in_range

Item = Mapping[str, Any]
_NOTHING: Mapping[str, Any] = {}
_MAX_INT32 = 2**31 - 1
_UPDATABLE = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
))  # fmt: skip


def validate_new_pod(pod: Item, errs: Errors, options: PodOptions) -> None:
    validate_pod_and_annotations(pod, errs, options)
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        errs.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errs.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    annotations = pod["metadata"].get("annotations")
    if annotations:
        validate_profiles_match(annotations, spec, "spec", errs)


def validate_pod_and_annotations(pod: Item, errs: Errors, options: PodOptions) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    if "annotations" in meta:
        validate_annotations_of(pod, errs, options)
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


def validate_annotations_of(pod: Item, errs: Errors, options: PodOptions) -> None:
    validate_pod_annotations(
        pod["metadata"].get("annotations") or _NOTHING,
        pod["spec"],
        "metadata.annotations",
        errs,
        allow_invalid_deletion_cost=options.allow_invalid_deletion_cost,
        allow_comparison=options.allow_toleration_comparison,
    )


def validate_annotations_update(new: Item, old: Item, errs: Errors, options: PodOptions) -> None:
    annotations = new["metadata"].get("annotations") or _NOTHING
    before = old["metadata"].get("annotations") or _NOTHING
    if annotations or before:
        validate_annotation_updates(annotations, before, "metadata.annotations", errs)
        validate_annotations_of(new, errs, options)


def validate_changed_pod(new: Item, old: Item, errs: Errors, options: PodOptions) -> None:
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


def _validate_container_updates(new: Sequence[Item], old: Sequence[Item], path: str, errs: Errors) -> bool:
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


def _validate_gates(new: Sequence[Item], old: Sequence[Item], errs: Errors) -> None:
    known = {gate.get("name", "") for gate in old}
    added = {gate.get("name", ""): i for i, gate in enumerate(new)}
    for name, i in added.items():
        if name not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errs.append(forbidden(f"spec.schedulingGates[{i}].name", text))


def _mask_updatable(spec: Item, old_spec: Item) -> dict[str, Any]:
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


def _copy_field(masked: dict[str, Any], old: Item, key: str) -> None:
    if key in old:
        masked[key] = old[key]
    else:
        masked.pop(key, None)


def _mask_scheduling(masked: dict[str, Any], old_spec: Item, errs: Errors) -> None:
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


def _validate_node_affinity(new: Item | None, old: Item | None, errs: Errors) -> None:
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


def _only_adds(new: Item, old: Item) -> bool:
    parts = ("matchExpressions", "matchFields")
    # An empty term matches nothing; adding to it would make it match.
    if not any(old.get(part) for part in parts) and any(new.get(part) for part in parts):
        return False
    return all(new.get(part, [])[: len(old.get(part, ()))] == old.get(part, []) for part in parts)
