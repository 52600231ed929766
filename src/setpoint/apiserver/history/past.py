"""`/at/<when>/...`: a read-only API server of a moment of the past.

A request below this path is answered by the handlers of the live server, with the objects and the custom kinds of that
moment. Unmodified clients use it as the path of their server: `kubectl --server https://127.0.0.1:6443/at/-5m`.
Users who may read the path `/at/*` see what they may read today: the rights of the past do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry, entry_of
from setpoint.apiserver.corrupt_objects import corruption
from setpoint.apiserver.custom import definitions
from setpoint.apiserver.custom.definitions import Definitions
from setpoint.apiserver.encoding import encoding_of
from setpoint.apiserver.error_responses import authorization_failed
from setpoint.apiserver.filters.authorize import Decision, Problem, access_of, forbidden
from setpoint.apiserver.handlers.scale import BuiltInScaling, ScaleHandlers
from setpoint.apiserver.history.past_store import PastStore
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.registry import Environment, Registry
from setpoint.apiserver.remote_servers import RemoteServers
from setpoint.apiserver.request_context import RequestContext, Target, parse_path, percent_decoded, verb_of
from setpoint.apiserver.routing import Handler, Routing
from setpoint.apiserver.transactions import Transactions
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import MethodNotAllowed
from setpoint.store.key_order import KeyOrder
from setpoint.wire.message import Answer

if TYPE_CHECKING:
    from setpoint.apiserver.server import PathHandler, ServerParts

PREFIX = "/at/"
AUDIT_ANNOTATION = "setpoint.dev/at"
_HEADER = "Setpoint-At"
_MAX_SERVERS = 8
"""Number of moments whose objects are kept for further requests."""
_MAX_OBJECTS = 100_000
"""Number of objects of all these moments together, from which on the least recently used are dropped."""
_BATCH = 1_000
"""Number of objects that are read in one iteration of the event loop."""
_DEFINITIONS = f"{definitions.GROUP}/{definitions.PLURAL}/"
_DOCUMENTS = ("/api", "/apis", "/openapi")
_SCALABLE = (("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"), ("", "replicationcontrollers"))


class _PastCache(ResourceCache):
    """The objects of a resource at a moment, read when they are first asked for: one, or all."""

    def __init__(self, prefix: str, store: PastStore, namespaced: bool) -> None:
        super().__init__(prefix, store, namespaced)
        self._loading = asyncio.Lock()

    async def load_one(self, key: str) -> None:
        if self.revision or key in self._entries:
            return
        found = await self._store.get(key)
        if found is not None and not self.revision:
            self._entries[key] = entry_of(found)

    async def load(self) -> None:
        async with self._loading:
            if self.revision:
                return
            page = await self._store.list(self.prefix)
            entries: dict[str, Entry] = {}
            for start in range(0, len(page.items), _BATCH):
                entries.update((each.key, entry_of(each)) for each in page.items[start : start + _BATCH])
                await asyncio.sleep(0)
            self.corrupt = {each.key: why for each in page.items if (why := corruption(each))}
            self._entries, self._keys = entries, KeyOrder(entries)
            self.revision = self.changed = page.revision


class _PastDefinitions(Definitions):
    """The custom kinds of a moment, each served from the first request for it on."""

    def __init__(self, api: ApiResources, openapi: OpenApi, servers: RemoteServers) -> None:
        super().__init__(api, openapi, servers)
        self._serving_lock = asyncio.Lock()

    async def await_definition(self, target: Target) -> None:
        async with self._serving_lock:
            await self._serve_named([f"{target.resource}.{target.group}"])

    async def await_all(self) -> None:
        async with self._serving_lock:
            cache = self._api.registry(definitions.GROUP, definitions.PLURAL).cache
            await self._serve_named([entry.key.removeprefix(cache.prefix) for entry in cache.scan()])

    async def _serve_named(self, names: list[str]) -> None:
        for name in names:
            entry = self._entry(name)
            if entry is not None:
                await self._serve(await self._decoded(entry))


class PastServer:
    """The API server of one revision. Several moments may have the same one: the time is that of each request."""

    def __init__(self, live: ApiResources, parts: ServerParts, servers: RemoteServers, store: PastStore) -> None:
        self._caches: dict[str, _PastCache] = {}
        """The caches of the built-in resources by prefix."""
        self.api = api = ApiResources(store, live.clock, live.ids, live.worker)
        api.address = live.address
        env = Environment(
            store=store,
            clock=live.clock,
            slicer=live.slicer,
            ids=live.ids,
            admission=parts.admission,
            authorizer=parts.authorizer,
            hooks={},
            needs_rewrite=None,
            transactions=Transactions(store, live.clock),
            timers=live.timers,
        )
        scale: Mapping[str, Handler] = {"get": ScaleHandlers(BuiltInScaling()).by_verb["get"]}
        api.configure(env, {(group, plural, "scale"): scale for group, plural in _SCALABLE}, {})
        for resource in RESOURCES:
            if resource.is_stored:
                key = (resource.group, resource.version, resource.plural)
                prefix = resource.storage_prefix
                cache = self._caches.get(prefix)
                if cache is None:
                    cache = self._caches[prefix] = api.caches[prefix] = _PastCache(prefix, store, resource.namespaced)
                api.served[key] = resource
                api.registries[key] = Registry(resource, encoding_of(resource), cache, env)
        openapi = OpenApi([resource for resource in RESOURCES if resource.is_stored])
        paths: dict[str, PathHandler] = {}
        openapi.install(paths)
        self._definitions = _PastDefinitions(api, openapi, servers)
        self._routing = Routing(
            api,
            replace(parts, aggregation=None, definitions=self._definitions, paths=paths, unlisted_paths={}),
        )
        self._announced = False

    async def answer(self, ctx: RequestContext) -> Answer:
        target = ctx.target
        registry = self.api.registries.get((target.group, target.version, target.resource))
        if registry is None and not self._announced:
            self._announced = True
            self.api.announce()
        if not target.resource:
            if target.path.startswith(_DOCUMENTS):
                await self._load_definitions()
                await self._definitions.await_all()
            return await self._routing.answer(ctx)
        if registry is None:
            await self._load_definitions()
        elif (cache := self._caches.get(registry.cache.prefix)) is not None:
            if target.name and not target.watch:
                await cache.load_one(registry.key(target.namespace, target.name))
            else:
                await cache.load()
        return await self._routing.answer(ctx)

    async def _load_definitions(self) -> None:
        await self._caches[_DEFINITIONS].load()


class Past:
    """The servers of the moments that clients ask for."""

    def __init__(self, live: ApiResources, reader: HistoryReader, moments: Moments, servers: RemoteServers) -> None:
        self._live = live
        self._reader = reader
        self._moments = moments
        self._servers = servers
        self._parts: ServerParts | None = None
        self._past: dict[int, PastServer] = {}
        """The servers by revision, the least recently used first."""

    def configure(self, parts: ServerParts) -> None:
        """Set the parts of the live server, which is built after this. Called once."""
        self._parts = parts

    async def answer(self, ctx: RequestContext) -> Answer:
        """Answer a request below `/at/`."""
        parts = self._parts
        assert parts is not None, "configure comes first"
        named, _, rest = ctx.request.path.removeprefix(PREFIX).partition("/")
        moment = await self._moments.find(percent_decoded(named), ctx.now)
        if ctx.audit is not None:
            ctx.audit.annotations[AUDIT_ANNOTATION] = moment.header
        target = parse_path(f"/{rest}")
        now = moment.at or ctx.now
        inner = replace(ctx, target=target, verb=verb_of(ctx.request.method, target, ctx.query), now=now, is_past=True)
        access = access_of(inner)
        decision, reason = await parts.authorizer.decide(access)
        if decision is not Decision.ALLOW:
            if isinstance(reason, Problem):
                return authorization_failed(ctx.request, reason)
            raise forbidden(access, reason)
        if ctx.request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed("the past cannot be changed", details={})
        if target.subresource and not self._is_kept(inner):
            raise MethodNotAllowed(f"{target.resource}/{target.subresource} of the past is not kept", details={})
        answer = await self._server_of(moment.revision).answer(inner)
        answer.headers.append((_HEADER, moment.header))
        return answer

    def _is_kept(self, ctx: RequestContext) -> bool:
        """Return whether a subresource shows stored objects: the others are streams and actions."""
        return ctx.target.subresource in ("status", "scale", "approval", "resize", "ephemeralcontainers")

    def _server_of(self, revision: int) -> PastServer:
        """Return the server of a revision, and drop those of others if there are too many."""
        assert self._parts is not None
        past = self._past
        server = past.pop(revision, None)
        if server is None:
            server = PastServer(self._live, self._parts, self._servers, PastStore(self._reader, revision))
        past[revision] = server
        while len(past) > 1 and (
            len(past) > _MAX_SERVERS or sum(each.api.count() for each in past.values()) > _MAX_OBJECTS
        ):
            del past[next(iter(past))]
        return server
