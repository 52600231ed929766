"""Watches the metadata of every resource for the garbage collector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any

from setpoint.client import Client, Resource, Unreachable
from setpoint.controllers.garbagecollector.graph import Graph
from setpoint.controllers.garbagecollector.identity import Identity
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.reconcile import Informer
from setpoint.reconcile.informer import Handler

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]
Key = tuple[str, str, str]

_IGNORED = {("", "events"), ("events.k8s.io", "events")}
"""Events are numerous, own nothing and expire by themselves."""
_NEEDED = {"delete", "list", "watch"}
_PERIOD = 30.0
"""Seconds between two discoveries of the served resources."""
_SYNC_TIMEOUT = 30.0
"""Seconds to wait until all new resources are listed: one that cannot be listed must not delay the others."""
_RETAINED_FIELDS = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "finalizers", "ownerReferences")


@dataclass(slots=True)
class _Monitor:
    resource: Resource
    informer: Informer
    task: asyncio.Task[None] | None
    """The task that runs the informer; None if it is a shared informer."""


class Monitors:
    def __init__(
        self, client: Client, clock: Clock, graph: Graph, shared: Callable[[Resource], Informer | None]
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
            task = tasks.create_task(_run(informer))
        self._monitors[key] = _Monitor(resource, informer, task)
        informer.add_handler(self._handler(resource))
        if not informer.synced.is_set() and not sync_timeout.done():
            known = tasks.create_task(_wait(informer.synced))
            await asyncio.wait((known, sync_timeout), return_when=asyncio.FIRST_COMPLETED)
            known.cancel()

    def _drop(self, monitor: _Monitor) -> None:
        if monitor.task is None:
            return
        monitor.task.cancel()
        for obj in monitor.informer.items.values():
            self._graph.unwatch(_identity(monitor.resource, obj["metadata"]))

    def _handler(self, resource: Resource) -> Handler:
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


async def _run(informer: Informer) -> None:
    await informer.run()


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
