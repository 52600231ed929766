"""Protects claims that Pods use and volumes that are bound, with finalizers.

The API server adds the finalizers on creation; these controllers remove them when the object is unused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from setpoint.client import Client
from setpoint.client.interface import ObjectList
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import (
    PODS_BY_CLAIM,
    claims_of,
    has_released_volumes,
    index_pods_by_claim,
    uses,
)
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, conditions_of, new_condition, without_condition
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Controller, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolume, PersistentVolumeClaim, Pod

_VOLUMES = builtin("persistentvolumes")
_VOLUME_FINALIZER = "kubernetes.io/pv-protection"
_CLAIMS = builtin("persistentvolumeclaims")
_CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
_UNUSED = "Unused"
_WORKERS = 5
_CLASSES = builtin("volumeattributesclasses", "storage.k8s.io")
_ATTRIBUTES_CLASS_FINALIZER = "kubernetes.io/vac-protection"
_BY_CLASS = "volumeAttributesClass"


def _has(obj: ObjView, finalizer: str) -> bool:
    return finalizer in (obj["metadata"].get("finalizers") or ())


def _may_lose(obj: ObjView, finalizer: str) -> bool:
    """Return whether the object is being deleted and has the finalizer."""
    return "deletionTimestamp" in obj["metadata"] and _has(obj, finalizer)


def _lacks(obj: ObjView, finalizer: str) -> bool:
    """Return whether the object is not being deleted and lacks the finalizer."""
    return "deletionTimestamp" not in obj["metadata"] and not _has(obj, finalizer)


def _with_finalizer(obj: ObjView, finalizer: str) -> Obj:
    present = obj["metadata"].get("finalizers") or []
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*present, finalizer]}}


def _without_finalizer(obj: ObjView, finalizer: str) -> Obj:
    finalizers = [found for found in obj["metadata"].get("finalizers") or () if found != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}


# -- volumes ----------------------------------------------------------------------------------------------------------


def volume_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "pv-protection-controller"
    volumes = manager.informer(_VOLUMES)
    protection = VolumeProtection(manager.client_for(name), volumes)
    controller = Controller(name, protection.reconcile, manager.clock)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and (_lacks(new, _VOLUME_FINALIZER) or _may_lose(new, _VOLUME_FINALIZER)):
            controller.enqueue(key_of(new))

    volumes.add_handler(changed)
    return controller


class VolumeProtection:
    """Protects volumes while a claim is bound to them."""

    def __init__(self, client: Client, volumes: Informer[PersistentVolume]) -> None:
        self._client = client
        self._volumes = volumes

    async def reconcile(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            return
        if _may_lose(volume, _VOLUME_FINALIZER):
            if (volume.get("status") or {}).get("phase") != "Bound":
                await self._client.update(_without_finalizer(volume, _VOLUME_FINALIZER))
        elif _lacks(volume, _VOLUME_FINALIZER):
            await self._client.update(_with_finalizer(volume, _VOLUME_FINALIZER))


# -- claims -----------------------------------------------------------------------------------------------------------


def claim_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "pvc-protection-controller"
    claims, pods = manager.informer(_CLAIMS), manager.informer(PODS)
    index_pods_by_claim(pods)
    protection = ClaimProtection(manager.client_for(name), manager.clock, claims, pods)
    controller = Controller(name, protection.reconcile, manager.clock, workers=_WORKERS)

    def claim_changed(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        for claim in claims_of(pod):
            controller.enqueue(f"{pod['metadata']['namespace']}/{claim}")

    claims.add_handler(claim_changed)
    pods.add_handler(pod_changed)
    return controller


class ClaimProtection:
    """Protects claims that a scheduled Pod uses, and maintains the condition that reports whether they are in use."""

    def __init__(
        self, client: Client, clock: Clock, claims: Informer[PersistentVolumeClaim], pods: Informer[Pod]
    ) -> None:
        self._client = client
        self._clock = clock
        self._claims = claims
        self._pods = pods
        self._listed_of, self._listed = "", ObjectList([], "")

    async def reconcile(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        if _may_lose(claim, _CLAIM_FINALIZER):
            if not await self._holds(claim):
                await self._client.update(_without_finalizer(claim, _CLAIM_FINALIZER))
        elif _lacks(claim, _CLAIM_FINALIZER):
            await self._client.update(_with_finalizer(claim, _CLAIM_FINALIZER))
        elif "deletionTimestamp" not in claim["metadata"] and (claim.get("status") or {}).get("phase") == "Bound":
            await self._report_use(claim)

    async def _holds(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a scheduled Pod may use the claim. The cache must be newer than the claim's deletion, because
        a Pod may have been created in between; Pods created later cannot use a terminating claim."""
        if any(_holds(pod, claim) for pod in self._pods.by_index(PODS_BY_CLAIM, key_of(claim))):
            return True
        ending = int(claim["metadata"]["resourceVersion"])
        if int(self._pods.resource_version or 0) >= ending:
            return False
        namespace = claim["metadata"]["namespace"]
        if namespace != self._listed_of or int(self._listed.resource_version or 0) < ending:
            # One list covers all claims that were deleted before it.
            self._listed_of, self._listed = namespace, await self._client.list(PODS, namespace)
        return any(_holds(cast("Pod", pod), claim) for pod in self._listed.items)

    async def _report_use(self, claim: PersistentVolumeClaim) -> None:
        users = self._pods.by_index(PODS_BY_CLAIM, key_of(claim))
        used = any(uses(pod, claim) and not has_released_volumes(pod) for pod in users)
        status = "False" if used else "True"
        known = condition_of(claim, _UNUSED)
        if known is not None and known["status"] == status:
            return
        reason, message = (
            ("PodUsingPVC", "A pod is currently referencing this PVC")
            if used
            else ("NoPodsUsingPVC", "No pods are currently referencing this PVC")
        )
        new = new_condition(_UNUSED, status, reason, message, self._clock.now())
        conditions = [*without_condition(conditions_of(claim), _UNUSED), new]
        change = {**claim, "status": {**claim["status"], "conditions": conditions}}
        await self._client.update(change, subresource="status")


