"""ResourceQuotas: recomputes the usage of a namespace from its objects.

Admission charges every write as it happens; this controller finds released and unused charges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from setpoint.client import Client, Resource, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.core.quota_usage import Meter, meter, scopes_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import DECIMAL, Quantity, compare, of_value, parse
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Informer, Manager, key_of
from setpoint.reconcile.manager import ControllerGroup
from setpoint.reconcile.run import triggered

Amounts = dict[str, str]
Key = tuple[str, str]
"""Group and plural."""
Changed = Callable[[Meter, Obj | None, Obj | None], None]
_NEEDED = {"create", "delete", "list", "watch"}
_RETAINED_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_QUOTAS = builtin("resourcequotas")
_NEW_KINDS = 30.0
"""Seconds between two discoveries of resources that a quota names and the server did not serve."""
_STALE = 10.0
"""Seconds by which a cache may be stale."""
_BATCH = 1.0


def _measured_names(meter: Meter, hard: Iterable[str]) -> list[str]:
    return sorted(name for name in hard if meter.measures(name))


def _added_up(
    quota: ObjView, meter: Meter, objects: Collection[ObjView], names: Sequence[str], now: datetime
) -> Amounts:
    """Return the usage of the quota by these objects under each of the names; zero where they use nothing."""
    scopes = scopes_of(quota)
    if type(meter) is Meter and not scopes:
        # Only the number of objects matters.
        return dict.fromkeys(names, str(len(objects)))
    totals: dict[str, Quantity] = dict.fromkeys(names, of_value(0, DECIMAL))
    for obj in objects:
        if all(meter.in_scope(scope, obj) for scope in scopes):
            for name, amount in meter.usage(obj, now).items():
                if name in totals:
                    totals[name] = totals[name].plus(parse(amount))
    return {name: total.text for name, total in totals.items()}


def _same_amounts(one: ObjView | None, other: ObjView | None) -> bool:
    """Return whether the amounts are equal, whatever their notation."""
    if one is None or other is None or one.keys() != other.keys():
        return False
    return all(compare(amount, other[name]) == 0 for name, amount in one.items())


def _is_relevant(meter: Meter, quota: ObjView, old: ObjView, new: ObjView, now: datetime) -> bool:
    """Return whether a change of an object can reduce the usage of the quota."""
    if meter.usage(old, now) != meter.usage(new, now):
        return True
    return any(meter.in_scope(scope, old) != meter.in_scope(scope, new) for scope in scopes_of(quota))


@dataclass(slots=True)
class _Followed:
    resource: Resource
    informer: Informer[Obj]
    task: asyncio.Task[None] | None
    """The task that runs the informer; None if it is a shared informer."""


class Followers:
    """Informers for the resources that quotas name, started when the first quota names them."""

    def __init__(
        self, client: Client, clock: Clock, shared: Callable[[Resource], Informer[Obj] | None], changed: Changed
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
        return informer.in_namespace(namespace)

    def _follow(self, resource: Resource, its_meter: Meter) -> Informer[Obj]:
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
            task = self._tasks.create_task(informer.run())
        self._followed[key] = _Followed(resource, informer, task)
        informer.add_handler(lambda old, new: self._changed(its_meter, old, new))
        return informer


def _name(obj: Obj) -> Obj:
    meta = obj["metadata"]
    return {"metadata": {name: meta[name] for name in _RETAINED_FIELDS if name in meta}}


async def _then(informer: Informer[Obj], ready: Callable[[], None]) -> None:
    await informer.synced.wait()
    ready()


def resourcequota_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name = "resourcequota-controller"
    client = manager.client_for(name)
    quotas = Quotas(client, manager.clock, manager.informer(_QUOTAS))
    controller = Controller(name, quotas.reconcile, manager.clock, workers=options.concurrent_resource_quota_syncs)
    quotas.watch(controller)
    quotas.followers = Followers(client, manager.clock, manager.shared_informer, quotas.object_changed)
    return ControllerGroup(
        quotas.followers, controller, Resync(quotas, manager.clock, options.resource_quota_sync_period)
    )


class Quotas:
    """Recomputes usage when a quota changes, when a counted object is released, and periodically."""

    followers: Followers

    def __init__(self, client: Client, clock: Clock, quotas: Informer[Obj]) -> None:
        self._client = client
        self._clock = clock
        self._quotas = quotas
        self._controller: Controller
        self.unmeasured: dict[str, set[str]] = {}
        """Names in the quota that match no served resource, by key of the quota."""
        self._lowered: dict[str, datetime] = {}
        """The time at which usage was last found to be below what had been charged, by key of the quota."""
        self._added_up: dict[str, float] = {}
        """The monotonic time at which usage was last recomputed, by key of the quota."""

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        self._controller = controller

        def quota_changed(old: Obj | None, new: Obj | None) -> None:
            if new is None and old is not None:
                self.unmeasured.pop(key_of(old), None)
                self._lowered.pop(key_of(old), None)
                self._added_up.pop(key_of(old), None)
            elif new is not None and (old is None or not _same_amounts(_hard(old), _hard(new))):
                controller.enqueue(key_of(new))
            elif new is not None and self._clock.monotonic() - self._added_up.get(key_of(new), -_STALE) < _STALE:
                # A charge that may have been missed when usage was recomputed: recompute.
                controller.queue.add_after(key_of(new), _BATCH)

        self._quotas.add_handler(quota_changed)

    def object_changed(self, its_meter: Meter, old: Obj | None, new: Obj | None) -> None:
        """Enqueue the quotas for changes that may release usage; admission has charged those that consume it."""
        meta = (new or old or {})["metadata"]
        for quota in self._quotas.in_namespace(meta["namespace"]):
            if not _measured_names(its_meter, _hard(quota)):
                continue
            key = key_of(quota)
            if old is None:
                news = self._is_uncounted(key, meta)
            else:
                news = new is None or (
                    bool(its_meter.updates) and _is_relevant(its_meter, quota, old, new, self._clock.now())
                )
            if news:
                self._controller.enqueue(key)

    def _is_uncounted(self, key: str, meta: Obj) -> bool:
        """Return whether the object had been charged but was not visible yet when usage was last recomputed."""
        lowered = self._lowered.get(key)
        return lowered is not None and parse_time(meta["creationTimestamp"]) <= lowered

    def enqueue_all(self) -> None:
        for key in self._quotas.items:
            self.recompute(key)

    def recompute(self, key: str) -> None:
        self._controller.enqueue(key)

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        quota = self._quotas.get(key)
        if quota is None:
            return
        hard, status = _hard(quota), quota.get("status") or {}
        known = await self.followers.measured()
        measured: set[str] = set()
        usage: dict[str, str] = {}
        for resource, its_meter in known.values():
            names = _measured_names(its_meter, hard)
            if not names:
                continue
            measured.update(names)
            namespace = quota["metadata"]["namespace"]
            objects = self.followers.objects(resource, its_meter, namespace, lambda: self.recompute(key))
            if objects is None:
                return
            usage |= _added_up(quota, its_meter, objects, names, self._clock.now())
        self._remember(key, hard.keys() - measured)
        self._added_up[key] = self._clock.monotonic()
        before = status.get("used")
        used = {name: amount for name, amount in {**(before or {}), **usage}.items() if name in hard}
        if _same_amounts(hard, status.get("hard")) and _same_amounts(used, before):
            return
        current = self._quotas.get(key)
        if current is not quota:
            # The quota was charged or changed while resources were discovered: recompute.
            self.recompute(key)
            return
        if any(compare(used[name], amount) < 0 for name, amount in (before or {}).items() if name in used):
            self._lowered[key] = self._clock.now()
        await self._client.update({**quota, "status": {"hard": hard, "used": used}}, subresource="status")

    def _remember(self, key: str, unmeasured: set[str]) -> None:
        if unmeasured:
            self.unmeasured[key] = unmeasured
        else:
            self.unmeasured.pop(key, None)


class Resync:
    """Periodic resync for what causes no event: overdue Pods and new resources."""

    def __init__(self, quotas: Quotas, clock: Clock, period: float) -> None:
        self._quotas = quotas
        self._clock = clock
        self._period = period

    async def run(self) -> None:
        due = self._clock.monotonic() + self._period
        while True:
            await self._clock.sleep(_NEW_KINDS)
            if (now := self._clock.monotonic()) >= due:
                due = now + self._period
                with triggered(besides=f"timer:{self._period:g}"):
                    self._quotas.enqueue_all()
            elif self._quotas.unmeasured or self._quotas.followers.custom:
                await self._discover_kinds()

    async def _discover_kinds(self) -> None:
        try:
            known = await self._quotas.followers.measured(fresh=True)
        except (ApiError, Unreachable):
            return
        with triggered(besides="discovery"):
            if self._quotas.followers.drop_unserved(known):
                self._quotas.enqueue_all()
            for key, names in tuple(self._quotas.unmeasured.items()):
                if any(its_meter.measures(name) for _, its_meter in known.values() for name in names):
                    self._quotas.recompute(key)


def _hard(quota: Obj) -> dict[str, str]:
    hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
    return hard
