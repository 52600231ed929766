"""StorageVersionMigrations: rewrite every object of a resource in the current storage version."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, conditions_of, is_true, new_condition, with_condition
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
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Manager, Result

_RUNNING, _SUCCEEDED, _FAILED = "Running", "Succeeded", "Failed"
_RUNNING_REASON = "MigrationRunning"
_SUCCESS_REASON, _FAILURE_REASON = "StorageVersionMigrationSucceeded", "StorageVersionMigrationFailed"
_DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
_MIGRATING, _FIELD_MANAGER = "StorageMigrating", "migration-runner-controller"
_ATTEMPTS = 5
_MIGRATIONS = builtin("storageversionmigrations", "storagemigration.k8s.io")
_NAME = "storage-version-migrator-controller"
_EMPTY_NAMESPACE = "fake-svm-namespace-name"
"""A namespace that does not exist: listing it returns only the latest revision."""
_NEEDED = ("update", "patch", "list")
_DISCOVERY_GRACE = timedelta(minutes=1)
"""The time to wait for a resource that is not served yet, because it may just have been defined."""
_RETRY_DELAY = 5.0
_TRANSIENT = (ServerTimeout, TooManyRequests, ServiceUnavailable, InternalError, Timeout)


def _is_over(migration: Obj) -> bool:
    return is_true(migration, _SUCCEEDED) or is_true(migration, _FAILED)


def _is_running(migration: Obj) -> bool:
    return is_true(migration, _RUNNING)


def progress(left: int | None = None, total: int = 0, error: object = None) -> str:
    """Return a progress message; `left` is None before the objects were counted."""
    text = "The migration is running"
    if left is not None and total:
        text += f", {left}/{total} objects not yet migrated" if left else f", {total} objects verified migrated"
    return f"{text}; transient error: {error}" if error is not None else text


def _with_migration_condition(migration: Obj, now: datetime, kind: str, status: str, reason: str, message: str) -> Obj:
    """Return the migration with this condition in its status."""
    new = new_condition(kind, status, reason, message, now)
    if kind == _RUNNING and status == "False":
        new["observedGeneration"] = migration["metadata"].get("generation", 0)
    conditions = with_condition(conditions_of(migration), new)
    return {**migration, "status": {**(migration.get("status") or {}), "conditions": conditions}}


def _next_of(migrations: list[Obj]) -> Obj | None:
    """Return the migration to run now: the oldest of one resource."""
    if any(_is_running(each) and not _is_over(each) for each in migrations):
        return None
    waiting = [each for each in migrations if not _is_running(each) and not _is_over(each)]
    return min(
        waiting, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]), default=None
    )


# -- CustomResourceDefinitions ----------------------------------------------------------------------------------------


class Definitions:
    """Writes the status of a CustomResourceDefinition during and after a migration: condition and stored versions."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def begin(self, group: str, plural: str, migration: str) -> None:
        """Mark the definition as being migrated; do nothing for a built-in resource."""

        def status(definition: Obj) -> Obj:
            condition = self._condition(definition, "True", "MigrationRunning", f"Migration {migration} is running")
            return {"conditions": [condition]}

        await self._apply(group, plural, status)

    async def finish(self, group: str, plural: str, *, succeeded: bool) -> None:
        def status(definition: Obj) -> Obj:
            found = condition_of(definition, _MIGRATING) or {}
            same = found.get("observedGeneration") == definition["metadata"].get("generation")
            if succeeded:
                reason, message = "MigrationSucceeded", "The migration has succeeded"
                message += (
                    " and the stored versions have been updated"
                    if same
                    else " but the stored versions have not been updated due to a generation mismatch"
                )
            else:
                reason, message = "MigrationFailed", "The migration has failed"
            made: Obj = {"conditions": [self._condition(definition, "False", reason, message)]}
            if same:
                stored = [each["name"] for each in definition["spec"]["versions"] if each.get("storage")]
                made["storedVersions"] = stored[:1]
            return made

        await self._apply(group, plural, status)

    def _condition(self, definition: Obj, status: str, reason: str, message: str) -> Obj:
        new = new_condition(_MIGRATING, status, reason, message, self._clock.now())
        return {**new, "observedGeneration": definition["metadata"].get("generation", 0)}

    async def _apply(self, group: str, plural: str, status: Any) -> None:
        if not group:
            return
        for attempt in range(_ATTEMPTS):
            try:
                definition = await self._client.get(_DEFINITIONS, f"{plural}.{group}")
            except NotFound:
                return
            # With the revision: fail if the definition changed since it was read.
            meta = {"name": f"{plural}.{group}", "resourceVersion": definition["metadata"]["resourceVersion"]}
            applied = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta}
            try:
                await self._client.apply(
                    {**applied, "status": status(definition)},
                    field_manager=_FIELD_MANAGER,
                    force=True,
                    subresource="status",
                )
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise


