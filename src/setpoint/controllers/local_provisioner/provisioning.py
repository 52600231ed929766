"""Provisions a volume for a claim."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.controllers.local_provisioner import PROVISIONER
from setpoint.controllers.local_provisioner.volume import (
    CannotProvision,
    check,
    selected_node,
    volume_for,
    volume_name,
)
from setpoint.kinds.storage.binding import (
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    annotations_of,
    claim_class,
    waits_for_consumer,
)
from setpoint.meta.errors import AlreadyExists, ApiError
from setpoint.reconcile import EventRecorder, Informer, Result, key_of

Obj = dict[str, Any]


class Provisioning:
    def __init__(
        self, client: Client, claims: Informer, volumes: Informer, classes: Informer, nodes: Informer,
        recorder: EventRecorder,
    ) -> None:  # fmt: skip
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
        chosen = selected_node(claim)
        if waits_for_consumer(storage_class) and not chosen:
            return None
        node = self._nodes.get(chosen) if chosen else None
        if chosen and node is None:
            await self._ask_for_another_node(claim, chosen)
            return None
        return await self._provision(claim, storage_class, node)

    def _is_asked(self, claim: Obj) -> bool:
        return (
            annotations_of(claim).get(STORAGE_PROVISIONER) == PROVISIONER
            and not claim["spec"].get("volumeName")
            and "deletionTimestamp" not in claim["metadata"]
            and self._volumes.get(volume_name(claim)) is None
        )

    async def _provision(self, claim: Obj, storage_class: Obj, node: Obj | None) -> Result | None:
        about = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self._recorder.normal(claim, "Provisioning", about)
        try:
            check(claim)
            await self._client.create(volume_for(claim, storage_class, node))
        except AlreadyExists:
            return None  # the name contains the claim's uid: an earlier attempt created it
        except CannotProvision as error:
            self._fail(claim, storage_class, error)
            return Result(retry=True)
        except ApiError as error:
            self._fail(claim, storage_class, error)
            raise
        text = f"Successfully provisioned volume {volume_name(claim)}"
        self._recorder.normal(claim, "ProvisioningSucceeded", text)
        return None

    def _fail(self, claim: Obj, storage_class: Obj, error: Exception) -> None:
        text = f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {error}'
        self._recorder.warning(claim, "ProvisioningFailed", text)

    async def _ask_for_another_node(self, claim: Obj, gone: str) -> None:
        """Remove the annotation, so that the scheduler selects another node."""
        text = f'failed to get target node: node "{gone}" not found'
        self._recorder.warning(claim, "ProvisioningFailed", text)
        kept = {name: value for name, value in annotations_of(claim).items() if name != SELECTED_NODE}
        await self._client.update({**claim, "metadata": {**claim["metadata"], "annotations": kept}})
