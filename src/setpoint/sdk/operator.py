"""An operator: its controllers and webhooks, and the ClusterRole that they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from setpoint.client import Client
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.objects import Obj
from setpoint.reconcile import LeaderElection, Manager
from setpoint.sdk.controller import Controller
from setpoint.sdk.dry_run import dry_run_client
from setpoint.sdk.kind import Kind
from setpoint.sdk.loop import InFlight, Running
from setpoint.sdk.metrics import Measurements
from setpoint.sdk.registration import ReachedAt, configurations, definitions, register
from setpoint.sdk.webhooks import Admission, Convert, Reviewer

_READ_VERBS = ("get", "list", "watch")
_WRITE_VERBS = ("create", "delete", "patch")


def cluster_role(operator: str, controllers: Sequence[Controller[Any, Any]], installed: Iterable[Obj]) -> Obj:
    """Return the role with the permissions for everything that the SDK does; permissions for direct use of `ctx.client`
    are not included."""
    grants: dict[tuple[str, str, str], set[str]] = {}

    def grant(group: str, resource: str, verbs: Iterable[str], name: str = "") -> None:
        grants.setdefault((group, resource, name), set()).update(verbs)

    def grant_kind(kind: Kind[Any, Any], verbs: Iterable[str], subresource: str = "") -> None:
        grant(kind.group, f"{kind.plural_name}/{subresource}".rstrip("/"), verbs)

    for controller in controllers:
        grant_kind(controller.kind, (*_READ_VERBS, "patch"))
        grant_kind(controller.kind, ("get", "patch"), "status")
        grant_kind(controller.kind, ("update",), "finalizers")
        for kind in controller.owns:
            grant_kind(kind, (*_READ_VERBS, *_WRITE_VERBS))
        for watch in controller.watches:
            grant_kind(watch.kind, _READ_VERBS)
    grant("", "events", ("create", "patch"))
    grant("coordination.k8s.io", "leases", ("create",))
    grant("coordination.k8s.io", "leases", ("get", "update"), operator)
    for obj in installed:
        group = obj["apiVersion"].rpartition("/")[0]
        plural = f"{obj['kind'].lower()}s"
        grant(group, plural, ("create",))
        grant(group, plural, ("get", "patch", *(("delete",) if "webhooks" in obj else ())), obj["metadata"]["name"])
        if "webhooks" in obj or obj.get("spec", {}).get("conversion"):
            grant("", "secrets", ("create",))
            grant("", "secrets", ("get", "update"), f"{operator}-webhook-tls")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": operator},
        "rules": [_rule(*key, verbs) for key, verbs in sorted(grants.items())],
    }


def _rule(group: str, resource: str, name: str, verbs: set[str]) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs)}
    return {**rule, "resourceNames": [name]} if name else rule


Part = Controller[Any, Any] | Admission[Any, Any] | Convert


class Operator:
    """Controllers and webhooks under one name."""

    def __init__(self, name: str, *parts: Part) -> None:
        self.name = name
        self.controllers = tuple(each for each in parts if isinstance(each, Controller))
        self.admissions: tuple[Admission[Any, Any], ...] = tuple(each for each in parts if isinstance(each, Admission))
        self.conversions = tuple(each for each in parts if isinstance(each, Convert))
        known = len(self.controllers) + len(self.admissions) + len(self.conversions)
        if known != len(parts):
            raise TypeError("an operator is made of Controller, Validate, Mutate and Convert")
        for named in (self.controllers, self.admissions):
            names = [each.name for each in named]
            if len(set(names)) != len(names):
                raise ValueError(f"two of {sorted(names)} are called the same: give them names")

    @property
    def has_webhooks(self) -> bool:
        return bool(self.admissions) or any(each.others for each in self.conversions)

    def manager(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        namespace: str = "",
        dry_run: bool = False,
        in_flight: InFlight | None = None,
    ) -> Manager:
        """Return a new manager with a loop for each controller; `manager.run()` runs them until cancelled.

        `namespace` applies to the controllers that set none themselves.
        """
        if dry_run:
            client = dry_run_client(client)
        manager = Manager(client, clock, ids)
        measurements = Measurements()
        for controller in self.controllers:
            Running(controller, manager, measurements, in_flight or InFlight(), namespace=namespace, dry_run=dry_run)
        manager.add_metrics(measurements.families)
        return manager

    @asynccontextmanager
    async def running(
        self, client: Client, clock: Clock, ids: Ids, *, namespace: str = "", dry_run: bool = False
    ) -> AsyncIterator[Manager]:
        """Run the controllers while the block runs. With `dry_run` the server validates every write and keeps none, and
        what would change is logged."""
        manager = self.manager(client, clock, ids, namespace=namespace, dry_run=dry_run)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(manager.run())
            try:
                await manager.ready.wait()
                yield manager
            finally:
                task.cancel()

    def reviewer(self, client: Client, clock: Clock) -> Reviewer:
        """Return the handler of admission and conversion reviews."""
        return Reviewer(self.admissions, self.conversions, client, clock)

    def manifests(self, reached: ReachedAt | None = None) -> list[dict[str, Any]]:
        """Return the objects that `install` creates, to apply them in another way.

        Webhook configurations are included if `reached` says where the API server finds the webhooks.
        """
        kinds = [each.kind for each in self.controllers] + [each.kind for each in self.admissions]
        found = definitions(kinds, self.conversions, reached)
        return found if reached is None else [*found, *configurations(self.name, self.admissions, reached)]

    def role(self, reached: ReachedAt | None = None) -> dict[str, Any]:
        """Return the ClusterRole with the permissions the operator needs, except those for its own use of
        `ctx.client`."""
        return cluster_role(self.name, self.controllers, self.manifests(reached))

    async def install(
        self, client: Client, clock: Clock, reached: ReachedAt | None = None, *, dry_run: bool = False
    ) -> list[str]:
        """Create or update the definitions of the kinds that have models, and the configurations of the webhooks, and
        wait until the kinds are served. Without `reached` the configurations of webhooks stay as they are.

        Returns the names of the definitions that are not installed, which can only be with `dry_run`."""
        wanted, known = self.manifests(reached), reached is not None or not self.has_webhooks
        client = dry_run_client(client) if dry_run else client
        return await register(client, clock, self.name, wanted, all_known=known, dry_run=dry_run)

    async def lead(self, client: Client, clock: Clock, ids: Ids, *, namespace: str, identity: str) -> None:
        """Run the controllers while holding the Lease with the operator's name. Raise LeadershipLost when it is
        lost."""
        election = LeaderElection(client, clock, ids, name=self.name, identity=identity, namespace=namespace)
        await election.lead(lambda: self.manager(client.fenced(election), clock, ids).run())

    def run(self, arguments: Sequence[str] | None = None) -> NoReturn:
        """Run the operator's process; see `setpoint.sdk.run`."""
        from setpoint.sdk import process  # not needed in tests

        process.run(self, arguments)