# -- controller -------------------------------------------------------------------------------------------------------


def storage_migration_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return Migrations(manager).controller


class Migrations:
    """Runs migrations, one at a time per resource."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client_for(_NAME)
        self._clock = manager.clock
        self._migrations = manager.informer(_MIGRATIONS)
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
            if _is_running(migration) and _is_over(migration):
                await self._definitions.finish(group, plural, succeeded=_succeeded(migration))
                await self._set_conditions(migration, (_RUNNING, "False", "MigrationCompleted", "Migration completed"))
                return None  # its own change triggers the next reconcile
        for migration in ours:
            if _is_running(migration) and not _is_over(migration):
                return await self._continue(migration, group, plural)
        first = _next_of(ours)
        if first is not None:
            await self._definitions.begin(group, plural, first["metadata"]["name"])
            await self._set_conditions(first, (_RUNNING, "True", _RUNNING_REASON, progress()))
        return None

    async def _continue(self, migration: Obj, group: str, plural: str) -> Result | None:
        resource = await self._find(group, plural)
        if resource is None:
            if self._clock.now() - parse_time(migration["metadata"]["creationTimestamp"]) < _DISCOVERY_GRACE:
                return Result(requeue_after=_RETRY_DELAY)
            await self._fail(migration, "resource does not exist in discovery")
            return None
        if not set(_NEEDED) <= set(resource.verbs):
            named = f"{group}/{resource.version}, Resource={plural}"
            needed = " ".join(_NEEDED)
            await self._fail(migration, f'resource "{named}" does not support discovery operations: [{needed}]')
            return None
        if not (migration.get("status") or {}).get("resourceVersion"):
            page = await self._client.list_page(
                resource, _EMPTY_NAMESPACE if resource.namespaced else "", limit=1, metadata_only=True
            )
            status = {**(migration.get("status") or {}), "resourceVersion": page.resource_version}
            await self._client.update({**migration, "status": status}, resource=_MIGRATIONS, subresource="status")
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
                    migration, (_RUNNING, "True", _RUNNING_REASON, progress(left, len(found), error))
                )
                raise
            except ApiError as error:
                message = f"{left}/{len(found)} not yet migrated. migration encountered unhandled error: {error}"
                running = (_RUNNING, "True", _RUNNING_REASON, progress(left, len(found)))
                await self._set_conditions(migration, running, (_FAILED, "True", _FAILURE_REASON, message))
                return
            left -= 1
        running = (_RUNNING, "True", _RUNNING_REASON, progress(left, len(found)))
        await self._set_conditions(migration, running, (_SUCCEEDED, "True", _SUCCESS_REASON, "Migration completed"))

    async def _fail(self, migration: Obj, why: str) -> None:
        await self._set_conditions(migration, (_FAILED, "True", _FAILURE_REASON, why))

    async def _set_conditions(self, migration: Obj, *conditions: tuple[str, str, str, str]) -> None:
        updated = migration
        for each in conditions:
            updated = _with_migration_condition(updated, self._clock.now(), *each)
        if updated["status"] != migration.get("status"):
            await self._client.update(updated, resource=_MIGRATIONS, subresource="status")


def _resource_of(migration: Obj) -> str:
    named = migration["spec"].get("resource") or {}
    return f"{named.get('group', '')}/{named.get('resource', '')}"


def _succeeded(migration: Obj) -> bool:
    return any(
        each["type"] == _SUCCEEDED and each["status"] == "True" for each in migration["status"].get("conditions") or ()
    )
