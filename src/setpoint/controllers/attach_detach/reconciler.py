"""Reconciles one node: attaches the volumes its Pods need and detaches the others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.attach_detach.attachments import (
    allows_multi_attach,
    attachment,
    attachment_name,
    in_use,
    is_attached,
    is_healthy,
    is_managed,
    is_out_of_service,
    needs_attaching,
    unique_name,
)
from setpoint.controllers.pods_by_node import PodsByNode
from setpoint.controllers.volume_users import PODS_BY_CLAIM, claims_of, has_released_volumes
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.reconcile import EventRecorder, Informer, Result

Obj = dict[str, Any]

NODES, ATTACHMENTS = builtin("nodes"), builtin("volumeattachments", "storage.k8s.io")
BY_NODE, BY_VOLUME = "node", "volume"
"""Names of the indexes of VolumeAttachments."""
_LONGEST_UNMOUNT = 360.0
"""Seconds after which a volume is detached from an unhealthy node although it may still be mounted there."""


class AttachDetach:
    def __init__(
        self, client: Client, clock: Clock, recorder: EventRecorder, *, pods: Informer, claims: Informer,
        volumes: Informer, nodes: Informer, attachments: Informer, drivers: Informer,
    ) -> None:  # fmt: skip
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
        wanted = self._wanted(name) if node is not None and is_managed(node) else {}
        there = {found["metadata"]["name"]: found for found in self._attachments.by_index(BY_NODE, name)}
        wait = await self._detach(node, wanted, there)
        known = self._reported_conflicts.pop(name, set()) & wanted.keys() - there.keys()
        for key, (volume, pods) in wanted.items():
            self._unneeded_since.pop(key, None)
            if key not in there and await self._is_elsewhere(volume, name, pods, known=key in known):
                self._reported_conflicts.setdefault(name, set()).add(key)
        if node is not None and wanted:
            await self._report(node, wanted, there)
        return Result(requeue_after=wait) if wait is not None else None

    def _wanted(self, node: str) -> dict[str, tuple[Obj, list[Obj]]]:
        """Return the volumes that Pods on the node need, with those Pods, by name of the attachment."""
        wanted: dict[str, tuple[Obj, list[Obj]]] = {}
        for pod in self._by_node.on(node):
            if has_released_volumes(pod):
                continue
            for claim in claims_of(pod):
                volume = self._volume_of(f"{pod['metadata']['namespace']}/{claim}")
                if volume is not None:
                    wanted.setdefault(attachment_name(volume, node), (volume, []))[1].append(pod)
        return wanted

    def _volume_of(self, key: str) -> Obj | None:
        claim = self._claims.get(key)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return None
        volume = self._volumes.get(claim["spec"].get("volumeName", ""))
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return None
        driver = self._drivers.get((volume["spec"].get("csi") or {}).get("driver", ""))
        return volume if needs_attaching(volume, driver) else None

    # -- detach -----------------------------------------------------------------------------------------------------

    async def _detach(self, node: Obj | None, wanted: dict[str, Any], there: dict[str, Obj]) -> float | None:
        """Detach unneeded volumes. Return the seconds until one may be force-detached, or None."""
        waits = []
        for key, found in there.items():
            volume = self._volumes.get((found["spec"].get("source") or {}).get("persistentVolumeName") or "")
            if key in wanted or volume is None or "deletionTimestamp" in found["metadata"]:
                continue
            if "csi" not in volume["spec"] or attachment_name(volume, found["spec"]["nodeName"]) != key:
                continue  # not managed by this controller
            now = self._clock.monotonic()
            waited = now - self._unneeded_since.setdefault(key, now)
            if node is not None and unique_name(volume) in in_use(node) and not is_out_of_service(node):
                if is_healthy(node) or waited <= _LONGEST_UNMOUNT:
                    waits.append(max(1.0, _LONGEST_UNMOUNT - waited))
                    continue
            if node is not None:
                # Remove it from the node's status first, so that no Pod can mount it any more.
                node = await self._list_attached(node, without=unique_name(volume))
            with suppress(NotFound):
                await self._client.delete(ATTACHMENTS, key, uid=found["metadata"]["uid"])
            self._unneeded_since.pop(key, None)
        return min(waits, default=None)

    # -- attach -----------------------------------------------------------------------------------------------------

    async def _is_elsewhere(self, volume: Obj, node: str, pods: list[Obj], *, known: bool) -> bool:
        """Attach the volume unless another node has it, which is returned. `known`: an Event was recorded already."""
        name = volume["metadata"]["name"]
        if self._attachments.by_index(BY_VOLUME, name) and not allows_multi_attach(volume):
            for pod in pods if not known else ():
                text = f'Waiting for detach for volume "{name}" {self._attached_node(volume, node)}'
                self._recorder.warning(pod, "FailedAttachVolume", text)
            return True
        with suppress(AlreadyExists):  # the cache is stale
            await self._client.create(attachment(volume, node))
        return False

    def _attached_node(self, volume: Obj, node: str) -> str:
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

    async def _report(self, node: Obj, wanted: dict[str, tuple[Obj, list[Obj]]], there: dict[str, Obj]) -> None:
        known = {each["name"] for each in (node.get("status") or {}).get("volumesAttached") or ()}
        new = []
        for key, (volume, pods) in wanted.items():
            found = there.get(key)
            if found is None or "deletionTimestamp" in found["metadata"]:
                continue
            if is_attached(found):
                if unique_name(volume) not in known:
                    new.append((volume, pods))
            elif (error := (found.get("status") or {}).get("attachError")) is not None:
                name = volume["metadata"]["name"]
                text = f'AttachVolume.Attach failed for volume "{name}" : {error.get("message", "")}'
                for pod in pods:
                    self._recorder.warning(pod, "FailedAttachVolume", text)
        if not new:
            return
        await self._list_attached(node, also=[unique_name(volume) for volume, _ in new])
        for volume, pods in new:
            text = f'AttachVolume.Attach succeeded for volume "{volume["metadata"]["name"]}" '
            for pod in pods:
                self._recorder.normal(pod, "SuccessfulAttachVolume", text)

    async def _list_attached(self, node: Obj, *, also: list[str] | None = None, without: str = "") -> Obj:
        """Update the attached volumes in the node's status and return the node. Conditional on its version: an older
        list would drop newer entries."""
        listed = (node.get("status") or {}).get("volumesAttached") or []
        kept = [each for each in listed if each["name"] != without]
        wanted = [*kept, *({"name": name, "devicePath": ""} for name in also or ())]
        if wanted == listed:
            return node
        meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
        change = {"metadata": meta, "status": {"volumesAttached": wanted or None}}
        try:
            return await self._client.patch(NODES, node["metadata"]["name"], change, subresource="status")
        except NotFound:
            return node
