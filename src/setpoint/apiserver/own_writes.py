"""Writes that the server makes itself, through the same registry, admission and validation as everyone's."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.apiserver.call import Call
from setpoint.apiserver.deletion import delete as delete_object
from setpoint.apiserver.http.message import Peer, Request
from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.ownership import apply_config, own
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request import Target
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.decode import decode
from setpoint.meta.errors import AlreadyExists, NotFound

MANAGER = "kube-apiserver"
_ATTEMPTS = 4
_SELF = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))


def own_call(
    api: ApiServer, registry: Registry, namespace: str, name: str, verb: str = "create", *, subresource: str = "",
    manager: str = MANAGER,
) -> Call:  # fmt: skip
    """A call that the server makes to itself."""
    resource = registry.resource
    group, version, plural = resource.group, resource.version, resource.plural
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path = f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"
    target = Target(path, "apis" if group else "api", group, version, namespace, plural, name, subresource)
    request = Request("POST", path, "", {"user-agent": MANAGER}, b"", Peer())
    call = Call(request, target, {}, verb, _SELF, api.clock.now(), resource)
    call.field_manager = manager
    call.worker = api.worker
    call.hands_over = False  # callers within the server may go on with what they put into the object
    return call


def current(api: ApiServer, group: str, plural: str, namespace: str, name: str) -> Entry | None:
    registry = api.registry(group, plural)
    return registry.cache.get(registry.key(namespace, name))


async def ensure(api: ApiServer, group: str, plural: str, obj: Obj, manager: str = MANAGER) -> Entry:
    """Return the object as it is stored, or as it is made now if it is not there."""
    registry = api.registry(group, plural)
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    for attempt in range(_ATTEMPTS):
        existing = registry.cache.get(registry.key(namespace, name))
        if existing is not None:
            return existing
        call = own_call(api, registry, namespace, name, manager=manager)
        fresh = _bare(registry, obj)
        registry.strategy.default(fresh)
        own(call, registry, None, fresh)
        try:
            return await registry.create(call, fresh)
        except AlreadyExists:
            # What another server has made is visible by now, unless it has been deleted again.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def update(
    api: ApiServer, group: str, plural: str, namespace: str, name: str, change: Callable[[Obj], None], *,
    subresource: str = "", manager: str = MANAGER,
) -> Entry | None:  # fmt: skip
    """`change` works in place on a copy of what is there, perhaps several times. None: there is no such object."""
    registry = api.registry(group, plural)
    call = own_call(api, registry, namespace, name, "update", subresource=subresource, manager=manager)

    async def changed(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(name)
        obj = _bare(registry, live)
        change(obj)
        registry.strategy.default(obj)
        own(call, registry, live, obj)
        return obj

    return await _written(call, registry, changed)


async def apply_status(api: ApiServer, group: str, plural: str, name: str, status: Obj, manager: str) -> Entry | None:
    """Server-side apply of a status, by force. None: there is no such object."""
    registry = api.registry(group, plural)
    resource = registry.resource
    call = own_call(api, registry, "", name, "patch", subresource="status", manager=manager)
    config = {
        "kind": resource.kind, "apiVersion": resource.api_version, "metadata": {"name": name}, "status": status,
    }  # fmt: skip

    async def applied(live: Obj | None) -> Obj:
        return apply_config(call, registry, live, config, True)

    return await _written(call, registry, applied)


async def delete(api: ApiServer, group: str, plural: str, entry: Entry) -> bool:
    """The object if it is still as seen; True: it is gone now. Raises Conflict if it has changed."""
    registry = api.registry(group, plural)
    meta = entry.obj["metadata"]
    options = DeleteOptions()
    options.uid, options.revision = meta["uid"], meta["resourceVersion"]
    call = own_call(api, registry, meta.get("namespace", ""), meta["name"], "delete")
    try:
        _, gone = await delete_object(call, registry, meta["name"], options)
    except NotFound:
        return True
    return gone


def _bare(registry: Registry, obj: Obj) -> Obj:
    fresh: Obj = decode(registry.resource.type, obj, strict=None)
    fresh.pop("kind", None)
    fresh.pop("apiVersion", None)
    return fresh


async def _written(call: Call, registry: Registry, change: Callable[..., object]) -> Entry | None:
    name, part = call.target.name, call.target.subresource
    strategy = registry.strategy.subresources[part] if part else registry.strategy
    try:
        entry, _ = await registry.update(call, name, change, strategy=strategy, check_uid=False)  # type: ignore[arg-type]
    except NotFound:
        return None
    return entry
