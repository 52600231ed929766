"""The objects that every cluster begins with. Each start makes what is missing and leaves what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from setpoint.apiserver.own_writes import MANAGER, ensure
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.flow_control import PRODUCER
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress, ensure_service_cidr
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.bootstrap import apiservices, flowcontrol, namespaces, priorityclasses, rbac


async def bootstrap(api: ApiServer, own: OwnAddress | None = None, *, with_rbac: bool = True) -> None:
    """All at once, so that they share a few commits. Namespaced ones come after their namespaces.

    Without an address of its own the server makes no range for Services."""
    flow = "flowcontrol.apiserver.k8s.io"
    authorization = "rbac.authorization.k8s.io"
    async with asyncio.TaskGroup() as tasks:
        if own is not None:
            tasks.create_task(ensure_service_cidr(api, own))
        for group, plural, objects, manager in (
            ("", "namespaces", namespaces.namespaces(), MANAGER),
            (flow, "prioritylevelconfigurations", flowcontrol.priority_levels(), PRODUCER),
            (flow, "flowschemas", flowcontrol.flow_schemas(), PRODUCER),
            ("scheduling.k8s.io", "priorityclasses", priorityclasses.priority_classes(), MANAGER),
            ("apiregistration.k8s.io", "apiservices", apiservices.api_services(), MANAGER),
            (authorization, "clusterroles", rbac.cluster_roles() if with_rbac else [], MANAGER),
            (authorization, "clusterrolebindings", rbac.cluster_role_bindings() if with_rbac else [], MANAGER),
        ):
            _ensure_all(tasks, api, group, plural, objects, manager)
    async with asyncio.TaskGroup() as tasks:
        if with_rbac:
            _ensure_all(tasks, api, authorization, "roles", rbac.roles(), MANAGER)
            _ensure_all(tasks, api, authorization, "rolebindings", rbac.role_bindings(), MANAGER)


def _ensure_all(
    tasks: asyncio.TaskGroup, api: ApiServer, group: str, plural: str, objects: Iterable[Obj], manager: str
) -> None:
    for obj in objects:
        tasks.create_task(ensure(api, group, plural, obj, manager))
