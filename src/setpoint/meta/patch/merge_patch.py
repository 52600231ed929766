"""JSON Merge Patch (RFC 7386): application, generation, and the three-way patch of client-side apply for kinds without
merge keys.
"""

from __future__ import annotations

from typing import Any

from setpoint.meta.goformat import kind_of, plain
from setpoint.meta.objects import Obj
from setpoint.meta.patch.errors import PatchRefused, PatchUndecodable
from setpoint.meta.patch.strategic_diff import conflict_text, same


def apply_merge_patch(doc: Any, patch: Any, *, strict: bool = True) -> Any:
    """Return the patched document; `doc` itself if the patch changes nothing.

    `strict` is how the server decodes unless field validation is off; a patch that is no object is refused then, and
    replaces the document (or fails) otherwise.
    """
    if type(patch) is dict:
        return _merge_map(doc, patch) if type(doc) is dict else _without_nulls(patch)
    if strict and patch is not None:
        raise PatchUndecodable(
            f"error decoding patch: json: cannot unmarshal {kind_of(patch)} into Go value of type "
            "map[string]interface {}"
        )
    if type(patch) is not list:
        raise PatchUndecodable("Invalid JSON Patch")
    return _without_nulls(patch)


def _merge_map(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    merged = doc
    for key, value in patch.items():
        if value is None:
            if key in merged:
                if merged is doc:
                    merged = dict(doc)
                del merged[key]
            continue
        current = doc.get(key)
        if type(current) is dict:
            # A list or scalar replaces an object as given, including nulls.
            new = _merge_map(current, value) if type(value) is dict else value
        else:
            new = _without_nulls(value)
            # Lists are not compared: in Python [1] equals [True].
            if type(new) is type(current) and new == current and type(new) is not list:
                continue
        if new is not current:
            if merged is doc:
                merged = dict(doc)
            merged[key] = new
    return merged


def _without_nulls(value: Any) -> Any:
    """Return `value` without the null members of its objects, however deep; null items of lists stay."""
    if type(value) is dict:
        remaining = {key: _without_nulls(member) for key, member in value.items() if member is not None}
        return (
            value
            if len(remaining) == len(value) and all(remaining[key] is value[key] for key in remaining)
            else remaining
        )
    if type(value) is list:
        items = [_without_nulls(item) for item in value]
        return value if all(new is old for new, old in zip(items, value)) else items
    return value


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
    patch = _overlaid(gone, delta)
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


def _overlaid(under: Obj, over: Obj) -> Obj:
    merged = dict(under)
    for key, value in over.items():
        current = merged.get(key)
        merged[key] = _overlaid(current, value) if type(current) is dict and type(value) is dict else value
    return merged


def _conflict(left: Any, right: Any) -> bool:
    if type(left) is dict and type(right) is dict:
        return any(key in right and _conflict(value, right[key]) for key, value in left.items())
    if type(left) is list and type(right) is list:
        return len(left) != len(right) or any(map(_conflict, left, right))
    return not same(left, right)
