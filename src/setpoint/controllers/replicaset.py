"""The ReplicaSet controller keeps the desired number of Pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.client import Client, Resource
from setpoint.client.resources import builtin
from setpoint.controllers.availability import requeue_when_available
from setpoint.controllers.coalescing import coalescing_delay
from setpoint.controllers.conditions import condition, without
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating
from setpoint.controllers.pod_owners import PodOwners, selector_of
from setpoint.controllers.pods import deletion_order, is_active
from setpoint.controllers.replica_facts import PodFacts, PodFactsCache
from setpoint.controllers.slow_start import slow_start
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.selectors import Selector, from_map
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

REPLICA_SETS = builtin("replicasets", "apps")
_BURST = 500
"""The maximum number of Pods created or deleted in one reconcile."""
_WORKERS = 5
_FAILURE = "ReplicaFailure"


class WorkloadType(NamedTuple):
    """The differences between ReplicaSets and ReplicationControllers."""

    resource: Resource
    selector: Callable[[Obj], Selector]
    reports_terminating: bool


REPLICA_SET_TYPE = WorkloadType(REPLICA_SETS, selector_of, True)


def replicaset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return replicas_controller(manager, "replicaset-controller", "replicaset-controller", REPLICA_SET_TYPE)


def replicas_controller(manager: Manager, name: str, account: str, workload_type: WorkloadType) -> Controller:
    client = manager.client_for(account)
    sets, pods = manager.informer(workload_type.resource), manager.informer(PODS)
    reconciler = ReplicaSets(
        client, manager.clock, sets, pods, PodControl(client, manager.recorder(account)), workload_type
    )  # fmt: skip
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class ReplicaSets:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        sets: Informer,
        pods: Informer,
        control: PodControl,
        workload_type: WorkloadType,
    ) -> None:
        self._client = client
        self._clock = clock
        self._sets = sets
        self._pods = pods
        self._control = control
        self._workload_type = workload_type
        self._owners = PodOwners(workload_type.resource.kind, sets, workload_type.selector)
        self._expected = Expectations(clock)
        self._facts_caches: dict[str, tuple[tuple[str, int], PodFactsCache]] = {}
        """Facts caches by key, each with the uid and generation of the set whose selectors it uses."""

    # -- event handlers -------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def set_changed(old: Obj | None, new: Obj | None) -> None:
            if new is None and old is not None:
                self._expected.forget(key_of(old))
                self._facts_caches.pop(key_of(old), None)
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            self._observe(old, new)
            for key in self._owners.affected(old, new):
                controller.queue.add_after(key, self._coalescing_delay(key, old, new))

        self._sets.add_handler(set_changed)
        self._pods.add_handler(pod_changed)

    def _observe(self, old: Obj | None, new: Obj | None) -> None:
        """Record observed creations and deletions in the expectations."""
        if new is None or "deletionTimestamp" in new["metadata"]:
            for key in dict.fromkeys((self._owners.key(old), self._owners.key(new))):
                if key is not None:
                    self._expected.deletion_observed(key, (new or old or {})["metadata"]["uid"])
        elif old is None:
            key = self._owners.key(new)
            if key is not None:
                self._expected.creation_observed(key)

    def _coalescing_delay(self, key: str, old: Obj | None, new: Obj | None) -> float:
        found = self._sets.get(key)
        if found is None:
            return 0.0
        if old is None and not self._expected.satisfied(key):
            old = new  # one of many to come: the last one is not delayed
        return coalescing_delay(old, new, size_of(found))

    # -- reconcile ------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            self._expected.forget(key)
            return None
        # Check before the first await: the expectations refer to the cache as it is now.
        may_act = self._expected.satisfied(key) and "deletionTimestamp" not in replica_set["metadata"]
        meta = replica_set["metadata"]
        selector = self._workload_type.selector(replica_set)
        facts_cache = self._facts_cache(replica_set, selector)
        alive = [facts for facts in facts_cache.of_all(self._pods.controlled_by(meta["uid"])) if not facts.finished]
        counted = [facts for facts in alive if facts.active]
        others = [facts.pod for facts in alive if not facts.selected and not facts.terminating]
        terminating = sum(facts.selected and facts.terminating for facts in alive)
        others += [pod for pod in self._pods.orphans(meta["namespace"]) if is_active(pod)]
        claim = Claim(self._client, self._workload_type.resource, replica_set, PODS, selector)
        counted += [facts_cache.of(pod) for pod in await claim.claimed(others)]
        active = [facts.pod for facts in counted]
        failure = await self._manage(key, replica_set, active) if may_act else None
        now = self._clock.now()
        reported = terminating if self._workload_type.reports_terminating else None
        await self._write_status(replica_set, status_of(replica_set, counted, reported, failure, now))
        if failure is not None:
            raise failure
        return requeue_when_available(active, replica_set["spec"].get("minReadySeconds", 0), now)

    def _facts_cache(self, replica_set: Obj, selector: Selector) -> PodFactsCache:
        meta, template = replica_set["metadata"], replica_set["spec"]["template"]
        version = (meta["uid"], meta["generation"])
        known = self._facts_caches.get(key_of(replica_set))
        if known is None or known[0] != version:
            facts_cache = PodFactsCache(selector, from_map((template.get("metadata") or {}).get("labels")))
            known = self._facts_caches[key_of(replica_set)] = (version, facts_cache)
        return known[1]

    async def _manage(self, key: str, replica_set: Obj, active: list[Obj]) -> Exception | None:
        missing = size_of(replica_set) - len(active)
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
        doomed = deletion_order(active, self._related(replica_set, active), self._clock.now())[:count]
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
        """Return the Pods of all sets of the same owner, so that scaling down keeps nodes balanced during a rollout."""
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
            # Often only the spec was scaled meanwhile; observedGeneration says which spec this status refers to.
            meta = replica_set["metadata"]
            fresh = await self._client.get(self._workload_type.resource, meta["name"], meta["namespace"])
            if fresh["metadata"]["uid"] != meta["uid"]:
                return
            await self._client.update({**fresh, "status": status}, subresource="status")


def size_of(replica_set: Obj) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def status_of(
    replica_set: Obj, active: list[PodFacts], terminating: int | None, failure: Exception | None, now: datetime
) -> Obj:
    old, min_ready = replica_set.get("status") or {}, replica_set["spec"].get("minReadySeconds", 0)
    labelled = sum(facts.has_template_labels for facts in active)
    ready = sum(facts.ready is not None for facts in active)
    available = sum(facts.is_available(min_ready, now) for facts in active) if min_ready else ready
    counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": available}
    status: Obj = {"replicas": len(active), **{name: count for name, count in counts.items() if count}}
    if terminating is not None:
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
    reason = "FailedCreate" if active < size_of(replica_set) else "FailedDelete"
    made = {
        "type": _FAILURE,
        "status": "True",
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": str(failure),
    }
    return [*old, made]
