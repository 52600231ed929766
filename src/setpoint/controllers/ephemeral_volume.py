"""Creates a PersistentVolumeClaim, owned by the Pod, for each of its ephemeral volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import (
    PODS_BY_CLAIM,
    ephemeral_claim_name,
    index_pods_by_claim,
    is_made_for,
)
from setpoint.meta.errors import AlreadyExists, ApiError
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod
    from setpoint.kinds.typed.volumes import Volume

_CLAIMS = builtin("persistentvolumeclaims")
_WORKERS = 5


def ephemeral_volume_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "ephemeral-volume-controller"
    pods, claims = manager.informer(PODS), manager.informer(_CLAIMS)
    index_pods_by_claim(pods)
    volumes = EphemeralVolumes(manager.client_for(name), pods, claims, manager.recorder("ephemeral_volume", name))
    controller = Controller(name, volumes.reconcile, manager.clock, workers=_WORKERS)

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        if old is None and new is not None and _has_ephemeral(new):
            controller.enqueue(key_of(new))

    def claim_changed(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is None and old is not None:
            for pod in pods.by_index(PODS_BY_CLAIM, key_of(old)):
                pod_changed(None, pod)

    pods.add_handler(pod_changed)
    claims.add_handler(claim_changed)
    return controller


def _has_ephemeral(pod: Pod) -> bool:
    return any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ())


class ClaimConflict(Exception):
    """A claim with the required name exists and was not created for this Pod."""


class EphemeralVolumes:
    def __init__(
        self, client: Client, pods: Informer[Pod], claims: Informer[PersistentVolumeClaim], recorder: EventRecorder
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        for volume in pod["spec"].get("volumes") or ():
            if "ephemeral" in volume:
                await self._ensure(pod, volume)

    async def _ensure(self, pod: Pod, volume: Volume) -> None:
        namespace, name = pod["metadata"]["namespace"], ephemeral_claim_name(pod, volume)
        there = self._claims.get(f"{namespace}/{name}")
        if there is not None:
            if not is_made_for(pod, there):
                why = f"PVC {namespace}/{name} was not created for pod {key_of(pod)} (pod is not owner)"
                self._record_failure(pod, volume, why)
                raise ClaimConflict(why)
            return
        try:
            await self._client.create(_claim_for(pod, volume))
        except AlreadyExists:
            raise  # the cache is stale: the next reconcile sees the owner
        except ApiError as error:
            self._record_failure(pod, volume, f"create PVC {name}: {error}")
            raise

    def _record_failure(self, pod: Pod, volume: Volume, why: str) -> None:
        self._recorder.warning(pod, "FailedBinding", f"ephemeral volume {volume['name']}: {why}")


def _claim_for(pod: Pod, volume: Volume) -> Obj:
    template = volume["ephemeral"]["volumeClaimTemplate"]
    meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": ephemeral_claim_name(pod, volume),
            "namespace": pod["metadata"]["namespace"],
            "ownerReferences": [controller_reference({**pod, "apiVersion": "v1", "kind": "Pod"})],
            **{part: meta[part] for part in ("annotations", "labels") if meta.get(part)},
        },
        "spec": template.get("spec") or {},
    }
