"""Reconciles a volume: available, bound, or released and then retained or deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.controllers.persistentvolume.in_tree import MIGRATED_TO, Refused, is_deleted_externally, with_migration
from setpoint.controllers.persistentvolume.ledger import Ledger, claim_key
from setpoint.kinds.storage.binding import PROVISIONED_BY, annotations_of, same_volume_mode
from setpoint.reconcile import EventRecorder

Obj = dict[str, Any]

_OVER = ("Released", "Failed")


class Volumes:
    def __init__(self, ledger: Ledger, recorder: EventRecorder, enqueue_claim: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._enqueue_claim = enqueue_claim

    async def reconcile(self, name: str) -> None:
        volume = self._ledger.volume(name)
        if volume is None:
            return
        migrated = with_migration(volume)
        if migrated is not volume:
            volume = await self._ledger.save_volume(migrated)
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            # Available, or reserved for a claim: binding is left to the claim.
            await self._ledger.set_phase(volume, "Available")
            return
        claim = await self._claim_of(volume, reference)
        if claim is None:
            await self._release(volume)
        elif not claim["spec"].get("volumeName"):
            self._leave_to_claim(volume, claim)
        elif claim["spec"]["volumeName"] == name:
            await self._ledger.set_phase(volume, "Bound")
        elif PROVISIONED_BY in annotations_of(volume) and _policy(volume) == "Delete":
            # Provisioned for this claim, which was bound to another volume meanwhile.
            await self._release(volume)
        else:
            await self._ledger.unbind(volume)

    async def _claim_of(self, volume: Obj, reference: Obj) -> Obj | None:
        """Return the claim that the volume refers to. Reads from the server before the volume is released, because the
        cache may be stale."""
        key = claim_key(reference)
        claim = self._ledger.claim(key)
        if claim is None and (volume.get("status") or {}).get("phase") not in _OVER:
            claim = await self._ledger.read_claim(key)
        if claim is not None and claim["metadata"]["uid"] != reference["uid"]:
            claim = await self._ledger.read_claim(key)
        return claim if claim is not None and claim["metadata"]["uid"] == reference["uid"] else None

    def _leave_to_claim(self, volume: Obj, claim: Obj) -> None:
        if not same_volume_mode(volume, claim):
            name, wanted = volume["metadata"]["name"], claim["metadata"]["name"]
            text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{wanted}" due to incompatible'
            self._recorder.warning(volume, "VolumeMismatch", f"{text} volumeMode.")
            text = f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim due to incompatible'
            self._recorder.warning(claim, "VolumeMismatch", f"{text} volumeMode.")
            return
        self._enqueue_claim(claim_key(claim["metadata"]))

    async def _release(self, volume: Obj) -> None:
        if (volume.get("status") or {}).get("phase") not in _OVER:
            volume = await self._ledger.set_phase(volume, "Released")
        if MIGRATED_TO in annotations_of(volume):
            return
        if _policy(volume) == "Delete":
            await self._delete(volume)
        elif _policy(volume) == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")

    async def _delete(self, volume: Obj) -> None:
        try:
            if is_deleted_externally(volume):
                return
        except Refused as refused:
            await self._fail(volume, "VolumeFailedDelete", str(refused))
            return
        await self._ledger.delete_volume(volume)

    async def _fail(self, volume: Obj, reason: str, message: str) -> None:
        if (volume.get("status") or {}).get("phase") != "Failed":
            self._recorder.warning(await self._ledger.set_phase(volume, "Failed", message), reason, message)


def _policy(volume: Obj) -> str:
    return str(volume["spec"].get("persistentVolumeReclaimPolicy", "Retain"))
