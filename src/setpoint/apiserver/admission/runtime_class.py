"""RuntimeClass: a Pod gets the overhead and the scheduling constraints of its class."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.admission.pod_toleration_restriction import merge_tolerations
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare

_MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


class RuntimeClass(Plugin):
    name = "RuntimeClass"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        found = self._class(attrs)
        if found is None:
            return
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        overhead = found.get("overhead")
        if overhead is not None:
            fixed = overhead.get("podFixed") or {}
            if spec.get("overhead") and not _equal(spec["overhead"], fixed):
                raise attrs.forbidden(_MISMATCH)
            if fixed:
                spec["overhead"] = dict(fixed)
        scheduling = found.get("scheduling")
        if scheduling is not None:
            _apply_scheduling(attrs, spec, scheduling)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        given = attrs.obj["spec"].get("overhead")
        found = self._class(attrs)
        if found is not None and found.get("overhead") is not None:
            if not _equal(given or {}, found["overhead"].get("podFixed") or {}):
                raise attrs.forbidden(_MISMATCH)
        elif given is not None:
            raise attrs.forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")

    def _class(self, attrs: Attributes) -> Obj | None:
        assert attrs.obj is not None
        name = attrs.obj["spec"].get("runtimeClassName")
        if name is None:
            return None
        found = self._reader.get("node.k8s.io", "runtimeclasses", "", name)
        if found is None:
            raise attrs.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        return found


def _apply_scheduling(attrs: Attributes, spec: Obj, scheduling: Obj) -> None:
    wanted, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in sorted(wanted.items()):
        if own.get(key, value) != value:
            raise attrs.forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own[key]}"
            )
    if wanted:
        spec["nodeSelector"] = {**own, **wanted}
    class_tolerations = [dict(toleration) for toleration in scheduling.get("tolerations") or ()]
    merged = merge_tolerations(spec.get("tolerations") or [], class_tolerations)
    if merged:
        spec["tolerations"] = merged


def _equal(left: Obj, right: Obj) -> bool:
    return left.keys() == right.keys() and all(not compare(amount, right[name]) for name, amount in left.items())
