"""PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.apiserver.bodies import kind_problem, note_cleared_ownership, report_strict, wrong_kind
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.update import check_name, strategy_for
from setpoint.apiserver.http.message import Answer, ObjectRequest
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import apply_config, own, seeing_versions
from setpoint.apiserver.patched_text import arranged, patched_text
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Strategy
from setpoint.meta.apply import check_request
from setpoint.meta.body import BodyError, parse_json, parse_yaml, plain_numbers, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import ApiError, BadRequest, Invalid, UnsupportedMediaType
from setpoint.meta.field import invalid
from setpoint.meta.free_form import has_free_parts
from setpoint.meta.goformat import kind_of
from setpoint.meta.patch import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic,
    decode_json_patch,
    unknown_operation_fields,
)  # fmt: skip
from setpoint.meta.reflection_error import reflection_error

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

Patcher = Callable[[Obj], Obj]
"""From the live object with kind and apiVersion to the patched one, typed and bare. Changes nothing in place."""


def patch_type(call: Call, registry: Registry) -> str:
    media_type = call.request.headers.get("content-type", "").split(";", 1)[0].strip()
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


async def patch(call: Call, registry: Registry, form: Form) -> Answer:
    media_type = patch_type(call, registry)
    force = write_options(call, "PatchOptions", apply=media_type == APPLY, patch=True)
    strategy = strategy_for(call, registry)
    if media_type == APPLY:
        return await _apply(call, registry, form, strategy, force)
    patcher = await call.work(patcher_for, call, registry.resource, media_type)
    encoding = registry.encoding

    def patched(live: Obj) -> Obj:
        versioned = encoding.versioned(live)
        full = {"kind": registry.resource.kind, "apiVersion": registry.resource.api_version, **versioned}
        obj = patcher(full)
        registry.strategy.default(obj)
        registry.strategy.stamp(obj, call.now)
        check_name(call, obj)
        own(call, registry, versioned, obj)
        return encoding.to_storage(obj)

    async def change_by_patch(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(call.target.name)
        return await seeing_versions(call, registry, lambda: call.work(patched, live))

    entry, _ = await registry.update(call, call.target.name, change_by_patch, strategy=strategy, check_uid=False)
    return await respond_object(call, form, registry, entry)


def patcher_for(call: Call, resource: Resource, media_type: str) -> Patcher:
    """The patch, read once; it may be applied several times."""
    request = call.request
    if isinstance(request, ObjectRequest):
        if call.audit is not None:
            call.audit.patched(request.value)
        quick = _patcher(call, resource, media_type, request.value, [])

        def patcher(full: Obj) -> Obj:
            try:
                return quick(full)
            except ApiError:
                # Perhaps it is only Python's way to say it, tuples for lists and the like: as the wire would see it.
                return _patcher(call, resource, media_type, *parse_json(request.body))(full)

        return patcher
    try:
        value, duplicates = parse_json(request.body)
    except BodyError:
        raise BadRequest("invalid JSON patch") from None
    if call.audit is not None:
        call.audit.patched(value)
    if has_free_parts(resource.type):
        value = plain_numbers(request.body, value)
    return _patcher(call, resource, media_type, value, duplicates)


def _patcher(call: Call, resource: Resource, media_type: str, value: Any, duplicates: list[str]) -> Patcher:
    strict = call.option("fieldValidation") != "Ignore"

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
            return _finish(call, resource, apply_json_patch(full, operations), full, extra)

        return guarded(by_json_patch)
    if media_type == MERGE_PATCH:

        def by_merge(full: Obj) -> Obj:
            return _finish(call, resource, apply_merge_patch(full, value, strict=strict), full, duplicates)

        return guarded(by_merge)

    def by_strategy(full: Obj) -> Obj:
        if not isinstance(value, dict) and value is not None:
            raise BadRequest(f"json: cannot unmarshal {kind_of(value)} into Go value of type map[string]interface {{}}")
        patched = apply_strategic(resource.type, full, value or {})
        return _finish_strategic(call, resource, patched, full, value or {}, duplicates)

    return guarded(by_strategy)


def _refuse(shown: str, why: str) -> Invalid:
    return Invalid.of("", "", "", [invalid("patch", shown, why)])


def _decode_changed(resource: Resource, patched: Obj, full: Obj, unknown: list[str] | None) -> Obj:
    """`patched` typed, decoding only what the patch touched: the rest is shared with the stored object, which is in its
    final form already, and `is` tells it apart."""
    if resource.is_custom:
        # What was converted from another version has not got the defaults of this one yet.
        whole: Obj = decode(resource.type, patched, strict=unknown)
        return whole
    changed = {key: value for key, value in patched.items() if value is not full.get(key)}
    obj: Obj = decode(resource.type, changed, strict=unknown)
    for key, value in patched.items():
        if key not in changed:
            obj[key] = dict(value) if key == "metadata" else value
    return obj


def _finish(call: Call, resource: Resource, patched: Any, full: Obj, found: list[str]) -> Obj:
    """A patched document must still be an object of its kind: wrong types and unknown fields are the patch's fault."""

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
    validation = call.option("fieldValidation") or "Warn"
    try:
        obj = _decode_changed(resource, patched, full, unknown if validation != "Ignore" else None)
    except DecodeError as error:
        raise _refuse(shown(), str(error)) from None
    if unknown:
        # Told in the order of the document as it would be written.
        unknown = []
        decode(resource.type, arranged(resource.type, patched, full), strict=unknown)
    _report(call, found + unknown, shown)
    note_cleared_ownership(call, patched)
    return _bare(obj)


