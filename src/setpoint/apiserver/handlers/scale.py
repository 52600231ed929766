"""`/scale`: a workload seen as a number of replicas. Reads and writes go to the workload itself."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.patch import APPLY, patch_type, patcher_for, read_applied
from setpoint.apiserver.handlers.update import check_name
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import apply_config, own
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.autoscaling.scale_mapping import apply_scale, to_scale, validate_scale
from setpoint.kinds.catalog import Resource
from setpoint.meta.apply import check_types
from setpoint.meta.decode import decode
from setpoint.meta.errors import Conflict, Invalid
from setpoint.meta.field import Errors

SCALE = Resource("autoscaling", "v1", "Scale", "scales")


def _scale_of(registry: Registry, obj: Obj) -> Obj:
    return to_scale({"kind": registry.resource.kind, **obj})


def _respond(form: Form, registry: Registry, entry: Entry) -> Answer:
    return respond(form, orjson.dumps(_scale_of(registry, entry.obj)) + b"\n")


async def get_scale(call: Call, registry: Registry, form: Form) -> Answer:
    return _respond(form, registry, registry.get(call.target.namespace, call.target.name))


async def update_scale(call: Call, registry: Registry, form: Form) -> Answer:
    write_options(call, "UpdateOptions")
    scale = read_resource(call, SCALE)
    check_name(call, scale)
    return await _write(call, registry, form, lambda _: scale)


async def patch_scale(call: Call, registry: Registry, form: Form) -> Answer:
    media_type = patch_type(call, registry)
    force = write_options(call, "PatchOptions", apply=media_type == APPLY, patch=True)
    if media_type == APPLY:
        return await _apply(call, registry, form, force)
    patcher = patcher_for(call, SCALE, media_type)

    def patched(live: Obj) -> Obj:
        scale = patcher(_scale_of(registry, live))
        check_name(call, scale)
        return scale

    return await _write(call, registry, form, patched)


async def _write(call: Call, registry: Registry, form: Form, scale_for: Callable[[Obj], Obj]) -> Answer:
    async def change(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(call.target.name)
        scale = scale_for(live)
        _check(registry, scale, live)
        obj: Obj = decode(registry.resource.type, apply_scale(scale, live), strict=None)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        own(call, registry, live, obj)
        return obj

    entry, _ = await registry.update(call, call.target.name, change)
    return _respond(form, registry, entry)


def _check(registry: Registry, scale: Obj, live: Obj) -> None:
    errs: Errors = []
    validate_scale(scale, errs)
    name = scale["metadata"].get("name", "")
    if errs:
        raise Invalid.of("autoscaling", "Scale", name, errs)
    uid = scale["metadata"].get("uid")
    if uid and uid != live["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
        raise Conflict.of(registry.resource.group, registry.resource.plural, name, why)


async def _apply(call: Call, registry: Registry, form: Form, force: bool) -> Answer:
    """The applied Scale is the workload's replicas, and nothing else of it, in the manager's ownership."""
    config, _ = read_applied(call, SCALE)
    check_types(SCALE.type, config)
    check_name(call, config)
    spec = config.get("spec") or {}
    wish: Obj = {
        "apiVersion": registry.resource.api_version,
        "kind": registry.resource.kind,
        "metadata": {key: value for key, value in config["metadata"].items() if key in ("name", "namespace")},
    }
    if "replicas" in spec:
        wish["spec"] = {"replicas": spec["replicas"]}

    async def change(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(call.target.name)
        merged = apply_config(call, registry, live, wish, force)
        _check(registry, _scale_of(registry, merged), live)
        return merged

    entry, _ = await registry.update(call, call.target.name, change, check_uid=False)
    return _respond(form, registry, entry)
