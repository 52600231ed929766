"""The custom kinds that are served, and the removal of a definition with its objects.

A changed definition takes effect with the next request. Requests and watches under the earlier definition have a second
to finish. A deleted definition is served until all its objects are gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.custom.conversion import Conversion
from setpoint.apiserver.custom.encoding import CustomEncoding
from setpoint.apiserver.custom.resource import CustomResource, CustomScaling, DefinitionState, resources_of
from setpoint.apiserver.handlers.scale import ScaleHandlers
from setpoint.apiserver.internal_writes import current, delete, ensure, internal_context
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.watch_cache import Change, ResourceCache, Watch
from setpoint.apiserver.worker import EXPRESSIONS, LARGE
from setpoint.apiserver.write_hooks import Hooks
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.apiextensions.definition_conditions import (
    CLEANUP,
    ESTABLISHED,
    TERMINATING,
    condition,
    equivalent,
    put,
)
from setpoint.kinds.bootstrap.initial_objects import AUTO_MANAGED, custom_api_service
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.errors import ApiError, Forbidden, NotFound
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.store.interface import Op

_GRACE = 1.0
"""Seconds until watches and requests under an earlier definition are ended."""
_REGISTRATION = "apiregistration.k8s.io"
_RECHECK_SECONDS = 5.0
_DELETION_TIMEOUT = 60.0


@dataclass(slots=True)
class ServedDefinition:
    """A definition that is served."""

    definition: Obj
    resources: list[CustomResource]
    state: DefinitionState
    registry: Registry
    """The registry of the storage version, which need not be served."""
    announced: bool = False
    """Whether the resources are in the discovery documents."""


class _CustomHooks(Hooks):
    def __init__(self, state: DefinitionState) -> None:
        self._state = state

    async def before_create(self, ctx: RequestContext, obj: Obj) -> list[Op]:
        if self._state.terminating and ctx.resource is not None:
            why = "create not allowed while custom resource definition is terminating"
            raise Forbidden.of(ctx.resource.group, ctx.resource.plural, obj["metadata"].get("name", ""), why)
        return []


@dataclass(slots=True)
class _RetiredCache:
    """The cache of an earlier definition, and when it is stopped (monotonic seconds)."""

    cache: ResourceCache
    expires: float


@dataclass(slots=True)
class Serving:
    """The custom kinds that a server serves."""

    api: ApiResources
    openapi: OpenApi
    conversion_for: Callable[[Obj], Conversion]
    _served: dict[str, ServedDefinition] = field(default_factory=dict)
    """Served definitions by name."""
    _retired: dict[str, list[_RetiredCache]] = field(default_factory=dict)
    """Caches of earlier definitions that may still be in use, by name."""

    def get(self, name: str) -> ServedDefinition | None:
        return self._served.get(name)

    def is_current(self, name: str, definition: Obj | None) -> bool:
        """Return whether this definition is served as it is; None means that it must not be served."""
        served = self._served.get(name)
        if served is None or definition is None:
            return served is None and definition is None
        return _same(served.definition, definition) and served.state.terminating == is_true(definition, TERMINATING)

    async def serve(self, obj: Obj, since: int) -> None:
        """Serve the definition as it is now; do nothing if it is served like that already."""
        name, before = obj["metadata"]["name"], self._served.get(obj["metadata"]["name"])
        if before is None or not _same(before.definition, obj):
            if not self._is_free(obj):
                return
            before = self._served[name] = await self._start(obj, since if before is None else 0)
        elif before.definition is not obj:
            before.definition = obj
        terminating = is_true(obj, TERMINATING)
        established = is_true(obj, ESTABLISHED)
        if before.announced != established or before.state.terminating != terminating:
            before.state.terminating = terminating
            before.announced = established
            self.api.announce()

    def _is_free(self, obj: Obj) -> bool:
        """Return whether no built-in resource has this name."""
        group, plural = obj["spec"]["group"], obj["status"]["acceptedNames"].get("plural", "")
        return not any(
            (key[0], key[2]) == (group, plural) and not resource.is_custom for key, resource in self.api.served.items()
        )

    async def _start(self, obj: Obj, since: int) -> ServedDefinition:
        api, state = self.api, DefinitionState()
        size = await api.worker.run(LARGE, _spec_size, obj) * EXPRESSIONS
        resources = await api.worker.run(max(size, LARGE), _compiled, obj, state)
        siblings = {resource.version: resource for resource in resources}
        conversion = self.conversion_for(obj)
        encodings = {name: CustomEncoding(one, siblings, conversion) for name, one in siblings.items()}
        served = [one for one in resources if one.served.get("served")]
        first = resources[0]
        self._remove_documents(obj["metadata"]["name"])
        stored = siblings[first.stored_version]
        versions = {one.version: (one, encodings[one.version]) for one in served}
        scale = ScaleHandlers(CustomScaling(siblings)).by_verb
        retired = await api.serve_custom(stored, versions, _CustomHooks(state), scale, since)
        self._retire_cache(obj["metadata"]["name"], retired)
        for one in served:
            self.openapi.add(one, one.schema)
        registry = Registry(stored, encodings[stored.version], api.caches[stored.storage_prefix], api.env)
        return ServedDefinition(obj, resources, state, registry)

    async def retire(self, name: str) -> None:
        """Stop serving a definition."""
        served = self._served.get(name)
        if served is None:
            return
        self._remove_documents(name)
        del self._served[name]
        group, plural = served.resources[0].group, served.resources[0].plural
        self._retire_cache(name, self.api.withdraw_custom(group, plural))
        self.api.announce()

    def _remove_documents(self, name: str) -> None:
        served = self._served.get(name)
        for resource in served.resources if served is not None else ():
            self.openapi.remove(resource.group, resource.version, resource.kind)

    # -- retired caches -----------------------------------------------------------------------------------------------

    def _retire_cache(self, name: str, cache: ResourceCache | None) -> None:
        if cache is not None:
            self._retired.setdefault(name, []).append(_RetiredCache(cache, self.api.clock.monotonic() + _GRACE))

    def close_retired(self, name: str) -> float | None:
        """Stop the caches whose grace period is over. Return the seconds until the next one, or None."""
        now = self.api.clock.monotonic()
        plural, _, group = name.partition(".")
        remaining = []
        for retired in self._retired.pop(name, ()):
            if retired.expires <= now:
                retired.cache.stop()
                self.api.env.admission.forget(group, plural)
            else:
                remaining.append(retired)
        if not remaining:
            return None
        self._retired[name] = remaining
        return max(0.001, min(retired.expires for retired in remaining) - now)

    # -- API services ---------------------------------------------------------------------------------------------

    async def register(self, group: str, definitions: Iterable[Obj]) -> None:
        """Create an APIService for each served version of the group with these definitions, and delete the others."""
        wanted = {
            version["name"]
            for definition in definitions
            for version in definition["spec"]["versions"]
            if version.get("served")
        }
        known = self.api.registry(_REGISTRATION, "apiservices").cache
        for entry in list(known.scan()):
            obj = entry.obj
            managed = (obj["metadata"].get("labels") or {}).get(AUTO_MANAGED) == "true"
            if managed and obj["spec"].get("group") == group and obj["spec"].get("version") not in wanted:
                await delete(self.api, _REGISTRATION, "apiservices", entry)
        for version in wanted:
            if current(self.api, _REGISTRATION, "apiservices", "", f"{version}.{group}") is None:
                await ensure(self.api, _REGISTRATION, "apiservices", custom_api_service(group, version))


def _spec_size(obj: Obj) -> int:
    """Return the number of bytes of the definition's spec."""
    return len(orjson.dumps(obj["spec"]))


