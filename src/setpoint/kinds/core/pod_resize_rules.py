"""Resizing a Pod in place: cpu and memory of its containers, and of the pod as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.pod_rules import validate_pod_and_annotations
from setpoint.kinds.core.podspec.aggregate import is_sidecar
from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.kinds.core.podspec.equality import same
from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.core.podspec.qos import qos_class
from setpoint.meta.field import Errors, forbidden, invalid

Item = Mapping[str, Any]
_RESIZABLE = ("cpu", "memory")
_LISTS = ("requests", "limits")


def validate_resize(new: Item, old: Item, errs: Errors, options: PodOptions) -> None:
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


def _has_amounts(resources: Item | None) -> bool:
    return bool(resources and (resources.get("requests") or resources.get("limits")))


def _node_can_resize(status: Item) -> bool:
    """Return whether the node can resize: it then reports the resources of running containers. Unknown before one
    runs."""
    for container in status.get("containerStatuses", ()):
        if "running" in (container.get("state") or {}):
            return "resources" in container
    return True


def _mask_amounts(resources: Item | None, before: Item | None) -> dict[str, Any]:
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


def _mask_container(container: Item, before: Item) -> dict[str, Any]:
    masked = dict(container)
    resources = _mask_amounts(container.get("resources"), before.get("resources"))
    if resources or "resources" in before:
        masked["resources"] = resources
    else:
        masked.pop("resources", None)
    return masked


def _mask_init_containers(containers: Sequence[Item], before: Sequence[Item], errs: Errors) -> list[dict[str, Any]]:
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


def _validate_order(spec: Item, old_spec: Item, errs: Errors) -> bool:
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


def _validate_not_removed(new: Item | None, old: Item | None, path: str, prefix: str, errs: Errors) -> None:
    """Validate that amounts are not removed; they may change."""
    for which in _LISTS:
        before, after = (old or {}).get(which) or {}, (new or {}).get(which) or {}
        if before.keys() - after.keys():
            errs.append(forbidden(f"{path}.{which}", f"{prefix}resource {which} cannot be removed"))


def _validate_pod_level(masked: dict[str, Any], old_spec: Item, errs: Errors) -> None:
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
