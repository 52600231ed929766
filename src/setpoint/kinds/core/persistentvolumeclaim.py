"""PersistentVolumeClaim: a request for storage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.kinds.cell_texts import UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.persistentvolume import phase_text
from setpoint.kinds.core.podspec.claims import validate_claim_spec
from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.kinds.core.resources import is_native, validate_resource_amount
from setpoint.kinds.internal_form import internal_diff, same
from setpoint.kinds.storage.binding import STORAGE_CLASS_ANNOTATION, access_modes_text
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import qualified_name
from setpoint.meta.objectmeta import validate_immutable, validate_label_selector
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare, is_integer, value

_RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)
_SOURCES = ("dataSource", "dataSourceRef")
_SPEC_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"
)


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _status(obj: Obj) -> Obj:
    return obj.get("status") or {}


def _storage(spec: Obj, part: str = "requests") -> str | None:
    return ((spec.get("resources") or {}).get(part) or {}).get("storage")


def _annotations(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _capacity(obj: Obj, now: datetime) -> str:
    if not _spec(obj).get("volumeName"):
        return ""
    return str((_status(obj).get("capacity") or {}).get("storage", "0"))


def _access_modes(obj: Obj, now: datetime) -> str:
    return access_modes_text(_status(obj).get("accessModes")) if _spec(obj).get("volumeName") else ""


def _class(obj: Obj, now: datetime) -> str:
    return str(_annotations(obj).get(STORAGE_CLASS_ANNOTATION, _spec(obj).get("storageClassName", "")))


def _field(name: str, missing: str) -> Any:
    return lambda obj, now: _spec(obj).get(name, missing)


class PersistentVolumeClaimStrategy(Strategy):
    def writes_after_create(self, obj: Obj) -> bool:
        return True

    columns = (
        NAME,
        Column("Status", phase_text, description="Where it is in its life."),
        Column("Volume", _field("volumeName", ""), description="The volume it is bound to."),
        Column("Capacity", _capacity, description="How much the volume holds."),
        Column("Access Modes", _access_modes, description="Ways the volume can be mounted."),
        Column("StorageClass", _class, description="Class of storage."),
        Column("VolumeAttributesClass", _field("volumeAttributesClassName", UNSET), description="Class of attributes."),
        AGE,
        Column("VolumeMode", _field("volumeMode", UNSET), priority=1, description="Filesystem or raw device."),
    )
    has_status = True
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = {"status": PersistentVolumeClaimStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec, status = obj.setdefault("spec", {}), obj.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        spec.setdefault("volumeMode", "Filesystem")
        for holder, names in (
            (spec.get("resources"), ("limits", "requests")),
            (status, ("capacity", "allocatedResources")),
        ):
            for name in names:
                round_up_to_milli((holder or {}).get(name) or {})

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        obj["status"] = {"phase": "Pending"}
        _prepare_sources(_spec(obj), {})

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_claim_spec(_spec(obj), "spec", errs)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        _prepare_sources(_spec(obj), _spec(old))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = dict(_spec(old))
        _normalize_sources(before)
        problems: Errors = []
        validate_label_selector(before.get("selector"), "", problems)
        validate_claim_spec(
            _spec(obj),
            "spec",
            errs,
            allow_invalid_selector=bool(problems),
            allow_invalid_groups=any((before.get(name) or {}).get("apiGroup") is not None for name in _SOURCES),
        )
        _validate_change(obj, old, before, errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings = []
        if STORAGE_CLASS_ANNOTATION in _annotations(obj):
            text = 'deprecated since v1.8; use "storageClassName" attribute instead'
            warnings.append(f"metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: {text}")
        for part in ("requests", "limits"):
            size = _storage(_spec(obj), part)
            if size is not None and not is_integer(size):
                path = f"spec.resources.{part}[storage]"
                warnings.append(f"{path}: fractional byte value {quote(size)} is invalid, must be an integer")
        return warnings


class PersistentVolumeClaimStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        if "healthStatus" not in _status(old):
            _status(obj).pop("healthStatus", None)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = _status(obj)
        if not _spec(obj).get("accessModes"):
            errs.append(required("Obj.accessModes"))
        for name, amount in (status.get("capacity") or {}).items():
            _validate_not_negative(amount, f"status.capacity[{name}]", errs)
        path = "status.allocatedResourceStatuses"
        for name, state in (status.get("allocatedResourceStatuses") or {}).items():
            _validate_resource_key(name, path, errs)
            if state not in _RESIZE_STATUSES:
                errs.append(not_supported(path, name, _RESIZE_STATUSES))
        path = "status.allocatedResources"
        for name, amount in (status.get("allocatedResources") or {}).items():
            if _validate_resource_key(name, path, errs) and _validate_not_negative(amount, f"{path}[{name}]", errs):
                validate_resource_amount("storage", amount, f"{path}[{name}]", errs)


def _validate_not_negative(amount: str, path: str, errs: Errors) -> bool:
    whole = value(amount)
    if whole < 0:
        errs.append(invalid(path, whole, "must be a valid resource quantity"))
    return whole >= 0


def _validate_resource_key(name: str, path: str, errs: Errors) -> bool:
    problems = qualified_name(name)
    errs.extend(invalid(path, name, text) for text in problems)
    if problems:
        return False
    if is_native(name) and name != "storage":
        errs.append(not_supported(path, name, ("storage",)))
        return False
    return True


def _prepare_sources(spec: Obj, old: Obj) -> None:
    """Make `dataSource` and `dataSourceRef` agree; the former supports only claims and snapshots and ignores others."""
    reference = spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace") and "dataSourceRef" not in old:
        # Data sources in other namespaces are a disabled feature.
        del spec["dataSourceRef"]
        reference = None
    source = spec.get("dataSource")
    if source is not None and reference is None and "dataSource" not in old and "dataSourceRef" not in old:
        known = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))
        if (source.get("kind"), source.get("apiGroup") or "") not in known:
            del spec["dataSource"]
    _normalize_sources(spec)


def _normalize_sources(spec: Obj) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = {name: source[name] for name in ("apiGroup", "kind", "name") if name in source}
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {name: reference[name] for name in ("apiGroup", "kind", "name") if name in reference}


def _validate_change(obj: Obj, old: Obj, before: Obj, errs: Errors) -> None:
    """Validate a change; `before` is the old spec after `_prepare_sources`."""
    spec = _spec(obj)
    now_comparable, then_comparable = dict(spec), dict(before)
    if not before.get("volumeName"):
        # The volume name can be set once.
        _copy("volumeName", spec, then_comparable)
    _compare_class(obj, old, before, now_comparable, errs)
    if _status(obj).get("phase") == "Bound":
        requests = (spec.get("resources") or {}).get("requests")
        if requests is not None:
            # Upstream prints an absent size as zero.
            unchanged = {**requests, "storage": _storage(before) or "0"}
            now_comparable["resources"] = {**spec["resources"], "requests": unchanged}
        _copy("volumeAttributesClassName", before, now_comparable)
    if not same(now_comparable, then_comparable):
        diff = internal_diff("PersistentVolumeClaimSpec", then_comparable, now_comparable)
        errs.append(forbidden("spec", _SPEC_FIXED + diff))
    size, old_size = _storage(spec) or "0", _storage(before) or "0"
    if compare(size, old_size) < 0:
        # A request whose expansion failed may be reduced again, but must stay above the current capacity.
        if compare(size, (_status(old).get("capacity") or {}).get("storage", "0")) <= 0:
            text = "field can not be less than status.capacity"
            errs.append(forbidden("spec.resources.requests.storage", text))
    validate_immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode", errs)
    attributes = spec.get("volumeAttributesClassName")
    if attributes != before.get("volumeAttributesClassName") and "currentVolumeAttributesClassName" in _status(old):
        if not attributes:
            what = "nil" if attributes is None else "empty string"
            text = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            errs.append(forbidden("spec.volumeAttributesClassName", text))


def _compare_class(obj: Obj, old: Obj, before: Obj, comparable: Obj, errs: Errors) -> None:
    """Allow a class to move from the annotation to the field, and to be set where there was none."""
    key = STORAGE_CLASS_ANNOTATION
    annotations, old_annotations = _annotations(obj), _annotations(old)
    name, old_name, noted = comparable.get("storageClassName"), before.get("storageClassName"), old_annotations.get(key)
    if noted is not None and old_name is None and name == noted and annotations.get(key, noted) == noted:
        comparable.pop("storageClassName", None)
        return
    if annotations.get(key, "") != old_annotations.get(key, ""):
        errs.append(invalid(f"metadata.annotations.{key}", annotations.get(key, ""), "field is immutable"))
    if name is not None and old_name is None and noted in (None, name):
        comparable.pop("storageClassName", None)


def _copy(name: str, source: Obj, target: Obj) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


STRATEGY = PersistentVolumeClaimStrategy()
