"""Assembles the garbage collector."""

from __future__ import annotations

import asyncio

from setpoint.client import Client
from setpoint.controllers.garbagecollector.absent_owners import AbsentOwners
from setpoint.controllers.garbagecollector.deleting import Deleting
from setpoint.controllers.garbagecollector.graph import Graph
from setpoint.controllers.garbagecollector.identity import Identity
from setpoint.controllers.garbagecollector.live import Live
from setpoint.controllers.garbagecollector.monitors import Monitors
from setpoint.controllers.garbagecollector.orphaning import Orphaning
from setpoint.reconcile import Controller, EventRecorder, Manager

_ACCOUNT = "generic-garbage-collector"
_COMPONENT = "garbage-collector-controller"
_WORKERS = 20


class GarbageCollector:
    """Uses the manager's informers where they exist and its own for all other resources.

    It is not part of the manager's start, so that only the collector itself waits until every resource is listed.
    """

    def __init__(self, manager: Manager) -> None:
        client: Client = manager.client_for(_ACCOUNT)
        clock = manager.clock
        absent_owners, live = AbsentOwners(), Live(client, clock)
        self.graph = graph = Graph(self, absent_owners)
        self.monitors = Monitors(client, clock, graph, manager.shared_informer)
        self._recorder = EventRecorder(client, clock, _COMPONENT)
        deleting = Deleting(graph, live, absent_owners, self.enqueue)
        self._deleting = Controller(_COMPONENT, deleting.reconcile, clock, workers=_WORKERS)
        orphaning = Orphaning(graph, live)
        self._orphaning = Controller(f"{_COMPONENT}-orphans", orphaning.reconcile, clock, workers=_WORKERS)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.monitors.run())
            tasks.create_task(self._recorder.run())
            # Before that, existing owners may look absent, and dependents are unknown.
            await self.monitors.synced.wait()
            tasks.create_task(self._deleting.run())
            tasks.create_task(self._orphaning.run())

    # -- actions of the graph -----------------------------------------------------------------------------------------

    def enqueue(self, uid: str) -> None:
        self._deleting.queue.add(uid)

    def enqueue_with_backoff(self, uid: str) -> None:
        self._deleting.queue.add_rate_limited(uid)

    def orphan(self, uid: str) -> None:
        self._orphaning.queue.add(uid)

    def wrong_namespace(self, dependent: Identity, owner: Identity) -> None:
        about = {
            "apiVersion": dependent.api_version,
            "kind": dependent.kind,
            "metadata": {"name": dependent.name, "namespace": dependent.namespace, "uid": dependent.uid},
        }
        message = f'ownerRef {owner} does not exist in namespace "{dependent.namespace}"'
        self._recorder.warning(about, "OwnerRefInvalidNamespace", message)
