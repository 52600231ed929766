"""Protects claims that a scheduled Pod uses, and maintains the condition that reports whether they are in use."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.interface import ObjectList
from setpoint.client.resources import builtin
from setpoint.controllers.conditions import condition, without
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.volume_protection.finalizers import lacks, may_lose, with_finalizer, without_finalizer
from setpoint.controllers.volume_users import PODS_BY_CLAIM, claims_of, has_released_volumes, index_pods_by_claim, uses
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

CLAIMS = builtin("persistentvolumeclaims")
FINALIZER = "kubernetes.io/pvc-protection"
_UNUSED = "Unused"
_WORKERS = 5


def claim_protection_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "pvc-protection-controller"
    claims, pods = manager.informer(CLAIMS), manager.informer(PODS)
    index_pods_by_claim(pods)
    protection = ClaimProtection(manager.client_for(name), manager.clock, claims, pods)
    controller = Controller(name, protection.reconcile, manager.clock, workers=_WORKERS)

    def claim_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    def pod_changed(old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        for claim in claims_of(pod):
            controller.enqueue(f"{pod['metadata']['namespace']}/{claim}")

    claims.add_handler(claim_changed)
    pods.add_handler(pod_changed)
    return controller


class ClaimProtection:
    def __init__(self, client: Client, clock: Clock, claims: Informer, pods: Informer) -> None:
        self._client = client
        self._clock = clock
        self._claims = claims
        self._pods = pods
        self._listed_of, self._listed = "", ObjectList([], "")

    async def reconcile(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        if may_lose(claim, FINALIZER):
            if not await self._holds(claim):
                await self._client.update(without_finalizer(claim, FINALIZER))
        elif lacks(claim, FINALIZER):
            await self._client.update(with_finalizer(claim, FINALIZER))
        elif "deletionTimestamp" not in claim["metadata"] and (claim.get("status") or {}).get("phase") == "Bound":
            await self._note_use(claim)

    async def _holds(self, claim: Obj) -> bool:
        """Return whether a scheduled Pod may use the claim. The cache must be newer than the claim's deletion, because
        a Pod may have been created in between; Pods created later cannot use a terminating claim."""
        if any(_holds(pod, claim) for pod in self._pods.by_index(PODS_BY_CLAIM, key_of(claim))):
            return True
        ending = int(claim["metadata"]["resourceVersion"])
        if int(self._pods.resource_version or 0) >= ending:
            return False
        namespace = claim["metadata"]["namespace"]
        if namespace != self._listed_of or int(self._listed.resource_version or 0) < ending:
            # One list covers all claims that were deleted before it.
            self._listed_of, self._listed = namespace, await self._client.list(PODS, namespace)
        return any(_holds(pod, claim) for pod in self._listed.items)

    async def _note_use(self, claim: Obj) -> None:
        users = self._pods.by_index(PODS_BY_CLAIM, key_of(claim))
        used = any(uses(pod, claim) and not has_released_volumes(pod) for pod in users)
        status = "False" if used else "True"
        known = condition(claim, _UNUSED)
        if known is not None and known["status"] == status:
            return
        reason, message = (
            ("PodUsingPVC", "A pod is currently referencing this PVC") if used
            else ("NoPodsUsingPVC", "No pods are currently referencing this PVC")
        )  # fmt: skip
        noted = {
            "type": _UNUSED,
            "status": status,
            "lastTransitionTime": format_time(self._clock.now()),
            "reason": reason,
            "message": message,
        }
        others = without((claim.get("status") or {}).get("conditions") or [], _UNUSED)
        change = {**claim, "status": {**claim["status"], "conditions": [*others, noted]}}
        await self._client.update(change, subresource="status")


def _holds(pod: Obj, claim: Obj) -> bool:
    """Return whether the Pod holds the claim. An unscheduled Pod cannot start with a terminating claim and does not
    count, nor does one that waits for its own ephemeral claim to go."""
    shut_down = "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return bool(pod["spec"].get("nodeName")) and uses(pod, claim, ephemeral=not shut_down)
