"""JSON Merge Patch (RFC 7386), with the reference's one deviation: nulls inside lists of new values are dropped too."""

from __future__ import annotations

from typing import Any

from setpoint.meta.goformat import kind_of
from setpoint.meta.patch.errors import PatchUndecodable


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
            # Lists are not compared: Python's equality would take [1] for [true].
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
        kept = {key: _without_nulls(member) for key, member in value.items() if member is not None}
        return value if len(kept) == len(value) and all(kept[key] is value[key] for key in kept) else kept
    if type(value) is list:
        items = [_without_nulls(item) for item in value]
        return value if all(new is old for new, old in zip(items, value)) else items
    return value
