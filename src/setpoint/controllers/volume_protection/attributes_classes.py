"""Protects VolumeAttributesClasses while a claim or volume refers to them."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.volume_protection.claims import CLAIMS
from setpoint.controllers.volume_protection.finalizers import lacks, may_lose, with_finalizer, without_finalizer
from setpoint.controllers.volume_protection.volumes import VOLUMES
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

CLASSES = builtin("volumeattributesclasses", "storage.k8s.io")
FINALIZER = "kubernetes.io/vac-protection"
_INDEX = "volumeAttributesClass"


def attributes_class_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "volumeattributesclass-protection-controller"
    classes, claims, volumes = manager.informer(CLASSES), manager.informer(CLAIMS), manager.informer(VOLUMES)
    for users in (claims, volumes):
        users.add_index(_INDEX, classes_of)
    protection = ClassProtection(manager.client_for(name), classes, (claims, volumes))
    controller = Controller(name, protection.reconcile, manager.clock)

    def class_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None and (lacks(new, FINALIZER) or may_lose(new, FINALIZER)):
            controller.enqueue(key_of(new))

    def user_changed(old: Obj | None, new: Obj | None) -> None:
        """Enqueue the classes to which the object no longer refers."""
        for used in classes_of(old) if old is not None else ():
            if new is None or used not in classes_of(new):
                controller.enqueue(used)

    classes.add_handler(class_changed)
    claims.add_handler(user_changed)
    volumes.add_handler(user_changed)
    return controller


def classes_of(user: Obj) -> list[str]:
    """Return all classes that a claim or volume has, requests, or is changing to."""
    status = user.get("status") or {}
    named = (
        user["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return list(dict.fromkeys(name for name in named if name))


class ClassProtection:
    def __init__(self, client: Client, classes: Informer, users: tuple[Informer, ...]) -> None:
        self._client = client
        self._classes = classes
        self._users = users

    async def reconcile(self, name: str) -> None:
        found = self._classes.get(name)
        if found is None:
            return
        if may_lose(found, FINALIZER):
            if not any(users.by_index(_INDEX, name) for users in self._users):
                await self._client.update(without_finalizer(found, FINALIZER))
        elif lacks(found, FINALIZER):
            await self._client.update(with_finalizer(found, FINALIZER))
