"""DELETE of one object or of a collection."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver import deletion
from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Decision, access_of
from setpoint.apiserver.handlers.list import Page, continue_token, is_past, past_page, select
from setpoint.apiserver.http.message import Answer, ObjectRequest
from setpoint.apiserver.negotiate import JSON, PROTOBUF, Form, body_type
from setpoint.apiserver.options import UNREAD, DeleteOptions, ListOptions, delete_options, list_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_list, respond_object, respond_value
from setpoint.apiserver.watch_cache import Entry
from setpoint.kinds.tables import type_of
from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import BadRequest, Forbidden, Invalid, NotFound
from setpoint.meta.field import invalid
from setpoint.meta.goformat import quote

_UNSAFE = "unsafe-delete-ignore-read-errors"
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def read_options(call: Call) -> DeleteOptions:
    request = call.request
    if isinstance(request, ObjectRequest):
        sent = _typed(request.value, None) if request.value else None
    else:
        sent = _read_body(call) if request.body else None
    if sent is not None:
        call.sent(sent, "DeleteOptions", "meta.k8s.io/__internal")  # which is how upstream has it there
    return delete_options(call, sent)


def _read_body(call: Call) -> dict[str, Any]:
    """The body as DeleteOptions, which are registered in every group: any may be named."""
    media_type = body_type(call.request.headers.get("content-type", ""))
    as_json = media_type == JSON
    try:
        if media_type == PROTOBUF:
            # Loaded with the first such body: most servers never see one.
            from setpoint.apiserver.protobuf_bodies import read_protobuf_delete_options

            value = read_protobuf_delete_options(call.request.body)
        else:
            value, _ = parse_json(call.request.body) if as_json else parse_yaml(call.request.body)
    except BodyError as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}" if as_json else str(error)) from None
    return _typed(value, call.request.body if as_json else None)


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


def _warn(call: Call, registry: Registry, options: DeleteOptions) -> None:
    for text in registry.strategy.warnings_on_delete(options.propagation is not None or options.orphan is not None):
        call.warn(text)


async def delete(call: Call, registry: Registry, form: Form) -> Answer:
    options = await call.work(read_options, call)
    if options.unread:
        return await _delete_unread(call, registry, form)
    _warn(call, registry, options)
    if why := registry.strategy.undeletable(call.target.name):
        raise Forbidden.of(registry.resource.group, registry.resource.plural, call.target.name, why)
    entry, gone = await deletion.delete(call, registry, call.target.name, options)
    if not gone or registry.strategy.returns_deleted:
        return await respond_object(call, form, registry, entry)
    return success(call, form, registry, entry)


async def _delete_unread(call: Call, registry: Registry, form: Form) -> Answer:
    if call.audit is not None:
        call.audit.annotations["apiserver.k8s.io/unsafe-delete-ignore-read-error"] = ""
    name = call.target.name
    decision, reason = await registry.env.authorizer.decide(access_of(call)._replace(verb=_UNSAFE))
    if decision is not Decision.ALLOW:
        why = f"not permitted to do {quote(_UNSAFE)}, reason: {reason}"
        raise Forbidden.of(registry.resource.group, registry.resource.plural, name, why)
    await deletion.delete_unread(call, registry, name)
    details = {"name": name, "kind": registry.resource.kind}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
        "code": 200,
    }
    return respond_value(call, Form(form.media_type if not form.transform else JSON, pretty=form.pretty), status)


def success(call: Call, form: Form, registry: Registry, entry: Entry) -> Answer:
    meta, resource = entry.obj["metadata"], registry.resource
    details: dict[str, Any] = {"name": meta["name"]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": meta["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond_value(call, Form(form.media_type if not form.transform else JSON, pretty=form.pretty), status)


async def delete_collection(call: Call, registry: Registry, form: Form) -> Answer:
    """Each matching object as if deleted alone; the answer lists them as they were before."""
    options = await call.work(read_options, call)
    if options.unread:
        text = "is not allowed with DELETECOLLECTION, try again after removing the option"
        raise Invalid.of("meta.k8s.io", "DeleteOptions", "", [invalid(UNREAD, True, text)])
    _warn(call, registry, options)
    wanted = await call.work(list_options, call, False, registry)
    of_the_past = is_past(wanted) or (wanted.revision and not wanted.match)
    page = await (past_page if of_the_past else _present_page)(call, registry, wanted)
    for entry in page.entries:
        try:
            await deletion.delete(call, registry, entry.obj["metadata"]["name"], options, one_of_many=True)
        except NotFound:
            continue
    return await respond_list(call, form, registry, *page)


async def _present_page(call: Call, registry: Registry, wanted: ListOptions) -> Page:
    revision = registry.cache.fresh
    if registry.encoding.remote:
        await registry.encoding.ready(registry.cache.scan(call.target.namespace))
    entries, _ = await select(registry, wanted, list(registry.cache.scan(call.target.namespace)))
    if not wanted.limit or len(entries) <= wanted.limit:
        return Page(entries, revision)
    remaining = len(entries) - wanted.limit if wanted.labels.empty and wanted.fields.empty else None
    entries = entries[: wanted.limit]
    return Page(entries, revision, continue_token(call, registry, entries, revision), remaining)
