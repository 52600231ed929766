"""Reconciles Deployments: finds the ReplicaSets, creates the new one, scales step by step, writes the status."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.deployment.replica_sets import (
    REPLICA_SETS,
    REVISION,
    CreationFailed,
    DeploymentSets,
    HashTaken,
    Scaling,
    annotations_of,
    count,
    desired_before,
    is_rolling,
    max_before,
    next_revision,
    proportional,
    scale_down_old,
    size,
    size_of_new,
    split,
)
from setpoint.controllers.deployment.status import (
    creation_failed,
    is_complete,
    rollout_status,
    seconds_to_deadline,
    status_of,
    with_pause_condition,
    with_progress_start,
)
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import phase
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import from_label_selector
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Deployment, Pod, ReplicaSet

_DEPLOYMENTS = builtin("deployments", "apps")
_WORKERS = 5


def deployment_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "deployment-controller"
    reconciler = Deployments(
        manager.client_for(name),
        manager.clock,
        manager.recorder(name),
        manager.informer(_DEPLOYMENTS),
        manager.informer(REPLICA_SETS),
        manager.informer(PODS),
    )
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class Deployments:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        deployments: Informer[Deployment],
        sets: Informer[ReplicaSet],
        pods: Informer[Pod],
    ) -> None:
        self._client = client
        self._clock = clock
        self._deployments = deployments
        self._sets = sets
        self._pods = pods
        self._replica_sets = DeploymentSets(client, recorder)

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def deployment_changed(old: Deployment | None, new: Deployment | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def set_changed(old: ReplicaSet | None, new: ReplicaSet | None) -> None:
            owned = False
            for found in (old, new):
                owner = controller_of(found) if found is not None else None
                if found is not None and owner is not None:
                    owned = True
                    if owner["kind"] == "Deployment":
                        controller.enqueue(f"{found['metadata']['namespace']}/{owner['name']}")
            if not owned and new is not None:
                for key in self._could_adopt(new):
                    controller.enqueue(key)

        def pod_gone(old: Pod | None, new: Pod | None) -> None:
            # A Recreate rollout continues when the last old Pod is gone.
            owner = controller_of(old) if new is None and old is not None else None
            if old is None or owner is None or owner["kind"] != "ReplicaSet":
                return
            replica_set = self._sets.get(f"{old['metadata']['namespace']}/{owner['name']}")
            above = controller_of(replica_set) if replica_set is not None else None
            if above is not None and not self._pods.controlled_by(owner["uid"]):
                controller.enqueue(f"{old['metadata']['namespace']}/{above['name']}")

        self._deployments.add_handler(deployment_changed)
        self._sets.add_handler(set_changed)
        self._pods.add_handler(pod_gone)

    def _could_adopt(self, replica_set: ReplicaSet) -> list[str]:
        labels = replica_set["metadata"].get("labels") or {}
        namespace = replica_set["metadata"]["namespace"]
        return [
            key
            for key, found in self._deployments.items.items()
            if labels
            and found["metadata"]["namespace"] == namespace
            and from_label_selector(found["spec"]["selector"]).matches(labels)
        ]

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        stored = self._deployments.get(key)
        if stored is None:
            return None
        meta, spec = stored["metadata"], stored["spec"]
        claim = Claim(self._client, _DEPLOYMENTS, stored, REPLICA_SETS, from_label_selector(spec["selector"]))
        sets = await claim.claimed([*self._sets.controlled_by(meta["uid"]), *self._sets.orphans(meta["namespace"])])
        new, old = split(stored, sets)
        deployment = stored
        if "deletionTimestamp" not in meta:
            deployment = with_pause_condition(stored, self._clock.now())
            if new is not None:
                new = await self._replica_sets.sync_metadata(deployment, new, next_revision(old))
                deployment = with_progress_start(deployment, new, self._clock.now())
            if not spec.get("paused") and not _is_scaled(deployment, new, old):
                return await self._roll_out(stored, deployment, new, old)
            await self._scale(deployment, new, old)
            if spec.get("paused"):
                await self._replica_sets.prune_history(deployment, old)
        await self._write_status(stored, status_of(deployment, new, old, self._clock.now()), new)
        return None

    async def _roll_out(
        self, stored: Deployment, deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]
    ) -> Result | None:
        """Perform one step of the rollout. Its writes come back as events, which trigger the next step."""
        created = False
        if is_rolling(deployment) or not await self._clear_for_recreate(deployment, old):
            if new is None:
                try:
                    new, created = await self._replica_sets.create(deployment, old, next_revision(old))
                except HashTaken:
                    before = deployment.get("status") or {}
                    status: ObjView = {**before, "collisionCount": before.get("collisionCount", 0) + 1}
                    await self._write_status(stored, status, None)
                    return None
                except CreationFailed as error:
                    status = creation_failed(deployment, str(error), self._clock.now())
                    with suppress(ApiError):  # the original error is more important
                        await self._write_status(stored, status, None)
                    raise error.cause from error
            await self._step(deployment, new, old)
        now = self._clock.now()
        status = rollout_status(deployment, new, old, now, created=created)
        await self._write_status(stored, status, new)
        wait = seconds_to_deadline(deployment, status, now)
        return Result(requeue_after=wait) if wait is not None else None

    async def _step(self, deployment: Deployment, new: ReplicaSet, old: list[ReplicaSet]) -> None:
        wanted = size_of_new(deployment, [new, *old], size(new))
        if wanted != size(new):
            await self._replica_sets.scale(deployment, Scaling(new, wanted))
            return
        scalings = scale_down_old(deployment, new, old) if is_rolling(deployment) else []
        for scaling in scalings:
            await self._replica_sets.scale(deployment, scaling)
        if not scalings and is_complete(deployment, deployment.get("status") or {}):
            await self._replica_sets.prune_history(deployment, old)

    async def _clear_for_recreate(self, deployment: Deployment, old: list[ReplicaSet]) -> bool:
        """Scale down the old sets. Return whether old Pods still exist."""
        active = [found for found in old if size(found)]
        for found in active:
            await self._replica_sets.scale(deployment, Scaling(found, 0))
        if active or count(old, "replicas"):
            return True
        return any(
            phase(pod) not in ("Succeeded", "Failed")
            for found in old
            for pod in self._pods.controlled_by(found["metadata"]["uid"])
        )

    async def _scale(self, deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> None:
        """Scale the active sets after the Deployment's size changed or while it is paused, proportionally if there are
        several."""
        everything = [*old, *([new] if new is not None else [])]
        active = [found for found in everything if size(found)]
        desired = size(deployment)
        if len(active) <= 1:
            target = active[0] if active else everything[-1] if everything else None
            if target is not None and size(target) != desired:
                await self._replica_sets.scale(deployment, Scaling(target, desired))
        elif new is not None and _is_saturated(deployment, new):
            for found in active:
                if found is not new:
                    await self._replica_sets.scale(deployment, Scaling(found, 0))
        elif is_rolling(deployment):
            before = {found["metadata"]["name"]: max_before(found) for found in active}
            for scaling in proportional(deployment, active, before):
                await self._replica_sets.scale(deployment, scaling)

    async def _write_status(self, stored: Deployment, status: ObjView, new: ReplicaSet | None) -> None:
        noted = annotations_of(stored)
        if new is not None and annotations_of(new).get(REVISION):
            noted[REVISION] = annotations_of(new)[REVISION]
        if status != (stored.get("status") or {}) or noted != annotations_of(stored):
            because(_progress(stored, status))
            changed = {**stored, "metadata": {**stored["metadata"], "annotations": noted}, "status": status}
            await self._client.update(changed, subresource="status")


def _is_scaled(deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> bool:
    """Return whether the Deployment's size has changed since its sets were last scaled."""
    desired = size(deployment)
    sets = [*old, *([new] if new is not None else [])]
    return any(size(found) and desired_before(found) not in (None, desired) for found in sets)


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    desired = size(deployment)
    return size(new) == desired == desired_before(new) and count([new], "availableReplicas") == desired


def _progress(stored: Deployment, status: ObjView) -> str:
    """Return the message of the Progressing condition if this status changes its reason, else an empty string."""
    conditions = {"status": status}
    before, after = condition_of(stored, "Progressing"), condition_of(conditions, "Progressing")
    return str(after.get("message") or "") if after and after.get("reason") != (before or {}).get("reason") else ""