def _compiled(definition: Obj, state: DefinitionState) -> list[CustomResource]:
    """Return the resources of a definition. Their schemas are compiled now, on the worker thread, and not with the
    first object on the event loop."""
    resources = resources_of(definition, state)
    for resource in resources:
        _ = resource.strategy
    return resources


def _same(one: Obj, other: Obj) -> bool:
    """Return whether two definitions are served in the same way."""
    return one is other or (
        one["metadata"]["uid"] == other["metadata"]["uid"]
        and one["spec"] == other["spec"]
        and one["status"].get("acceptedNames") == other["status"].get("acceptedNames")
    )


_Write = Callable[[str, Callable[[Obj], None]], Awaitable[None]]
_Notify = Callable[[], None]


@dataclass(slots=True)
class Removal:
    """Deletes the objects of a deleted definition, and then its finalizer."""

    api: ApiResources
    serving: Serving
    write: _Write
    _since: dict[str, float] = field(default_factory=dict)
    """When the deletion of the objects started, by definition (monotonic seconds)."""
    _retry_at: dict[str, float] = field(default_factory=dict)
    """Until when to wait before another attempt, by definition (monotonic seconds)."""
    _watches: dict[str, tuple[ResourceCache, Watch]] = field(default_factory=dict)

    async def proceed(self, obj: Obj, notify: _Notify) -> float | None:
        """Take the next step. `notify` is called when another one may be due. Return the seconds until the next check,
        or None."""
        name = obj["metadata"]["name"]
        served = self.serving.get(name)
        if served is None or not is_true(obj, ESTABLISHED):
            built_in = is_true(obj, ESTABLISHED)
            reason, message = (
                ("OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
                if built_in
                else ("NeverEstablished", "resource was never established")
            )
            await self._finish(name, condition(TERMINATING, "False", reason, message))
            return None
        now = self.api.clock.monotonic()
        if len(served.registry.cache) and now < self._retry_at.get(name, now):
            return self._retry_at[name] - now
        if name not in self._since:
            text = "CustomResource deletion is in progress"
            await self._set_condition(obj, condition(TERMINATING, "True", "InstanceDeletionInProgress", text))
            if not served.state.terminating:
                # From now on no server creates objects.
                served.state.terminating = True
                self.api.announce()
            await self._delete_all(obj, served)
            await self.api.store.sync()  # what another server created before it knew is visible
            self._since[name] = now
            self._follow(name, served.registry.cache, notify)
        if len(served.registry.cache):
            if now - self._since[name] >= _DELETION_TIMEOUT:
                del self._since[name]
                self._retry_at[name] = now + _RECHECK_SECONDS
                text = "could not confirm zero CustomResources remaining: context deadline exceeded"
                await self._set_condition(obj, condition(TERMINATING, "True", "InstanceDeletionCheck", text))
            return _RECHECK_SECONDS
        # A client that sees the definition gone must not find the resource.
        await self.serving.retire(name)
        await self._finish(name, condition(TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances"))
        return None

    def forget(self, name: str) -> None:
        self._since.pop(name, None)
        self._retry_at.pop(name, None)
        watched = self._watches.pop(name, None)
        if watched is not None:
            watched[0].remove(watched[1])

    def _follow(self, name: str, cache: ResourceCache, notify: _Notify) -> None:
        """Call `notify` when the last object is gone: objects with finalizers are removed by others."""

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            if kind == "DELETED" and not len(cache):
                notify()

        watch = Watch.everything(deliver)
        previous = self._watches.pop(name, None)
        if previous is not None:
            previous[0].remove(previous[1])
        cache.add(watch)
        self._watches[name] = cache, watch

    async def _delete_all(self, obj: Obj, served: ServedDefinition) -> None:
        registry, problems = served.registry, []
        for entry in list(registry.cache.scan()):
            meta = entry.obj["metadata"]
            ctx = internal_context(self.api, registry, meta.get("namespace", ""), meta["name"], "delete")
            try:
                await WritePath(ctx, registry).delete(meta["name"], DeleteOptions(), admit=False)
            except NotFound:
                continue
            except ApiError as error:
                problems.append(error)
        if problems:
            text = f"could not issue all deletes: {aggregate(error.message for error in problems)}"
            await self._set_condition(obj, condition(TERMINATING, "True", "InstanceDeletionFailed", text))
            raise problems[0]

    async def _set_condition(self, obj: Obj, new: Obj) -> None:
        if not equivalent(new, condition_of(obj, TERMINATING)):
            await self.write(obj["metadata"]["name"], lambda changed: put(changed, new, self._now()))

    async def _finish(self, name: str, new: Obj) -> None:
        def change(changed: Obj) -> None:
            put(changed, new, self._now())
            remaining = [one for one in changed["metadata"].get("finalizers") or () if one != CLEANUP]
            changed["metadata"]["finalizers"] = remaining
            if not remaining:
                del changed["metadata"]["finalizers"]

        await self.write(name, change)

    def _now(self) -> str:
        return format_time(self.api.clock.now())
