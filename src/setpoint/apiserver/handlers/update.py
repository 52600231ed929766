"""UPDATE: PUT of an object, or of a subresource that writes the same object."""

from __future__ import annotations

from setpoint.apiserver.bodies import check_name, read_resource
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import own, with_conversions
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.request_context import Emptied, RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.meta.decode import decode
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type
from setpoint.wire.message import Answer


def _copy(ctx: RequestContext, type_: Type, sent: Obj, emptied: Emptied) -> Obj:
    """Return a copy of the object that was sent, with its empty lists, and record those of the copy in the context."""
    for part, name in emptied:
        if part.get(name) is None:
            part[name] = []
    ctx.emptied = []
    copy: Obj = decode(type_, sent, strict=None, emptied=ctx.emptied)
    return copy


def _read(ctx: RequestContext, registry: Registry) -> Obj:
    """Return the object in the body with its defaults."""
    sent = read_resource(ctx, registry.resource)
    registry.strategy.default(sent)
    registry.strategy.stamp(sent, ctx.now)
    ctx.record_request_object(sent, registry.resource.kind, registry.resource.api_version)
    check_name(ctx, sent)
    return registry.encoding.round_trip(sent)


async def update(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    write_options(ctx, "UpdateOptions")
    sent = await ctx.compute(_read, ctx, registry)
    encoding, type_ = registry.encoding, registry.resource.type
    emptied = ctx.emptied
    first = True

    def changed(live: Obj | None) -> Obj:
        nonlocal first
        # The first attempt changes the object that was sent; later ones start with a copy.
        obj = sent if first and not may_retry else _copy(ctx, type_, sent, emptied)
        first = False
        meta = obj["metadata"]
        if registry.resource.namespaced and not meta.get("namespace"):
            meta["namespace"] = ctx.target.namespace
        versioned = encoding.versioned(live) if live is not None else None
        own(ctx, registry, versioned, obj)
        return encoding.to_storage(obj)

    async def change(live: Obj | None) -> Obj:
        return await with_conversions(ctx, registry, lambda: ctx.compute(changed, live))

    may_retry = not sent["metadata"].get("resourceVersion")
    entry, created = await WritePath(ctx, registry).update(ctx.target.name, change)
    return await respond_object(ctx, form, registry, entry, 201 if created else 200)
