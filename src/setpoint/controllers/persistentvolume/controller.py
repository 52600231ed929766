"""The event handlers of the binder."""

from __future__ import annotations

import asyncio
from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.persistentvolume.claims import Claims
from setpoint.controllers.persistentvolume.ledger import CLAIMS, VOLUMES, Ledger, claim_key
from setpoint.controllers.persistentvolume.volumes import Volumes
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.volume_users import index_pods_by_claim
from setpoint.kinds.storage.binding import volume_class
from setpoint.kinds.storage.storageclass import is_default
from setpoint.meta.clock import Clock
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

STORAGE_CLASSES = builtin("storageclasses", "storage.k8s.io")
_ACCOUNT = "persistent-volume-binder"
_COMPONENT = "persistentvolume-controller"
_WORKERS = 10


def persistentvolume_binder(manager: Manager, options: ControllerOptions) -> Binder:
    claims, volumes, pods = manager.informer(CLAIMS), manager.informer(VOLUMES), manager.informer(PODS)
    classes = manager.informer(STORAGE_CLASSES)
    index_pods_by_claim(pods)
    ledger = Ledger(manager.client_for(_ACCOUNT), claims, volumes)
    recorder = manager.recorder(_COMPONENT, _ACCOUNT)
    claim_loop = Controller(
        "persistentvolume-binder: claims", Claims(ledger, classes, pods, recorder).reconcile, manager.clock,
        workers=_WORKERS,
    )  # fmt: skip
    volume_loop = Controller(
        "persistentvolume-binder: volumes", Volumes(ledger, recorder, claim_loop.enqueue).reconcile, manager.clock,
        workers=_WORKERS,
    )  # fmt: skip
    return Binder(
        ledger, claims, volumes, classes, claim_loop, volume_loop, manager.clock, options.pvclaimbinder_sync_period
    )


class Binder:
    def __init__(
        self,
        ledger: Ledger,
        claims: Informer,
        volumes: Informer,
        classes: Informer,
        claim_loop: Controller,
        volume_loop: Controller,
        clock: Clock,
        sync_period: float,
    ) -> None:
        self._ledger = ledger
        self._claims, self._volumes = claims, volumes
        self._claim_loop, self._volume_loop = claim_loop, volume_loop
        self._clock = clock
        self._sync_period = sync_period
        claims.add_handler(self._claim_changed)
        volumes.add_handler(self._volume_changed)
        classes.add_handler(self._class_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claim_loop.run())
            tasks.create_task(self._volume_loop.run())
            tasks.create_task(self._resync())

    async def _resync(self) -> None:
        """Enqueue all objects that are not in a final state, because what they wait for may appear without an event."""
        while True:
            await self._clock.sleep(self._sync_period)
            for key, claim in tuple(self._claims.items.items()):
                if _phase(claim) != "Bound":
                    self._claim_loop.enqueue(key)
            for name, volume in tuple(self._volumes.items.items()):
                if _phase(volume) not in ("Available", "Bound"):
                    self._volume_loop.enqueue(name)

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        claim = new or old or {}
        key = key_of(claim)
        self._claim_loop.enqueue(key)
        for name in self._ledger.volumes_of(key):
            self._volume_loop.enqueue(name)

    def _volume_changed(self, old: Obj | None, new: Obj | None) -> None:
        volume = new or old or {}
        self._volume_loop.enqueue(key_of(volume))
        if reference := volume["spec"].get("claimRef"):
            self._claim_loop.enqueue(claim_key(reference))
        elif new is not None and _phase(new) == "Available" and (old is None or _phase(old) != "Available"):
            for key in self._ledger.unbound_claims(volume_class(new)):
                self._claim_loop.enqueue(key)

    def _class_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        for key in self._ledger.unbound_claims(new["metadata"]["name"]):
            self._claim_loop.enqueue(key)
        if is_default(new):
            for key in self._ledger.unbound_claims(""):
                self._claim_loop.enqueue(key)


def _phase(obj: Obj) -> str:
    return str((obj.get("status") or {}).get("phase") or "")
