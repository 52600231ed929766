"""Patches of all forms, applied to the objects they name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.loading import Loader, objects
from setpoint.cli.kustomize.merging import GONE, merged
from setpoint.cli.kustomize.resource import Obj, Resource, id_of
from setpoint.cli.kustomize.resource_map import ResourceMap, Selector
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.goformat import quote
from setpoint.meta.patch import PatchError, apply_json_patch, decode_json_patch


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
