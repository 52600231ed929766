"""Which custom kinds are served, and under which definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.custom.conversion import Conversion
from setpoint.apiserver.custom.encoding import CustomEncoding
from setpoint.apiserver.custom.resource import CustomResource, Life, resources_of
from setpoint.apiserver.custom.scaling import CustomScaling
from setpoint.apiserver.handlers.scale import ScaleHandlers
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.own_writes import current, delete, ensure
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj, ResourceCache
from setpoint.apiserver.worker import EXPRESSIONS, LARGE
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.apiextensions.definition_conditions import ESTABLISHED, TERMINATING, is_true
from setpoint.kinds.bootstrap.apiservices import AUTO_MANAGED, custom_api_service
from setpoint.meta.errors import Forbidden
from setpoint.store.interface import Op

_GRACE = 1.0
"""Seconds that requests under way, and watches, have left when a definition changes or goes."""
_REGISTRATION = "apiregistration.k8s.io"


@dataclass(slots=True)
class Served:
    definition: Obj
    resources: list[CustomResource]
    life: Life
    registry: Registry
    """Of the stored version, which need not be served."""
    announced: bool = False


class _CustomHooks(Hooks):
    def __init__(self, life: Life) -> None:
        self._life = life

    async def before_create(self, call: Call, obj: Obj) -> list[Op]:
        if self._life.terminating and call.resource is not None:
            why = "create not allowed while custom resource definition is terminating"
            raise Forbidden.of(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)
        return []


@dataclass(slots=True)
class _Left:
    cache: ResourceCache
    until: float


@dataclass(slots=True)
class Serving:
    api: ApiServer
    openapi: OpenApi
    conversion_for: Callable[[Obj], Conversion]
    _served: dict[str, Served] = field(default_factory=dict)
    """By the definition's name."""
    _left: dict[str, list[_Left]] = field(default_factory=dict)
    """Caches of earlier definitions, which somebody may still be using."""

    def get(self, name: str) -> Served | None:
        return self._served.get(name)

    async def serve(self, obj: Obj, since: int) -> None:
        """As the definition says now; nothing happens if that is how it is served already."""
        name, before = obj["metadata"]["name"], self._served.get(obj["metadata"]["name"])
        if before is None or not _same(before.definition, obj):
            if not self._is_free(obj):
                return
            before = self._served[name] = await self._begin(obj, since if before is None else 0)
        elif before.definition is not obj:
            before.definition = obj
        terminating = is_true(obj, TERMINATING)
        established = is_true(obj, ESTABLISHED)
        if before.announced != established or before.life.terminating != terminating:
            before.life.terminating = terminating
            before.announced = established
            self.api.announce()

    def _is_free(self, obj: Obj) -> bool:
        """What is built in stays what it is."""
        group, plural = obj["spec"]["group"], obj["status"]["acceptedNames"].get("plural", "")
        return not any(
            (key[0], key[2]) == (group, plural) and not resource.is_custom
            for key, resource in self.api.resources.items()
        )

    async def _begin(self, obj: Obj, since: int) -> Served:
        api, life = self.api, Life()
        size = len(orjson.dumps(obj["spec"])) * EXPRESSIONS
        # A large schema takes long to compile: not when its first object comes, and not on the event loop.
        resources = await api.worker.run(size, resources_of if size < LARGE else _compiled, obj, life)
        siblings = {resource.version: resource for resource in resources}
        conversion = self.conversion_for(obj)
        encodings = {name: CustomEncoding(one, siblings, conversion) for name, one in siblings.items()}
        served = [one for one in resources if one.served.get("served")]
        some = resources[0]
        self._forget_documents(obj["metadata"]["name"])
        api.env.hooks[(some.group, some.plural)] = _CustomHooks(life)
        api.subresources[(some.group, some.plural, "scale")] = ScaleHandlers(CustomScaling(siblings)).by_verb
        stored = siblings[some.stored_version]
        left = await api.replace(stored, {one.version: (one, encodings[one.version]) for one in served}, since)
        self._leave(obj["metadata"]["name"], left)
        for one in served:
            self.openapi.add(one, one.schema)
        registry = Registry(stored, encodings[stored.version], api.caches[stored.storage_prefix], api.env)
        return Served(obj, resources, life, registry)

    async def retire(self, name: str) -> None:
        served = self._served.get(name)
        if served is None:
            return
        self._forget_documents(name)
        del self._served[name]
        group, plural = served.resources[0].group, served.resources[0].plural
        self._leave(name, self.api.withdraw(group, plural))
        self.api.metrics.forget(group, plural)
        self.api.env.hooks.pop((group, plural), None)
        self.api.subresources.pop((group, plural, "scale"), None)
        self.api.announce()

    def _forget_documents(self, name: str) -> None:
        served = self._served.get(name)
        for resource in served.resources if served is not None else ():
            self.openapi.remove(resource.group, resource.version, resource.kind)

    # -- what is left behind --------------------------------------------------------------------------------------

    def _leave(self, name: str, cache: ResourceCache | None) -> None:
        if cache is not None:
            self._left.setdefault(name, []).append(_Left(cache, self.api.clock.monotonic() + _GRACE))

    def close_left(self, name: str) -> float | None:
        """Ends what was left long enough ago; returns when to come back for the rest."""
        now = self.api.clock.monotonic()
        plural, _, group = name.partition(".")
        rest = []
        for left in self._left.pop(name, ()):
            if left.until <= now:
                left.cache.stop()
                self.api.env.admission.forget(group, plural)
            else:
                rest.append(left)
        if not rest:
            return None
        self._left[name] = rest
        return max(0.001, min(left.until for left in rest) - now)

    # -- API services ---------------------------------------------------------------------------------------------

    async def register(self, group: str) -> None:
        """An APIService for every version of the group that is served, and none for others."""
        wanted = {
            version["name"]
            for entry in self.api.registry("apiextensions.k8s.io", "customresourcedefinitions").cache.scan()
            if entry.obj["spec"]["group"] == group
            for version in entry.obj["spec"]["versions"]
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


def _compiled(definition: Obj, life: Life) -> list[CustomResource]:
    resources = resources_of(definition, life)
    for resource in resources:
        if resource.served.get("served"):
            _ = resource.type, resource.strategy
    return resources


def _same(one: Obj, other: Obj) -> bool:
    """Whether two definitions mean the same service."""
    return one is other or (
        one["metadata"]["uid"] == other["metadata"]["uid"]
        and one["spec"] == other["spec"]
        and one["status"].get("acceptedNames") == other["status"].get("acceptedNames")
    )
