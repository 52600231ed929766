"""Assembles the garbage collector and watches the metadata of every resource for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from sys import intern
from typing import NamedTuple

from setpoint.client import Client, Resource, Unreachable
from setpoint.controllers.garbagecollector.deleting import Deleting, Orphaning, ServerObjects
from setpoint.controllers.garbagecollector.graph import AbsentOwners, Graph, Identity
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager
from setpoint.reconcile.informer import Handler

log = logging.getLogger("setpoint.controllers")

Key = tuple[str, str, str]

_IGNORED = {("", "events"), ("events.k8s.io", "events")}
"""Events are numerous, own nothing and expire by themselves."""
_NEEDED = {"delete", "list", "watch"}
_PERIOD = 30.0
"""Seconds between two discoveries of the served resources."""
_SYNC_TIMEOUT = 30.0
"""Seconds to wait until all new resources are listed: one that cannot be listed must not delay the others."""
_RETAINED_FIELDS = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "finalizers", "ownerReferences")
_ACCOUNT = "generic-garbage-collector"
_COMPONENT = "garbage-collector-controller"
_WORKERS = 20


class _Monitor(NamedTuple):
    resource: Resource
    informer: Informer[Obj]
    task: asyncio.Task[None] | None
    """The task that runs the informer; None if it is a shared informer."""


class Monitors:
    """Watches the metadata of every resource and feeds the graph."""

    def __init__(
        self, client: Client, clock: Clock, graph: Graph, shared: Callable[[Resource], Informer[Obj] | None]
    ) -> None:
        """Create the monitors. `shared` returns the existing informer of a resource, or None."""
        self._client = client
        self._clock = clock
        self._graph = graph
        self._shared = shared
        self._monitors: dict[Key, _Monitor] = {}
        self.synced = asyncio.Event()
        """Set once every object that existed at the start is in the graph, or the timeout has passed."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    await self._follow(tasks)
                except (ApiError, Unreachable) as error:
                    log.warning("garbage collector: discovery failed: %s", error)
                if self._monitors:
                    self.synced.set()
                await self._clock.sleep(_PERIOD)

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        discovery = self._client.discovery
        wanted = collectable(await discovery.resources(fresh=True))
        if not wanted:
            return
        for key, monitor in tuple(self._monitors.items()):
            # Objects of a group that is unavailable now still exist. A definition that was deleted and recreated may
            # have another kind or scope under the same name.
            if not _is_same(monitor.resource, wanted.get(key)) and f"{key[0]}/{key[1]}" not in discovery.missing:
                self._drop(self._monitors.pop(key))
        fresh = {key: resource for key, resource in wanted.items() if key not in self._monitors}
        if not fresh:
            return
        sync_timeout = tasks.create_task(_sleep(self._clock, _SYNC_TIMEOUT))
        for key, resource in fresh.items():
            # One after the other, to limit the load on the server.
            await self._add(tasks, key, resource, sync_timeout)
        sync_timeout.cancel()

    async def _add(
        self, tasks: asyncio.TaskGroup, key: Key, resource: Resource, sync_timeout: asyncio.Task[None]
    ) -> None:
        informer, task = self._shared(resource), None
        if informer is None:
            informer = Informer(self._client, resource, self._clock, metadata_only=True, transform=essentials)
            task = tasks.create_task(informer.run())
        self._monitors[key] = _Monitor(resource, informer, task)
        informer.add_handler(self._handler(resource))
        if not informer.synced.is_set() and not sync_timeout.done():
            known = tasks.create_task(informer.synced.wait())
            await asyncio.wait((known, sync_timeout), return_when=asyncio.FIRST_COMPLETED)
            known.cancel()

    def _drop(self, monitor: _Monitor) -> None:
        if monitor.task is None:
            return
        monitor.task.cancel()
        for obj in monitor.informer.items.values():
            self._graph.unwatch(_identity(monitor.resource, obj["metadata"]))

    def _handler(self, resource: Resource) -> Handler[Obj]:
        graph = self._graph

        def changed(old: Obj | None, new: Obj | None) -> None:
            if new is None:
                if old is not None:
                    graph.forget(_identity(resource, old["metadata"]))
                return
            before, now = None if old is None else old["metadata"], new["metadata"]
            if before is None or is_relevant(before, now):
                graph.observe(_identity(resource, now), before, now)

        return changed


def collectable(known: Iterable[Resource]) -> dict[Key, Resource]:
    """Return the resources that can be watched and deleted, each in the preferred version."""
    chosen: dict[tuple[str, str], Resource] = {}
    for resource in known:
        chosen.setdefault((resource.group, resource.plural), resource)
    return {
        (resource.group, resource.version, resource.plural): resource
        for name, resource in chosen.items()
        if name not in _IGNORED and _NEEDED.issubset(resource.verbs)
    }


def _is_same(followed: Resource, served: Resource | None) -> bool:
    return served is not None and (followed.kind, followed.namespaced) == (served.kind, served.namespaced)


def essentials(obj: Obj) -> Obj:
    """Return the part of the metadata that the collector uses."""
    meta = obj["metadata"]
    return {"metadata": {name: meta[name] for name in _RETAINED_FIELDS if name in meta}}


def is_relevant(before: Obj, now: Obj) -> bool:
    """Return whether a change is relevant; most are not."""
    return (
        before.get("deletionTimestamp") != now.get("deletionTimestamp")
        or before.get("finalizers") != now.get("finalizers")
        or before.get("ownerReferences") != now.get("ownerReferences")
    )


def _identity(resource: Resource, meta: Obj) -> Identity:
    namespace = intern(meta.get("namespace") or "")
    return Identity(resource.kind, intern(resource.api_version), namespace, meta["name"], meta["uid"])


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


class GarbageCollector:
    """Uses the manager's informers where they exist and its own for all other resources.

    It is not part of the manager's start, so that only the collector itself waits until every resource is listed.
    """

    def __init__(self, manager: Manager) -> None:
        client: Client = manager.client_for(_ACCOUNT)
        clock = manager.clock
        absent_owners, live = AbsentOwners(), ServerObjects(client, clock)
        self.graph = graph = Graph(self, absent_owners)
        self.monitors = Monitors(client, clock, graph, manager.shared_informer)
        self._recorder = EventRecorder(client, clock, _COMPONENT)
        deleting = Deleting(graph, live, absent_owners, self.enqueue)
        self._deleting = Controller(_COMPONENT, deleting.reconcile, clock, workers=_WORKERS)
        orphaning = Orphaning(graph, live)
        self._orphaning = Controller(f"{_COMPONENT}-orphans", orphaning.reconcile, clock, workers=_WORKERS)
        manager.adopt(self._deleting, self._orphaning)

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
