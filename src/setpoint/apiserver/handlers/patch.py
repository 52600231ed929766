"""PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from setpoint.apiserver.bodies import (
    check_name,
    detect_cleared_managed_fields,
    kind_problem,
    report_strict,
    wrong_kind,
)
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import apply_config, own, with_conversions
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.catalog import Resource
from setpoint.meta.apply import check_request
from setpoint.meta.body import BodyError, parse_json, parse_yaml, plain_numbers, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import ApiError, BadRequest, Invalid, UnsupportedMediaType
from setpoint.meta.field import invalid
from setpoint.meta.goformat import kind_of
from setpoint.meta.objects import Obj
from setpoint.meta.patch import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic,
    decode_json_patch,
    unknown_operation_fields,
)
from setpoint.meta.patch.errors import reflection_error
from setpoint.meta.schema import Shape, Type, has_free_parts
from setpoint.wire.message import Answer, ObjectRequest


def patched_text(type_: Type, patched: Any, live: Any) -> str:
    """Return the document as JSON. `patched` shares unchanged parts with `live`."""
    if not type_.go:  # custom objects have no order of their own
        return orjson.dumps(patched, option=orjson.OPT_SORT_KEYS).decode()
    return orjson.dumps(arranged(type_, patched, live)).decode()


def arranged(type_: Type | None, value: Any, live: Any) -> Any:
    if value is live:
        return _in_order(type_, value)
    if isinstance(value, dict):
        known = live if isinstance(live, dict) else {}
        return {key: arranged(_child(type_, key), value[key], known.get(key)) for key in sorted(value)}
    if isinstance(value, list):
        known_items = live if isinstance(live, list) else []
        item = type_.item if type_ is not None else None
        return [arranged(item, each, known_items[i] if i < len(known_items) else None) for i, each in enumerate(value)]
    return value


def _in_order(type_: Type | None, value: Any) -> Any:
    """Return the value with its fields in the order of their declaration."""
    if type_ is None:
        return value
    if isinstance(value, dict) and type_.shape is Shape.STRUCT:
        known = {name: _in_order(field.type, value[name]) for name, field in type_.fields.items() if name in value}
        return known | {key: item for key, item in value.items() if key not in known}
    if isinstance(value, dict) and type_.shape is Shape.MAP:
        return {key: _in_order(type_.item, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_order(type_.item, item) for item in value]
    return value


def _child(type_: Type | None, key: str) -> Type | None:
    if type_ is None:
        return None
    if type_.shape is Shape.STRUCT:
        field = type_.fields.get(key)
        return field.type if field is not None else None
    return type_.item


JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

Patcher = Callable[[Obj], Obj]
"""Maps the live object with kind and apiVersion to the patched one, typed, without kind and apiVersion. Nothing is
changed in place."""


def patch_type(ctx: RequestContext, registry: Registry) -> str:
    media_type = ctx.request.headers.get("content-type", "").split(";", 1)[0].strip()
    if media_type not in (JSON_PATCH, MERGE_PATCH, APPLY) and not (
        media_type == STRATEGIC and registry.encoding.strategic
    ):
        if registry.encoding.strategic:
            raise UnsupportedMediaType("415: Unsupported Media Type", details={})
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY}"
        )
    return media_type


async def patch(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    media_type = patch_type(ctx, registry)
    force = write_options(ctx, "PatchOptions", apply=media_type == APPLY, patch=True)
    if media_type == APPLY:
        return await _apply(ctx, registry, form, force)
    patcher = await ctx.compute(patcher_for, ctx, registry.resource, media_type)
    encoding, strategy = registry.encoding, registry.strategy
    # A write of a subresource does not change the rest of the object, which has its defaults.
    set_defaults = strategy.subresources.get(ctx.target.subresource, strategy).default

    def patched(live: Obj) -> Obj:
        versioned = encoding.versioned(live)
        full = {"kind": registry.resource.kind, "apiVersion": registry.resource.api_version, **versioned}
        obj = patcher(full)
        set_defaults(obj)
        strategy.stamp(obj, ctx.now)
        check_name(ctx, obj)
        own(ctx, registry, versioned, obj)
        return encoding.to_storage(obj)

    async def change_by_patch(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(ctx.target.name)
        return await with_conversions(ctx, registry, lambda: ctx.compute(patched, live))

    entry, _ = await WritePath(ctx, registry).update(ctx.target.name, change_by_patch, check_uid=False)
    return await respond_object(ctx, form, registry, entry)


def patcher_for(ctx: RequestContext, resource: Resource, media_type: str) -> Patcher:
    """Parse the patch once; the result may be called several times."""
    request = ctx.request
    if isinstance(request, ObjectRequest):
        if ctx.audit is not None:
            ctx.audit.set_patch(request.value)
        quick = _patcher(ctx, resource, media_type, request.value, [])

        def patcher(full: Obj) -> Obj:
            try:
                return quick(full)
            except ApiError:
                # It may contain tuples or other values that JSON turns into the right types: parse its JSON text.
                return _patcher(ctx, resource, media_type, *parse_json(request.body))(full)

        return patcher
    try:
        value, duplicates = parse_json(request.body)
    except BodyError:
        raise BadRequest("invalid JSON patch") from None
    if ctx.audit is not None:
        ctx.audit.set_patch(value)
    if has_free_parts(resource.type):
        value = plain_numbers(request.body, value)
    return _patcher(ctx, resource, media_type, value, duplicates)


def _patcher(ctx: RequestContext, resource: Resource, media_type: str, value: Any, duplicates: list[str]) -> Patcher:
    strict = ctx.option("fieldValidation") != "Ignore"

    def guarded(run: Patcher) -> Patcher:
        def patcher(full: Obj) -> Obj:
            try:
                return run(full)
            except PatchError as error:
                raise error.to_api() from None

        return patcher

    if media_type == JSON_PATCH:
        try:
            operations = decode_json_patch(value, strict=strict)
        except PatchError as error:
            failure = error.to_api()

            def refuse(_: Obj) -> Obj:
                raise failure

            return refuse
        extra = unknown_operation_fields(operations)

        def by_json_patch(full: Obj) -> Obj:
            return _finish(ctx, resource, apply_json_patch(full, operations), full, extra)

        return guarded(by_json_patch)
    if media_type == MERGE_PATCH:

        def by_merge(full: Obj) -> Obj:
            return _finish(ctx, resource, apply_merge_patch(full, value, strict=strict), full, duplicates)

        return guarded(by_merge)

    def by_strategy(full: Obj) -> Obj:
        if not isinstance(value, dict) and value is not None:
            raise BadRequest(f"json: cannot unmarshal {kind_of(value)} into Go value of type map[string]interface {{}}")
        patched = apply_strategic(resource.type, full, value or {})
        return _finish_strategic(ctx, resource, patched, full, value or {}, duplicates)

    return guarded(by_strategy)


def _refuse(shown: str, why: str) -> Invalid:
    return Invalid.of("", "", "", [invalid("patch", shown, why)])


def _decode_changed(resource: Resource, patched: Obj, full: Obj, unknown: list[str] | None) -> Obj:
    """Decode what the patch changed. The other fields are identical (`is`) to those of the stored object, which is
    decoded already."""
    if resource.is_custom:
        # An object that was converted from another version does not have the defaults of this one yet.
        whole: Obj = decode(resource.type, patched, strict=unknown)
        return whole
    changed = {key: value for key, value in patched.items() if value is not full.get(key)}
    obj: Obj = decode(resource.type, changed, strict=unknown)
    for key, value in patched.items():
        if key not in changed:
            obj[key] = dict(value) if key == "metadata" else value
    return obj


def _finish(ctx: RequestContext, resource: Resource, patched: Any, full: Obj, found: list[str]) -> Obj:
    """Return the result of a JSON or merge patch as an object of the kind; wrong types and unknown fields are errors of
    the patch."""

    def shown() -> str:
        return patched_text(resource.type, patched, full)

    try:
        given_version, given_kind = type_meta(patched)
    except DecodeError as error:
        raise _refuse(shown(), f"couldn't get version/kind; json parse error: {error}") from None
    if resource.is_custom and (given_version, given_kind) != (resource.api_version, resource.kind):
        raise wrong_kind(patched, given_version, given_kind, resource.api_version, resource.kind)
    problem = kind_problem(resource, given_version or resource.api_version, given_kind or resource.kind)
    if problem:
        raise _refuse(shown(), problem)
    unknown: list[str] = []
    validation = ctx.option("fieldValidation") or "Warn"
    try:
        obj = _decode_changed(resource, patched, full, unknown if validation != "Ignore" else None)
    except DecodeError as error:
        raise _refuse(shown(), str(error)) from None
    if unknown:
        # Reported in the order of the encoded document.
        unknown = []
        decode(resource.type, arranged(resource.type, patched, full), strict=unknown)
    _report(ctx, found + unknown, shown)
    detect_cleared_managed_fields(ctx, patched)
    return _bare(obj)


def _finish_strategic(
    ctx: RequestContext, resource: Resource, patched: Obj, full: Obj, patch_map: Obj, found: list[str]
) -> Obj:
    unknown: list[str] = []
    validation = ctx.option("fieldValidation") or "Warn"
    try:
        obj = _decode_changed(resource, patched, full, unknown if validation != "Ignore" else None)
    except DecodeError as error:
        raise _refuse(go_map(patch_map), reflection_error(resource.type, patched) or str(error)) from None
    _report(ctx, found + unknown, lambda: go_map(patch_map))
    detect_cleared_managed_fields(ctx, patched)
    return _bare(obj)


def _report(ctx: RequestContext, found: list[str], shown: Callable[[], str]) -> None:
    if found and ctx.option("fieldValidation") == "Strict":
        raise _refuse(shown(), f"strict decoding error: {', '.join(found)}")
    report_strict(ctx, found, "")


def _bare(obj: Obj) -> Obj:
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def go_map(value: Any) -> str:
    """Format a value like Go's fmt.Print."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_map(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read_applied(ctx: RequestContext, resource: Resource) -> tuple[Obj, list[str]]:
    """Return the body of a server-side apply, and its duplicate fields. Raises BadRequest."""
    try:
        config, duplicates = parse_yaml(ctx.request.body)
    except BodyError as error:
        raise BadRequest(f"error encoding patch: {error}") from None
    if ctx.audit is not None:
        ctx.audit.set_patch(config)
    config = (
        {} if config is None else plain_numbers(ctx.request.body, config) if has_free_parts(resource.type) else config
    )
    if not isinstance(config, dict):
        raise BadRequest(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{kind_of(config)} into Go value of type map[string]interface {{}}"
        )
    check_request(config, resource.api_version, resource.kind)
    if config.get("metadata") is None:
        config["metadata"] = {}
    return config, duplicates


