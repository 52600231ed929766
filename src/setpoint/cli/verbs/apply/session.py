"""The state of one run of `apply`: its flags, and what it has applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.writing import DryRun, Results
from setpoint.client import Resource
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.cli.verbs.apply.prune import ApplySet


@dataclass(slots=True)
class Session:
    invocation: Invocation
    dry: DryRun
    directive: str
    results: Results
    manager: str
    propagation: str
    uids: set[str] = field(default_factory=set)
    """Uids of applied objects, which are not pruned."""
    namespaces: set[str] = field(default_factory=set)
    """Namespaces of applied objects, in which objects are pruned."""
    apply_set: ApplySet | None = None
    prunable: list[Resource] = field(default_factory=list)
    """The kinds of --prune-allowlist."""

    @property
    def grace(self) -> int | None:
        found: int = self.invocation.flags.grace_period
        return found if found >= 0 else None

    async def create(self, target: Target, obj: Obj) -> Obj:
        return await self.invocation.client.create(
            obj,
            resource=target.resource,
            namespace=target.namespace,
            dry_run=self.dry is DryRun.SERVER,
            field_manager=self.manager,
            field_validation=self.directive,
        )

    async def patch(self, target: Target, patch: Any, kind: str, subresource: str = "") -> Obj:
        return await self.invocation.client.patch(
            target.resource,
            target.name,
            patch,
            target.namespace,
            kind=kind,
            subresource=subresource,
            dry_run=self.dry is DryRun.SERVER,
            field_manager=self.manager,
            field_validation=self.directive,
        )

    async def delete(self, resource: Resource, name: str, namespace: str) -> None:
        await self.invocation.client.delete(
            resource,
            name,
            namespace,
            propagation=self.propagation,
            grace_period=self.grace,
            dry_run=self.dry is DryRun.SERVER,
        )

    def warn_if_deleting(self, obj: Obj) -> None:
        meta = obj.get("metadata") or {}
        if meta.get("deletionTimestamp"):
            self.invocation.print_err(
                f"Warning: Detected changes to resource {meta.get('name')} which is currently being deleted."
            )
