"""Reconciles claims and volumes: finds, provisions, binds, releases, retains and deletes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.persistentvolume.ledger import CLAIMS, VOLUMES, Ledger, claim_key, with_annotation
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import PODS_BY_CLAIM, has_released_volumes, index_pods_by_claim
from setpoint.kinds.storage.binding import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    annotations_of,
    claim_class,
    is_reserved_for,
    mismatch_reason,
    requests_class,
    same_volume_mode,
    volume_class,
    waits_for_consumer,
)
from setpoint.kinds.storage.storageclass import default_class, is_default
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, key_of
from setpoint.reconcile.manager import ControllerGroup
from setpoint.reconcile.run import triggered

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


_MIGRATED_TO = "pv.kubernetes.io/migrated-to"
_OWN = "kubernetes.io/"
_HOST_PATH = "kubernetes.io/host-path"
_NOT_PROVISIONING = frozenset({"kubernetes.io/nfs", "kubernetes.io/fc", "kubernetes.io/iscsi", "kubernetes.io/csi"})
"""In-tree volume types that cannot be provisioned."""
_DELETABLE_PATH = re.compile("/tmp/.+")
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""In-tree names and the CSI drivers that replaced them."""
_FINISHED_PHASES = ("Released", "Failed")
_STORAGE_CLASSES = builtin("storageclasses", "storage.k8s.io")
_ACCOUNT = "persistent-volume-binder"
_COMPONENT = "persistentvolume-controller"
_WORKERS = 10


class Refused(Exception):
    """The volume cannot be provisioned or deleted; the message is upstream's."""

    def __init__(self, message: str, provisioner: str = "") -> None:
        """Create the error. `provisioner` is the provisioner to record on the claim all the same."""
        super().__init__(message)
        self.provisioner = provisioner


def _external_provisioner(provisioner: str) -> str:
    """Return the name of the external provisioner. Raise Refused if there is none."""
    if provisioner in _MIGRATED:
        return _MIGRATED[provisioner]
    if not provisioner.startswith(_OWN):
        return provisioner
    if provisioner == _HOST_PATH:
        why = f'Failed to create provisioner: provisioning in volume plugin "{_HOST_PATH}" is disabled'
        raise Refused(why, _HOST_PATH)
    if provisioner in _NOT_PROVISIONING:
        raise Refused("no provisionable volume plugin matched")
    raise Refused(f"no volume plugin matched name: {provisioner}")


def _is_deleted_externally(volume: Obj) -> bool:
    """Return whether an external provisioner deletes the volume; otherwise the binder deletes the object only. Raise
    Refused."""
    noted, spec = annotations_of(volume), volume["spec"]
    if _MIGRATED_TO in noted or ("csi" in spec and not noted.get(PROVISIONED_BY)):
        return True
    provisioner = noted.get(PROVISIONED_BY, "")
    if provisioner and provisioner != _HOST_PATH:
        if not provisioner.startswith(_OWN):
            return True
        matched = "no deletable volume plugin matched"
        raise Refused(matched if provisioner in _NOT_PROVISIONING else f"no volume plugin matched name: {provisioner}")
    if "hostPath" not in spec:
        why = (
            "no deletable volume plugin matched" if spec.keys() & {"nfs", "fc", "iscsi"} else "no volume plugin matched"
        )
        raise Refused(f'error getting deleter volume plugin for volume "{volume["metadata"]["name"]}": {why}')
    path = spec["hostPath"].get("path", "")
    if not _DELETABLE_PATH.search(path):
        raise Refused(f"host_path deleter only supports /tmp/.+ but received provided {path}")
    return False


def _with_migration(obj: Obj) -> Obj:
    """Return the object with the annotation of the CSI driver that replaced its plugin, or the object itself if it is
    set."""
    noted = annotations_of(obj)
    provisioner = noted.get(PROVISIONED_BY) or noted.get(STORAGE_PROVISIONER)
    if provisioner is None:
        return obj
    wanted = _MIGRATED.get(provisioner)
    if noted.get(_MIGRATED_TO) == wanted:
        return obj
    changed = {key: value for key, value in noted.items() if key != _MIGRATED_TO}
    if wanted is not None:
        changed[_MIGRATED_TO] = wanted
    return {**obj, "metadata": {**obj["metadata"], "annotations": changed}}


