"""The scale subresource of custom kinds: the paths of the replicas, and the Scale object."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.meta.field import Errors, invalid
from setpoint.meta.goformat import plain, type_name
from setpoint.meta.objects import Obj, ObjView

_MAX_INT32 = 2**31 - 1


class ScaleError(ValueError):
    """A value on the path has the wrong type; the message says which."""


class ScalePaths(NamedTuple):
    spec: str
    status: str
    selector: str

    @classmethod
    def of(cls, subresources: ObjView) -> ScalePaths | None:
        scale = subresources.get("scale")
        if scale is None:
            return None
        return cls(
            scale.get("specReplicasPath", ""), scale.get("statusReplicasPath", ""), scale.get("labelSelectorPath", "")
        )

    def validate_spec(self, obj: ObjView, errs: Errors) -> None:
        _validate_replicas(obj, self.spec, errs)

    def validate_status(self, obj: ObjView, errs: Errors) -> None:
        _validate_replicas(obj, self.status, errs)
        if self.selector:
            try:
                _nested(obj, self.selector, str)
            except ScaleError as problem:
                errs.append(invalid(self.selector, "", str(problem)))

    def replicas(self, obj: ObjView) -> int | None:
        """Return the wanted number; None: none is given. Raises ScaleError."""
        found: int | None = _nested(obj, self.spec, int)
        return found

    def to_scale(self, obj: ObjView) -> Obj:
        """Return the Scale of a custom object. Raises ScaleError."""
        meta = obj["metadata"]
        names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        replicas = self.replicas(obj)
        status: Obj = {"replicas": _nested(obj, self.status, int) or 0}
        if self.selector and (selector := _nested(obj, self.selector, str)):
            status["selector"] = selector
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {name: meta[name] for name in names if name in meta},
            "spec": {"replicas": replicas} if replicas else {},
            "status": status,
        }

    def with_replicas(self, obj: ObjView, replicas: int) -> Obj:
        """Return a copy with these replicas that shares the unchanged parts."""
        result = here = dict(obj)
        *way, last = keys(self.spec)
        for key in way:
            below = here.get(key)
            here[key] = dict(below) if isinstance(below, dict) else {}
            here = here[key]
        here[last] = replicas
        return result


def keys(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _nested(obj: Any, path: str, kind: type) -> Any:
    """Return the value at the path, None if there is none. Raises ScaleError if it is of another kind."""
    walked = ""
    for key in keys(path):
        walked = f"{walked}.{key}"
        if obj is None:
            return None
        if not isinstance(obj, dict):
            raise ScaleError(
                f"{walked} accessor error: {plain(obj)} is of the type {type_name(obj)}, "
                "expected map[string]interface{}"
            )
        if key not in obj:
            return None
        obj = obj[key]
    if obj.__class__ is not kind:
        wanted = "int64" if kind is int else "string"
        raise ScaleError(f"{walked} accessor error: {plain(obj)} is of the type {type_name(obj)}, expected {wanted}")
    return obj


def _validate_replicas(obj: ObjView, path: str, errs: Errors) -> None:
    try:
        replicas = _nested(obj, path, int) or 0
    except ScaleError as problem:
        errs.append(invalid(path, 0, str(problem)))
        return
    if replicas < 0:
        errs.append(invalid(path, replicas, "should be a non-negative integer"))
    elif replicas > _MAX_INT32:
        errs.append(invalid(path, replicas, f"should be less than or equal to {_MAX_INT32}"))
