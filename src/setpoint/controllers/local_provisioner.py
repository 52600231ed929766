"""Provisions volumes from node directories for StorageClasses with the provisioner `setpoint.dev/local`.

It acts as any external provisioner: the binder requests a volume with an annotation on the claim and finds the volume
by its claimRef. Volumes are deleted with their claim if the reclaim policy is Delete, and resized with it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.kinds.storage.binding import (
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    annotations_of,
    capacity,
    claim_class,
    claim_reference,
    requested,
    waits_for_consumer,
)
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, without_condition
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.node_labels import HOSTNAME
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.manager import ControllerGroup

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, PersistentVolume, PersistentVolumeClaim

PROVISIONER = "setpoint.dev/local"


# -- volumes ----------------------------------------------------------------------------------------------------------

_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
_DIRECTORY = "/var/lib/setpoint/volumes"
_RESIZING = "Resizing"
_PENDING = "FileSystemResizePending"
_VOLUMES = builtin("persistentvolumes")
_CLAIMS, _NODES = builtin("persistentvolumeclaims"), builtin("nodes")
_STORAGE_CLASSES = builtin("storageclasses", "storage.k8s.io")
_ACCOUNT = "persistent-volume-binder"
"""The service account that has the necessary permissions."""
_WORKERS = 10


class CannotProvision(Exception):
    """The claim requires something that a directory does not support."""


def _volume_name(claim: PersistentVolumeClaim) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _check(claim: PersistentVolumeClaim) -> None:
    """Raise CannotProvision if the claim cannot be served by a directory."""
    spec = claim["spec"]
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        raise CannotProvision(f"{PROVISIONER} does not support block volume provisioning")
    if spec.get("selector"):
        raise CannotProvision("claim Selector is not supported")
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        raise CannotProvision("volumes with a data source are not supported")


def _volume_for(claim: PersistentVolumeClaim, storage_class: Obj, node: Node | None) -> Obj:
    """Return a volume reserved for the claim; if a node was selected, it is restricted to that node."""
    meta, name = claim["metadata"], _volume_name(claim)
    spec: Obj = {
        "capacity": {"storage": requested(claim)},
        "accessModes": claim["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": "Filesystem",
        "hostPath": {
            "path": f"{_DIRECTORY}/{name}_{meta['namespace']}_{meta['name']}",
            "type": "DirectoryOrCreate",
        },
        "claimRef": claim_reference(claim),
    }
    if claim["spec"].get("volumeAttributesClassName"):
        spec["volumeAttributesClassName"] = claim["spec"]["volumeAttributesClassName"]
    if node is not None:
        hostname = (node["metadata"].get("labels") or {}).get(HOSTNAME, node["metadata"]["name"])
        here = {"key": HOSTNAME, "operator": "In", "values": [hostname]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [_FINALIZER]},
        "spec": spec,
    }


def _selected_node(claim: PersistentVolumeClaim) -> str:
    return annotations_of(claim).get(SELECTED_NODE, "")


class Provisioning:
    """Provisions a volume for a claim."""

    def __init__(
        self,
        client: Client,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        classes: Informer[Obj],
        nodes: Informer[Node],
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._nodes = nodes
        self._recorder = recorder

    async def reconcile(self, key: str) -> Result | None:
        claim = self._claims.get(key)
        if claim is None or not self._is_asked(claim):
            return None
        storage_class = self._classes.get(claim_class(claim))
        if storage_class is None or storage_class["provisioner"] != PROVISIONER:
            return None
        chosen = _selected_node(claim)
        if waits_for_consumer(storage_class) and not chosen:
            return None
        node = self._nodes.get(chosen) if chosen else None
        if chosen and node is None:
            await self._ask_for_another_node(claim, chosen)
            return None
        return await self._provision(claim, storage_class, node)

    def _is_asked(self, claim: PersistentVolumeClaim) -> bool:
        return (
            annotations_of(claim).get(STORAGE_PROVISIONER) == PROVISIONER
            and not claim["spec"].get("volumeName")
            and "deletionTimestamp" not in claim["metadata"]
            and self._volumes.get(_volume_name(claim)) is None
        )

    async def _provision(self, claim: PersistentVolumeClaim, storage_class: Obj, node: Node | None) -> Result | None:
        about = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self._recorder.normal(claim, "Provisioning", about)
        try:
            _check(claim)
            await self._client.create(_volume_for(claim, storage_class, node))
        except AlreadyExists:
            return None  # the name contains the claim's uid: an earlier attempt created it
        except CannotProvision as error:
            self._fail(claim, storage_class, error)
            return Result(retry=True)
        except ApiError as error:
            self._fail(claim, storage_class, error)
            raise
        text = f"Successfully provisioned volume {_volume_name(claim)}"
        self._recorder.normal(claim, "ProvisioningSucceeded", text)
        return None

    def _fail(self, claim: PersistentVolumeClaim, storage_class: Obj, error: Exception) -> None:
        text = f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {error}'
        self._recorder.warning(claim, "ProvisioningFailed", text)

    async def _ask_for_another_node(self, claim: PersistentVolumeClaim, gone: str) -> None:
        """Remove the annotation, so that the scheduler selects another node."""
        text = f'failed to get target node: node "{gone}" not found'
        self._recorder.warning(claim, "ProvisioningFailed", text)
        annotations = {name: value for name, value in annotations_of(claim).items() if name != SELECTED_NODE}
        await self._client.update({**claim, "metadata": {**claim["metadata"], "annotations": annotations}})


# -- resizing ---------------------------------------------------------------------------------------------------------


def _has(claim: PersistentVolumeClaim) -> str:
    """Return the capacity in the claim's status."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))


