"""The annotation in which client-side apply stores the last applied object, to detect removed fields."""

from __future__ import annotations

from setpoint.meta.gojson import compact
from setpoint.meta.objects import Obj

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def original(obj: Obj) -> str | None:
    """Return the value of the annotation; None if there is none."""
    found = _annotations(obj).get(ANNOTATION)
    return found if isinstance(found, str) else None


def unannotated(obj: Obj) -> Obj:
    return _with_annotations(obj, {name: value for name, value in _annotations(obj).items() if name != ANNOTATION})


def encoded(obj: Obj) -> str:
    """Return the object without the annotation, in the form that is stored in it."""
    return compact(unannotated(obj)) + "\n"


def annotated(obj: Obj) -> Obj:
    """Return the object with the annotation."""
    return with_original(obj, encoded(obj))


def with_original(obj: Obj, text: str) -> Obj:
    return _with_annotations(obj, {**_annotations(obj), ANNOTATION: text})


def saved(obj: Obj, create: bool) -> Obj:
    """Return the object with the annotation if it is requested or exists already."""
    return annotated(obj) if create or original(obj) else obj


def _annotations(obj: Obj) -> Obj:
    found = (obj.get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}


def _with_annotations(obj: Obj, annotations: Obj) -> Obj:
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "annotations": annotations}}
