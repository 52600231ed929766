"""The desired state of objects: what has changed in it, patches that set it back, and objects that are made anew.

The desired state is everything but the status and the metadata of the system: spec, data, rules, labels, annotations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.patch.json_patch import json_patch_between
from setpoint.view.changes import ABSENT, FieldChange, Path, changes, path_text, short_value
from setpoint.view.secrets import LAST_APPLIED

_NOT_DESIRED = frozenset({"apiVersion", "kind", "metadata", "status"})
_MAPS: tuple[Path, ...] = (("metadata", "labels"), ("metadata", "annotations"), ("data",), ("binaryData",))
"""Maps that may be absent or empty alike."""

_WRITTEN_BY_SYSTEM = (
    "deployment.kubernetes.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "endpoints.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
)
"""Beginnings of the annotations that controllers maintain."""

SECRET_PARTS = ("data", "stringData", "metadata")
"""Parts of a Secret of which values are not shown: annotations may contain a copy of the data."""


def desired(obj: ObjView) -> Obj:
    """Return the desired state, without empty maps that are the same as absent. Values are shared with the object."""
    found = {name: value for name, value in obj.items() if name not in _NOT_DESIRED}
    for name in ("data", "binaryData"):
        if found.get(name) == {}:
            del found[name]
    meta = obj.get("metadata") or {}
    found["metadata"] = {name: meta[name] for name in ("labels", "annotations") if meta.get(name)}
    return found


def desired_changes(before: ObjView, after: ObjView) -> list[FieldChange]:
    """Return the changed fields of the desired state. Applied backwards to `after`, they give that of `before`."""
    old, new = desired(before), desired(after)
    found = changes(old, new)
    undone = deepcopy(new)
    for change in found:
        set_value(undone, change.path, change.old, old)
    _drop_empty(undone, old)
    if undone == old:
        return found
    # The order of a list has changed, for example: whole fields are exact.
    names = {**old, **new}
    return [
        FieldChange((name,), old.get(name, ABSENT), new.get(name, ABSENT))
        for name in names
        if name != "metadata" and old.get(name) != new.get(name)
    ] + [each for each in found if each.path[0] == "metadata"]


def _drop_empty(obj: Obj, as_in: ObjView) -> None:
    """Remove empty maps that are absent in the other object."""
    for path in _MAPS:
        if value_at_path(obj, path) == {} and value_at_path(as_in, path) is ABSENT:
            set_value(obj, path, ABSENT, as_in)


# -- paths -------------------------------------------------------------------------------------------------------------


def value_at_path(obj: Any, path: Path) -> Any:
    """Return the value at the path of a change; ABSENT if there is none."""
    for segment in path:
        if isinstance(obj, list):
            at = _index(obj, segment)
            obj = obj[at] if at is not None else ABSENT
        elif isinstance(obj, dict):
            obj = obj.get(segment, ABSENT)
        else:
            return ABSENT
    return obj


def set_value(obj: Any, path: Path, value: Any, as_in: ObjView) -> bool:
    """Set or remove the value at a path, in place; return False if a list on the way lacks the item.

    An item that is added to a list gets the place that it has in the object `as_in`."""
    for place, segment in enumerate(path[:-1]):
        if isinstance(obj, list):
            at = _index(obj, segment)
            if at is None:
                return value is ABSENT
            obj = obj[at]
        else:
            if segment not in obj or obj[segment] is None:
                if value is ABSENT:
                    return True
                obj[segment] = [] if path[place + 1].startswith("[") else {}
            obj = obj[segment]
    last = path[-1]
    if isinstance(obj, dict):
        if value is ABSENT:
            obj.pop(last, None)
        else:
            obj[last] = deepcopy(value)
        return True
    if not isinstance(obj, list):
        return False
    at = _index(obj, last)
    if value is ABSENT:
        if at is not None:
            del obj[at]
    elif at is not None:
        obj[at] = deepcopy(value)
    else:
        known = value_at_path(as_in, path[:-1])
        there = _index(known, last) if isinstance(known, list) else None
        obj.insert(len(obj) if there is None else there, deepcopy(value))
    return True


def _index(items: list[Any], segment: str) -> int | None:
    """Return the index of the item `[name=web]`."""
    field, _, wanted = segment[1:-1].partition("=")
    for at, item in enumerate(items):
        if isinstance(item, dict) and field in item and str(item[field]) == wanted:
            return at
    return None


# -- setting back ------------------------------------------------------------------------------------------------------


class SetBack(NamedTuple):
    """How the desired state of an existing object is set back."""

    changes: list[FieldChange]
    """The changes to be made, from the present values."""
    conflicts: list[FieldChange]
    """Fields that have neither the value that is set back nor the former one: `old` is the former value, `new` the
    present one."""
    left: list[Path]
    """Changed fields that are left as they are, because a component of the system writes them."""
    done: list[Path]
    """Changed fields that have their former values again."""
    target: Obj
    """The object with the changes."""


def set_back(
    before: ObjView, after: ObjView, now: ObjView, *, force: bool = False, system: Collection[Path] = ()
) -> SetBack:
    """Set back what has changed between `before` and `after` in the present object, where it still has the value of
    `after`; with `force` everywhere. Fields below the paths of `system` are left as they are."""
    target: Obj = deepcopy(dict(now))
    made: list[FieldChange] = []
    conflicts: list[FieldChange] = []
    left: list[Path] = []
    done: list[Path] = []
    for path, old, new in desired_changes(before, after):
        current = value_at_path(now, path)
        if current == old:
            done.append(path)
            continue
        if any(path[: len(each)] == each for each in system):
            left.append(path)
            continue
        if current != new:
            if is_system_annotation(path):
                continue
            if not force:
                conflicts.append(FieldChange(path, old, current))
                continue
        if set_value(target, path, old, before):
            made.append(FieldChange(path, current, old))
        else:
            conflicts.append(FieldChange(path, old, current))
    _drop_empty(target, before)
    return SetBack(made, conflicts, left, done, target)


def is_system_annotation(path: Path) -> bool:
    """Return whether the field is an annotation that a program maintains, and that follows other fields."""
    if path[:2] != ("metadata", "annotations") or len(path) != 3:
        return False
    return path[2] == LAST_APPLIED or path[2].startswith(_WRITTEN_BY_SYSTEM)


def patch_between(now: ObjView, target: ObjView) -> list[dict[str, Any]]:
    """Return the JSON patch that makes `target` of `now`, and fails if the fields in question, or the object, are
    others by then."""
    operations = json_patch_between(dict(now), dict(target))
    tests: dict[str, Any] = {}
    if uid := (now.get("metadata") or {}).get("uid"):
        tests["/metadata/uid"] = uid
    for operation in operations:
        pointer, value = _tested(now, operation["path"])
        if value is not ABSENT:
            tests[pointer] = value
    return [{"op": "test", "path": path, "value": value} for path, value in tests.items()] + operations


def _tested(now: ObjView, pointer: str) -> tuple[str, Any]:
    """Return the place that is tested before an operation: the value itself, or the outermost list that contains it."""
    value: Any = now
    walked = ""
    for segment in pointer.split("/")[1:]:
        if isinstance(value, list):
            return walked, value
        if not isinstance(value, dict):
            return walked, ABSENT
        value = value.get(segment.replace("~1", "/").replace("~0", "~"), ABSENT)
        walked += f"/{segment}"
    return walked, value


# -- fields that cannot be changed -------------------------------------------------------------------------------------

_SELECTOR = (("spec", "selector"),)
_IMMUTABLE: dict[tuple[str, str], tuple[Path, ...]] = {
    ("apps", "deployments"): _SELECTOR,
    ("apps", "replicasets"): _SELECTOR,
    ("apps", "daemonsets"): _SELECTOR,
    ("apps", "statefulsets"): (("spec",),),
    ("batch", "jobs"): (("spec", "selector"), ("spec", "template"), ("spec", "completionMode")),
    ("", "pods"): (("spec",),),
    ("", "persistentvolumeclaims"): (("spec",),),
    ("", "services"): (("spec", "clusterIP"), ("spec", "clusterIPs")),
    ("", "secrets"): (("type",),),
    ("rbac.authorization.k8s.io", "rolebindings"): (("roleRef",),),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): (("roleRef",),),
    ("storage.k8s.io", "storageclasses"): (
        ("provisioner",),
        ("parameters",),
        ("reclaimPolicy",),
        ("volumeBindingMode",),
    ),
    ("scheduling.k8s.io", "priorityclasses"): (("value",), ("preemptionPolicy",)),
    ("networking.k8s.io", "ingressclasses"): (("spec", "controller"),),
    ("", "nodes"): (("spec", "podCIDR"), ("spec", "podCIDRs"), ("spec", "providerID")),
}
"""Fields that an update cannot change, by group and resource."""
_MUTABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("apps", "statefulsets"): (
        "replicas",
        "template",
        "updateStrategy",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
    ),
    ("", "pods"): ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"),
    ("", "persistentvolumeclaims"): ("resources", "volumeAttributesClassName"),
}
"""Fields of the spec that an update can change, of kinds whose spec cannot be changed otherwise."""


def immutable_changes(group: str, plural: str, now: ObjView, changed: Sequence[FieldChange]) -> list[FieldChange]:
    """Return those of the changes that the server would refuse as updates."""
    fixed = _IMMUTABLE.get((group, plural), ())
    if now.get("immutable") is True and (group, plural) in (("", "secrets"), ("", "configmaps")):
        fixed += (("data",), ("binaryData",), ("immutable",))
    mutable = _MUTABLE.get((group, plural), ())
    return [
        each
        for each in changed
        if any(each.path[: len(path)] == path for path in fixed)
        and not (each.path[0] == "spec" and len(each.path) > 1 and each.path[1] in mutable)
        and not (each.path[-1] == "image" and plural == "pods")
    ]


# -- text --------------------------------------------------------------------------------------------------------------


def change_text(change: FieldChange, *, secret: bool = False) -> str:
    """Return one change as text; the values of a Secret are not shown."""
    path = path_text(change.path)
    if secret and change.path[0] in SECRET_PARTS:
        what = "removed" if change.new is ABSENT else "added" if change.old is ABSENT else "changed"
        return f"{path} {what}"
    if change.path[-1] == LAST_APPLIED:
        return f"{path} changed"
    if change.new is ABSENT:
        return f"{path} removed (was {short_value(change.old)})"
    if change.old is ABSENT:
        return f"{path} set to {short_value(change.new)}"
    return f"{path} {short_value(change.old)} -> {short_value(change.new)}"
