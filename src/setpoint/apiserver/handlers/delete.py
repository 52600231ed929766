"""DELETE of one object or of a collection."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.apiserver import deletion
from setpoint.apiserver.bodies import check_object, parse
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.list import continue_token, select
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import JSON, Form
from setpoint.apiserver.options import DeleteOptions, delete_options, list_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond, respond_list, respond_object
from setpoint.apiserver.watch_cache import Entry
from setpoint.kinds.tables import type_of
from setpoint.meta.errors import NotFound

_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def read_options(call: Call) -> DeleteOptions:
    body: dict[str, Any] | None = None
    if call.request.body:
        value, strict = parse(call, "DeleteOptions")
        if isinstance(value, dict):
            # DeleteOptions are registered in every group: any group may be named.
            value = {key: item for key, item in value.items() if key != "apiVersion"}
        body = check_object(call, value, strict, "", "v1", "DeleteOptions", type_of(_OPTIONS))
    return delete_options(call, body)


async def delete(call: Call, registry: Registry, form: Form) -> Answer:
    options = read_options(call)
    entry, gone = await deletion.delete(call, registry, call.target.name, options)
    if not gone or registry.strategy.returns_deleted:
        return respond_object(call, form, registry, entry)
    return success(form, registry, entry)


def success(form: Form, registry: Registry, entry: Entry) -> Response:
    meta, resource = entry.obj["metadata"], registry.resource
    details: dict[str, Any] = {"name": meta["name"]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": meta["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond(Form(form.media_type if not form.transform else JSON, pretty=form.pretty), orjson.dumps(status) + b"\n")


async def delete_collection(call: Call, registry: Registry, form: Form) -> Answer:
    """Each matching object as if deleted alone; the answer lists them as they were before."""
    options = read_options(call)
    wanted = list_options(call, False, registry.strategy.field_labels)
    revision = registry.cache.fresh
    entries = list(select(registry, wanted, registry.cache.scan(call.target.namespace)))
    token, remaining = "", None
    if wanted.limit and len(entries) > wanted.limit:
        if wanted.labels.empty and wanted.fields.empty:
            remaining = len(entries) - wanted.limit
        entries = entries[: wanted.limit]
        token = continue_token(call, registry, entries, revision)
    for entry in entries:
        try:
            await deletion.delete(call, registry, entry.obj["metadata"]["name"], options)
        except NotFound:
            continue
    return respond_list(call, form, registry, entries, revision, token, remaining)
