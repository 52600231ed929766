"""Records an Event that a claim waits for an external controller to expand its volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.storage.binding import requested
from setpoint.meta.quantity import compare
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolume, PersistentVolumeClaim

_CLAIMS, _VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_WORKERS = 10


def volume_expand_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "expand-controller"
    claims, volumes = manager.informer(_CLAIMS), manager.informer(_VOLUMES)
    expansion = Expansion(claims, volumes, manager.recorder("volume_expand", name))
    controller = Controller(name, expansion.reconcile, manager.clock, workers=_WORKERS)

    def changed(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is None or (new.get("status") or {}).get("phase") != "Bound":
            return
        if old is None or compare(requested(new), requested(old)) > 0 or compare(_capacity(new), _capacity(old)) > 0:
            controller.enqueue(key_of(new))

    claims.add_handler(changed)
    return controller


def _capacity(claim: PersistentVolumeClaim) -> str:
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))


class NotBound(Exception):
    """The volume is bound to another claim, or not bound yet according to the cache."""


class Expansion:
    def __init__(
        self, claims: Informer[PersistentVolumeClaim], volumes: Informer[PersistentVolume], recorder: EventRecorder
    ) -> None:
        self._claims = claims
        self._volumes = volumes
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None or compare(requested(claim), _capacity(claim)) <= 0:
            return
        volume = self._volumes.get(claim["spec"].get("volumeName", ""))
        reference = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        if reference.get("uid") != claim["metadata"]["uid"]:
            raise NotBound(f"persistent Volume is not bound to PVC being updated : {key}")
        self._recorder.normal(claim, "ExternalExpanding", "waiting for an external controller to expand this PVC")
