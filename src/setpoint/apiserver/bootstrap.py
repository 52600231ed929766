"""The initial objects of a cluster. Each start creates the missing ones and retains the others.

Default roles and bindings regain what they have lost, and retain what was added. An object with the annotation
`rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from setpoint.apiserver import internal_writes
from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.rbac import GROUP, uncovered
from setpoint.apiserver.health import BOOTSTRAPPED
from setpoint.apiserver.internal_writes import MANAGER, ensure
from setpoint.apiserver.upkeep.flow_control import PRODUCER
from setpoint.apiserver.upkeep.server_objects import OwnAddress, ensure_service_cidr
from setpoint.kinds.bootstrap import initial_objects, rbac
from setpoint.kinds.bootstrap.rbac import AUTO_UPDATE
from setpoint.meta.errors import AlreadyExists
from setpoint.meta.objects import Obj

Restore = Callable[[Obj, Obj], Obj]
"""Maps the existing and the expected object to the fields that must change; `metadata` contains only its changed
fields."""


async def restore_rbac(api: ApiResources, plural: str, expected: Obj) -> None:
    """Create the object, or add what is missing."""
    meta = expected["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    existing = internal_writes.current(api, GROUP, plural, namespace, name)
    if existing is None:
        await internal_writes.ensure(api, GROUP, plural, expected)
        return
    if (existing.obj["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return
    missing: Restore = missing_of_role if plural in ("roles", "clusterroles") else missing_of_binding
    if "roleRef" in expected and expected["roleRef"] != existing.obj["roleRef"]:
        # The role of a binding cannot be changed.
        with suppress(AlreadyExists):  # it was changed concurrently, for example by another server
            await internal_writes.replace(api, GROUP, plural, existing, expected)
    elif missing(existing.obj, expected):

        def change(obj: Obj) -> None:
            wanted = missing(obj, expected)
            obj["metadata"] |= wanted.pop("metadata", {})
            for field, value in wanted.items():
                if value is None:
                    obj.pop(field, None)
                else:
                    obj[field] = value

        await internal_writes.update(api, GROUP, plural, namespace, name, change)


def missing_of_role(existing: Obj, expected: Obj) -> Obj:
    wanted = _missing_metadata(existing, expected)
    rules, defaults = existing.get("rules") or [], expected.get("rules") or []
    if rules != defaults:
        missing = uncovered(rules, defaults)
        if missing:
            wanted["rules"] = [*rules, *missing]
    aggregation, default = existing.get("aggregationRule"), expected.get("aggregationRule")
    if default is None:
        if aggregation is not None:
            wanted["aggregationRule"] = None
    else:
        selectors = (aggregation or {}).get("clusterRoleSelectors") or []
        missing_selectors = [selector for selector in default["clusterRoleSelectors"] if selector not in selectors]
        if missing_selectors:
            wanted["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *missing_selectors]}
    return wanted


def missing_of_binding(existing: Obj, expected: Obj) -> Obj:
    wanted = _missing_metadata(existing, expected)
    subjects = existing.get("subjects") or []
    missing = [subject for subject in expected.get("subjects") or () if subject not in subjects]
    if missing:
        wanted["subjects"] = [*subjects, *missing]
    return wanted


def _missing_metadata(existing: Obj, expected: Obj) -> Obj:
    changed = {}
    for field in ("annotations", "labels"):
        present = existing["metadata"].get(field) or {}
        merged = (expected["metadata"].get(field) or {}) | present
        if merged != present:
            changed[field] = merged
    return {"metadata": changed} if changed else {}


async def bootstrap(api: ApiResources, own: OwnAddress | None = None, *, with_rbac: bool = True) -> None:
    """Create the initial objects, concurrently so that they share a few commits; namespaced ones after the namespaces.

    Without an address of its own the server creates no ServiceCIDR."""
    flow = "flowcontrol.apiserver.k8s.io"
    async with asyncio.TaskGroup() as tasks:
        if own is not None:
            tasks.create_task(ensure_service_cidr(api, own))
        for group, plural, objects, manager in (
            ("", "namespaces", initial_objects.namespaces(), MANAGER),
            (flow, "prioritylevelconfigurations", initial_objects.priority_levels(), PRODUCER),
            (flow, "flowschemas", initial_objects.flow_schemas(), PRODUCER),
            ("scheduling.k8s.io", "priorityclasses", initial_objects.priority_classes(), MANAGER),
            ("apiregistration.k8s.io", "apiservices", initial_objects.api_services(), MANAGER),
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


def _restore_all(tasks: asyncio.TaskGroup, api: ApiResources, plural: str, objects: Iterable[Obj]) -> None:
    for obj in objects:
        tasks.create_task(restore_rbac(api, plural, obj))
