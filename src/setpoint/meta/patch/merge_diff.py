"""Making JSON merge patches, and the three-way patch of client-side apply for kinds without merge keys."""

from __future__ import annotations

from typing import Any

from setpoint.meta.goformat import plain
from setpoint.meta.patch.errors import PatchRefused
from setpoint.meta.patch.strategic_diff import conflict_text, same

Obj = dict[str, Any]


def merge_patch_between(old: Obj, new: Obj) -> Obj:
    """Return the merge patch that makes `new` of `old`."""
    patch: Obj = {}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif type(value) is dict and type(old[key]) is dict:
            found = merge_patch_between(old[key], value)
            if found:
                patch[key] = found
        elif not same(old[key], value):
            patch[key] = value
    return patch | {key: None for key in old if key not in new}


def three_way_merge(original: Obj, modified: Obj, current: Obj) -> Obj:
    """Return a JSON merge patch as `three_way_strategic` does. Raises PatchRefused if it would change apiVersion, kind
    or name."""
    delta = _filtered(merge_patch_between(current, modified), nulls=False)
    gone = _filtered(merge_patch_between(original, modified), nulls=True)
    if _conflict(delta, gone):
        raise PatchRefused(conflict_text(delta, gone))
    patch = _laid_over(gone, delta)
    meta = patch.get("metadata")
    if "apiVersion" in patch or "kind" in patch or (isinstance(meta, dict) and "name" in meta):
        raise PatchRefused(f"precondition failed for: {plain(patch)}")
    return patch


def _filtered(patch: Obj, *, nulls: bool) -> Obj:
    """Return the patch with only its nulls, or without them."""
    kept: Obj = {}
    for key, value in patch.items():
        if value is None:
            if nulls:
                kept[key] = None
        elif type(value) is dict and value:
            found = _filtered(value, nulls=nulls)
            if found:
                kept[key] = found
        elif not nulls:
            kept[key] = value
    return kept


def _laid_over(under: Obj, over: Obj) -> Obj:
    merged = dict(under)
    for key, value in over.items():
        current = merged.get(key)
        merged[key] = _laid_over(current, value) if type(current) is dict and type(value) is dict else value
    return merged


def _conflict(left: Any, right: Any) -> bool:
    if type(left) is dict and type(right) is dict:
        return any(key in right and _conflict(value, right[key]) for key, value in left.items())
    if type(left) is list and type(right) is list:
        return len(left) != len(right) or any(map(_conflict, left, right))
    return not same(left, right)
