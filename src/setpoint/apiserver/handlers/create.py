"""CREATE: POST to a collection."""

from __future__ import annotations

from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import own
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.meta.objects import Obj
from setpoint.wire.message import Answer


async def create(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    write_options(ctx, "CreateOptions")
    entry = await WritePath(ctx, registry).create(await ctx.compute(_read, ctx, registry))
    return await respond_object(ctx, form, registry, entry, 201)


def _read(ctx: RequestContext, registry: Registry) -> Obj:
    """Return the object in the body as it is to be stored."""
    obj = read_resource(ctx, registry.resource)
    registry.resource.strategy.default(obj)
    registry.resource.strategy.stamp(obj, ctx.now)
    ctx.record_request_object(obj, registry.resource.kind, registry.resource.api_version)
    obj = registry.encoding.round_trip(obj)
    meta = obj["metadata"]
    if registry.resource.namespaced and not meta.get("namespace"):
        meta["namespace"] = ctx.target.namespace
    own(ctx, registry, None, obj)
    return registry.encoding.to_storage(obj)
