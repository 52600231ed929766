"""PUT of one object or of a subresource that writes the same object."""

from __future__ import annotations

from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.call import Call, Emptied
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.ownership import own, seeing_versions
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.strategy import Strategy
from setpoint.meta.decode import decode
from setpoint.meta.errors import BadRequest
from setpoint.meta.schema import Type


def check_name(call: Call, obj: Obj) -> None:
    """Check that the object is the one that the URL names. Raises BadRequest."""
    meta, target = obj["metadata"], call.target
    namespace = meta.get("namespace", "")
    if namespace and target.namespace and target.resource != "namespaces" and namespace != target.namespace:
        raise BadRequest(OTHER_NAMESPACE)
    name = meta.get("name", "")
    if not name:
        raise BadRequest(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({target.name})")


def strategy_for(call: Call, registry: Registry) -> Strategy:
    name = call.target.subresource
    return registry.strategy.subresources[name] if name else registry.strategy


def _copy(call: Call, type_: Type, sent: Obj, emptied: Emptied) -> Obj:
    """One more of what was sent, also where that was an empty list: those places in it are the call's now."""
    for part, name in emptied:
        if part.get(name) is None:
            part[name] = []
    call.emptied = []
    copy: Obj = decode(type_, sent, strict=None, emptied=call.emptied)
    return copy


def _read(call: Call, registry: Registry) -> Obj:
    """Return the object in the body with its defaults."""
    sent = read_resource(call, registry.resource)
    registry.strategy.default(sent)
    registry.strategy.stamp(sent, call.now)
    call.sent(sent, registry.resource.kind, registry.resource.api_version)
    check_name(call, sent)
    return registry.encoding.settle(sent)


async def update(call: Call, registry: Registry, form: Form) -> Answer:
    write_options(call, "UpdateOptions")
    sent = await call.work(_read, call, registry)
    strategy = strategy_for(call, registry)
    encoding, type_ = registry.encoding, registry.resource.type
    emptied = call.emptied
    first = True

    def changed(live: Obj | None) -> Obj:
        nonlocal first
        # What was sent is used up by the first attempt; later ones begin with a copy.
        obj = sent if first and not live_conflict_possible else _copy(call, type_, sent, emptied)
        first = False
        meta = obj["metadata"]
        if registry.resource.namespaced and not meta.get("namespace"):
            meta["namespace"] = call.target.namespace
        versioned = encoding.versioned(live) if live is not None else None
        own(call, registry, versioned, obj)
        return encoding.to_storage(obj)

    async def change(live: Obj | None) -> Obj:
        return await seeing_versions(call, registry, lambda: call.work(changed, live))

    live_conflict_possible = not sent["metadata"].get("resourceVersion")
    entry, created = await registry.update(call, call.target.name, change, strategy=strategy)
    return await respond_object(call, form, registry, entry, 201 if created else 200)
