"""The annotation in which client-side apply keeps what was applied, to know the next time what is no longer wanted."""

from __future__ import annotations

from typing import Any

from setpoint.meta.gojson import compact

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
Obj = dict[str, Any]


def original(obj: Obj) -> str | None:
    """What the annotation says; None if there is none."""
    found = _annotations(obj).get(ANNOTATION)
    return found if isinstance(found, str) else None


def unannotated(obj: Obj) -> Obj:
    return _with_annotations(obj, {name: value for name, value in _annotations(obj).items() if name != ANNOTATION})


def encoded(obj: Obj) -> str:
    """The object without the annotation, as it is kept in it."""
    return compact(unannotated(obj)) + "\n"


def annotated(obj: Obj) -> Obj:
    """The object with itself in its annotation."""
    return with_original(obj, encoded(obj))


def with_original(obj: Obj, text: str) -> Obj:
    return _with_annotations(obj, {**_annotations(obj), ANNOTATION: text})


def saved(obj: Obj, create: bool) -> Obj:
    """With the annotation, if it is wanted or was there."""
    return annotated(obj) if create or original(obj) else obj


def _annotations(obj: Obj) -> Obj:
    found = (obj.get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}


def _with_annotations(obj: Obj, annotations: Obj) -> Obj:
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "annotations": annotations}}