def _wants_more(claim: PersistentVolumeClaim) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound" and compare(requested(claim), _has(claim)) > 0


class Resizing:
    """Expands volumes. A directory needs no change for that."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._clock = clock
        self._claims = claims
        self._volumes = volumes
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None or not _wants_more(claim):
            return
        volume = self._volumes.get(claim["spec"].get("volumeName", ""))
        if volume is None or annotations_of(volume).get(PROVISIONED_BY) != PROVISIONER:
            return
        if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return
        size = requested(claim)
        if condition_of(claim, _RESIZING) is None:
            name = volume["metadata"]["name"]
            self._recorder.normal(claim, "Resizing", f"External resizer is resizing volume {name}")
            claim = await self._save(claim, self._status_while_resizing(claim, size))
        if compare(capacity(volume), size) < 0:
            expanded = {**volume["spec"], "capacity": {**volume["spec"]["capacity"], "storage": size}}
            await self._client.update({**volume, "spec": expanded})
        claim = await self._save(claim, _status_after_resizing(claim, size))
        self._recorder.normal(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _save(self, claim: PersistentVolumeClaim, status: Obj) -> PersistentVolumeClaim:
        written = await self._client.update({**claim, "status": status}, subresource="status")
        return cast("PersistentVolumeClaim", written)

    def _status_while_resizing(self, claim: PersistentVolumeClaim, size: str) -> Obj:
        status = claim["status"]
        resizing = {"type": _RESIZING, "status": "True", "lastTransitionTime": format_time(self._clock.now())}
        return {
            **status,
            "conditions": [*(status.get("conditions") or ()), resizing],
            "allocatedResources": {**(status.get("allocatedResources") or {}), "storage": size},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
        }


def _status_after_resizing(claim: PersistentVolumeClaim, size: str) -> Obj:
    status: Obj = {**claim["status"], "capacity": {**(claim["status"].get("capacity") or {}), "storage": size}}
    status.pop("allocatedResourceStatuses", None)
    status["conditions"] = without_condition(without_condition(status.get("conditions") or [], _RESIZING), _PENDING)
    return status


# -- deleting ---------------------------------------------------------------------------------------------------------


class Deleting:
    """Deletes released volumes of this provisioner."""

    def __init__(self, client: Client, volumes: Informer[PersistentVolume]) -> None:
        self._client = client
        self._volumes = volumes

    async def reconcile(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or annotations_of(volume).get(PROVISIONED_BY) != PROVISIONER:
            return
        meta = volume["metadata"]
        guarded = _FINALIZER in (meta.get("finalizers") or ())
        delete = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        released = (volume.get("status") or {}).get("phase") in ("Released", "Failed")
        if delete and released:
            with suppress(NotFound):
                if "deletionTimestamp" not in meta:
                    await self._client.delete(_VOLUMES, name, uid=meta["uid"])
                elif guarded:
                    await self._save(volume, [found for found in meta["finalizers"] if found != _FINALIZER])
        elif guarded and (not delete or ("deletionTimestamp" in meta and not volume["spec"].get("claimRef"))):
            # Nothing to do: the volume is retained, or was never bound.
            await self._save(volume, [found for found in meta["finalizers"] if found != _FINALIZER])
        elif delete and not guarded and "deletionTimestamp" not in meta:
            await self._save(volume, [*(meta.get("finalizers") or ()), _FINALIZER])

    async def _save(self, volume: PersistentVolume, finalizers: list[str]) -> None:
        await self._client.update({**volume, "metadata": {**volume["metadata"], "finalizers": finalizers}})


# -- event handlers ---------------------------------------------------------------------------------------------------


def local_provisioner(manager: Manager, _: ControllerOptions) -> ControllerGroup:
    client, clock = manager.client_for(_ACCOUNT), manager.clock
    recorder = manager.recorder(PROVISIONER, _ACCOUNT)
    claims, volumes = manager.informer(_CLAIMS), manager.informer(_VOLUMES)
    classes = manager.informer(_STORAGE_CLASSES)
    provisioning = Provisioning(client, claims, volumes, classes, manager.informer(_NODES), recorder)
    claim_loop = Controller("local provisioner: claims", provisioning.reconcile, clock, workers=_WORKERS)
    deleting = Deleting(client, volumes)
    resizing = Resizing(client, clock, claims, volumes, recorder)
    resize_loop = Controller("local provisioner: sizes", resizing.reconcile, clock, workers=_WORKERS)
    volume_loop = Controller("local provisioner: volumes", deleting.reconcile, clock, workers=_WORKERS)

    def claim_changed(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None:
            claim_loop.enqueue(key_of(new))
            if _wants_more(new):
                resize_loop.enqueue(key_of(new))

    def volume_changed(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
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
