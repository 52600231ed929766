"""The quota controller: recomputes usage when a quota changes, when a counted object is released, and periodically."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.resourcequota.followers import Followers
from setpoint.controllers.resourcequota.usage import added_up, is_relevant, measured_names, same_amounts
from setpoint.kinds.core.quota_usage import Meter
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.quantity import compare
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

QUOTAS = builtin("resourcequotas")
_NEW_KINDS = 30.0
"""Seconds between two discoveries of resources that a quota names and the server did not serve."""
_STALE = 10.0
"""Seconds by which a cache may be stale."""
_BATCH = 1.0


def resourcequota_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name = "resourcequota-controller"
    client = manager.client_for(name)
    quotas = Quotas(client, manager.clock, manager.informer(QUOTAS))
    controller = Controller(name, quotas.reconcile, manager.clock, workers=options.concurrent_resource_quota_syncs)
    quotas.watch(controller)
    quotas.followers = Followers(client, manager.clock, manager.shared_informer, quotas.object_changed)
    return ControllerGroup(
        quotas.followers, controller, Resync(quotas, manager.clock, options.resource_quota_sync_period)
    )


class Quotas:
    followers: Followers

    def __init__(self, client: Client, clock: Clock, quotas: Informer) -> None:
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
        quotas.add_index("namespace", lambda quota: (quota["metadata"]["namespace"],))

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        self._controller = controller

        def quota_changed(old: Obj | None, new: Obj | None) -> None:
            if new is None and old is not None:
                self.unmeasured.pop(key_of(old), None)
                self._lowered.pop(key_of(old), None)
                self._added_up.pop(key_of(old), None)
            elif new is not None and (old is None or not same_amounts(_hard(old), _hard(new))):
                controller.enqueue(key_of(new))
            elif new is not None and self._clock.monotonic() - self._added_up.get(key_of(new), -_STALE) < _STALE:
                # A charge that may have been missed when usage was recomputed: recompute.
                controller.queue.add_after(key_of(new), _BATCH)

        self._quotas.add_handler(quota_changed)

    def object_changed(self, its_meter: Meter, old: Obj | None, new: Obj | None) -> None:
        """Enqueue the quotas for changes that may release usage; admission has charged those that consume it."""
        meta = (new or old or {})["metadata"]
        for quota in self._quotas.by_index("namespace", meta["namespace"]):
            if not measured_names(its_meter, _hard(quota)):
                continue
            key = key_of(quota)
            if old is None:
                news = self._is_uncounted(key, meta)
            else:
                news = new is None or (
                    bool(its_meter.updates) and is_relevant(its_meter, quota, old, new, self._clock.now())
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
            names = measured_names(its_meter, hard)
            if not names:
                continue
            measured.update(names)
            namespace = quota["metadata"]["namespace"]
            objects = self.followers.objects(resource, its_meter, namespace, lambda: self.recompute(key))
            if objects is None:
                return
            usage |= added_up(quota, its_meter, objects, names, self._clock.now())
        self._remember(key, hard.keys() - measured)
        self._added_up[key] = self._clock.monotonic()
        before = status.get("used")
        used = {name: amount for name, amount in {**(before or {}), **usage}.items() if name in hard}
        if same_amounts(hard, status.get("hard")) and same_amounts(used, before):
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
                self._quotas.enqueue_all()
            elif self._quotas.unmeasured or self._quotas.followers.custom:
                await self._discover_kinds()

    async def _discover_kinds(self) -> None:
        try:
            known = await self._quotas.followers.measured(fresh=True)
        except (ApiError, Unreachable):
            return
        if self._quotas.followers.drop_unserved(known):
            self._quotas.enqueue_all()
        for key, names in tuple(self._quotas.unmeasured.items()):
            if any(its_meter.measures(name) for _, its_meter in known.values() for name in names):
                self._quotas.recompute(key)


def _hard(quota: Obj) -> dict[str, str]:
    hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
    return hard
