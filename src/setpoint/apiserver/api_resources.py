"""The resources that an API server serves: their caches and registries, and what discovery says about them.

The parts of a server that read or write objects (admission, allocators, controllers of the server itself) are built
with an `ApiResources` before the server itself exists. `ApiServer` completes it with `configure` and starts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from setpoint.apiserver.discovery import Discovery, RemoteVersion
from setpoint.apiserver.encoding import Encoding, encoding_of
from setpoint.apiserver.health import SERVED, PostStart
from setpoint.apiserver.metrics import Metrics
from setpoint.apiserver.refusals import Refusals
from setpoint.apiserver.registry import Environment, Registry
from setpoint.apiserver.shared_entries import SharedEntries
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.apiserver.worker import Worker
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.objects import Obj
from setpoint.store.interface import Store
from setpoint.tasks import Timers
from setpoint.wire.loop_slices import LoopSlicer

if TYPE_CHECKING:
    from setpoint.apiserver.request_context import RequestContext
    from setpoint.apiserver.routing import Handler
    from setpoint.apiserver.why.facts import Loops
    from setpoint.wire.message import Answer, Request


DEFAULT_ADDRESS = "127.0.0.1:6443"


class ApiResources:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        worker: Worker | None = None,
        shared: SharedEntries | None = None,
    ) -> None:
        """`worker` runs work on large inputs; by default it runs inline, as virtual time needs it. `shared` are the
        decoded objects of the state from which this cluster and others of the process started; None shares nothing."""
        self._first_entry = None if shared is None else shared.entry_of
        self.store = store
        self.clock = clock
        self.ids = ids
        self.slicer = LoopSlicer(clock)
        self.timers = Timers(clock)
        self.worker = worker or Worker()
        self.metrics = Metrics()
        self.refusals = Refusals()
        """The latest writes that the server refused."""
        self.loops: Loops | None = None
        """The control loops of this process, which the composition root sets; None if they run elsewhere."""
        self.serve_further: Callable[[RequestContext, Request], Awaitable[Answer]] | None = None
        """Answers a further request of a client with the rights that its first one has; None until there is a
        server."""
        self.other_servers: Callable[[], int] | None = None
        """Returns how many other API servers run now that use the same store; None while this is not observed."""
        self.post_start = PostStart()
        self.caches: dict[str, ResourceCache] = {}
        """The cache of each resource, by its prefix in the store."""
        self.served: dict[tuple[str, str, str], Resource] = {}
        """The resources that are served, by (group, version, plural)."""
        self.registries: dict[tuple[str, str, str], Registry] = {}
        """The registries of the resources that are stored, by (group, version, plural)."""
        self.subresource_handlers: dict[tuple[str, str, str], Mapping[str, Handler]] = {}
        """Handlers by verb of the subresources that do more than write the object, by (group, plural, subresource)."""
        self.computed: dict[tuple[str, str], Handler] = {}
        """Handlers of the resources that are computed and not stored, by (group, plural)."""
        self.address = DEFAULT_ADDRESS
        """Address at which clients reach the server, as discovery shows it."""
        self.discovery = Discovery((), self.address)
        self.ready = False
        """Whether all caches are filled."""
        self.stopping = False
        self._built_in: dict[tuple[str, str], Registry] = {}
        """The registry of the preferred version of each built-in resource, by (group, plural); it never changes."""
        self._remote_versions: tuple[RemoteVersion, ...] = ()
        self._env: Environment | None = None

    def configure(
        self,
        env: Environment,
        subresource_handlers: Mapping[tuple[str, str, str], Mapping[str, Handler]],
        computed: Mapping[tuple[str, str], Handler],
    ) -> None:
        """Set what the registries share and the handlers of built-in resources. Called once, before `start`."""
        self._env = env
        self.subresource_handlers.update(subresource_handlers)
        self.computed.update(computed)

    @property
    def env(self) -> Environment:
        """The environment that all registries share."""
        assert self._env is not None, "configure comes first"
        return self._env

    # -- start and stop -------------------------------------------------------------------------------------------

    async def start(self, address: str = DEFAULT_ADDRESS) -> None:
        """Fill the caches of all built-in resources and start the hooks."""
        self.address = address
        await self.store.sync()
        for resource in RESOURCES:
            await self._serve(resource)
        for hooks in list(self.env.hooks.values()):
            await hooks.start()
        self.announce()
        self.ready = True
        self.post_start.finish(*SERVED)

    async def stop(self) -> None:
        self.ready, self.stopping = False, True
        for hooks in self.env.hooks.values():
            hooks.stop()
        for cache in self.caches.values():
            cache.stop()
        await self.timers.stop()

    async def _serve(self, resource: Resource) -> None:
        key = (resource.group, resource.version, resource.plural)
        self.served[key] = resource
        if not resource.is_stored:
            return
        cache = self.caches.get(resource.storage_prefix)
        if cache is None:
            cache = self.caches[resource.storage_prefix] = ResourceCache(
                resource.storage_prefix, self.store, resource.namespaced, self._first_entry
            )
            await cache.start()
        registry = self.registries[key] = Registry(resource, encoding_of(resource), cache, self.env)
        self._built_in.setdefault((resource.group, resource.plural), registry)

    # -- resources that come and go -------------------------------------------------------------------------------

    async def serve_custom(
        self,
        stored: Resource,
        versions: Mapping[str, tuple[Resource, Encoding]],
        hooks: Hooks,
        scale: Mapping[str, Handler],
        since: int = 0,
    ) -> ResourceCache | None:
        """Serve a custom kind in these versions only, with a new cache; `announce` makes it appear in discovery.

        Return the cache that served it before, or None. Requests in progress may still use that cache: the caller
        stops it after a grace period."""
        group, plural = stored.group, stored.plural
        before = self.caches.get(stored.storage_prefix)
        self.env.hooks[(group, plural)] = hooks
        self.subresource_handlers[(group, plural, "scale")] = scale
        cache = ResourceCache(stored.storage_prefix, self.store, stored.namespaced)
        await cache.start(since or (before.first_revision if before is not None else 0))
        self._remove(group, plural)
        self.caches[stored.storage_prefix] = cache
        for version, (resource, encoding) in versions.items():
            key = (group, version, plural)
            self.served[key] = resource
            self.registries[key] = Registry(resource, encoding, cache, self.env)
        return before

    def withdraw_custom(self, group: str, plural: str) -> ResourceCache | None:
        """Stop serving a custom kind and return its cache, as `serve_custom` does."""
        self._remove(group, plural)
        self.metrics.forget(group, plural)
        self.env.hooks.pop((group, plural), None)
        self.subresource_handlers.pop((group, plural, "scale"), None)
        return self.caches.pop(f"{group}/{plural}/", None)

    def _remove(self, group: str, plural: str) -> None:
        for key in [key for key in self.served if (key[0], key[2]) == (group, plural)]:
            del self.served[key], self.registries[key]

    def serve_computed(self, resource: Resource, handler: Handler) -> None:
        """Serve a resource that is not stored; `announce` makes it appear in discovery."""
        self.served[(resource.group, resource.version, resource.plural)] = resource
        self.computed[(resource.group, resource.plural)] = handler

    def announce(self) -> None:
        """Let discovery show the resources that are served now."""
        self.discovery = Discovery(self.served.values(), self.address, self._remote_versions)

    def announce_remote(self, versions: Iterable[RemoteVersion]) -> None:
        """Let discovery show these group versions of aggregated API servers, and no others."""
        self._remote_versions = tuple(versions)
        self.announce()

    # -- reads ----------------------------------------------------------------------------------------------------

    def registry(self, group: str, plural: str) -> Registry:
        """Return the registry of a resource, in any version that is served. Raises KeyError."""
        found = self._built_in.get((group, plural))
        if found is not None:
            return found
        for (of_group, _, of_plural), registry in self.registries.items():
            if (of_group, of_plural) == (group, plural):
                return registry
        raise KeyError(f"{plural}.{group}")

    def count(self) -> int:
        """Return the number of objects of all resources."""
        return sum(map(len, self.caches.values()))


class CacheReader:
    """Reads current objects, which are shared and must not be changed."""

    def __init__(self, api: ApiResources) -> None:
        self._api = api

    def get(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        if cache is None:
            return None
        entry = cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)
        return entry.obj if entry is not None else None

    def list(self, group: str, plural: str, namespace: str = "") -> Iterable[Obj]:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        # Called with every write; most clusters have no quotas, limit ranges and default classes.
        return (entry.obj for entry in cache.scan(namespace)) if cache else ()
