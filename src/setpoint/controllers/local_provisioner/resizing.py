"""Expands volumes. A directory needs no change for that."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.controllers.conditions import condition, without
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.kinds.storage.binding import PROVISIONED_BY, annotations_of, capacity, requested
from setpoint.meta.clock import Clock
from setpoint.meta.quantity import compare
from setpoint.meta.times import format_time
from setpoint.reconcile import EventRecorder, Informer

Obj = dict[str, Any]

_RESIZING = "Resizing"
_PENDING = "FileSystemResizePending"


def has(claim: Obj) -> str:
    """Return the capacity in the claim's status."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))


def wants_more(claim: Obj) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound" and compare(requested(claim), has(claim)) > 0


class Resizing:
    def __init__(
        self, client: Client, clock: Clock, claims: Informer, volumes: Informer, recorder: EventRecorder
    ) -> None:
        self._client = client
        self._clock = clock
        self._claims = claims
        self._volumes = volumes
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None or not wants_more(claim):
            return
        volume = self._volumes.get(claim["spec"].get("volumeName", ""))
        if volume is None or annotations_of(volume).get(PROVISIONED_BY) != PROVISIONER:
            return
        if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return
        size = requested(claim)
        if condition(claim, _RESIZING) is None:
            name = volume["metadata"]["name"]
            self._recorder.normal(claim, "Resizing", f"External resizer is resizing volume {name}")
            claim = await self._save(claim, self._begun(claim, size))
        if compare(capacity(volume), size) < 0:
            grown = {**volume["spec"], "capacity": {**volume["spec"]["capacity"], "storage": size}}
            await self._client.update({**volume, "spec": grown})
        claim = await self._save(claim, _done(claim, size))
        self._recorder.normal(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _save(self, claim: Obj, status: Obj) -> Obj:
        return await self._client.update({**claim, "status": status}, subresource="status")

    def _begun(self, claim: Obj, size: str) -> Obj:
        status = claim["status"]
        begun = {"type": _RESIZING, "status": "True", "lastTransitionTime": format_time(self._clock.now())}
        return {
            **status,
            "conditions": [*(status.get("conditions") or ()), begun],
            "allocatedResources": {**(status.get("allocatedResources") or {}), "storage": size},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
        }


def _done(claim: Obj, size: str) -> Obj:
    status = {**claim["status"], "capacity": {**(claim["status"].get("capacity") or {}), "storage": size}}
    status.pop("allocatedResourceStatuses", None)
    status["conditions"] = without(without(status.get("conditions") or [], _RESIZING), _PENDING)
    return status
