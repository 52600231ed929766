"""Deletes released volumes of this provisioner."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.controllers.local_provisioner.volume import FINALIZER
from setpoint.kinds.storage.binding import PROVISIONED_BY, annotations_of
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Informer

Obj = dict[str, Any]

VOLUMES = builtin("persistentvolumes")


class Deleting:
    def __init__(self, client: Client, volumes: Informer) -> None:
        self._client = client
        self._volumes = volumes

    async def reconcile(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or annotations_of(volume).get(PROVISIONED_BY) != PROVISIONER:
            return
        meta = volume["metadata"]
        guarded = FINALIZER in (meta.get("finalizers") or ())
        delete = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        released = (volume.get("status") or {}).get("phase") in ("Released", "Failed")
        if delete and released:
            with suppress(NotFound):
                if "deletionTimestamp" not in meta:
                    await self._client.delete(VOLUMES, name, uid=meta["uid"])
                elif guarded:
                    await self._save(volume, [found for found in meta["finalizers"] if found != FINALIZER])
        elif guarded and (not delete or ("deletionTimestamp" in meta and not volume["spec"].get("claimRef"))):
            # Nothing to do: the volume is retained, or was never bound.
            await self._save(volume, [found for found in meta["finalizers"] if found != FINALIZER])
        elif delete and not guarded and "deletionTimestamp" not in meta:
            await self._save(volume, [*(meta.get("finalizers") or ()), FINALIZER])

    async def _save(self, volume: Obj, finalizers: list[str]) -> None:
        await self._client.update({**volume, "metadata": {**volume["metadata"], "finalizers": finalizers}})
