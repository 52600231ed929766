"""The controller of CustomResourceDefinitions.

A loop processes a definition whenever it changes and takes the next step: its names are accepted or not, it is served,
it is established. If it is deleted, its objects are deleted first. Every server serves what is accepted; if several
share a store, only the one that leads accepts names, establishes and deletes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING

from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.health import CUSTOM_CONTROLLERS
from setpoint.apiserver.internal_writes import update
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.registry import completes_within
from setpoint.apiserver.remote_servers import RemoteServers
from setpoint.apiserver.request_context import Target
from setpoint.apiserver.transactions import fenced_by
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.apiserver.worker import EXPRESSIONS, LARGE
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.apiextensions.definition_conditions import (
    APPROVAL,
    CLEANUP,
    ESTABLISHED,
    NAMES_ACCEPTED,
    NON_STRUCTURAL,
    accept_names,
    approval_condition,
    equivalent,
    establish,
    put,
    remove,
    structural_condition,
)
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.lease_term import Fence
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.apiserver.custom.conversion import Conversion
    from setpoint.apiserver.custom.serving import Removal, Serving

log = logging.getLogger("setpoint.apiserver")

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
_MAX_SERVING_WAIT = 1.0
"""Maximum number of seconds that a request waits until an established definition is served here."""


class Definitions(Hooks):
    """The controller of definitions, and their write hooks: stored definitions are served before the first request."""

    def __init__(self, api: ApiResources, openapi: OpenApi, servers: RemoteServers) -> None:
        self._api = api
        self._openapi = openapi
        self._servers = servers
        self._loop = KeyedLoop("custom resources", api.clock, self._sync)
        self._loop.on_started = partial(api.post_start.finish, CUSTOM_CONTROLLERS)
        self.run = self._loop.run
        """Follows the definitions as long as the server runs."""
        self._leads = True
        """Whether this server writes definitions: always, unless there is an election."""
        self._fence: Fence | None = None

    def lead(self, fence: Fence) -> None:
        """Write definitions from now on, in the terms of this fence."""
        self._leads, self._fence = True, fence
        cache = self._api.registry(GROUP, PLURAL).cache
        self._loop.due(*(entry.key.removeprefix(cache.prefix) for entry in cache.scan()))

    def stand_by(self) -> None:
        """Only serve definitions from now on: another server writes them."""
        self._leads, self._fence = False, None

    @cached_property
    def _serving(self) -> Serving:
        # Loaded with the first definition: many servers have none.
        from setpoint.apiserver.custom.serving import Serving

        return Serving(self._api, self._openapi, self._conversion)

    def _conversion(self, definition: Obj) -> Conversion:
        """Return the converter between the versions of a definition."""
        from setpoint.apiserver.custom.conversion import NoConversion  # as above

        if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return NoConversion()
        from setpoint.apiserver.custom.conversion import WebhookConversion

        client = WebhookClient(self._servers, CacheReader(self._api), self._api.clock)
        return WebhookConversion(definition, client, self._api.ids)

    @cached_property
    def _removal(self) -> Removal:
        from setpoint.apiserver.custom.serving import Removal

        return Removal(self._api, self._serving, self._write)

    async def start(self) -> None:
        cache = self._api.registry(GROUP, PLURAL).cache
        for entry in cache.scan():
            if _is_servable(entry.obj):
                try:
                    await self._serving.serve(entry.obj, since=await self._since(entry.obj))
                except Exception:  # an invalid definition must not prevent the start of the server
                    log.exception("custom resources %s", entry.obj["metadata"]["name"])
        self._loop.follow(cache, lambda entry: [entry.key.removeprefix(cache.prefix)])

    def _entry(self, name: str) -> Entry | None:
        cache = self._api.registry(GROUP, PLURAL).cache
        return cache.get(cache.prefix + name)

    def _names(self, group: str) -> list[str]:
        """Return the names of all definitions of a group."""
        cache = self._api.registry(GROUP, PLURAL).cache
        names = (entry.key.removeprefix(cache.prefix) for entry in cache.scan())
        return [name for name in names if name.partition(".")[2] == group]

    async def _definitions(self, group: str) -> list[Obj]:
        """Return all definitions of a group."""
        entries = [self._entry(name) for name in self._names(group)]
        return [await self._decoded(entry) for entry in entries if entry is not None]

    async def _decoded(self, entry: Entry) -> Obj:
        """Return a definition; a large one is decoded on a worker thread."""
        return await self._api.registry(GROUP, PLURAL).live(entry, self._api.worker)

    async def _sync(self, name: str) -> float | None:
        # With the first definition this takes longer than the event loop may be blocked.
        await self._api.worker.run(LARGE, import_module, "setpoint.apiserver.custom.serving")
        if not self._leads:
            return await self._follow(name)
        with fenced_by(self._fence):
            return await self._lead(name)

    async def _follow(self, name: str) -> float | None:
        """Serve the definition as the leading server has accepted it."""
        self._removal.forget(name)
        entry = self._entry(name)
        if entry is None:
            await self._serving.retire(name)
        else:
            await self._serve(await self._decoded(entry))
        return self._serving.close_retired(name)

    async def _lead(self, name: str) -> float | None:
        """Take the next step of the definition."""
        entry = self._entry(name)
        if entry is None:
            await self._serving.retire(name)
            self._removal.forget(name)
            # Other definitions may use its names now.
            group = name.partition(".")[2]
            self._loop.due(*self._names(group))
            await self._serving.register(group, await self._definitions(group))
            return self._serving.close_retired(name)
        obj = await self._decoded(entry)
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") and CLEANUP in (meta.get("finalizers") or ()):
            await self._serve(obj)
            return await self._removal.proceed(obj, lambda: self._loop.due(name))
        size = entry.size * EXPRESSIONS
        if await self._update_names(name, obj) or await self._update_conditions(name, obj, size):
            return None  # the write makes the key due again
        await self._serve(obj)
        group = obj["spec"]["group"]
        await self._serving.register(group, await self._definitions(group))
        # The last step: clients that see it may read the discovery documents and write objects at once.
        if is_true(obj, NAMES_ACCEPTED) and not is_true(obj, ESTABLISHED):
            established = establish(obj)
            if not equivalent(established, condition_of(obj, ESTABLISHED)):
                await self._write(name, lambda changed: put(changed, established, self._now()))
                return None
        return self._serving.close_retired(name)

    async def _serve(self, obj: Obj) -> None:
        if _is_servable(obj):
            await self._serving.serve(obj, since=await self._since(obj))
        else:
            await self._serving.retire(obj["metadata"]["name"])

    async def _since(self, obj: Obj) -> int:
        """Return the revision at which the definition was created, the same on every server and after every restart:
        there were no objects of it before."""
        meta = obj["metadata"]
        stored = await self._api.store.get(self._api.registry(GROUP, PLURAL).key("", meta["name"]))
        return stored.create_revision if stored is not None else int(meta["resourceVersion"])

    async def await_definition(self, target: Target) -> None:
        """Wait for a limited time until the definition of this resource is served as it is stored now.

        Another server may have accepted, changed or deleted it a moment ago."""
        name = f"{target.resource}.{target.group}"
        if not self._loop.is_pending(name):
            return
        entry = self._entry(name)
        obj = await self._decoded(entry) if entry is not None else None
        if not self._serving.is_current(name, obj if obj is not None and _is_servable(obj) else None):
            await self._settle()

    async def await_all(self) -> None:
        """Wait for a limited time until all definitions are served as they are stored now."""
        if self._loop.is_busy:
            await self._settle()

    async def _settle(self) -> None:
        await completes_within(self._api.clock, _MAX_SERVING_WAIT, self._loop.idle())

    async def _update_names(self, name: str, obj: Obj) -> bool:
        """Accept or reject the names. Return whether the definition was changed."""
        accepted_before = _non_empty((obj.get("status") or {}).get("acceptedNames"))
        if _non_empty(obj["spec"].get("names")) == accepted_before:
            return False
        group = await self._definitions(obj["spec"]["group"])
        siblings = [other for other in group if other["metadata"]["name"] != name]
        names, accepted, established = accept_names(obj, siblings)
        if _non_empty(names) == accepted_before and equivalent(accepted, condition_of(obj, NAMES_ACCEPTED)):
            return False

        def change(changed: Obj) -> None:
            changed["status"] = {**(changed.get("status") or {}), "acceptedNames": names}
            put(changed, accepted, self._now())
            put(changed, established, self._now())

        await self._write(name, change)
        self._loop.due(*(other["metadata"]["name"] for other in siblings))
        return True

    async def _update_conditions(self, name: str, obj: Obj, size: int) -> bool:
        """Update the conditions that do not affect serving. Return whether the definition was changed."""
        structural = await self._api.worker.run(size, structural_condition, obj)
        for kind, condition in ((APPROVAL, approval_condition(obj)), (NON_STRUCTURAL, structural)):
            if equivalent(condition, condition_of(obj, kind)):
                continue
            await self._write(name, partial(self._set, kind, condition))
            return True
        return False

    def _set(self, kind: str, condition: Obj | None, changed: Obj) -> None:
        if condition is None:
            remove(changed, kind)
        else:
            put(changed, condition, self._now())

    async def _write(self, name: str, change: Callable[[Obj], None]) -> None:
        await update(self._api, GROUP, PLURAL, "", name, change, subresource="status")

    def _now(self) -> str:
        return format_time(self._api.clock.now())


def _is_servable(obj: Obj) -> bool:
    return is_true(obj, NAMES_ACCEPTED) or is_true(obj, ESTABLISHED)


def _non_empty(names: Obj | None) -> Obj:
    return {name: value for name, value in (names or {}).items() if value}