def _finish_strategic(call: Call, resource: Resource, patched: Obj, full: Obj, patch_map: Obj, found: list[str]) -> Obj:
    unknown: list[str] = []
    validation = call.option("fieldValidation") or "Warn"
    try:
        obj = _decode_changed(resource, patched, full, unknown if validation != "Ignore" else None)
    except DecodeError as error:
        raise _refuse(go_map(patch_map), reflection_error(resource.type, patched) or str(error)) from None
    _report(call, found + unknown, lambda: go_map(patch_map))
    note_cleared_ownership(call, patched)
    return _bare(obj)


def _report(call: Call, found: list[str], shown: Callable[[], str]) -> None:
    if found and call.option("fieldValidation") == "Strict":
        raise _refuse(shown(), f"strict decoding error: {', '.join(found)}")
    report_strict(call, found, "")


def _bare(obj: Obj) -> Obj:
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def go_map(value: Any) -> str:
    """As Go prints a map."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_map(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read_applied(call: Call, resource: Resource) -> tuple[Obj, list[str]]:
    """The body of an apply: an object of its kind, in form; and the duplicate fields in it."""
    try:
        config, duplicates = parse_yaml(call.request.body)
    except BodyError as error:
        raise BadRequest(f"error encoding patch: {error}") from None
    if call.audit is not None:
        call.audit.patched(config)
    config = (
        {} if config is None else plain_numbers(call.request.body, config) if has_free_parts(resource.type) else config
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


def report_applied_twice(call: Call, duplicates: list[str]) -> None:
    """Duplicate keys of an apply: an error, a warning, or nothing, as the client asked."""
    validation = call.option("fieldValidation") or "Warn"
    if not duplicates or validation == "Ignore":
        return
    text = f"error converting YAML to JSON: {duplicates[0]}"
    if validation == "Strict":
        raise BadRequest(f"error strict decoding patch: {text}")
    call.warn(text)


async def _apply(call: Call, registry: Registry, form: Form, strategy: Strategy, force: bool) -> Answer:
    """Server-side apply: the manager's wish is merged into what is there."""
    resource, encoding = registry.resource, registry.encoding
    config, duplicates = await call.work(read_applied, call, resource)

    def applied(live: Obj | None) -> Obj:
        obj = apply_config(call, registry, encoding.versioned(live) if live is not None else None, config, force)
        check_name(call, obj)
        report_applied_twice(call, duplicates)
        return encoding.to_storage(obj)

    async def change(live: Obj | None) -> Obj:
        return await seeing_versions(call, registry, lambda: call.work(applied, live), required=True)

    entry, created = await registry.update(
        call, call.target.name, change, strategy=strategy, create=not call.target.subresource, check_uid=False
    )
    return await respond_object(call, form, registry, entry, 201 if created else 200)
