"""The objects that every cluster begins with. Each start makes what is missing and leaves what is there; default roles
get back what they have lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from setpoint.apiserver.own_writes import MANAGER, ensure
from setpoint.apiserver.post_start import BOOTSTRAPPED
from setpoint.apiserver.rbac_defaults import restore
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.flow_control import PRODUCER
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress, ensure_service_cidr
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.bootstrap import apiservices, flowcontrol, namespaces, priorityclasses, rbac


async def bootstrap(api: ApiServer, own: OwnAddress | None = None, *, with_rbac: bool = True) -> None:
    """All at once, so that they share a few commits. Namespaced ones come after their namespaces.

    Without an address of its own the server makes no range for Services."""
    flow = "flowcontrol.apiserver.k8s.io"
    async with asyncio.TaskGroup() as tasks:
        if own is not None:
            tasks.create_task(ensure_service_cidr(api, own))
        for group, plural, objects, manager in (
            ("", "namespaces", namespaces.namespaces(), MANAGER),
            (flow, "prioritylevelconfigurations", flowcontrol.priority_levels(), PRODUCER),
            (flow, "flowschemas", flowcontrol.flow_schemas(), PRODUCER),
            ("scheduling.k8s.io", "priorityclasses", priorityclasses.priority_classes(), MANAGER),
            ("apiregistration.k8s.io", "apiservices", apiservices.api_services(), MANAGER),
        ):
            for obj in objects:
                tasks.create_task(ensure(api, group, plural, obj, manager))
        if with_rbac:
            _restore_all(tasks, api, "clusterroles", rbac.cluster_roles())
            _restore_all(tasks, api, "clusterrolebindings", rbac.cluster_role_bindings())
    async with asyncio.TaskGroup() as tasks:
        if with_rbac:
            _restore_all(tasks, api, "roles", rbac.roles())
            _restore_all(tasks, api, "rolebindings", rbac.role_bindings())
    api.post_start.finish(*BOOTSTRAPPED)


def _restore_all(tasks: asyncio.TaskGroup, api: ApiServer, plural: str, objects: Iterable[Obj]) -> None:
    for obj in objects:
        tasks.create_task(restore(api, plural, obj))
