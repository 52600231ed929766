"""The event handlers of the attach-detach controller, whose keys are nodes."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.attach_detach.attachments import in_use, is_healthy, is_managed, is_out_of_service
from setpoint.controllers.attach_detach.reconciler import ATTACHMENTS, BY_NODE, BY_VOLUME, NODES, AttachDetach
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.volume_users import PODS_BY_CLAIM, claims_of, index_pods_by_claim
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
DRIVERS = builtin("csidrivers", "storage.k8s.io")
_ACCOUNT = "attachdetach-controller"
_WORKERS = 10


def attach_detach_controller(manager: Manager, _: ControllerOptions) -> Controller:
    pods, claims, volumes = manager.informer(PODS), manager.informer(CLAIMS), manager.informer(VOLUMES)
    nodes, attachments, drivers = manager.informer(NODES), manager.informer(ATTACHMENTS), manager.informer(DRIVERS)
    index_pods_by_claim(pods)
    attachments.add_index(BY_NODE, lambda found: [found["spec"]["nodeName"]])
    attachments.add_index(BY_VOLUME, lambda found: [found["spec"]["source"].get("persistentVolumeName") or ""])
    reconciler = AttachDetach(
        manager.client_for(_ACCOUNT), manager.clock, manager.recorder(_ACCOUNT), pods=pods, claims=claims,
        volumes=volumes, nodes=nodes, attachments=attachments, drivers=drivers,
    )  # fmt: skip
    controller = Controller(_ACCOUNT, reconciler.reconcile, manager.clock, workers=_WORKERS)
    watching = _EventHandlers(controller, pods, volumes, nodes)
    pods.add_handler(watching.pod_changed)
    claims.add_handler(watching.claim_changed)
    volumes.add_handler(watching.volume_changed)
    attachments.add_handler(watching.attachment_changed)
    nodes.add_handler(watching.node_changed)
    drivers.add_handler(watching.driver_changed)
    return controller


class _EventHandlers:
    def __init__(self, controller: Controller, pods: Informer, volumes: Informer, nodes: Informer) -> None:
        self._controller = controller
        self._pods = pods
        self._volumes = volumes
        self._nodes = nodes

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        node = pod["spec"].get("nodeName")
        if node and next(claims_of(pod), None) is not None:
            self._controller.enqueue(node)

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        self._users_of(key_of(new or old or {}))

    def volume_changed(self, old: Obj | None, new: Obj | None) -> None:
        volume = new or old or {}
        reference = volume["spec"].get("claimRef")
        if "csi" in volume["spec"] and reference:
            self._users_of(f"{reference.get('namespace', '')}/{reference.get('name', '')}")

    def attachment_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Enqueue the attachment's node, and all nodes that wait for the volume."""
        found = new or old or {}
        self._controller.enqueue(found["spec"]["nodeName"])
        volume = self._volumes.get(found["spec"]["source"].get("persistentVolumeName") or "")
        if volume is not None:
            self.volume_changed(None, volume)

    def node_changed(self, old: Obj | None, new: Obj | None) -> None:
        if old is None or new is None or _relevant_fields(old) != _relevant_fields(new):
            self._controller.enqueue(key_of(new or old or {}))

    def driver_changed(self, old: Obj | None, new: Obj | None) -> None:
        for name in self._nodes.items:
            self._controller.enqueue(name)

    def _users_of(self, claim: str) -> None:
        for pod in self._pods.by_index(PODS_BY_CLAIM, claim):
            self.pod_changed(None, pod)


def _relevant_fields(node: Obj) -> tuple[Any, ...]:
    """Return the fields of a node that this controller uses; nodes report other changes all the time."""
    attached = (node.get("status") or {}).get("volumesAttached")
    return is_managed(node), in_use(node), is_healthy(node), is_out_of_service(node), attached
