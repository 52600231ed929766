"""POST to a collection."""

from __future__ import annotations

from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import own
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.watch_cache import Obj


async def create(call: Call, registry: Registry, form: Form) -> Answer:
    write_options(call, "CreateOptions")
    entry = await registry.create(call, await call.work(_read, call, registry))
    return await respond_object(call, form, registry, entry, 201)


def _read(call: Call, registry: Registry) -> Obj:
    """Return the object in the body as it is to be stored."""
    obj = read_resource(call, registry.resource)
    registry.resource.strategy.default(obj)
    registry.resource.strategy.stamp(obj, call.now)
    call.sent(obj, registry.resource.kind, registry.resource.api_version)
    obj = registry.encoding.settle(obj)
    meta = obj["metadata"]
    if registry.resource.namespaced and not meta.get("namespace"):
        meta["namespace"] = call.target.namespace
    own(call, registry, None, obj)
    return registry.encoding.to_storage(obj)