class Misbound(Exception):
    """A claim refers to a volume that is bound to another claim."""


class Claims:
    """Reconciles a claim: finds or provisions a volume, or verifies that a bound claim still has its volume."""

    def __init__(self, ledger: Ledger, classes: Informer[Obj], pods: Informer[Pod], recorder: EventRecorder) -> None:
        self._ledger = ledger
        self._classes = classes
        self._pods = pods
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        claim = self._ledger.claim(key)
        if claim is None:
            return
        migrated = _with_migration(claim)
        if migrated is not claim:
            claim = await self._ledger.save_claim(migrated)
        if BIND_COMPLETED in annotations_of(claim):
            await self._verify_binding(claim)
        elif claim["spec"].get("volumeName"):
            await self._bind_to_wanted(claim)
        else:
            await self._find(claim)

    # -- pending claims ---------------------------------------------------------------------------------------------

    async def _find(self, claim: Obj) -> None:
        wanted = claim_class(claim)
        storage_class = self._classes.get(wanted) if wanted else None
        waits = waits_for_consumer(storage_class)
        volume = self._ledger.best_for(claim, only_reserved=waits)
        if volume is not None:
            await self._ledger.bind(volume, claim)
            return
        if not requests_class(claim) and (default := default_class(list(self._classes.items.values()))) is not None:
            # The claim was created before there was a default class: assign the default now.
            name = default["metadata"]["name"]
            await self._ledger.save_claim({**claim, "spec": {**claim["spec"], "storageClassName": name}})
            return
        if waits and SELECTED_NODE not in annotations_of(claim):
            self._record_waiting(claim)
        elif wanted:
            await self._provision(claim, wanted, storage_class)
            return
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._recorder.normal(claim, "FailedBinding", text)
        await self._ledger.set_claim_status(claim, "Pending", None)

    def _record_waiting(self, claim: Obj) -> None:
        users = self._pods.by_index(PODS_BY_CLAIM, key_of(claim))
        waiting = sorted(
            pod["metadata"]["name"]
            for pod in users
            if not pod["spec"].get("nodeName") and not has_released_volumes(pod)
        )
        if not waiting:
            text = "waiting for first consumer to be created before binding"
            self._recorder.normal(claim, "WaitForFirstConsumer", text)
            return
        who = f"pods {','.join(waiting)}" if len(waiting) > 1 else f"pod {waiting[0]}"
        self._recorder.normal(claim, "WaitForPodScheduled", f"waiting for {who} to be scheduled")

    async def _provision(self, claim: Obj, wanted: str, storage_class: Obj | None) -> None:
        try:
            if storage_class is None:
                raise Refused(f'storageclass.storage.k8s.io "{wanted}" not found')
            provisioner = _external_provisioner(storage_class["provisioner"])
        except Refused as refused:
            if refused.provisioner:
                claim = await self._ask(claim, refused.provisioner)
            self._recorder.warning(claim, "ProvisioningFailed", str(refused))
            return
        claim = await self._ask(claim, provisioner)
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by "
            "the system administrator. If volume creation is delayed, please verify that the provisioner is running "
            "and correctly registered."
        )
        self._recorder.normal(claim, "ExternalProvisioning", text)

    async def _ask(self, claim: Obj, provisioner: str) -> Obj:
        if annotations_of(claim).get(STORAGE_PROVISIONER) == provisioner:
            return claim
        annotated = with_annotation(claim, BETA_STORAGE_PROVISIONER, provisioner)
        return await self._ledger.save_claim(
            _with_migration(with_annotation(annotated, STORAGE_PROVISIONER, provisioner))
        )

    async def _bind_to_wanted(self, claim: Obj) -> None:
        """Bind to the volume that the claim names, chosen by its author or by an interrupted binding."""
        name = claim["spec"]["volumeName"]
        volume = self._ledger.volume(name)
        if volume is None:
            await self._ledger.set_claim_status(claim, "Pending", None)
        elif not volume["spec"].get("claimRef"):
            if reason := mismatch_reason(volume, claim):
                text = f'Cannot bind to requested volume "{name}": {reason}'
                self._recorder.warning(claim, "VolumeMismatch", text)
                await self._ledger.set_claim_status(claim, "Pending", None)
            else:
                await self._ledger.bind(volume, claim)
        elif is_reserved_for(volume, claim):
            await self._ledger.bind(volume, claim)
        else:
            self._recorder.warning(claim, "FailedBinding", f'volume "{name}" already bound to a different claim.')
            if BOUND_BY_CONTROLLER in annotations_of(claim):
                other = claim_key(volume["spec"]["claimRef"])
                why = f'volume already claimed by "{other}"'
                raise Misbound(f'invalid binding of claim "{key_of(claim)}" to volume "{name}": {why}')
            await self._ledger.set_claim_status(claim, "Pending", None)

    # -- bound claims -----------------------------------------------------------------------------------------------

    async def _verify_binding(self, claim: Obj) -> None:
        name = claim["spec"].get("volumeName")
        volume = self._ledger.volume(name) if name else None
        if not name:
            await self._mark_lost(claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume.")
        elif volume is None:
            await self._mark_lost(claim, "ClaimLost", "Bound claim has lost its PersistentVolume.")
        elif not (reference := volume["spec"].get("claimRef")) or reference.get("uid") == claim["metadata"]["uid"]:
            await self._ledger.bind(volume, claim)
        else:
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
            await self._mark_lost(claim, "ClaimMisbound", text, "")

    async def _mark_lost(
        self, claim: Obj, reason: str, text: str, and_so: str = " Data on the volume is lost!"
    ) -> None:
        if (claim.get("status") or {}).get("phase") != "Lost":
            self._recorder.warning(await self._ledger.set_claim_status(claim, "Lost", None), reason, text + and_so)


# -- volumes ----------------------------------------------------------------------------------------------------------


class Volumes:
    """Reconciles a volume: available, bound, or released and then retained or deleted."""

    def __init__(self, ledger: Ledger, recorder: EventRecorder, enqueue_claim: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._enqueue_claim = enqueue_claim

    async def reconcile(self, name: str) -> None:
        volume = self._ledger.volume(name)
        if volume is None:
            return
        migrated = _with_migration(volume)
        if migrated is not volume:
            volume = await self._ledger.save_volume(migrated)
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            # Available, or reserved for a claim: binding is left to the claim.
            await self._ledger.set_phase(volume, "Available")
            return
        claim = await self._claim_of(volume, reference)
        if claim is None:
            await self._release(volume)
        elif not claim["spec"].get("volumeName"):
            self._leave_to_claim(volume, claim)
        elif claim["spec"]["volumeName"] == name:
            await self._ledger.set_phase(volume, "Bound")
        elif PROVISIONED_BY in annotations_of(volume) and _policy(volume) == "Delete":
            # Provisioned for this claim, which was bound to another volume meanwhile.
            await self._release(volume)
        else:
            await self._ledger.unbind(volume)

    async def _claim_of(self, volume: Obj, reference: Obj) -> Obj | None:
        """Return the claim that the volume refers to. Reads from the server before the volume is released, because the
        cache may be stale."""
        key = claim_key(reference)
        claim = self._ledger.claim(key)
        if claim is None and (volume.get("status") or {}).get("phase") not in _FINISHED_PHASES:
            claim = await self._ledger.read_claim(key)
        if claim is not None and claim["metadata"]["uid"] != reference["uid"]:
            claim = await self._ledger.read_claim(key)
        return claim if claim is not None and claim["metadata"]["uid"] == reference["uid"] else None

    def _leave_to_claim(self, volume: Obj, claim: Obj) -> None:
        if not same_volume_mode(volume, claim):
            name, wanted = volume["metadata"]["name"], claim["metadata"]["name"]
            text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{wanted}" due to incompatible'
            self._recorder.warning(volume, "VolumeMismatch", f"{text} volumeMode.")
            text = f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim due to incompatible'
            self._recorder.warning(claim, "VolumeMismatch", f"{text} volumeMode.")
            return
        self._enqueue_claim(claim_key(claim["metadata"]))

    async def _release(self, volume: Obj) -> None:
        if (volume.get("status") or {}).get("phase") not in _FINISHED_PHASES:
            volume = await self._ledger.set_phase(volume, "Released")
        if _MIGRATED_TO in annotations_of(volume):
            return
        if _policy(volume) == "Delete":
            await self._delete(volume)
        elif _policy(volume) == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")

    async def _delete(self, volume: Obj) -> None:
        try:
            if _is_deleted_externally(volume):
                return
        except Refused as refused:
            await self._fail(volume, "VolumeFailedDelete", str(refused))
            return
        await self._ledger.delete_volume(volume)

    async def _fail(self, volume: Obj, reason: str, message: str) -> None:
        if (volume.get("status") or {}).get("phase") != "Failed":
            self._recorder.warning(await self._ledger.set_phase(volume, "Failed", message), reason, message)


def _policy(volume: Obj) -> str:
    return str(volume["spec"].get("persistentVolumeReclaimPolicy", "Retain"))


def persistentvolume_binder(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    claims, volumes, pods = manager.informer(CLAIMS), manager.informer(VOLUMES), manager.informer(PODS)
    classes = manager.informer(_STORAGE_CLASSES)
    index_pods_by_claim(pods)
    ledger = Ledger(manager.client_for(_ACCOUNT), claims, volumes)
    recorder = manager.recorder(_COMPONENT, _ACCOUNT)
    claim_loop = Controller(
        "persistentvolume-binder: claims",
        Claims(ledger, classes, pods, recorder).reconcile,
        manager.clock,
        workers=_WORKERS,
    )
    volume_loop = Controller(
        "persistentvolume-binder: volumes",
        Volumes(ledger, recorder, claim_loop.enqueue).reconcile,
        manager.clock,
        workers=_WORKERS,
    )
    binder = Binder(
        ledger, claims, volumes, classes, claim_loop, volume_loop, manager.clock, options.pvclaimbinder_sync_period
    )
    return ControllerGroup(claim_loop, volume_loop, binder)


class Binder:
    def __init__(
        self,
        ledger: Ledger,
        claims: Informer[Obj],
        volumes: Informer[Obj],
        classes: Informer[Obj],
        claim_loop: Controller,
        volume_loop: Controller,
        clock: Clock,
        sync_period: float,
    ) -> None:
        self._ledger = ledger
        self._claims, self._volumes = claims, volumes
        self._claim_loop, self._volume_loop = claim_loop, volume_loop
        self._clock = clock
        self._sync_period = sync_period
        claims.add_handler(self._claim_changed)
        volumes.add_handler(self._volume_changed)
        classes.add_handler(self._class_changed)

    async def run(self) -> None:
        """Enqueue all objects that are not in a final state, because what they wait for may appear without an event."""
        while True:
            await self._clock.sleep(self._sync_period)
            with triggered(besides=f"timer:{self._sync_period:g}"):
                for key, claim in tuple(self._claims.items.items()):
                    if _phase(claim) != "Bound":
                        self._claim_loop.enqueue(key)
                for name, volume in tuple(self._volumes.items.items()):
                    if _phase(volume) not in ("Available", "Bound"):
                        self._volume_loop.enqueue(name)

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        claim = new or old or {}
        key = key_of(claim)
        self._claim_loop.enqueue(key)
        for name in self._ledger.volumes_of(key):
            self._volume_loop.enqueue(name)

    def _volume_changed(self, old: Obj | None, new: Obj | None) -> None:
        volume = new or old or {}
        self._volume_loop.enqueue(key_of(volume))
        if reference := volume["spec"].get("claimRef"):
            self._claim_loop.enqueue(claim_key(reference))
        elif new is not None and _phase(new) == "Available" and (old is None or _phase(old) != "Available"):
            for key in self._ledger.unbound_claims(volume_class(new)):
                self._claim_loop.enqueue(key)

    def _class_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        for key in self._ledger.unbound_claims(new["metadata"]["name"]):
            self._claim_loop.enqueue(key)
        if is_default(new):
            for key in self._ledger.unbound_claims(""):
                self._claim_loop.enqueue(key)


def _phase(obj: Obj) -> str:
    return str((obj.get("status") or {}).get("phase") or "")
