"""Print objects as kubectl does for built-in kinds: fields in declared order, and a creationTimestamp in all
metadata."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
_WITH_METADATA = ((), ("spec", "template"), ("spec", "jobTemplate"), ("spec", "jobTemplate", "spec", "template"))


def typed(obj: Obj) -> Obj:
    """Return the object in typed form; objects of other kinds keep their order."""
    obj = _in_order(obj)
    if "items" in obj:
        return {**obj, "items": obj["items"] or None}
    for path in _WITH_METADATA:
        obj = _with_time(obj, path)
    return obj


def _in_order(obj: Obj) -> Obj:
    # Imported here because it is only needed to print whole objects.
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.decode import DecodeError, decode

    group, _, version = obj["apiVersion"].rpartition("/")
    try:
        found: Obj = decode(type_of(definition_for(group, version, obj["kind"])), obj)
    except (KeyError, DecodeError):
        return obj
    head = {key: obj[key] for key in ("kind", "apiVersion")}
    return head | {key: value for key, value in found.items() if key not in head}


def _with_time(obj: Obj, path: tuple[str, ...]) -> Obj:
    if not path:
        meta = obj.get("metadata") or {}
        first = {key: meta[key] for key in ("name", "namespace") if key in meta}
        return obj if "creationTimestamp" in meta else {**obj, "metadata": {**first, "creationTimestamp": None, **meta}}
    inner = obj.get(path[0])
    if not isinstance(inner, dict):
        return obj
    return {**obj, path[0]: _with_time(inner, path[1:])}
