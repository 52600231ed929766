"""Requests that the server sends to itself, like upstream's loopback client, as the user system:apiserver.

They take the same write path as those of clients, with admission, validation and causes. They are in the audit log as
the policy says, and are counted in the metrics of requests. Priority and fairness would exempt this user, and its group
may do everything, so neither is consulted.

Some writes of the server are no requests, and are in neither. Upstream writes them to its store directly too: the
allocation of node ports, the expiry of Events, and the deletion of the objects of a deleted definition. The addresses
of Services are written in the transaction of the Service that they belong to, or by the repair of such a transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.error_responses import store_error
from setpoint.apiserver.filters.authorize import Decision
from setpoint.apiserver.handlers.delete import respond_deleted
from setpoint.apiserver.handlers.patch import APPLY
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.ownership import apply_config, own
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.request_context import RequestContext, Target
from setpoint.apiserver.version import VERSION
from setpoint.apiserver.write_path import Change, WritePath
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.decode import decode
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, NotFound
from setpoint.meta.objects import Obj
from setpoint.store.interface import StoreError
from setpoint.wire.message import Answer, Peer, Request, Response

R = TypeVar("R")

MANAGER = "kube-apiserver"
"""Field manager of the server."""
_AGENT = f"{MANAGER}/{VERSION['gitVersion'].partition('-')[0]} ({VERSION['platform']}) kubernetes/unknown"
_LOOPBACK = Peer("::1")
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_ATTEMPTS = 4
_SELF = UserInfo("system:apiserver", groups=("system:authenticated", "system:masters"))


def internal_context(
    api: ApiResources,
    registry: Registry,
    namespace: str,
    name: str,
    verb: str = "create",
    *,
    subresource: str = "",
    manager: str = MANAGER,
) -> RequestContext:
    """Return the context of a request that the server makes to itself. The target of a creation has no name."""
    resource = registry.resource
    group, version, plural = resource.group, resource.version, resource.plural
    if verb == "create":
        name = ""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path += f"/namespaces/{namespace}/{plural}" if namespace else f"/{plural}"
    for part in (name, subresource):
        path += f"/{part}" if part else ""
    target = Target(path, "apis" if group else "api", group, version, namespace, plural, name, subresource)
    headers, query = {"user-agent": _AGENT}, ""
    if verb == "patch":
        headers["content-type"], query = APPLY, f"fieldManager={manager}&force=true"
    request = Request(_METHODS[verb], path, query, headers, b"", _LOOPBACK)
    ctx = RequestContext(request, target, {}, verb, _SELF, api.clock.now(), resource)
    ctx.field_manager = manager
    ctx.worker = api.worker
    ctx.may_share_object = False  # the caller may still change what it put into the object
    return ctx


def current(api: ApiResources, group: str, plural: str, namespace: str, name: str) -> Entry | None:
    """Return the current object, or None if there is none."""
    registry = api.registry(group, plural)
    return registry.cache.get(registry.key(namespace, name))


async def ensure(api: ApiResources, group: str, plural: str, obj: Obj, manager: str = MANAGER) -> Entry:
    """Return the stored object of this name; create `obj` if there is none."""
    registry = api.registry(group, plural)
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    for attempt in range(_ATTEMPTS):
        existing = registry.cache.get(registry.key(namespace, name))
        if existing is not None:
            return existing
        ctx = internal_context(api, registry, namespace, name, manager=manager)
        try:
            return await _create(api, ctx, registry, obj)
        except AlreadyExists:
            # What another server has created is visible by now, unless it has been deleted again.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def replace(api: ApiResources, group: str, plural: str, entry: Entry, obj: Obj) -> None:
    """Put a new object in the place of one that is still at this revision: no reader finds neither of them. Raises
    AlreadyExists if the object has changed."""
    registry = api.registry(group, plural)
    meta = obj["metadata"]
    ctx = internal_context(api, registry, meta.get("namespace", ""), meta["name"])
    await _create(api, ctx, registry, obj, entry.revision)


async def update(
    api: ApiResources,
    group: str,
    plural: str,
    namespace: str,
    name: str,
    change: Callable[[Obj], None],
    *,
    subresource: str = "",
    manager: str = MANAGER,
) -> Entry | None:
    """Return the object as stored, or None if there is none.

    `change` modifies a copy of the current object in place; it may be called several times."""
    registry = api.registry(group, plural)
    ctx = internal_context(api, registry, namespace, name, "update", subresource=subresource, manager=manager)

    async def changed(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(name)
        obj = await ctx.compute(_decoded, registry, live)
        change(obj)
        await ctx.compute(_default_and_own, ctx, registry, live, obj)
        return obj

    return await _update(api, ctx, registry, changed)


async def apply_status(
    api: ApiResources, group: str, plural: str, name: str, status: Obj, manager: str
) -> Entry | None:
    """Apply a status by force (server-side apply). Return the object as stored, or None if there is none."""
    registry = api.registry(group, plural)
    resource = registry.resource
    ctx = internal_context(api, registry, "", name, "patch", subresource="status", manager=manager)
    config = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"name": name},
        "status": status,
    }

    async def applied(live: Obj | None) -> Obj:
        if ctx.audit is not None:
            ctx.audit.set_patch(config)
        return await ctx.compute(apply_config, ctx, registry, live, config, True)

    return await _update(api, ctx, registry, applied)


async def delete(api: ApiResources, group: str, plural: str, entry: Entry) -> bool:
    """Delete the object if it is still at this revision, and return whether it is removed. Raises Conflict if it has
    changed."""
    registry = api.registry(group, plural)
    meta = entry.obj["metadata"]
    options = DeleteOptions()
    options.uid, options.revision = meta["uid"], meta["resourceVersion"]
    ctx = internal_context(api, registry, meta.get("namespace", ""), meta["name"], "delete")

    async def write() -> tuple[Entry, bool]:
        ctx.record_request_object(options.as_sent(False), "DeleteOptions", "meta.k8s.io/__internal")
        return await WritePath(ctx, registry).delete(meta["name"], options)

    try:
        _, removed = await _request(api, ctx, write, lambda result: respond_deleted(ctx, Form(), registry, *result))
    except NotFound:
        return True
    return removed


def _decoded(registry: Registry, obj: Obj) -> Obj:
    decoded: Obj = decode(registry.resource.type, obj, strict=None)
    decoded.pop("kind", None)
    decoded.pop("apiVersion", None)
    return decoded


def _default_and_own(ctx: RequestContext, registry: Registry, live: Obj | None, obj: Obj) -> None:
    registry.strategy.default(obj)
    ctx.record_request_object(obj, registry.resource.kind, registry.resource.api_version)
    own(ctx, registry, live, obj)


async def _create(api: ApiResources, ctx: RequestContext, registry: Registry, obj: Obj, replaces: int = 0) -> Entry:
    async def write() -> Entry:
        new = _decoded(registry, obj)
        _default_and_own(ctx, registry, None, new)
        return await WritePath(ctx, registry).create(new, replaces=replaces)

    return await _request(api, ctx, write, lambda entry: respond_object(ctx, Form(), registry, entry, 201), 201)


async def _update(api: ApiResources, ctx: RequestContext, registry: Registry, change: Change) -> Entry | None:
    async def write() -> Entry:
        entry, _ = await WritePath(ctx, registry).update(ctx.target.name, change, check_uid=False)
        return entry

    try:
        return await _request(api, ctx, write, lambda entry: respond_object(ctx, Form(), registry, entry))
    except NotFound:
        return None


async def _request(
    api: ApiResources,
    ctx: RequestContext,
    write: Callable[[], Awaitable[R]],
    respond: Callable[[R], Awaitable[Answer]],
    status: int = 200,
) -> R:
    """Make a write, record it in the audit log and count it. `respond` renders the response for the log, and `status`
    is its code. Raises what `write` raises, and InternalError if the log cannot be written in a strict mode."""
    started, auditor = api.clock.monotonic(), api.env.auditor
    try:
        if auditor is not None:
            ctx.audit = await auditor.received(ctx, ctx.user)
            if ctx.audit is not None:
                ctx.audit.set_authorization(Decision.ALLOW, "")
        result = await write()
    except (ApiError, StoreError) as error:
        failure = error if isinstance(error, ApiError) else store_error(ctx, error)
        if ctx.audit is not None:
            ctx.audit.set_error(failure)
            await ctx.audit.respond(ctx, Response(failure.code, b""))
        api.metrics.request(ctx, failure.code, api.clock.monotonic() - started)
        raise
    except BaseException as error:
        if ctx.audit is not None:
            await ctx.audit.abort(error)
        raise
    if ctx.audit is not None:
        await ctx.audit.respond(ctx, await respond(result))
    api.metrics.request(ctx, status, api.clock.monotonic() - started)
    return result


_QUOTAS = "resourcequotas"


async def update_usage(api: ApiResources, quota: Obj, used: dict[str, str]) -> None:
    """Set `status.used`. Raises Conflict if `quota` is no longer the stored one, NotFound if it does not exist."""
    meta = quota["metadata"]
    namespace, name = meta["namespace"], meta["name"]

    def charge(obj: Obj) -> None:
        if obj["metadata"].get("resourceVersion") != meta["resourceVersion"]:
            raise Conflict.modified("", _QUOTAS, name)
        obj["status"] = {**obj.get("status", {}), "used": used}

    if await update(api, "", _QUOTAS, namespace, name, charge, subresource="status") is None:
        raise NotFound.of("", _QUOTAS, name)
