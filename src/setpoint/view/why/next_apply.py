"""Foresees how the next apply changes a field that another client has changed since.

The texts say what is recorded: the manifest in the annotation of `kubectl apply`, and the values that a field manager
applied on the server and lost. What a user's files contain now is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from setpoint.meta import quantity
from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_of
from setpoint.view.changes import ABSENT, FieldChange, Path, changes, short_path, short_value
from setpoint.view.desired_state import value_at_path
from setpoint.view.field_owners import owned_paths
from setpoint.view.secrets import LAST_APPLIED
from setpoint.view.why.steps import Change

_MAX_SHOWN = 3
_MAX_QUANTITY_LENGTH = 40
_APPLIED_METADATA = ("labels", "annotations")


# -- kubectl apply -----------------------------------------------------------------------------------------------------


def manifest_of(obj: ObjView | None) -> str:
    """Return the annotation in which `kubectl apply` keeps the last applied manifest; empty if there is none."""
    annotations = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(LAST_APPLIED) or "")


def overridden(obj: ObjView, changed: Collection[Path]) -> list[FieldChange]:
    """Return the fields among those that were changed to which the last applied manifest gives another value than the
    object has: what the next `kubectl apply` of it changes. Structures are left out, because defaults may be missing in
    the manifest, and all if the manifest has another version than the stored object."""
    try:
        manifest = orjson.loads(manifest_of(obj) or "{}")
    except orjson.JSONDecodeError:
        return []
    if not isinstance(manifest, dict) or obj.get("apiVersion", manifest.get("apiVersion")) != manifest.get(
        "apiVersion"
    ):
        return []
    return [
        each
        for each in changes(obj, manifest)
        if _is_applied(each.path)
        and any(_is_within(each.path, path) or _is_within(path, each.path) for path in changed)
        and _differs(each.old, each.new)
    ]


def _is_within(path: Path, outer: Path) -> bool:
    return path[: len(outer)] == outer


def _is_applied(path: Path) -> bool:
    if path[0] == "metadata":
        return len(path) > 2 and path[1] in _APPLIED_METADATA and path[2] != LAST_APPLIED
    return path[0] not in ("apiVersion", "kind", "status")


def _differs(now: Any, applied: Any) -> bool:
    """Return whether a value of a manifest is certainly another one than that of the object."""
    if applied is ABSENT or applied is None or now == applied or not _is_plain(applied):
        return False
    if now is ABSENT or now is None:
        return bool(applied)
    if not _is_plain(now):
        return False
    texts = str(now), str(applied)
    if max(map(len, texts)) > _MAX_QUANTITY_LENGTH:
        return True
    try:
        return quantity.compare(*texts) != 0  # the server stores quantities in canonical form
    except ValueError:
        return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return not any(isinstance(each, dict | list) for each in value)
    return not isinstance(value, dict)


def override_text(found: Sequence[FieldChange], asked: str, author: str) -> str:
    """Return what the next `kubectl apply` changes, in one sentence. `author` applied the manifest; empty if that is
    not known."""
    by = f", by {author}," if author else ""
    if len(found) == 1:
        value, field = short_value(found[0].new), short_path(found[0].path)
        what = value if field == asked or not asked else f"{field} {value}"
        return f"The last applied manifest{by} has {what}: the next `kubectl apply` of it sets {value} again."
    named = [f"{short_path(each.path)} {short_value(each.new)}" for each in found[:_MAX_SHOWN]]
    more = f" and {len(found) - _MAX_SHOWN} more fields" if len(found) > _MAX_SHOWN else ""
    return (
        f"The last applied manifest{by} has {', '.join(named)}{more}: the next `kubectl apply` of it sets them again."
    )


# -- server-side apply -------------------------------------------------------------------------------------------------


def lost_to(found: Iterable[tuple[Change, Sequence[FieldChange]]], now: ObjView) -> str:
    """Return which field manager applied another value on the server before one of the changes (newest first) took the
    field from it, and what a further apply of that value does; empty if there is none."""
    for change, fields in found:
        if change.before is None or change.now is None:
            continue
        for each in fields:
            took, others = _managers(change.now, each.path), sorted(_managers(now, each.path))
            lost = _managers(change.before, each.path, "Apply").difference(took, others)
            # A manager that leaves the field out of its manifest loses it too, but then no other one takes it.
            if not (lost and took and others and _differs(value_at_path(now, each.path), each.old)):
                continue
            value, manager = short_value(each.old), ", ".join(sorted(lost))
            return (
                f"Field manager {manager} had applied {value} (server-side) and lost the field to "
                f"{actor_of(change.write.cause)}: if it applies {value} again, that is a conflict with "
                f"{', '.join(others)}; with --force-conflicts it sets {value} again."
            )
    return ""


def _managers(obj: ObjView, path: Path, operation: str = "") -> set[str]:
    """Return the field managers that own a field, or those that own it by one operation."""
    wanted = _with_indexes(obj, path)
    if not wanted:
        return set()
    return {
        str(entry.get("manager") or "")
        for entry in (obj.get("metadata") or {}).get("managedFields") or ()
        if (not operation or entry.get("operation") == operation)
        and any(each == wanted for each in owned_paths(entry.get("fieldsV1"), obj))
    }


def _with_indexes(obj: ObjView, path: Path) -> tuple[str | int, ...]:
    """Return a path with the indexes of items instead of their identities; empty if the object has no such field."""
    value: Any = obj
    found: list[str | int] = []
    for name in path:
        if name.startswith("[") and isinstance(value, list):
            field, _, wanted = name[1:-1].partition("=")
            index = next((at for at, item in enumerate(value) if str(item.get(field)) == wanted), None)
            if index is None:
                return ()
            found.append(index)
            value = value[index]
        elif isinstance(value, Mapping) and name in value:
            found.append(name)
            value = value[name]
        else:
            return ()
    return tuple(found)
