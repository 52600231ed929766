"""The annotation of client-side apply, for those who move on to server-side apply with kubectl."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.apply.check import problems
from setpoint.meta.apply.field_set import EMPTY, FieldSet, difference
from setpoint.meta.apply.walk import walk_of
from setpoint.meta.schema import Type

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATIONS_LIMIT = 256 * 1024


def allowed_by_last_applied(type_: Type, live: dict[str, Any], api_version: str) -> FieldSet | None:
    """Return the fields that client-side apply wrote last and that still have that value, or None without the
    annotation."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if not text or problems(type_, live):
        return None
    try:
        applied = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if type(applied) is not dict or applied.get("apiVersion") != api_version or problems(type_, applied):
        return None
    walk = walk_of(type_)
    fields = walk.members(applied)
    removed, changed = walk.diff(applied, live) or (None, None)
    return difference(difference(fields, changed or EMPTY), removed or EMPTY)


def sync_last_applied(obj: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` with its annotation, if it has one, telling of this configuration; dropped if that would be too
    large."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return obj
    text = _encoded(config)
    if annotations[ANNOTATION] == text:
        return obj
    annotations = {**annotations, ANNOTATION: text}
    if sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        del annotations[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _encoded(config: dict[str, Any]) -> str:
    """Return the configuration without the annotation itself, as Go encodes it: sorted, HTML-safe, with a newline."""
    metadata = config.get("metadata") or {}
    annotations = metadata.get("annotations")
    if annotations and ANNOTATION in annotations:
        rest = {name: value for name, value in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**metadata, "annotations": rest}}
    text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS).decode()
    for char in "<>&\u2028\u2029":
        if char in text:
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text + "\n"