def _holds(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether the Pod holds the claim. An unscheduled Pod cannot start with a terminating claim and does not
    count, nor does one that waits for its own ephemeral claim to go."""
    shut_down = "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return bool(pod["spec"].get("nodeName")) and uses(pod, claim, ephemeral=not shut_down)


# -- VolumeAttributesClasses ------------------------------------------------------------------------------------------


def attributes_class_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "volumeattributesclass-protection-controller"
    classes, claims, volumes = manager.informer(_CLASSES), manager.informer(_CLAIMS), manager.informer(_VOLUMES)
    for users in (claims, volumes):
        users.add_index(_BY_CLASS, _classes_of)
    protection = ClassProtection(manager.client_for(name), classes, (claims, volumes))
    controller = Controller(name, protection.reconcile, manager.clock)

    def class_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and (
            _lacks(new, _ATTRIBUTES_CLASS_FINALIZER) or _may_lose(new, _ATTRIBUTES_CLASS_FINALIZER)
        ):
            controller.enqueue(key_of(new))

    def user_changed(old: Obj | None, new: Obj | None) -> None:
        """Enqueue the classes to which the object no longer refers."""
        for used in _classes_of(old) if old is not None else ():
            if new is None or used not in _classes_of(new):
                controller.enqueue(used)

    classes.add_handler(class_changed)
    claims.add_handler(user_changed)
    volumes.add_handler(user_changed)
    return controller


def _classes_of(user: ObjView) -> list[str]:
    """Return all classes that a claim or volume has, requests, or is changing to."""
    status = user.get("status") or {}
    named = (
        user["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return list(dict.fromkeys(name for name in named if name))


class ClassProtection:
    """Protects VolumeAttributesClasses while a claim or volume refers to them."""

    def __init__(self, client: Client, classes: Informer[Obj], users: tuple[Informer[Obj], ...]) -> None:
        self._client = client
        self._classes = classes
        self._users = users

    async def reconcile(self, name: str) -> None:
        found = self._classes.get(name)
        if found is None:
            return
        if _may_lose(found, _ATTRIBUTES_CLASS_FINALIZER):
            if not any(users.by_index(_BY_CLASS, name) for users in self._users):
                await self._client.update(_without_finalizer(found, _ATTRIBUTES_CLASS_FINALIZER))
        elif _lacks(found, _ATTRIBUTES_CLASS_FINALIZER):
            await self._client.update(_with_finalizer(found, _ATTRIBUTES_CLASS_FINALIZER))
