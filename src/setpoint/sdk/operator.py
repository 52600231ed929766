"""Controllers and webhooks made to run: against any cluster, one leader at a time; or on a client that a test hands
in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from setpoint.client import Client
from setpoint.meta.clock import Clock, Ids
from setpoint.reconcile import LeaderElection, Manager
from setpoint.sdk.controller import Controller
from setpoint.sdk.dry_run import dry_run_client
from setpoint.sdk.loop import InFlight, Running
from setpoint.sdk.metrics import Measurements
from setpoint.sdk.registration import ReachedAt, configurations, definitions, register
from setpoint.sdk.reviewing import Reviewer
from setpoint.sdk.rights import cluster_role
from setpoint.sdk.webhooks import Admission, Convert

Part = Controller[Any, Any] | Admission[Any, Any] | Convert


class Operator:
    """Some controllers and webhooks under one name."""

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
        """A fresh one with a loop for each controller; `manager.run()` runs them until cancelled. `namespace`: where
        those work that do not say so themselves."""
        if dry_run:
            client = dry_run_client(client)
        manager = Manager(client, clock, ids)
        measurements = Measurements()
        for controller in self.controllers:
            Running(
                controller, manager, measurements, in_flight or InFlight(), namespace=namespace, dry_run=dry_run
            )  # fmt: skip
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
        """What answers when the API server asks."""
        return Reviewer(self.admissions, self.conversions, client, clock)

    def manifests(self, reached: ReachedAt | None = None) -> list[dict[str, Any]]:
        """What `install` makes: for those who would rather apply it themselves. Webhooks are among them if it is said
        where they are reached."""
        kinds = [each.kind for each in self.controllers] + [each.kind for each in self.admissions]
        found = definitions(kinds, self.conversions, reached)
        return found if reached is None else [*found, *configurations(self.name, self.admissions, reached)]

    def role(self, reached: ReachedAt | None = None) -> dict[str, Any]:
        """The ClusterRole with all that the operator must be allowed, but for what its reconciles do with `ctx.client`
        besides."""
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
        """Works while it holds the Lease with the operator's name, for ever. Raises LeadershipLost."""
        election = LeaderElection(client, clock, ids, name=self.name, identity=identity, namespace=namespace)
        await election.lead(lambda: self.manager(client.fenced(election), clock, ids).run())

    def run(self, arguments: Sequence[str] | None = None) -> NoReturn:
        """The main of the operator's process: see `setpoint.sdk.run`."""
        from setpoint.sdk import process  # what a test does not need

        process.run(self, arguments)
