"""Controllers made to run: against any cluster, one leader at a time; or on a client that a test hands in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from setpoint.client import Client
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import AlreadyExists
from setpoint.reconcile import LeaderElection, Manager
from setpoint.sdk.controller import Controller, Running

_READY_WITHIN = 30.0
_LOOK_EVERY = 0.1


class Operator:
    """Some controllers under one name."""

    def __init__(self, name: str, *controllers: Controller[Any, Any]) -> None:
        self.name = name
        self.controllers = controllers

    def manager(self, client: Client, clock: Clock, ids: Ids) -> Manager:
        """A fresh one with a loop for each controller; `manager.run()` runs them until cancelled."""
        manager = Manager(client, clock, ids)
        for controller in self.controllers:
            Running(controller, manager)
        return manager

    @asynccontextmanager
    async def running(self, client: Client, clock: Clock, ids: Ids) -> AsyncIterator[Manager]:
        """Inside the block they are at work."""
        manager = self.manager(client, clock, ids)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(manager.run())
            try:
                await manager.ready.wait()
                yield manager
            finally:
                task.cancel()

    async def install(self, client: Client, clock: Clock) -> None:
        """Defines the kinds that have models, or brings their definitions up to date; returns when they are served."""
        for controller in self.controllers:
            if controller.kind.spec is None or not controller.kind.group:
                continue
            definition = controller.kind.definition()
            try:
                await client.create(definition)
            except AlreadyExists:
                await client.apply(definition, field_manager=self.name, force=True)
            await _served(client, clock, definition["metadata"]["name"])

    async def lead(self, client: Client, clock: Clock, ids: Ids, *, namespace: str, identity: str) -> None:
        """Works while it holds the Lease with the operator's name, for ever. Raises LeadershipLost."""
        election = LeaderElection(client, clock, ids, name=self.name, identity=identity, namespace=namespace)
        await election.lead(lambda: self.manager(client, clock, ids).run())


async def _served(client: Client, clock: Clock, name: str) -> None:
    until = clock.monotonic() + _READY_WITHIN
    definitions = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    while True:
        found = await client.get(definitions, name)
        conditions = (found.get("status") or {}).get("conditions") or ()
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return
        if clock.monotonic() > until:
            raise TimeoutError(f"{name} is not served after {_READY_WITHIN:.0f} s")
        await clock.sleep(_LOOK_EVERY)
