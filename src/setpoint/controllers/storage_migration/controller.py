"""Runs migrations, one at a time per resource."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.storage_migration.conditions import (
    FAILED,
    FAILURE_REASON,
    RUNNING,
    RUNNING_REASON,
    SUCCEEDED,
    SUCCESS_REASON,
    is_over,
    is_running,
    next_of,
    progress,
    with_condition,
)
from setpoint.controllers.storage_migration.definitions import Definitions
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import (
    ApiError,
    Conflict,
    InternalError,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Manager, Result

Obj = dict[str, Any]

MIGRATIONS = builtin("storageversionmigrations", "storagemigration.k8s.io")
_NAME = "storage-version-migrator-controller"
_NOWHERE = "fake-svm-namespace-name"
"""A namespace that does not exist: listing it returns only the latest revision."""
_NEEDED = ("update", "patch", "list")
_DISCOVERY_GRACE = timedelta(minutes=1)
"""The time to wait for a resource that is not served yet, because it may just have been defined."""
_LATER = 5.0
_TRANSIENT = (ServerTimeout, TooManyRequests, ServiceUnavailable, InternalError, Timeout)


def storage_migration_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return Migrations(manager).controller


class Migrations:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client_for(_NAME)
        self._clock = manager.clock
        self._migrations = manager.informer(MIGRATIONS)
        self._definitions = Definitions(self._client, manager.clock)
        self.controller = Controller(_NAME, self.reconcile, manager.clock, workers=5)
        self._migrations.add_handler(self._changed)

    def _changed(self, old: Obj | None, new: Obj | None) -> None:
        self.controller.enqueue(_resource_of(new or old or {}))

    async def reconcile(self, key: str) -> Result | None:
        """Reconcile the migrations of a resource, which is the key: one worker per resource."""
        group, _, plural = key.partition("/")
        ours = [each for each in self._migrations.items.values() if _resource_of(each) == key]
        for migration in ours:
            if is_running(migration) and is_over(migration):
                await self._definitions.finish(group, plural, succeeded=_succeeded(migration))
                await self._set_conditions(migration, (RUNNING, "False", "MigrationCompleted", "Migration completed"))
                return None  # its own change triggers the next reconcile
        for migration in ours:
            if is_running(migration) and not is_over(migration):
                return await self._continue(migration, group, plural)
        first = next_of(ours)
        if first is not None:
            await self._definitions.begin(group, plural, first["metadata"]["name"])
            await self._set_conditions(first, (RUNNING, "True", RUNNING_REASON, progress()))
        return None

    async def _continue(self, migration: Obj, group: str, plural: str) -> Result | None:
        resource = await self._find(group, plural)
        if resource is None:
            if self._clock.now() - parse_time(migration["metadata"]["creationTimestamp"]) < _DISCOVERY_GRACE:
                return Result(requeue_after=_LATER)
            await self._fail(migration, "resource does not exist in discovery")
            return None
        if not set(_NEEDED) <= set(resource.verbs):
            named = f"{group}/{resource.version}, Resource={plural}"
            needed = " ".join(_NEEDED)
            await self._fail(migration, f'resource "{named}" does not support discovery operations: [{needed}]')
            return None
        if not (migration.get("status") or {}).get("resourceVersion"):
            page = await self._client.list_page(
                resource, _NOWHERE if resource.namespaced else "", limit=1, metadata_only=True
            )
            status = {**(migration.get("status") or {}), "resourceVersion": page.resource_version}
            await self._client.update({**migration, "status": status}, resource=MIGRATIONS, subresource="status")
            return None
        await self._migrate(migration, resource)
        return None

    async def _find(self, group: str, plural: str) -> Resource | None:
        for fresh in (False, True):
            for resource in await self._client.discovery.resources(fresh=fresh):
                if (resource.group, resource.plural) == (group, plural):
                    return resource
        return None

    async def _migrate(self, migration: Obj, resource: Resource) -> None:
        """Rewrite the objects. Those written since the migration began have the current version already."""
        until = int(migration["status"]["resourceVersion"])
        found = (await self._client.list(resource, metadata_only=True)).items
        old = [each["metadata"] for each in found if int(each["metadata"]["resourceVersion"]) <= until]
        left = len(old)
        for meta in old:
            unchanged = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"resourceVersion": meta["resourceVersion"]},
            }
            try:
                await self._client.patch(
                    resource, meta["name"], unchanged, meta.get("namespace", ""), field_manager=_NAME
                )
            except (Conflict, NotFound):
                pass  # updated by another client, or deleted: fine either way
            except _TRANSIENT as error:
                await self._set_conditions(
                    migration, (RUNNING, "True", RUNNING_REASON, progress(left, len(found), error))
                )
                raise
            except ApiError as error:
                message = f"{left}/{len(found)} not yet migrated. migration encountered unhandled error: {error}"
                running = (RUNNING, "True", RUNNING_REASON, progress(left, len(found)))
                await self._set_conditions(migration, running, (FAILED, "True", FAILURE_REASON, message))
                return
            left -= 1
        running = (RUNNING, "True", RUNNING_REASON, progress(left, len(found)))
        await self._set_conditions(migration, running, (SUCCEEDED, "True", SUCCESS_REASON, "Migration completed"))

    async def _fail(self, migration: Obj, why: str) -> None:
        await self._set_conditions(migration, (FAILED, "True", FAILURE_REASON, why))

    async def _set_conditions(self, migration: Obj, *conditions: tuple[str, str, str, str]) -> None:
        updated = migration
        for each in conditions:
            updated = with_condition(updated, self._clock.now(), *each)
        if updated["status"] != migration.get("status"):
            await self._client.update(updated, resource=MIGRATIONS, subresource="status")


def _resource_of(migration: Obj) -> str:
    named = migration["spec"].get("resource") or {}
    return f"{named.get('group', '')}/{named.get('resource', '')}"


def _succeeded(migration: Obj) -> bool:
    return any(
        each["type"] == SUCCEEDED and each["status"] == "True" for each in migration["status"].get("conditions") or ()
    )
