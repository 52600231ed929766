"""The end of a definition: its objects go first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from setpoint.apiserver import deletion
from setpoint.apiserver.custom.serving import Served, Serving
from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.own_writes import own_call
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Change, Entry, Obj, ResourceCache, Watch
from setpoint.kinds.apiextensions.definition_conditions import (
    CLEANUP,
    ESTABLISHED,
    TERMINATING,
    condition,
    equivalent,
    find,
    is_true,
    put,
)
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.selectors import EVERYTHING
from setpoint.meta.times import format_time

_LOOK_AGAIN = 5.0
_PATIENCE = 60.0

Write = Callable[[str, Callable[[Obj], None]], Awaitable[None]]
Told = Callable[[], None]


@dataclass(slots=True)
class Removal:
    api: ApiServer
    serving: Serving
    write: Write
    _since: dict[str, float] = field(default_factory=dict)
    """When the objects of each definition were deleted."""
    _rests: dict[str, float] = field(default_factory=dict)
    """Until when to leave it at that, after objects did not go."""
    _watches: dict[str, tuple[ResourceCache, Watch]] = field(default_factory=dict)

    async def proceed(self, obj: Obj, told: Told) -> float | None:
        """The next step; `told` is called when there may be another one. Returns when to look again."""
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
        if len(served.registry.cache) and now < self._rests.get(name, now):
            return self._rests[name] - now
        if name not in self._since:
            text = "CustomResource deletion is in progress"
            await self._tell(obj, condition(TERMINATING, "True", "InstanceDeletionInProgress", text))
            await self._delete_all(obj, served)
            self._since[name] = now
            self._follow(name, served.registry.cache, told)
        if len(served.registry.cache):
            if now - self._since[name] >= _PATIENCE:
                del self._since[name]
                self._rests[name] = now + _LOOK_AGAIN
                text = "could not confirm zero CustomResources remaining: context deadline exceeded"
                await self._tell(obj, condition(TERMINATING, "True", "InstanceDeletionCheck", text))
            return _LOOK_AGAIN
        # Whoever sees the definition gone must not find the resource.
        await self.serving.retire(name)
        await self._finish(name, condition(TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances"))
        return None

    def forget(self, name: str) -> None:
        self._since.pop(name, None)
        self._rests.pop(name, None)
        watched = self._watches.pop(name, None)
        if watched is not None:
            watched[0].remove(watched[1])

    def _follow(self, name: str, cache: ResourceCache, told: Told) -> None:
        """Objects with finalizers go when others let them."""

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            if kind == "DELETED" and not len(cache):
                told()

        watch = Watch(
            namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=lambda _: {}, deliver=deliver
        )
        previous = self._watches.pop(name, None)
        if previous is not None:
            previous[0].remove(previous[1])
        cache.add(watch)
        self._watches[name] = cache, watch

    async def _delete_all(self, obj: Obj, served: Served) -> None:
        registry, problems = served.registry, []
        for entry in list(registry.cache.scan()):
            meta = entry.obj["metadata"]
            call = own_call(self.api, registry, meta.get("namespace", ""), meta["name"], "delete")
            try:
                await deletion.delete(call, registry, meta["name"], DeleteOptions(), admit=False)
            except NotFound:
                continue
            except ApiError as error:
                problems.append(error)
        if problems:
            texts = list(dict.fromkeys(error.message for error in problems))
            shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            text = f"could not issue all deletes: {shown}"
            await self._tell(obj, condition(TERMINATING, "True", "InstanceDeletionFailed", text))
            raise problems[0]

    async def _tell(self, obj: Obj, new: Obj) -> None:
        if not equivalent(new, find(obj, TERMINATING)):
            await self.write(obj["metadata"]["name"], lambda changed: put(changed, new, self._now()))

    async def _finish(self, name: str, new: Obj) -> None:
        def change(changed: Obj) -> None:
            put(changed, new, self._now())
            left = [one for one in changed["metadata"].get("finalizers") or () if one != CLEANUP]
            changed["metadata"]["finalizers"] = left
            if not left:
                del changed["metadata"]["finalizers"]

        await self.write(name, change)

    def _now(self) -> str:
        return format_time(self.api.clock.now())
