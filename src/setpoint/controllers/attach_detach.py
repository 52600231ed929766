"""Attaches CSI volumes to the nodes whose Pods need them, and detaches them afterwards.

This controller only declares where a volume should be attached, with a VolumeAttachment per volume and node; the
driver's external attacher acts on it and reports. Attached volumes are then listed in the node's status, which a
kubelet waits for before it mounts. A volume that can be attached to one node only is not attached to a second node
before it was detached from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import (
    PODS_BY_CLAIM,
    PodsByNode,
    claims_of,
    has_released_volumes,
    index_pods_by_claim,
)
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import is_true
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.node_labels import TAINT_OUT_OF_SERVICE
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, PersistentVolume, PersistentVolumeClaim, Pod

_MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
"""Node annotation: this controller, not the kubelet, attaches the node's volumes."""
_NODES, _ATTACHMENTS = builtin("nodes"), builtin("volumeattachments", "storage.k8s.io")
_BY_NODE, _BY_VOLUME = "node", "volume"
"""Names of the indexes of VolumeAttachments."""
_LONGEST_UNMOUNT = 360.0
"""Seconds after which a volume is detached from an unhealthy node although it may still be mounted there."""
_CLAIMS, _VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_DRIVERS = builtin("csidrivers", "storage.k8s.io")
_ACCOUNT = "attachdetach-controller"
_WORKERS = 10


def _attachment_name(volume: PersistentVolume, node: str) -> str:
    source = volume["spec"]["csi"]
    return f"csi-{sha256((source['volumeHandle'] + source['driver'] + node).encode()).hexdigest()}"


def _attachment(volume: PersistentVolume, node: str) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": _attachment_name(volume, node)},
        "spec": {
            "attacher": volume["spec"]["csi"]["driver"],
            "nodeName": node,
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }


def _is_attached(found: Mapping[str, Any]) -> bool:
    return bool((found.get("status") or {}).get("attached"))


def _unique_name(volume: PersistentVolume) -> str:
    """Return the name of the volume in a node's status."""
    source = volume["spec"]["csi"]
    return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}"


def _allows_multi_attach(volume: PersistentVolume) -> bool:
    modes = volume["spec"].get("accessModes") or ()
    return not modes or "ReadWriteMany" in modes or "ReadOnlyMany" in modes


def _needs_attaching(volume: PersistentVolume, driver: Mapping[str, Any] | None) -> bool:
    """Return whether the volume must be attached; an unknown driver is assumed to require it."""
    return "csi" in volume["spec"] and (driver is None or driver["spec"].get("attachRequired") is not False)


def _is_managed(node: Node) -> bool:
    return _MANAGED in (node["metadata"].get("annotations") or {})


def _in_use(node: Node) -> list[str]:
    return list((node.get("status") or {}).get("volumesInUse") or ())


def _is_healthy(node: Node) -> bool:
    return is_true(node, "Ready")


def _is_out_of_service(node: Node) -> bool:
    return any(
        taint["key"] == TAINT_OUT_OF_SERVICE and taint["effect"] == "NoExecute"
        for taint in (node.get("spec") or {}).get("taints") or ()
    )


# -- attaching and detaching ------------------------------------------------------------------------------------------


