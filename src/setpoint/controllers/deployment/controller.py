"""The loop over Deployments: find the sets, make the new one, scale step by step, say how far it got."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.deployment.revisions import (
    REVISION,
    annotations_of,
    for_new_set,
    next_revision,
    revision,
    sizes,
)
from setpoint.controllers.deployment.sizes import Scaling, is_rolling, scale_down_old, size, size_of_new
from setpoint.controllers.deployment.status import is_complete, seconds_to_deadline, status_of
from setpoint.controllers.deployment.template import HASH_LABEL, same_template, set_name, split
from setpoint.controllers.hashing import template_hash
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim, controller_reference
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import phase
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.selectors import from_label_selector
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

DEPLOYMENTS = builtin("deployments", "apps")
REPLICA_SETS = builtin("replicasets", "apps")
_WORKERS = 5


def deployment_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "deployment-controller"
    reconciler = Deployments(
        manager.client_for(name), manager.clock, manager.recorder(name),
        manager.informer(DEPLOYMENTS), manager.informer(REPLICA_SETS), manager.informer(PODS),
    )  # fmt: skip
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class Deployments:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        deployments: Informer,
        sets: Informer,
        pods: Informer,
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._deployments = deployments
        self._sets = sets
        self._pods = pods

    # -- when to look -----------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def deployment_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def set_changed(old: Obj | None, new: Obj | None) -> None:
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

        def pod_gone(old: Obj | None, new: Obj | None) -> None:
            # A Recreate rollout goes on when the last old Pod is gone.
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

    def _could_adopt(self, replica_set: Obj) -> list[str]:
        labels = replica_set["metadata"].get("labels") or {}
        namespace = replica_set["metadata"]["namespace"]
        return [
            key
            for key, found in self._deployments.items.items()
            if labels
            and found["metadata"]["namespace"] == namespace
            and from_label_selector(found["spec"]["selector"]).matches(labels)
        ]

    # -- what to do -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        meta = deployment["metadata"]
        selector = from_label_selector(deployment["spec"]["selector"])
        claim = Claim(self._client, DEPLOYMENTS, deployment, REPLICA_SETS, selector)
        sets = await claim.claimed([*self._sets.controlled_by(meta["uid"]), *self._sets.orphans(meta["namespace"])])
        new, old = split(deployment, sets)
        created = False
        if "deletionTimestamp" not in meta:
            if deployment["spec"].get("paused"):
                await self._scale_paused(deployment, new, old)
            else:
                new, created = await self._roll_out(deployment, new, old)
        return await self._write_status(deployment, new, old, created)

    async def _roll_out(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> tuple[Obj | None, bool]:
        """One step: whatever it changes comes back as an event, and with it the next step."""
        number = next_revision(old)
        created = False
        if not is_rolling(deployment) and await self._clear_for_recreate(deployment, old):
            return new, False
        if new is None:
            new, created = await self._create_set(deployment, old, number)
            if new is None:
                return None, False
        new = await self._keep_up(deployment, new, number)
        wanted = size_of_new(deployment, [new, *old], size(new))
        if wanted != size(new):
            await self._scale(deployment, Scaling(new, wanted))
        else:
            for scaling in scale_down_old(deployment, new, old):
                await self._scale(deployment, scaling)
        if is_complete(deployment, deployment.get("status") or {}):
            await self._forget_history(deployment, old)
        return new, created

    async def _clear_for_recreate(self, deployment: Obj, old: list[Obj]) -> bool:
        """Whether the old Pods are still in the way."""
        scaled = False
        for found in old:
            if size(found):
                await self._scale(deployment, Scaling(found, 0))
                scaled = True
        running = [
            pod
            for found in old
            for pod in self._pods.controlled_by(found["metadata"]["uid"])
            if phase(pod) not in ("Succeeded", "Failed")
        ]
        return scaled or bool(running)

    async def _scale_paused(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> None:
        """Nothing is rolled out; but the one set that is in use follows the size."""
        everything = [*old, *([new] if new is not None else [])]
        active = [found for found in everything if size(found)]
        target = active[0] if len(active) == 1 else everything[-1] if everything and not active else None
        if target is not None and size(target) != size(deployment):
            await self._scale(deployment, Scaling(target, size(deployment)))

    async def _create_set(self, deployment: Obj, old: list[Obj], number: int) -> tuple[Obj | None, bool]:
        made = self._new_set(deployment, old, number)
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        try:
            created = await self._client.create(made)
        except AlreadyExists:
            # From an earlier reconcile that the cache has not caught up with, or somebody else's.
            there = await self._client.get(REPLICA_SETS, name, namespace)
            owner = controller_of(there)
            if owner is not None and owner["uid"] == deployment["metadata"]["uid"]:
                if same_template(there["spec"]["template"], deployment["spec"]["template"]):
                    return there, False
            status = dict(deployment.get("status") or {})
            status["collisionCount"] = status.get("collisionCount", 0) + 1
            await self._client.update({**deployment, "status": status}, subresource="status")
            return None, False
        except ApiError as error:
            reason = f'Failed to create new replica set "{name}": {error}'
            self._recorder.warning(deployment, "ReplicaSetCreateError", reason)
            raise
        if size(created):
            text = f"Scaled up replica set {name} from 0 to {size(created)}"
            self._recorder.normal(deployment, "ScalingReplicaSet", text)
        return created, True

    def _new_set(self, deployment: Obj, old: list[Obj], number: int) -> Obj:
        spec, meta = deployment["spec"], deployment["metadata"]
        template = spec["template"]
        digest = template_hash(template, (deployment.get("status") or {}).get("collisionCount"))
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        selector = spec["selector"]
        made_spec = {
            "replicas": size_of_new(deployment, old, 0),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        }
        if spec.get("minReadySeconds"):
            made_spec["minReadySeconds"] = spec["minReadySeconds"]
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": set_name(meta["name"], digest),
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": {**for_new_set(deployment, {}, number), **sizes(deployment)},
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": made_spec,
        }

    async def _keep_up(self, deployment: Obj, new: Obj, number: int) -> Obj:
        """Annotations and minReadySeconds follow the Deployment without a rollout."""
        wanted = for_new_set(deployment, annotations_of(new), number)
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if wanted == annotations_of(new) and min_ready == new["spec"].get("minReadySeconds", 0):
            return new
        changed = {
            **new,
            "metadata": {**new["metadata"], "annotations": wanted},
            "spec": {**new["spec"], "minReadySeconds": min_ready},
        }
        return await self._client.update(changed)

    async def _scale(self, deployment: Obj, scaling: Scaling) -> None:
        found, to = scaling
        before = size(found)
        changed = {
            **found,
            "metadata": {**found["metadata"], "annotations": {**annotations_of(found), **sizes(deployment)}},
            "spec": {**found["spec"], "replicas": to},
        }
        # An update, not a patch: it fails if the set is not the one that was looked at.
        await self._client.update(changed)
        direction = "up" if to > before else "down"
        text = f"Scaled {direction} replica set {found['metadata']['name']} from {before} to {to}"
        self._recorder.normal(deployment, "ScalingReplicaSet", text)

    async def _forget_history(self, deployment: Obj, old: list[Obj]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        kept = [found for found in old if "deletionTimestamp" not in found["metadata"]]
        if limit is None or len(kept) <= limit:
            return
        for found in sorted(kept, key=revision)[: len(kept) - limit]:
            status = found.get("status") or {}
            settled = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
            if size(found) or status.get("replicas", 0) or not settled:
                continue
            with suppress(NotFound):
                await self._client.delete(REPLICA_SETS, found["metadata"]["name"], found["metadata"]["namespace"])

    async def _write_status(self, deployment: Obj, new: Obj | None, old: list[Obj], created: bool) -> Result | None:
        now = self._clock.now()
        status = status_of(deployment, new, old, now, created=created)
        noted = annotations_of(deployment)
        if new is not None:
            noted[REVISION] = annotations_of(new).get(REVISION, "1")
        if status != (deployment.get("status") or {}) or noted != annotations_of(deployment):
            changed = {**deployment, "metadata": {**deployment["metadata"], "annotations": noted}, "status": status}
            await self._client.update(changed, subresource="status")
        wait = seconds_to_deadline(deployment, status, now)
        return Result(requeue_after=wait) if wait is not None else None