def report_duplicates(ctx: RequestContext, duplicates: list[str]) -> None:
    """Report duplicate keys of an apply as an error, a warning, or not at all, as `fieldValidation` says."""
    validation = ctx.option("fieldValidation") or "Warn"
    if not duplicates or validation == "Ignore":
        return
    text = f"error converting YAML to JSON: {duplicates[0]}"
    if validation == "Strict":
        raise BadRequest(f"error strict decoding patch: {text}")
    ctx.warn(text)


async def _apply(ctx: RequestContext, registry: Registry, form: Form, force: bool) -> Answer:
    """Server-side apply: merge the configuration of the field manager into the live object."""
    resource, encoding = registry.resource, registry.encoding
    config, duplicates = await ctx.compute(read_applied, ctx, resource)
    ctx.hold(config)

    def applied(live: Obj | None) -> Obj:
        obj = apply_config(ctx, registry, encoding.versioned(live) if live is not None else None, config, force)
        check_name(ctx, obj)
        report_duplicates(ctx, duplicates)
        return encoding.to_storage(obj)

    async def change(live: Obj | None) -> Obj:
        return await with_conversions(ctx, registry, lambda: ctx.compute(applied, live), required=True)

    entry, created = await WritePath(ctx, registry).update(
        ctx.target.name, change, create=not ctx.target.subresource, check_uid=False
    )
    return await respond_object(ctx, form, registry, entry, 201 if created else 200)
