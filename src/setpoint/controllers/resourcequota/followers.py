"""Informers for the resources that quotas name, started when the first quota names them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.client import Client, Resource
from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.core.quota_usage import Meter, meter
from setpoint.meta.clock import Clock
from setpoint.reconcile import Informer

Obj = dict[str, Any]
Key = tuple[str, str]
"""Group and plural."""
Changed = Callable[[Meter, Obj | None, Obj | None], None]

_NEEDED = {"create", "delete", "list", "watch"}
_RETAINED_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(slots=True)
class _Followed:
    resource: Resource
    informer: Informer
    task: asyncio.Task[None] | None
    """The task that runs the informer; None if it is a shared informer."""


class Followers:
    def __init__(
        self, client: Client, clock: Clock, shared: Callable[[Resource], Informer | None], changed: Changed
    ) -> None:
        """Create the followers. `shared` returns existing informers; `changed` is called for every change of an
        object."""
        self._client = client
        self._clock = clock
        self._shared = shared
        self._changed = changed
        self._tasks: asyncio.TaskGroup | None = None
        self._followed: dict[Key, _Followed] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    async def measured(self, *, fresh: bool = False) -> dict[Key, tuple[Resource, Meter]]:
        """Return every resource that a quota can count. `fresh` bypasses the discovery cache."""
        found: dict[Key, tuple[Resource, Meter]] = {}
        for resource in await self._client.discovery.resources(fresh=fresh):
            key = (resource.group, resource.plural)
            if resource.namespaced and key not in found and _NEEDED.issubset(resource.verbs):
                its_meter = meter(*key)
                if its_meter is not None:
                    found[key] = (resource, its_meter)
        return found

    @property
    def custom(self) -> bool:
        """Return whether a custom resource is followed, which the server may stop serving."""
        return any(followed.resource not in RESOURCES for followed in self._followed.values())

    def drop_unserved(self, served: Mapping[Key, tuple[Resource, Meter]]) -> bool:
        """Stop informers of resources that are no longer served or were redefined. Return whether there were any."""
        dropped = False
        for key, followed in tuple(self._followed.items()):
            if followed.task is None or (key in served and served[key][0].version == followed.resource.version):
                continue
            if followed.resource.api_version not in self._client.discovery.missing:
                followed.task.cancel()
                followed.informer.synced.set()  # release those that wait for the sync
                del self._followed[key]
                dropped = True
        return dropped

    def objects(
        self, resource: Resource, its_meter: Meter, namespace: str, ready: Callable[[], None]
    ) -> list[Obj] | None:
        """Return the objects in a namespace, or None while they are not synced; then `ready` is called later."""
        informer = self._follow(resource, its_meter)
        if not informer.synced.is_set():
            assert self._tasks is not None
            self._tasks.create_task(_then(informer, ready))
            return None
        return informer.by_index("namespace", namespace)

    def _follow(self, resource: Resource, its_meter: Meter) -> Informer:
        key = (resource.group, resource.plural)
        known = self._followed.get(key)
        if known is not None:
            return known.informer
        informer, task = self._shared(resource), None
        if informer is None:
            counted_only = type(its_meter) is Meter
            informer = Informer(
                self._client,
                resource,
                self._clock,
                metadata_only=counted_only,
                transform=_name if counted_only else None,
            )
            assert self._tasks is not None
            task = self._tasks.create_task(_run(informer))
        self._followed[key] = _Followed(resource, informer, task)
        informer.add_index("namespace", _namespace)
        informer.add_handler(lambda old, new: self._changed(its_meter, old, new))
        return informer


def _name(obj: Obj) -> Obj:
    meta = obj["metadata"]
    return {"metadata": {name: meta[name] for name in _RETAINED_FIELDS if name in meta}}


def _namespace(obj: Obj) -> tuple[str]:
    return (obj["metadata"]["namespace"],)


async def _run(informer: Informer) -> None:
    await informer.run()


async def _then(informer: Informer, ready: Callable[[], None]) -> None:
    await informer.synced.wait()
    ready()
