"""Brings definitions into service, keeps them there as they change, and takes them out with all their objects.

One loop looks at a definition whenever it changes and takes the next step: its names are accepted or not, it is served,
it is established; or, when it is deleted, its objects are, and then it is let go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import orjson

from setpoint.apiserver.custom.conversion import Conversion, NoConversion
from setpoint.apiserver.far_server import FarServers
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.own_writes import update
from setpoint.apiserver.post_start import CUSTOM_CONTROLLERS
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.request import Target
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.apiserver.waiting import happens_within
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.apiserver.worker import EXPRESSIONS
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
    find,
    is_true,
    put,
    remove,
    structural_condition,
)
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.apiserver.custom.removal import Removal
    from setpoint.apiserver.custom.serving import Serving

log = logging.getLogger("setpoint.apiserver")

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
_LONGEST_WAIT = 1.0
"""Seconds that a request waits for an established definition to be served here."""


class Definitions(Hooks):
    """Also the hooks of the definitions themselves: those that are there are served before the first request."""

    def __init__(self, api: ApiServer, openapi: OpenApi, servers: FarServers) -> None:
        self._api = api
        self._openapi = openapi
        self._servers = servers
        self._loop = KeyedLoop("custom resources", api.clock, self._sync)
        self._loop.on_started = partial(api.post_start.finish, CUSTOM_CONTROLLERS)
        api.background.append(self._loop.run)
        api.await_definition = self._await_definition

    @cached_property
    def _serving(self) -> Serving:
        # Loaded with the first definition: many servers never have one.
        from setpoint.apiserver.custom.serving import Serving

        return Serving(self._api, self._openapi, self._conversion)

    def _conversion(self, definition: Obj) -> Conversion:
        """How the versions of a definition are converted."""
        if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return NoConversion()
        from setpoint.apiserver.custom.webhook_conversion import WebhookConversion  # as above

        client = WebhookClient(self._servers, CacheReader(self._api), self._api.clock)
        return WebhookConversion(definition, client, self._api.ids)

    @cached_property
    def _removal(self) -> Removal:
        from setpoint.apiserver.custom.removal import Removal  # as above

        return Removal(self._api, self._serving, self._write)

    async def start(self) -> None:
        cache = self._api.registry(GROUP, PLURAL).cache
        for entry in cache.scan():
            if _is_servable(entry.obj):
                try:
                    await self._serving.serve(entry.obj, since=await self._since(entry.obj))
                except Exception:  # one definition that makes no sense must not keep the server from starting
                    log.exception("custom resources %s", entry.obj["metadata"]["name"])
        self._loop.follow(cache, lambda entry: [entry.obj["metadata"]["name"]])

    def _entry(self, name: str) -> Entry | None:
        cache = self._api.registry(GROUP, PLURAL).cache
        return cache.get(cache.prefix + name)

    def _siblings(self, name: str) -> list[Obj]:
        """The other definitions of the same group."""
        group = name.partition(".")[2]
        objs = [entry.obj for entry in self._api.registry(GROUP, PLURAL).cache.scan()]
        return [obj for obj in objs if obj["spec"]["group"] == group and obj["metadata"]["name"] != name]

    async def _sync(self, name: str) -> float | None:
        entry = self._entry(name)
        if entry is None:
            await self._serving.retire(name)
            self._removal.forget(name)
            # Its names are free again.
            self._loop.due(*(obj["metadata"]["name"] for obj in self._siblings(name)))
            await self._serving.register(name.partition(".")[2])
            return self._serving.close_left(name)
        obj, meta = entry.obj, entry.obj["metadata"]
        if meta.get("deletionTimestamp") and CLEANUP in (meta.get("finalizers") or ()):
            await self._serve(obj)
            return await self._removal.proceed(obj, lambda: self._loop.due(name))
        if await self._name(name, obj) or await self._judge(name, obj):
            return None  # the change brings us here again
        await self._serve(obj)
        if is_true(obj, NAMES_ACCEPTED) and not is_true(obj, ESTABLISHED):
            established = establish(obj)
            if not equivalent(established, find(obj, ESTABLISHED)):
                await self._write(name, lambda changed: put(changed, established, self._now()))
                return None
        await self._serving.register(obj["spec"]["group"])
        return self._serving.close_left(name)

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

    async def _await_definition(self, target: Target) -> None:
        """Return when a definition that another server has established is served here too, or after a while."""
        entry = self._entry(f"{target.resource}.{target.group}")
        if entry is None or not is_true(entry.obj, ESTABLISHED):
            return
        if any(each["name"] == target.version and each.get("served") for each in entry.obj["spec"]["versions"]):
            await happens_within(self._api.clock, _LONGEST_WAIT, self._loop.idle())

    async def _name(self, name: str, obj: Obj) -> bool:
        """Whether its names had to be looked at and something changed by it."""
        had = _said((obj.get("status") or {}).get("acceptedNames"))
        if _said(obj["spec"].get("names")) == had:
            return False
        names, accepted, established = accept_names(obj, self._siblings(name))
        if _said(names) == had and equivalent(accepted, find(obj, NAMES_ACCEPTED)):
            return False

        def change(changed: Obj) -> None:
            changed["status"] = {**(changed.get("status") or {}), "acceptedNames": names}
            put(changed, accepted, self._now())
            put(changed, established, self._now())

        await self._write(name, change)
        self._loop.due(*(other["metadata"]["name"] for other in self._siblings(name)))
        return True

    async def _judge(self, name: str, obj: Obj) -> bool:
        """Conditions that say something and decide nothing."""
        size = len(orjson.dumps(obj["spec"])) * EXPRESSIONS
        structural = await self._api.worker.run(size, structural_condition, obj)
        for kind, judged in ((APPROVAL, approval_condition(obj)), (NON_STRUCTURAL, structural)):
            if equivalent(judged, find(obj, kind)):
                continue
            await self._write(name, partial(self._set, kind, judged))
            return True
        return False

    def _set(self, kind: str, judged: Obj | None, changed: Obj) -> None:
        if judged is None:
            remove(changed, kind)
        else:
            put(changed, judged, self._now())

    async def _write(self, name: str, change: Callable[[Obj], None]) -> None:
        await update(self._api, GROUP, PLURAL, "", name, change, subresource="status")

    def _now(self) -> str:
        return format_time(self._api.clock.now())


def _is_servable(obj: Obj) -> bool:
    return is_true(obj, NAMES_ACCEPTED) or is_true(obj, ESTABLISHED)


def _said(names: Obj | None) -> Obj:
    return {name: value for name, value in (names or {}).items() if value}
