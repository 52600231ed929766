"""PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from setpoint.apiserver.bodies import report_strict
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.update import check_name, strategy_for
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import own, reset_fields
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta import apply
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import ApiError, BadRequest, Conflict, Invalid, PlainServerError, UnsupportedMediaType
from setpoint.meta.field import invalid
from setpoint.meta.patch import (
    PatchError, apply_json_patch, apply_merge_patch, apply_strategic, decode_json_patch, unknown_operation_fields,
)  # fmt: skip
from setpoint.meta.times import format_time

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

Patcher = Callable[[Obj], Obj]
"""From the live object with kind and apiVersion to the patched one. Changes nothing in place."""


async def patch(call: Call, registry: Registry, form: Form) -> Answer:
    media_type = call.request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    offered = (JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY) if registry.encoding.strategic else (JSON_PATCH, MERGE_PATCH, APPLY)
    if media_type not in offered:
        raise UnsupportedMediaType("415: Unsupported Media Type", details={})
    force = write_options(call, "PatchOptions", apply=media_type == APPLY, patch=True)
    strategy = strategy_for(call, registry)
    if media_type == APPLY:
        change = _apply(call, registry, force)
        entry, created = await registry.update(
            call, call.target.name, change, strategy=strategy, create=not call.target.subresource
        )
        return respond_object(call, form, registry, entry, 201 if created else 200)
    patcher = patcher_for(call, registry, media_type)
    encoding, type_ = registry.encoding, registry.resource.type

    async def change_by_patch(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(call.target.name)
        versioned = encoding.versioned(live)
        full = {"kind": registry.resource.kind, "apiVersion": registry.resource.api_version, **versioned}
        patched = patcher(full)
        obj = decode_patched(call, patched, type_, media_type)
        registry.strategy.default(obj)
        own(call, registry, versioned, obj)
        return encoding.to_storage(obj)

    entry, _ = await registry.update(call, call.target.name, change_by_patch, strategy=strategy)
    return respond_object(call, form, registry, entry)


def patcher_for(call: Call, registry: Registry, media_type: str) -> Patcher:
    """The patch, read once; it may be applied several times."""
    data = call.request.body
    strict = call.option("fieldValidation") != "Ignore"

    def guarded(run: Patcher) -> Patcher:
        def patcher(full: Obj) -> Obj:
            try:
                return run(full)
            except PatchError as error:
                raise error.to_api() from None

        return patcher

    try:
        if media_type == JSON_PATCH:
            operations = decode_json_patch(data, strict=strict)
            extra = [f"json patch {text}" for text in unknown_operation_fields(operations)] if strict else []

            def by_json_patch(full: Obj) -> Obj:
                patched: Obj = apply_json_patch(full, operations)
                _report_patch(call, extra, patched)
                return patched

            return guarded(by_json_patch)
        try:
            value, duplicates = parse_json(data)
        except BodyError as error:
            raise BadRequest(f"error decoding patch: {error}") from None
    except PatchError as error:
        raise error.to_api() from None
    if media_type == MERGE_PATCH:

        def by_merge(full: Obj) -> Obj:
            patched: Obj = apply_merge_patch(full, value, strict=strict)
            _report_patch(call, duplicates, patched)
            return patched

        return guarded(by_merge)
    if not isinstance(value, dict) and value is not None:
        shape = "array" if isinstance(value, list) else "string" if isinstance(value, str) else "number"
        raise BadRequest(
            f"error decoding patch: json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
        )

    def by_strategy(full: Obj) -> Obj:
        _report_patch(call, duplicates, None)
        return apply_strategic(registry.resource.type, full, value or {})

    return guarded(by_strategy)


def _report_patch(call: Call, found: list[str], patched: Any) -> None:
    if not found:
        return
    if call.option("fieldValidation") == "Strict":
        shown = orjson.dumps(patched, option=orjson.OPT_SORT_KEYS).decode()
        raise Invalid.of("", "", "", [invalid("patch", shown, f"strict decoding error: {', '.join(found)}")])
    report_strict(call, found, "")


def decode_patched(call: Call, patched: Any, type_: Any, media_type: str) -> Obj:
    """A patched object must still be one: wrong types and unknown fields are the patch's fault."""
    unknown: list[str] = []
    validation = call.option("fieldValidation") or "Warn"
    try:
        if not isinstance(patched, dict):
            raise DecodeError("json: cannot unmarshal into object")
        obj: Obj = decode(type_, patched, strict=unknown if validation != "Ignore" else None)
    except DecodeError as error:
        raise Invalid.of("", "", "", [invalid("patch", shown(patched, media_type), str(error))]) from None
    if unknown and validation == "Strict":
        text = f"strict decoding error: {', '.join(unknown)}"
        raise Invalid.of("", "", "", [invalid("patch", shown(patched, media_type), text)])
    if unknown:
        report_strict(call, unknown, "")
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def shown(patched: Any, media_type: str) -> str:
    """The patched document as upstream prints it: JSON with its top level sorted; a strategic one as Go prints maps."""
    if media_type == STRATEGIC:
        return go_map(patched)
    ordered = dict(sorted(patched.items())) if isinstance(patched, dict) else patched
    return orjson.dumps(ordered).decode()


def go_map(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_map(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _apply(call: Call, registry: Registry, force: bool) -> Any:
    """Server-side apply: the manager's wish is merged into what is there."""
    try:
        config, duplicates = parse_yaml(call.request.body)
    except BodyError as error:
        raise BadRequest(f"error decoding patch: {error}") from None
    resource = registry.resource
    if config is None:
        config = {}
    if not isinstance(config, dict):
        shape = "array" if isinstance(config, list) else "string"
        raise BadRequest(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{shape} into Go value of type map[string]interface {{}}"
        )
    _check_applied(call, registry, config)
    type_, encoding = resource.type, registry.encoding

    async def change(live: Obj | None) -> Obj:
        versioned = encoding.versioned(live) if live is not None else None
        given = (config.get("metadata") or {}).get("resourceVersion")
        if live is not None and given and given != live["metadata"]["resourceVersion"]:
            raise Conflict.modified(resource.group, resource.plural, call.target.name)
        try:
            merged = apply.apply(
                type_,
                versioned,
                config,
                manager=call.field_manager,
                force=force,
                api_version=resource.api_version,
                kind=resource.kind,
                subresource=call.target.subresource,
                now=format_time(call.now),
                reset=reset_fields(registry, call.target.subresource),
            )
        except apply.TypeMismatch as error:
            raise PlainServerError(str(error)) from None
        report_strict(call, duplicates, "error ")
        obj: Obj = decode(type_, merged, strict=None)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        registry.strategy.default(obj)
        if resource.namespaced and not obj["metadata"].get("namespace"):
            obj["metadata"]["namespace"] = call.target.namespace
        return encoding.to_storage(obj)

    return change


def _check_applied(call: Call, registry: Registry, config: Obj) -> None:
    resource = registry.resource
    api_version, kind = config.get("apiVersion") or "", config.get("kind") or ""
    if not kind or not api_version or kind != resource.kind:
        group, _, version = str(api_version).rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{version}, Kind={kind}")
    if api_version != resource.api_version:
        raise BadRequest(
            f"Incorrect version specified in apply patch. Specified patch version: {api_version}, "
            f"expected: {resource.api_version}"
        )
    meta = config.get("metadata")
    if meta is None:
        config = {**config, "metadata": {}}
    elif not isinstance(meta, dict):
        raise ApiError("metadata is not an object", code=500)
    if isinstance(meta, dict) and meta.get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    check_name(call, config)
