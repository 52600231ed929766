"""DELETE: one object or a collection."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.filters.authorize import Decision, access_of
from setpoint.apiserver.handlers.list import Page, continue_token, is_past, past_page, select
from setpoint.apiserver.negotiate import JSON, PROTOBUF, Form, body_type
from setpoint.apiserver.options import IGNORE_READ_ERRORS, DeleteOptions, ListOptions, delete_options, list_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_list, respond_object, respond_value
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.tables import type_of
from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import BadRequest, Forbidden, Invalid, NotFound
from setpoint.meta.field import invalid
from setpoint.meta.goformat import quote
from setpoint.wire.message import Answer, ObjectRequest

_UNSAFE = "unsafe-delete-ignore-read-errors"
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def read_options(ctx: RequestContext) -> DeleteOptions:
    request = ctx.request
    if isinstance(request, ObjectRequest):
        sent = _typed(request.value, None) if request.value else None
    else:
        sent = _read_body(ctx) if request.body else None
    if sent is not None:
        ctx.record_request_object(sent, "DeleteOptions", "meta.k8s.io/__internal")  # as upstream's audit log shows it
    return delete_options(ctx, sent)


def _read_body(ctx: RequestContext) -> dict[str, Any]:
    """Decode the body as DeleteOptions, which exist in every API group."""
    media_type = body_type(ctx.request.headers.get("content-type", ""))
    as_json = media_type == JSON
    try:
        if media_type == PROTOBUF:
            # Imported with the first such body: most servers never get one.
            from setpoint.apiserver.protobuf_bodies import read_protobuf_delete_options

            value = read_protobuf_delete_options(ctx.request.body)
        else:
            value, _ = parse_json(ctx.request.body) if as_json else parse_yaml(ctx.request.body)
    except BodyError as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}" if as_json else str(error)) from None
    return _typed(value, ctx.request.body if as_json else None)


def _typed(value: Any, raw: bytes | None) -> dict[str, Any]:
    try:
        api_version, kind = type_meta(value)
    except DecodeError as error:
        why = f"couldn't get version/kind; json parse error: {error}" if raw is not None else str(error)
        raise BadRequest(why) from None
    if api_version.count("/") > 1:
        raise BadRequest(f"unexpected GroupVersion string: {api_version}")
    if kind not in ("", "DeleteOptions"):
        raise BadRequest(
            f'no kind "{kind}" is registered for version "{api_version or "meta.k8s.io/v1"}" '
            'in scheme "pkg/apis/meta/internalversion/scheme/register.go:27"'
        )
    try:
        options: dict[str, Any] = decode(type_of(_OPTIONS), value or {}, strict=None, raw=raw)
    except DecodeError as error:
        raise BadRequest(str(error)) from None
    return options


def _warn(ctx: RequestContext, registry: Registry, options: DeleteOptions) -> None:
    for text in registry.strategy.warnings_on_delete(options.propagation is not None or options.orphan is not None):
        ctx.warn(text)


async def delete(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    options = await ctx.compute(read_options, ctx)
    if options.ignore_read_errors:
        return await _delete_unread(ctx, registry, form)
    _warn(ctx, registry, options)
    if why := registry.strategy.undeletable(ctx.target.name):
        raise Forbidden.of(registry.resource.group, registry.resource.plural, ctx.target.name, why)
    return await respond_deleted(ctx, form, registry, *await WritePath(ctx, registry).delete(ctx.target.name, options))


async def respond_deleted(ctx: RequestContext, form: Form, registry: Registry, entry: Entry, removed: bool) -> Answer:
    """Return the response to a deletion: the object if it still exists or its kind says so, else a Status."""
    if not removed or registry.strategy.returns_deleted:
        return await respond_object(ctx, form, registry, entry)
    return success(ctx, form, registry, entry)


async def _delete_unread(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    if ctx.audit is not None:
        ctx.audit.annotations["apiserver.k8s.io/unsafe-delete-ignore-read-error"] = ""
    name = ctx.target.name
    decision, reason = await registry.env.authorizer.decide(access_of(ctx)._replace(verb=_UNSAFE))
    if decision is not Decision.ALLOW:
        why = f"not permitted to do {quote(_UNSAFE)}, reason: {reason}"
        raise Forbidden.of(registry.resource.group, registry.resource.plural, name, why)
    await WritePath(ctx, registry).delete_corrupt(name)
    details = {"name": name, "kind": registry.resource.kind}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
        "code": 200,
    }
    return respond_value(ctx, Form(form.media_type if not form.transform else JSON, pretty=form.pretty), status)


def success(ctx: RequestContext, form: Form, registry: Registry, entry: Entry) -> Answer:
    meta, resource = entry.obj["metadata"], registry.resource
    details: dict[str, Any] = {"name": meta["name"]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": meta["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond_value(ctx, Form(form.media_type if not form.transform else JSON, pretty=form.pretty), status)


async def delete_collection(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    """Delete each matching object like a single one; the response lists their previous states."""
    options = await ctx.compute(read_options, ctx)
    if options.ignore_read_errors:
        text = "is not allowed with DELETECOLLECTION, try again after removing the option"
        raise Invalid.of("meta.k8s.io", "DeleteOptions", "", [invalid(IGNORE_READ_ERRORS, True, text)])
    _warn(ctx, registry, options)
    wanted = await ctx.compute(list_options, ctx, False, registry)
    is_past_revision = is_past(wanted) or (wanted.revision and not wanted.match)
    page = await (past_page if is_past_revision else _current_page)(ctx, registry, wanted)
    for entry in page.entries:
        try:
            await WritePath(ctx, registry).delete(entry.obj["metadata"]["name"], options, one_of_many=True)
        except NotFound:
            continue
    ctx.size = sum(entry.size for entry in page.entries)
    ctx.hold(page.entries)
    return await respond_list(ctx, form, registry, *page)


async def _current_page(ctx: RequestContext, registry: Registry, wanted: ListOptions) -> Page:
    revision = registry.cache.fresh_revision
    if registry.encoding.remote:
        await registry.encoding.ready(registry.cache.scan(ctx.target.namespace))
    entries, _ = await select(ctx, registry, wanted, registry.cache.scan(ctx.target.namespace))
    if not wanted.limit or len(entries) <= wanted.limit:
        return Page(entries, revision)
    remaining = len(entries) - wanted.limit if wanted.labels.empty and wanted.fields.empty else None
    entries = entries[: wanted.limit]
    return Page(entries, revision, continue_token(ctx, registry, entries, revision), remaining)
