"""The status of a CustomResourceDefinition during and after a migration: condition and stored versions."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.conditions import condition
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.times import format_time

Obj = dict[str, Any]

DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
_MIGRATING, _FIELD_MANAGER = "StorageMigrating", "migration-runner-controller"
_ATTEMPTS = 5


class Definitions:
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
            found = condition(definition, _MIGRATING) or {}
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
        return {
            "type": _MIGRATING,
            "status": status,
            "lastTransitionTime": format_time(self._clock.now()),
            "reason": reason,
            "message": message,
            "observedGeneration": definition["metadata"].get("generation", 0),
        }

    async def _apply(self, group: str, plural: str, status: Any) -> None:
        if not group:
            return
        for attempt in range(_ATTEMPTS):
            try:
                definition = await self._client.get(DEFINITIONS, f"{plural}.{group}")
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
