"""Namespace: a scope for names, whose content is deleted before it is removed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.names import dns1123_label, qualified_name
from setpoint.meta.objectmeta import STANDARD_FINALIZERS
from setpoint.meta.objects import Obj

NAME_LABEL = "kubernetes.io/metadata.name"
_FINALIZER = "kubernetes"


def _phase(obj: Obj, now: datetime) -> str:
    return str((obj.get("status") or {}).get("phase", ""))


def _label_with_name(obj: Obj) -> None:
    meta = obj["metadata"]
    name = meta.get("name")
    if name and (meta.get("labels") or {}).get(NAME_LABEL) != name:
        meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name}


def _retain_finalizers(obj: Obj, old: Obj) -> None:
    finalizers = (old.get("spec") or {}).get("finalizers")
    spec = {key: value for key, value in (obj.get("spec") or {}).items() if key != "finalizers"}
    if finalizers:
        spec["finalizers"] = finalizers
    obj["spec"] = spec


def _validate_finalizers(finalizers: Iterable[str], paths: Iterable[str], errs: Errors) -> None:
    for finalizer, path in zip(finalizers, paths):
        for text in qualified_name(finalizer):
            errs.append(invalid(path, finalizer, text))
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errs.append(invalid(path, finalizer, text))


def _finalizers(obj: Obj) -> list[str]:
    return (obj.get("spec") or {}).get("finalizers") or []


class NamespaceStrategy(Strategy):
    columns = (NAME, Column("Status", _phase, description="Active, or on its way out."), AGE)
    field_labels = frozenset({"metadata.name", "status.phase"})
    has_status = True
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = {"status": NamespaceStatusStrategy(self), "finalize": NamespaceFinalizeStrategy(self)}

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name.rstrip("-") if prefix else name)

    def default(self, obj: Obj) -> None:
        _label_with_name(obj)
        status = obj.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Active"

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        # A generated name is known only now, after defaulting.
        _label_with_name(obj)
        obj["status"] = {"phase": "Active"}
        if _FINALIZER not in _finalizers(obj):
            obj["spec"] = {**(obj.get("spec") or {}), "finalizers": [*_finalizers(obj), _FINALIZER]}

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        finalizers = _finalizers(obj)
        _validate_finalizers(finalizers, ["spec.finalizers"] * len(finalizers), errs)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        _retain_finalizers(obj, old)
        self.retain_status(obj, old)

    def removable(self, obj: Obj) -> bool:
        return not _finalizers(obj)

    def mark_deleted(self, obj: Obj) -> None:
        # Upstream gives a Namespace no grace period, not even one of 0 seconds.
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase", "")}


class NamespaceStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        phase = (obj.get("status") or {}).get("phase", "")
        if not obj["metadata"].get("deletionTimestamp"):
            if phase != "Active":
                text = "may only be 'Active' if `deletionTimestamp` is empty"
                errs.append(invalid("status.Phase", phase, text))
        elif phase != "Terminating":
            text = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            errs.append(invalid("status.Phase", phase, text))


class NamespaceFinalizeStrategy(StatusStrategy):
    reset_fields = ("status",)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        finalizers = _finalizers(obj)
        _validate_finalizers(finalizers, [f"spec.finalizers[{i}]" for i in range(len(finalizers))], errs)


STRATEGY = NamespaceStrategy()
