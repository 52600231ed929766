"""The `scale` subresource: the number of replicas of a workload, as a Scale object."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels

_METADATA_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def to_scale(obj: Obj) -> Obj:
    """Return the `autoscaling/v1` Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController."""
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    scale_spec: Obj = {}
    if spec.get("replicas"):
        scale_spec["replicas"] = spec["replicas"]
    scale_status: Obj = {"replicas": status.get("replicas", 0)}
    selector = _selector_text(obj.get("kind", ""), spec.get("selector"))
    if selector:
        scale_status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in _METADATA_FIELDS if name in meta},
        "spec": scale_spec,
        "status": scale_status,
    }


def replicas_of(scale: Obj) -> int:
    replicas: int = (scale.get("spec") or {}).get("replicas") or 0
    return replicas


def apply_scale(scale: Obj, obj: Obj) -> Obj:
    """Return a copy of `obj` with the replicas and the resourceVersion of `scale`; none there means an unconditional
    write."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return {**obj, "metadata": metadata, "spec": {**(obj.get("spec") or {}), "replicas": replicas_of(scale)}}


def validate_scale(scale: Obj, errs: Errors) -> None:
    replicas = replicas_of(scale)
    if replicas < 0:
        errs.append(invalid("spec.replicas", replicas, "must be greater than or equal to 0"))


def _selector_text(kind: str, selector: Obj | None) -> str:
    if not selector:
        return ""
    if kind == "ReplicationController":
        return ",".join(f"{key}={selector[key]}" for key in sorted(selector))
    return format_labels(selector) if any(selector.values()) else ""
