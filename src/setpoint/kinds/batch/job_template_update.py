"""Changes to the pod template of a Job: none, or while it is suspended, scheduling constraints and resources."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.core.podspec.internal import internal
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objectmeta import IMMUTABLE

_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def validate_template_update(spec: dict[str, Any], old: dict[str, Any], errs: Errors, *, mutable: bool) -> None:
    template, before = spec.get("template") or {}, old.get("template") or {}
    if template == before:
        return
    if not mutable:
        shown = {**(template.get("metadata") or {}), "Spec": internal("PodSpec", template.get("spec"))}
        errs.append(invalid("spec.template", shown, IMMUTABLE))
        return
    pod = template.get("spec") or {}
    if pod != _with_resources_of(pod, _with_directives_of(pod, before.get("spec") or {})):
        errs.append(invalid("spec.template.spec", internal("PodSpec", pod), IMMUTABLE))


def _with_directives_of(pod: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in old.items() if name not in _DIRECTIVES and name != "affinity"}
    result.update((name, pod[name]) for name in _DIRECTIVES if name in pod)
    affinity, before = pod.get("affinity"), old.get("affinity")
    if before is not None or affinity is not None:
        kept = {name: value for name, value in (before or {}).items() if name != "nodeAffinity"}
        if affinity is not None and "nodeAffinity" in affinity:
            kept["nodeAffinity"] = affinity["nodeAffinity"]
        if affinity is not None or kept:
            result["affinity"] = kept
    return result


def _with_resources_of(pod: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for kind in ("containers", "initContainers"):
        containers, before = pod.get(kind) or [], old.get(kind) or []
        if containers and len(containers) == len(before):
            result[kind] = [_with_resources(new, known) for new, known in zip(containers, before)]
    return result


def _with_resources(container: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    if container.get("name") != old.get("name"):
        return old
    result = {name: value for name, value in old.items() if name != "resources"}
    if "resources" in container:
        result["resources"] = container["resources"]
    return result
