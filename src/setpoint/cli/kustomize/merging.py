"""Strategic merge patches as kustomize applies them: the patch's items come first in merged lists, in its order."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Failed
from setpoint.client.resources import BY_KIND
from setpoint.meta.goformat import plain
from setpoint.meta.schema import Field, Shape, Type

GONE = object()
"""Marks a deleted value."""
_DIRECTIVE = "$patch"


def merged(obj: dict[str, Any], patch: dict[str, Any]) -> Any:
    """Return the object with the patch applied; GONE if the patch deletes it. The arguments are not changed."""
    known = BY_KIND.get((str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")))
    return _merge(known.type if known else None, None, obj, patch)


def _merge(type_: Type | None, field: Field | None, old: Any, new: Any) -> Any:
    """Merge two values, either of which may be GONE. A null value counts as missing."""
    if new is GONE:
        return old
    if new is None:
        return GONE
    first = new if old is GONE or old is None else old
    if not isinstance(new, type(first)) and (isinstance(first, dict | list) or isinstance(new, dict | list)):
        raise Failed(f"wrong node kind: expected {_kind(first)} but was {_kind(new)}: node contents:\n{plain(new)}\n")
    if isinstance(first, dict):
        return _merge_map(type_, old, new)
    if isinstance(first, list):
        if field is None or "merge" not in field.patch_strategy:
            return new
        return _merge_list(field, old, new)
    return new


def _merge_map(type_: Type | None, old: Any, new: dict[str, Any]) -> Any:
    directive = new.get(_DIRECTIVE)
    if directive is not None:
        if directive == "delete":
            return GONE
        if directive not in ("replace", "merge"):
            raise Failed(f"unknown patch strategy '{directive}'")
        new = {key: value for key, value in new.items() if key != _DIRECTIVE}
        if directive == "replace":
            old = GONE
    before = old if isinstance(old, dict) else {}
    made = dict(before)
    for key, value in new.items():
        field = _field(type_, key)
        found = _merge(field.type if field else _member(type_), field, before.get(key, GONE), value)
        if found is GONE:
            made.pop(key, None)
        else:
            made[key] = found
    return made


def _merge_list(field: Field, old: Any, new: list[Any]) -> Any:
    before: list[Any] = old if isinstance(old, list) else []
    for item in new:
        if isinstance(item, dict) and set(item) == {_DIRECTIVE}:
            rest = [one for one in new if one is not item]
            if item[_DIRECTIVE] == "delete":
                return GONE
            if item[_DIRECTIVE] == "replace":
                return rest
            new = rest
            break
    keys = field.type.list_keys or ((field.merge_key,) if field.merge_key else ())
    if not keys or not any(isinstance(item, dict) for item in (*new, *before)):
        return list({plain(item): item for item in (*new, *before)}.values())
    keys = tuple(key for key in keys if any(isinstance(item, dict) and key in item for item in (*new, *before))) or keys
    item_type = field.type.item
    made: list[Any] = []
    kept: list[Any] = list(before)
    taken: dict[int, Any] = {}
    for item in new:
        at = next((at for at, one in enumerate(kept) if at not in taken and _same(keys, one, item)), None)
        found = _merge(item_type, None, kept[at] if at is not None else GONE, item)
        empty = found is GONE or found == {}
        if at is not None:
            taken[at] = GONE if empty else found
        if not empty and (at is None or len(keys) == 1):
            made.append(found)
    if len(keys) == 1:
        return made + [one for at, one in enumerate(kept) if at not in taken]
    # Items with several merge keys stay in place; only new ones come first.
    return made + [found for at, one in enumerate(kept) if (found := taken.get(at, one)) is not GONE]


def _same(keys: tuple[str, ...], one: Any, other: Any) -> bool:
    """Return whether two items match: a missing merge key is ignored if another one is equal."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    pairs = [(one.get(key), other.get(key)) for key in keys]
    return all(left == right or left is None or right is None for left, right in pairs) and any(
        left == right and left is not None for left, right in pairs
    )


def _field(type_: Type | None, name: str) -> Field | None:
    return type_.fields.get(name) if type_ is not None and type_.shape is Shape.STRUCT else None


def _member(type_: Type | None) -> Type | None:
    return type_.item if type_ is not None and type_.shape is Shape.MAP else None


def _kind(value: Any) -> str:
    return "MappingNode" if isinstance(value, dict) else "SequenceNode" if isinstance(value, list) else "ScalarNode"
