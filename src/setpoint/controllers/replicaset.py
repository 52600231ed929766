"""ReplicaSets: as many Pods as asked for, no matter what happens to them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.conditions import condition, without
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating
from setpoint.controllers.pods import available_in, first_to_go, is_active, is_ready, is_terminating
from setpoint.controllers.slow_start import slow_start
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.selectors import from_label_selector, from_map
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

REPLICA_SETS = builtin("replicasets", "apps")
_BURST = 500
"""Pods created or deleted in one go."""
_WORKERS = 5
_FAILURE = "ReplicaFailure"


def replicaset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "replicaset-controller"
    reconciler = ReplicaSets(
        manager.client_for(name), manager.clock, manager.informer(REPLICA_SETS), manager.informer(PODS),
        PodControl(manager.client_for(name), manager.recorder(name)),
    )  # fmt: skip
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class ReplicaSets:
    def __init__(self, client: Client, clock: Clock, sets: Informer, pods: Informer, control: PodControl) -> None:
        self._client = client
        self._clock = clock
        self._sets = sets
        self._pods = pods
        self._control = control
        self._expected = Expectations(clock)

    # -- when to look -----------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def set_changed(old: Obj | None, new: Obj | None) -> None:
            if new is None and old is not None:
                self._expected.forget(key_of(old))
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._touched(old, new):
                controller.enqueue(key)

        self._sets.add_handler(set_changed)
        self._pods.add_handler(pod_changed)

    def _touched(self, old: Obj | None, new: Obj | None) -> list[str]:
        """The sets that a change of a Pod is news to; what they were waiting to see is noted."""
        before = self._owner_key(old) if old is not None else None
        after = self._owner_key(new) if new is not None else None
        pod = new or old or {}
        if new is None or "deletionTimestamp" in new["metadata"]:
            for key in {before, after} - {None}:
                self._expected.deletion_observed(str(key), pod["metadata"]["uid"])
        elif old is None and after is not None:
            self._expected.creation_observed(after)
        keys = [key for key in dict.fromkeys((before, after)) if key is not None]
        if not keys and new is not None and controller_of(new) is None:
            labels = new["metadata"].get("labels") or {}
            if old is None or controller_of(old) is not None or labels != (old["metadata"].get("labels") or {}):
                keys = self._could_adopt(new["metadata"]["namespace"], labels)
        return keys

    def _owner_key(self, pod: Obj) -> str | None:
        owner = controller_of(pod)
        if owner is None or owner["kind"] != "ReplicaSet":
            return None
        key = f"{pod['metadata']['namespace']}/{owner['name']}"
        found = self._sets.get(key)
        return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    def _could_adopt(self, namespace: str, labels: dict[str, str]) -> list[str]:
        if not labels:
            return []
        return [
            key
            for key, found in self._sets.items.items()
            if found["metadata"]["namespace"] == namespace
            and from_label_selector(found["spec"]["selector"]).matches(labels)
        ]

    # -- what to do -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            self._expected.forget(key)
            return None
        # Before anything is awaited: the cache as it is now is what the expectations speak about.
        may_act = self._expected.satisfied(key) and "deletionTimestamp" not in replica_set["metadata"]
        meta = replica_set["metadata"]
        selector = from_label_selector(replica_set["spec"]["selector"])
        candidates = [*self._pods.controlled_by(meta["uid"]), *self._pods.orphans(meta["namespace"])]
        terminating = sum(
            is_terminating(pod) and selector.matches(pod["metadata"].get("labels") or {})
            for pod in self._pods.controlled_by(meta["uid"])
        )
        claim = Claim(self._client, REPLICA_SETS, replica_set, PODS, selector)
        active = await claim.claimed([pod for pod in candidates if is_active(pod)])
        failure = await self._manage(key, replica_set, active) if may_act else None
        now = self._clock.now()
        await self._write_status(replica_set, status_of(replica_set, active, terminating, failure, now))
        if failure is not None:
            raise failure
        return _look_again(replica_set, active, now)

    async def _manage(self, key: str, replica_set: Obj, active: list[Obj]) -> Exception | None:
        missing = replica_set["spec"].get("replicas", 1) - len(active)
        if missing > 0:
            return await self._create(key, replica_set, min(missing, _BURST))
        if missing < 0:
            return await self._delete(key, replica_set, active, min(-missing, _BURST))
        return None

    async def _create(self, key: str, replica_set: Obj, count: int) -> Exception | None:
        template = replica_set["spec"]["template"]

        async def create_one() -> None:
            try:
                await self._control.create(replica_set, template)
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise
                self._expected.creation_observed(key)

        self._expected.expect_creations(key, count)
        succeeded = 0
        try:
            succeeded, failure = await slow_start(count, create_one)
        finally:
            for _ in range(count - succeeded):
                self._expected.creation_observed(key)
        return failure

    async def _delete(self, key: str, replica_set: Obj, active: list[Obj], count: int) -> Exception | None:
        doomed = first_to_go(active, self._related(replica_set, active), self._clock.now())[:count]
        self._expected.expect_deletions(key, (pod["metadata"]["uid"] for pod in doomed))

        async def delete_one(pod: Obj) -> None:
            try:
                await self._control.delete(replica_set, pod)
            except BaseException as error:
                self._expected.deletion_observed(key, pod["metadata"]["uid"])
                if not isinstance(error, NotFound):
                    raise

        outcomes = await asyncio.gather(*(delete_one(pod) for pod in doomed), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

    def _related(self, replica_set: Obj, active: list[Obj]) -> list[Obj]:
        """Pods of all sets of the same owner: a rollout should not empty or crowd a node."""
        owner = controller_of(replica_set)
        if owner is None:
            return active
        siblings = self._sets.controlled_by(owner["uid"])
        return [pod for sibling in siblings for pod in self._pods.controlled_by(sibling["metadata"]["uid"])]

    async def _write_status(self, replica_set: Obj, status: Obj) -> None:
        if status == (replica_set.get("status") or {}):
            return
        try:
            await self._client.update({**replica_set, "status": status}, subresource="status")
        except Conflict:
            # Often only the spec was scaled meanwhile; observedGeneration says which spec this status is about.
            meta = replica_set["metadata"]
            fresh = await self._client.get(REPLICA_SETS, meta["name"], meta["namespace"])
            if fresh["metadata"]["uid"] != meta["uid"]:
                return
            await self._client.update({**fresh, "status": status}, subresource="status")


def status_of(replica_set: Obj, active: list[Obj], terminating: int, failure: Exception | None, now: datetime) -> Obj:
    spec, old = replica_set["spec"], replica_set.get("status") or {}
    template_labels = from_map((spec["template"].get("metadata") or {}).get("labels"))
    min_ready = spec.get("minReadySeconds", 0)
    waits = [available_in(pod, min_ready, now) for pod in active]
    counts = {
        "fullyLabeledReplicas": sum(template_labels.matches(pod["metadata"].get("labels") or {}) for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(wait is not None and wait <= 0 for wait in waits),
    }
    status: Obj = {"replicas": len(active), **{name: count for name, count in counts.items() if count}}
    status["terminatingReplicas"] = terminating
    status["observedGeneration"] = replica_set["metadata"]["generation"]
    conditions = _conditions(replica_set, old.get("conditions") or [], len(active), failure, now)
    if conditions:
        status["conditions"] = conditions
    return status


def _conditions(replica_set: Obj, old: list[Obj], active: int, failure: Exception | None, now: datetime) -> list[Obj]:
    if failure is None:
        return without(old, _FAILURE)
    if condition(replica_set, _FAILURE) is not None:
        return old
    reason = "FailedCreate" if active < replica_set["spec"].get("replicas", 1) else "FailedDelete"
    made = {
        "type": _FAILURE,
        "status": "True",
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": str(failure),
    }
    return [*old, made]


def _look_again(replica_set: Obj, active: list[Obj], now: datetime) -> Result | None:
    """Pods become available by the mere passing of time."""
    min_ready = replica_set["spec"].get("minReadySeconds", 0)
    waits = [wait for pod in active if (wait := available_in(pod, min_ready, now)) is not None and wait > 0]
    return Result(requeue_after=min(waits)) if waits else None
