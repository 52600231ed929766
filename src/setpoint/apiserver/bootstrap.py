"""The objects that every cluster begins with. Each start makes what is missing and leaves what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Peer, Request
from setpoint.apiserver.ownership import own
from setpoint.apiserver.request import Target
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.bootstrap import apiservices, flowcontrol, namespaces, priorityclasses, rbac
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.decode import decode
from setpoint.meta.errors import AlreadyExists

MANAGER = "kube-apiserver"
_SELF = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))


def own_call(api: ApiServer, group: str, version: str, plural: str, namespace: str, name: str, verb: str = "create") -> Call:
    """A call that the server makes to itself."""
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path = f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"
    target = Target(path, "apis" if group else "api", group, version, namespace, plural, name)
    request = Request("POST", path, "", {"user-agent": MANAGER}, b"", Peer())
    call = Call(request, target, {}, verb, _SELF, api.clock.now(), api.resources[(group, version, plural)])
    call.field_manager = MANAGER
    return call


async def ensure(api: ApiServer, group: str, plural: str, obj: Obj) -> Entry:
    """The object as it is stored; made now if it was not there."""
    registry = api.registry(group, plural)
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    existing = registry.cache.get(registry.key(namespace, name))
    if existing is not None:
        return existing
    call = own_call(api, group, registry.resource.version, plural, namespace, name)
    fresh: Obj = decode(registry.resource.type, obj, strict=None)
    fresh.pop("kind", None)
    fresh.pop("apiVersion", None)
    registry.strategy.default(fresh)
    own(call, registry, None, fresh)
    try:
        return await registry.create(call, fresh)
    except AlreadyExists:
        return registry.get(namespace, name)


async def bootstrap(api: ApiServer, *, with_rbac: bool = True) -> None:
    """All at once, so that they share a few commits."""
    # Namespaces first: nothing can be made in one that is not there.
    await _ensure_all(api, "", "namespaces", namespaces.namespaces())
    flow = "flowcontrol.apiserver.k8s.io"
    authorization = "rbac.authorization.k8s.io"
    async with asyncio.TaskGroup() as tasks:
        for group, plural, objects in (
            (flow, "prioritylevelconfigurations", flowcontrol.priority_levels()),
            (flow, "flowschemas", flowcontrol.flow_schemas()),
            ("scheduling.k8s.io", "priorityclasses", priorityclasses.priority_classes()),
            ("apiregistration.k8s.io", "apiservices", apiservices.api_services()),
            (authorization, "clusterroles", rbac.cluster_roles() if with_rbac else []),
            (authorization, "clusterrolebindings", rbac.cluster_role_bindings() if with_rbac else []),
            (authorization, "roles", rbac.roles() if with_rbac else []),
            (authorization, "rolebindings", rbac.role_bindings() if with_rbac else []),
        ):
            tasks.create_task(_ensure_all(api, group, plural, objects))


async def _ensure_all(api: ApiServer, group: str, plural: str, objects: Iterable[Obj]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for obj in objects:
            tasks.create_task(ensure(api, group, plural, obj))
