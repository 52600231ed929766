"""Patches of all forms, applied to the objects they name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.loading import Loader, objects
from setpoint.cli.kustomize.resource import Resource, id_of
from setpoint.cli.kustomize.resource_map import ResourceMap, Selector
from setpoint.client.resources import BY_KIND
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.goformat import plain, quote
from setpoint.meta.objects import Obj
from setpoint.meta.patch import PatchError, apply_json_patch, decode_json_patch
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
    merged: dict[int, Any] = {}
    for item in new:
        at = next((at for at, one in enumerate(kept) if at not in merged and _same(keys, one, item)), None)
        found = _merge(item_type, None, kept[at] if at is not None else GONE, item)
        empty = found is GONE or found == {}
        if at is not None:
            merged[at] = GONE if empty else found
        if not empty and (at is None or len(keys) == 1):
            made.append(found)
    if len(keys) == 1:
        return made + [one for at, one in enumerate(kept) if at not in merged]
    # Items with several merge keys stay in place; only new ones come first.
    return made + [found for at, one in enumerate(kept) if (found := merged.get(at, one)) is not GONE]


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


def patch(resources: ResourceMap, loader: Loader, given: Any) -> None:
    """Apply an entry of `patches` of either form, by its own name or to a target."""
    text, path = str(given.get("patch") or "").strip(), str(given.get("path") or "")
    if not text and not path:
        raise Failed("must specify one of patch and path in\n" + repr(given))
    if text and path:
        raise Failed("patch and path can't be set at the same time\n" + repr(given))
    source = f"[patch: {quote(text)}]" if text else f"[path: {quote(path)}]"
    try:
        data = text.encode("utf-8", "surrogateescape") if text else loader.bytes(path)
    except Failed as error:
        raise Failed(f"failed to get the patch file from path({path}): {error}") from None
    target = Selector.read(given["target"]) if given.get("target") else None
    options = given.get("options") or {}
    operations = _operations(data)
    if operations is None:
        try:
            found = objects(data, source)
        except Failed:
            raise Failed(f"unable to parse SM or JSON patch from {source}") from None
        _merge_all(resources, found, target, source, options)
    elif target is None:
        raise Failed(f"must specify a target for JSON patch {source}")
    else:
        for one in resources.select(target):
            one.remember_id()
            _apply_json(one, operations)


def _merge_all(
    resources: ResourceMap, found: list[Obj], target: Selector | None, source: str, options: dict[str, Any]
) -> None:
    if target is not None:
        if len(found) > 1:
            raise Failed(
                "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: "
                + source
            )
        for one in resources.select(target):
            merge_into(one, {**found[0], "apiVersion": one.obj.get("apiVersion")}, options)
    else:
        for change in found:
            try:
                one = resources.by_id(id_of(change))
            except Failed as error:
                raise Failed(
                    f"no resource matches strategic merge patch {quote(str(id_of(change)))}: {error}"
                ) from None
            merge_into(one, change, options)
    resources.drop_empty()


def merge_into(one: Resource, change: Obj, options: dict[str, Any] | None = None) -> None:
    """Merge a patch into an object; it may change the name or kind only if the options allow it."""
    options = options or {}
    name, kind, namespace = one.name, one.obj.get("kind"), one.namespace
    renamed, other_kind = bool(options.get("allowNameChange")), bool(options.get("allowKindChange"))
    if renamed or other_kind:
        one.remember_id()
    made = merged(one.obj, deepcopy(change))
    if made is GONE:
        one.obj = {}
        return
    one.obj = made
    if not other_kind:
        made["kind"] = kind
    if not renamed:
        one.meta["name"] = name
    one.meta.pop("namespace", None)
    if namespace:
        one.meta["namespace"] = namespace


def patch_strategic(resources: ResourceMap, loader: Loader, given: Any) -> None:
    """Apply an entry of `patchesStrategicMerge`: the patch itself, or its file."""
    text = str(given)
    try:
        found = objects(text.encode("utf-8", "surrogateescape"), "patch")
    except Failed:
        found = objects(loader.bytes(text), text)
    if not found:
        raise Failed(f"patch appears to be empty; files=[{text}], Patch=")
    for change in found:
        merge_into(resources.by_id(id_of(change)), change)
        resources.drop_empty()


def patch_json(resources: ResourceMap, loader: Loader, given: Any) -> None:
    """Apply an entry of `patchesJson6902`."""
    target = (given or {}).get("target") or {}
    if not target.get("name"):
        raise Failed("must specify the target name")
    path, text = str(given.get("path") or ""), str(given.get("patch") or "")
    if not path and not text:
        raise Failed("empty file path and empty jsonOp")
    if path and text:
        raise Failed("must specify a file path or jsonOp, not both")
    operations = _operations(loader.bytes(path) if path else text.encode("utf-8", "surrogateescape"))
    if not operations:
        raise Failed(f"patch appears to be empty; file={path}, JsonOp={text}")
    for one in resources.select(Selector.read(target)):
        _apply_json(one, operations)


def _operations(data: bytes) -> list[Any] | None:
    """Return the operations of a JSON patch; None if the data is not one. Data that begins as JSON must be valid
    JSON."""
    try:
        found, _ = parse_json(data) if data.startswith(b"[") else parse_yaml(data)
    except BodyError:
        return None
    return found if isinstance(found, list) else None


def _apply_json(one: Resource, operations: list[Any]) -> None:
    try:
        one.obj = deepcopy(apply_json_patch(one.obj, decode_json_patch(operations)))
    except PatchError as error:
        raise Failed(error.message) from None
