"""Informers for everything except Pods and nodes, and the cluster events that their changes cause."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.reconcile import Informer, Manager
from setpoint.scheduler.binding import Binder
from setpoint.scheduler.cluster_events import (
    ATTACHMENT,
    CLAIM,
    CSI_CAPACITY,
    CSI_DRIVER,
    CSI_NODE,
    STORAGE_CLASS,
    VOLUME,
    Action,
    ClusterEvent,
)  # fmt: skip
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.queue import SchedulingQueue

Obj = dict[str, Any]

ACTIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects Pods that have not ended; ended ones use no resources and are treated as deleted."""
_STORAGE = "storage.k8s.io"


def watch_others(manager: Manager, listers: Listers, queue: SchedulingQueue, binder: Binder) -> None:
    def informer(plural: str, group: str = "", event: str = "") -> Informer:
        found = manager.informer(builtin(plural, group))
        if event:
            found.add_handler(lambda old, new: _notify(queue, event, old, new))
        return found

    listers.namespaces = informer("namespaces")
    listers.services = informer("services")
    listers.replication_controllers = informer("replicationcontrollers")
    listers.replica_sets = informer("replicasets", "apps")
    listers.stateful_sets = informer("statefulsets", "apps")
    listers.disruption_budgets = informer("poddisruptionbudgets", "policy")
    listers.claims = informer("persistentvolumeclaims", event=CLAIM)
    listers.volumes = informer("persistentvolumes", event=VOLUME)
    listers.storage_classes = informer("storageclasses", _STORAGE, STORAGE_CLASS)
    listers.csi_nodes = informer("csinodes", _STORAGE, CSI_NODE)
    listers.csi_drivers = informer("csidrivers", _STORAGE, CSI_DRIVER)
    listers.csi_capacities = informer("csistoragecapacities", _STORAGE, CSI_CAPACITY)
    listers.attachments = informer("volumeattachments", _STORAGE, ATTACHMENT)
    for lister in (listers.claims, listers.volumes):
        lister.add_handler(binder.changed)


def _notify(queue: SchedulingQueue, resource: str, old: Obj | None, new: Obj | None) -> None:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.OTHER
    queue.move_on_event(ClusterEvent(resource, action), old, new)
