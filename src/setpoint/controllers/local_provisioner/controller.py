"""The event handlers of the local provisioner."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.controllers.local_provisioner.deleting import VOLUMES, Deleting
from setpoint.controllers.local_provisioner.provisioning import Provisioning
from setpoint.controllers.local_provisioner.resizing import Resizing, wants_more
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.storage.binding import claim_class
from setpoint.reconcile import Controller, Manager, key_of

Obj = dict[str, Any]

CLAIMS, NODES = builtin("persistentvolumeclaims"), builtin("nodes")
STORAGE_CLASSES = builtin("storageclasses", "storage.k8s.io")
_ACCOUNT = "persistent-volume-binder"
"""The service account that has the necessary permissions."""
_WORKERS = 10


def local_provisioner(manager: Manager, _: ControllerOptions) -> ControllerGroup:
    client, clock = manager.client_for(_ACCOUNT), manager.clock
    recorder = manager.recorder(PROVISIONER, _ACCOUNT)
    claims, volumes = manager.informer(CLAIMS), manager.informer(VOLUMES)
    classes = manager.informer(STORAGE_CLASSES)
    provisioning = Provisioning(client, claims, volumes, classes, manager.informer(NODES), recorder)
    claim_loop = Controller("local provisioner: claims", provisioning.reconcile, clock, workers=_WORKERS)
    deleting = Deleting(client, volumes)
    resizing = Resizing(client, clock, claims, volumes, recorder)
    resize_loop = Controller("local provisioner: sizes", resizing.reconcile, clock, workers=_WORKERS)
    volume_loop = Controller("local provisioner: volumes", deleting.reconcile, clock, workers=_WORKERS)

    def claim_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            claim_loop.enqueue(key_of(new))
            if wants_more(new):
                resize_loop.enqueue(key_of(new))

    def volume_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            volume_loop.enqueue(key_of(new))

    def class_changed(old: Obj | None, new: Obj | None) -> None:
        for key, claim in claims.items.items():
            if new is not None and claim_class(claim) == new["metadata"]["name"]:
                claim_loop.enqueue(key)

    claims.add_handler(claim_changed)
    volumes.add_handler(volume_changed)
    classes.add_handler(class_changed)
    return ControllerGroup(claim_loop, volume_loop, resize_loop)
