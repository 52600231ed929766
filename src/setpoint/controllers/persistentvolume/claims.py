"""Reconciles a claim: finds or provisions a volume, or verifies that a bound claim still has its volume."""

from __future__ import annotations

from typing import Any

from setpoint.controllers.persistentvolume.in_tree import Refused, external_provisioner, with_migration
from setpoint.controllers.persistentvolume.ledger import Ledger, claim_key, with_annotation
from setpoint.controllers.volume_users import PODS_BY_CLAIM, has_released_volumes
from setpoint.kinds.storage.binding import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    annotations_of,
    asks_for_class,
    claim_class,
    is_reserved_for,
    mismatch_reason,
    waits_for_consumer,
)
from setpoint.kinds.storage.storageclass import default_class
from setpoint.reconcile import EventRecorder, Informer, key_of

Obj = dict[str, Any]


class Misbound(Exception):
    """A claim refers to a volume that is bound to another claim."""


class Claims:
    def __init__(self, ledger: Ledger, classes: Informer, pods: Informer, recorder: EventRecorder) -> None:
        self._ledger = ledger
        self._classes = classes
        self._pods = pods
        self._recorder = recorder

    async def reconcile(self, key: str) -> None:
        claim = self._ledger.claim(key)
        if claim is None:
            return
        migrated = with_migration(claim)
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
        if not asks_for_class(claim) and (default := default_class(list(self._classes.items.values()))) is not None:
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
            provisioner = external_provisioner(storage_class["provisioner"])
        except Refused as refused:
            if refused.asked:
                claim = await self._ask(claim, refused.asked)
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
        asked = with_annotation(claim, BETA_STORAGE_PROVISIONER, provisioner)
        return await self._ledger.save_claim(with_migration(with_annotation(asked, STORAGE_PROVISIONER, provisioner)))

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
