"""Protects volumes while a claim is bound to them."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.volume_protection.finalizers import lacks, may_lose, with_finalizer, without_finalizer
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

VOLUMES = builtin("persistentvolumes")
FINALIZER = "kubernetes.io/pv-protection"


def volume_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "pv-protection-controller"
    volumes = manager.informer(VOLUMES)
    protection = VolumeProtection(manager.client_for(name), volumes)
    controller = Controller(name, protection.reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and (lacks(new, FINALIZER) or may_lose(new, FINALIZER)):
            controller.enqueue(key_of(new))

    volumes.add_handler(changed)
    return controller


class VolumeProtection:
    def __init__(self, client: Client, volumes: Informer) -> None:
        self._client = client
        self._volumes = volumes

    async def reconcile(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            return
        if may_lose(volume, FINALIZER):
            if (volume.get("status") or {}).get("phase") != "Bound":
                await self._client.update(without_finalizer(volume, FINALIZER))
        elif lacks(volume, FINALIZER):
            await self._client.update(with_finalizer(volume, FINALIZER))