class AttachDetach:
    """Reconciles one node: attaches the volumes its Pods need and detaches the others."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        *,
        pods: Informer[Pod],
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        nodes: Informer[Node],
        attachments: Informer[Obj],
        drivers: Informer[Obj],
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._pods = pods
        self._by_node = PodsByNode(pods)
        self._claims = claims
        self._volumes = volumes
        self._nodes = nodes
        self._attachments = attachments
        self._drivers = drivers
        self._unneeded_since: dict[str, float] = {}
        """The time since which each attachment has been unneeded, by name."""
        self._reported_conflicts: dict[str, set[str]] = {}
        """Names of attachments, by node, that are blocked because the volume is attached elsewhere and for which an
        Event was recorded."""

    async def reconcile(self, name: str) -> Result | None:
        node = self._nodes.get(name)
        wanted = self._wanted(name) if node is not None and _is_managed(node) else {}
        there = {found["metadata"]["name"]: found for found in self._attachments.by_index(_BY_NODE, name)}
        wait = await self._detach(node, wanted, there)
        known = self._reported_conflicts.pop(name, set()) & wanted.keys() - there.keys()
        for key, (volume, pods) in wanted.items():
            self._unneeded_since.pop(key, None)
            if key not in there and await self._is_elsewhere(volume, name, pods, known=key in known):
                self._reported_conflicts.setdefault(name, set()).add(key)
        if node is not None and wanted:
            await self._report(node, wanted, there)
        return Result(requeue_after=wait) if wait is not None else None

    def _wanted(self, node: str) -> dict[str, tuple[PersistentVolume, list[Pod]]]:
        """Return the volumes that Pods on the node need, with those Pods, by name of the attachment."""
        wanted: dict[str, tuple[PersistentVolume, list[Pod]]] = {}
        for pod in self._by_node.on(node):
            if has_released_volumes(pod):
                continue
            for claim in claims_of(pod):
                volume = self._volume_of(f"{pod['metadata']['namespace']}/{claim}")
                if volume is not None:
                    wanted.setdefault(_attachment_name(volume, node), (volume, []))[1].append(pod)
        return wanted

    def _volume_of(self, key: str) -> PersistentVolume | None:
        claim = self._claims.get(key)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return None
        volume = self._volumes.get(claim["spec"].get("volumeName", ""))
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return None
        driver = self._drivers.get((volume["spec"].get("csi") or {}).get("driver", ""))
        return volume if _needs_attaching(volume, driver) else None

    # -- detach -----------------------------------------------------------------------------------------------------

    async def _detach(self, node: Node | None, wanted: dict[str, Any], there: dict[str, Obj]) -> float | None:
        """Detach unneeded volumes. Return the seconds until one may be force-detached, or None."""
        waits = []
        for key, found in there.items():
            volume = self._volumes.get((found["spec"].get("source") or {}).get("persistentVolumeName") or "")
            if key in wanted or volume is None or "deletionTimestamp" in found["metadata"]:
                continue
            if "csi" not in volume["spec"] or _attachment_name(volume, found["spec"]["nodeName"]) != key:
                continue  # not managed by this controller
            now = self._clock.monotonic()
            waited = now - self._unneeded_since.setdefault(key, now)
            if node is not None and _unique_name(volume) in _in_use(node) and not _is_out_of_service(node):
                if _is_healthy(node) or waited <= _LONGEST_UNMOUNT:
                    waits.append(max(1.0, _LONGEST_UNMOUNT - waited))
                    continue
            if node is not None:
                # Remove it from the node's status first, so that no Pod can mount it any more.
                node = await self._list_attached(node, without=_unique_name(volume))
            with suppress(NotFound):
                await self._client.delete(_ATTACHMENTS, key, uid=found["metadata"]["uid"])
            self._unneeded_since.pop(key, None)
        return min(waits, default=None)

    # -- attach -----------------------------------------------------------------------------------------------------

    async def _is_elsewhere(self, volume: PersistentVolume, node: str, pods: list[Pod], *, known: bool) -> bool:
        """Attach the volume unless another node has it, which is returned. `known`: an Event was recorded already."""
        name = volume["metadata"]["name"]
        if self._attachments.by_index(_BY_VOLUME, name) and not _allows_multi_attach(volume):
            for pod in pods if not known else ():
                text = f'Waiting for detach for volume "{name}" {self._attached_node(volume, node)}'
                self._recorder.warning(pod, "FailedAttachVolume", text)
            return True
        with suppress(AlreadyExists):  # the cache is stale
            await self._client.create(_attachment(volume, node))
        return False

    def _attached_node(self, volume: PersistentVolume, node: str) -> str:
        reference = volume["spec"]["claimRef"]
        users = [
            pod
            for pod in self._pods.by_index(PODS_BY_CLAIM, f"{reference['namespace']}/{reference['name']}")
            if pod["spec"].get("nodeName") not in (None, "", node) and not has_released_volumes(pod)
        ]
        if not users:
            one = "Volume is already exclusively attached to one node"
            return f"{one}, waiting on detach before it can be attached to another node"
        return f"Volume is already used by pod(s) {', '.join(sorted(pod['metadata']['name'] for pod in users))}"

    async def _report(
        self, node: Node, wanted: dict[str, tuple[PersistentVolume, list[Pod]]], there: dict[str, Obj]
    ) -> None:
        known = {each["name"] for each in (node.get("status") or {}).get("volumesAttached") or ()}
        new = []
        for key, (volume, pods) in wanted.items():
            found = there.get(key)
            if found is None or "deletionTimestamp" in found["metadata"]:
                continue
            if _is_attached(found):
                if _unique_name(volume) not in known:
                    new.append((volume, pods))
            elif (error := (found.get("status") or {}).get("attachError")) is not None:
                name = volume["metadata"]["name"]
                text = f'AttachVolume.Attach failed for volume "{name}" : {error.get("message", "")}'
                for pod in pods:
                    self._recorder.warning(pod, "FailedAttachVolume", text)
        if not new:
            return
        await self._list_attached(node, also=[_unique_name(volume) for volume, _ in new])
        for volume, pods in new:
            text = f'AttachVolume.Attach succeeded for volume "{volume["metadata"]["name"]}" '
            for pod in pods:
                self._recorder.normal(pod, "SuccessfulAttachVolume", text)

    async def _list_attached(self, node: Node, *, also: list[str] | None = None, without: str = "") -> Node:
        """Update the attached volumes in the node's status and return the node. Conditional on its version: an older
        list would drop newer entries."""
        listed = (node.get("status") or {}).get("volumesAttached") or []
        attached = [each for each in listed if each["name"] != without]
        wanted = [*attached, *({"name": name, "devicePath": ""} for name in also or ())]
        if wanted == listed:
            return node
        meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
        change = {"metadata": meta, "status": {"volumesAttached": wanted or None}}
        try:
            patched = await self._client.patch(_NODES, node["metadata"]["name"], change, subresource="status")
        except NotFound:
            return node
        return cast("Node", patched)


# -- event handlers ---------------------------------------------------------------------------------------------------


def attach_detach_controller(manager: Manager, _: ControllerOptions) -> Controller:
    pods, claims, volumes = manager.informer(PODS), manager.informer(_CLAIMS), manager.informer(_VOLUMES)
    nodes, attachments, drivers = manager.informer(_NODES), manager.informer(_ATTACHMENTS), manager.informer(_DRIVERS)
    index_pods_by_claim(pods)
    attachments.add_index(_BY_NODE, lambda found: [found["spec"]["nodeName"]])
    attachments.add_index(_BY_VOLUME, lambda found: [found["spec"]["source"].get("persistentVolumeName") or ""])
    reconciler = AttachDetach(
        manager.client_for(_ACCOUNT),
        manager.clock,
        manager.recorder(_ACCOUNT),
        pods=pods,
        claims=claims,
        volumes=volumes,
        nodes=nodes,
        attachments=attachments,
        drivers=drivers,
    )
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
    def __init__(
        self, controller: Controller, pods: Informer[Pod], volumes: Informer[PersistentVolume], nodes: Informer[Node]
    ) -> None:
        self._controller = controller
        self._pods = pods
        self._volumes = volumes
        self._nodes = nodes

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        node = pod["spec"].get("nodeName")
        if node and next(claims_of(pod), None) is not None:
            self._controller.enqueue(node)

    def claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self._users_of(key_of(new or old or {}))

    def volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
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

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _relevant_fields(old) != _relevant_fields(new):
            self._controller.enqueue(key_of(new or old or {}))

    def driver_changed(self, old: Obj | None, new: Obj | None) -> None:
        for name in self._nodes.items:
            self._controller.enqueue(name)

    def _users_of(self, claim: str) -> None:
        for pod in self._pods.by_index(PODS_BY_CLAIM, claim):
            self.pod_changed(None, pod)


def _relevant_fields(node: Node) -> tuple[Any, ...]:
    """Return the fields of a node that this controller uses; nodes report other changes all the time."""
    attached = (node.get("status") or {}).get("volumesAttached")
    return _is_managed(node), _in_use(node), _is_healthy(node), _is_out_of_service(node), attached
