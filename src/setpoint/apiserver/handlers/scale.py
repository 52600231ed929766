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
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.autoscaling.scale_mapping import apply_scale, to_scale, validate_scale
from setpoint.kinds.catalog import Resource
from setpoint.meta import apply
from setpoint.meta.apply import check_types
from setpoint.meta.decode import decode
from setpoint.meta.errors import Conflict, Invalid, PlainServerError
from setpoint.meta.field import Errors
from setpoint.meta.times import format_time

SCALE = Resource("autoscaling", "v1", "Scale", "scales")


def _typed(scale: Obj) -> Obj:
    typed: Obj = decode(SCALE.type, scale, strict=None)
    return typed


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
        before = _owned_scale(registry, live)
        owners = apply.update(
            SCALE.type,
            before,
            {**scale, "metadata": {**scale["metadata"], "managedFields": before["metadata"].get("managedFields")}},
            manager=call.field_manager,
            api_version=SCALE.api_version,
            subresource="scale",
            now=format_time(call.now),
        )
        return _scaled(registry, live, scale, owners)

    entry, _ = await registry.update(call, call.target.name, change)
    return _respond(form, registry, entry)


def _owned_scale(registry: Registry, live: Obj) -> Obj:
    """The Scale with what its writers own of it."""
    scale = _scale_of(registry, live)
    owners = apply.to_scale(live["metadata"].get("managedFields") or [], _replicas(registry))
    return {**scale, "metadata": {**scale["metadata"], "managedFields": owners}} if owners else scale


def _replicas(registry: Registry) -> dict[str, tuple[str, ...] | None]:
    return {registry.resource.api_version: ("f:spec", "f:replicas")}


def _scaled(registry: Registry, live: Obj, scale: Obj, owners: list[Obj]) -> Obj:
    """The workload with the replicas of `scale`, and with its owners."""
    obj: Obj = decode(registry.resource.type, apply_scale(scale, live), strict=None)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    stored = live["metadata"].get("managedFields") or []
    entries = apply.to_parent(stored, owners, registry.resource.api_version, _replicas(registry))
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)
    return obj


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

    async def change(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(call.target.name)
        try:
            merged = apply.apply(
                SCALE.type,
                _owned_scale(registry, live),
                config,
                manager=call.field_manager,
                force=force,
                api_version=SCALE.api_version,
                kind=SCALE.kind,
                subresource="scale",
                now=format_time(call.now),
            )
        except apply.TypeMismatch as error:
            raise PlainServerError(str(error)) from None
        scale = _typed(merged)
        _check(registry, scale, live)
        return _scaled(registry, live, scale, merged["metadata"].get("managedFields") or [])

    entry, _ = await registry.update(call, call.target.name, change, check_uid=False)
    return _respond(form, registry, entry)
