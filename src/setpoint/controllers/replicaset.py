"""The ReplicaSet and ReplicationController controllers keep the desired number of Pods.

A ReplicationController is a ReplicaSet whose selector is a plain label map.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client import Client, Resource
from setpoint.client.resources import builtin
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim, PodOwners, selector_of
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating, slow_start
from setpoint.controllers.pods import (
    available_from,
    coalescing_delay,
    deletion_order,
    is_active,
    phase,
    pods_and_wanted,
    ready_condition,
    requeue_when_available,
)
from setpoint.controllers.subresources import write_status
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, conditions_of, new_condition, without_condition
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import Selector, from_map
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, ReplicaSet

_REPLICA_SETS = builtin("replicasets", "apps")
_BURST = 500
"""The maximum number of Pods created or deleted in one reconcile."""
_WORKERS = 5
_FAILURE = "ReplicaFailure"
_REPLICATION_CONTROLLERS = builtin("replicationcontrollers")


class PodFacts(NamedTuple):
    pod: Pod
    active: bool
    """The Pod is not finished and not being deleted."""
    finished: bool
    selected: bool
    terminating: bool
    has_template_labels: bool
    """The Pod has all labels of the template."""
    ready: Mapping[str, Any] | None
    """The Ready condition if it is true, otherwise None."""

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        return self.ready is not None and available_from(self.ready, min_ready_seconds, now) <= 0


class PodFactsCache:
    """Caches the facts about the Pods of one set. Cached objects are never modified, so facts stay valid."""

    def __init__(self, selector: Selector, template: Selector) -> None:
        self._selector = selector
        self._template = template
        self._facts: dict[int, PodFacts] = {}
        """The facts by identity of the Pod's object, which the entry keeps alive."""

    def of_all(self, pods: Iterable[Pod]) -> list[PodFacts]:
        """Return the facts about these Pods, and forget all others."""
        known, self._facts = self._facts, {}
        for pod in pods:
            self._facts[id(pod)] = known.get(id(pod)) or self.of(pod)
        return list(self._facts.values())

    def of(self, pod: Pod) -> PodFacts:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        finished, terminating = phase(pod) in ("Succeeded", "Failed"), "deletionTimestamp" in meta
        selected = self._selector.matches(labels)
        return PodFacts(
            pod,
            selected and not finished and not terminating,
            finished,
            selected,
            terminating,
            self._template.matches(labels),
            ready_condition(pod),
        )


class WorkloadType(NamedTuple):
    """The differences between ReplicaSets and ReplicationControllers."""

    resource: Resource
    selector: Callable[[Any], Selector]
    reports_terminating: bool


_REPLICA_SET_TYPE = WorkloadType(_REPLICA_SETS, selector_of, True)


def replicaset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return _replicas_controller(manager, "replicaset-controller", "replicaset-controller", _REPLICA_SET_TYPE)


def _replicas_controller(manager: Manager, name: str, account: str, workload_type: WorkloadType) -> Controller:
    client = manager.client_for(account)
    sets, pods = manager.informer(workload_type.resource), manager.informer(PODS)
    reconciler = ReplicaSets(
        client, manager.clock, sets, pods, PodControl(client, manager.recorder(account)), workload_type
    )
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


class ReplicaSets:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        sets: Informer[ReplicaSet],
        pods: Informer[Pod],
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
        def set_changed(old: ReplicaSet | None, new: ReplicaSet | None) -> None:
            if new is None and old is not None:
                self._expected.forget(key_of(old))
                self._facts_caches.pop(key_of(old), None)
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
            self._observe(old, new)
            for key in self._owners.affected(old, new):
                controller.queue.add_after(key, self._coalescing_delay(key, old, new))

        self._sets.add_handler(set_changed)
        self._pods.add_handler(pod_changed)

    def _observe(self, old: Pod | None, new: Pod | None) -> None:
        """Record observed creations and deletions in the expectations."""
        if new is None or "deletionTimestamp" in new["metadata"]:
            for key in dict.fromkeys((self._owners.key(old), self._owners.key(new))):
                if key is not None:
                    self._expected.deletion_observed(key, (new or old or {})["metadata"]["uid"])
        elif old is None:
            key = self._owners.key(new)
            if key is not None:
                self._expected.creation_observed(key)

    def _coalescing_delay(self, key: str, old: Pod | None, new: Pod | None) -> float:
        found = self._sets.get(key)
        if found is None:
            return 0.0
        if old is None and not self._expected.satisfied(key):
            old = new  # one of many to come: the last one is not delayed
        return coalescing_delay(old, new, _size_of(found))

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
        status: ObjView = _status_of(replica_set, counted, reported, failure, now)
        if status != (replica_set.get("status") or {}):
            because("")
            await write_status(self._client, self._workload_type.resource, replica_set, status)
        if failure is not None:
            raise failure
        return requeue_when_available(active, replica_set["spec"].get("minReadySeconds", 0), now)

    def _facts_cache(self, replica_set: ReplicaSet, selector: Selector) -> PodFactsCache:
        meta, template = replica_set["metadata"], replica_set["spec"]["template"]
        version = (meta["uid"], meta["generation"])
        known = self._facts_caches.get(key_of(replica_set))
        if known is None or known[0] != version:
            facts_cache = PodFactsCache(selector, from_map((template.get("metadata") or {}).get("labels")))
            known = self._facts_caches[key_of(replica_set)] = (version, facts_cache)
        return known[1]

    async def _manage(self, key: str, replica_set: ReplicaSet, active: list[Pod]) -> Exception | None:
        missing = _size_of(replica_set) - len(active)
        if missing:
            because(pods_and_wanted(len(active), _size_of(replica_set)))
        if missing > 0:
            return await self._create(key, replica_set, min(missing, _BURST))
        if missing < 0:
            return await self._delete(key, replica_set, active, min(-missing, _BURST))
        return None

    async def _create(self, key: str, replica_set: ReplicaSet, count: int) -> Exception | None:
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

    async def _delete(self, key: str, replica_set: ReplicaSet, active: list[Pod], count: int) -> Exception | None:
        to_delete = deletion_order(active, self._related(replica_set, active), self._clock.now())[:count]
        self._expected.expect_deletions(key, (pod["metadata"]["uid"] for pod in to_delete))

        async def delete_one(pod: Pod) -> None:
            try:
                await self._control.delete(replica_set, pod)
            except BaseException as error:
                self._expected.deletion_observed(key, pod["metadata"]["uid"])
                if not isinstance(error, NotFound):
                    raise

        outcomes = await asyncio.gather(*(delete_one(pod) for pod in to_delete), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

    def _related(self, replica_set: ReplicaSet, active: list[Pod]) -> list[Pod]:
        """Return the Pods of all sets of the same owner, so that scaling down keeps nodes balanced during a rollout."""
        owner = controller_of(replica_set)
        if owner is None:
            return active
        siblings = self._sets.controlled_by(owner["uid"])
        return [pod for sibling in siblings for pod in self._pods.controlled_by(sibling["metadata"]["uid"])]


def _size_of(replica_set: ReplicaSet) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _status_of(
    replica_set: ReplicaSet, active: list[PodFacts], terminating: int | None, failure: Exception | None, now: datetime
) -> Obj:
    min_ready = replica_set["spec"].get("minReadySeconds", 0)
    labelled = sum(facts.has_template_labels for facts in active)
    ready = sum(facts.ready is not None for facts in active)
    available = sum(facts.is_available(min_ready, now) for facts in active) if min_ready else ready
    counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": available}
    status: Obj = {"replicas": len(active), **{name: count for name, count in counts.items() if count}}
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    status["observedGeneration"] = replica_set["metadata"]["generation"]
    conditions = _conditions(replica_set, len(active), failure, now)
    if conditions:
        status["conditions"] = conditions
    return status


def _conditions(replica_set: ReplicaSet, active: int, failure: Exception | None, now: datetime) -> Sequence[ObjView]:
    old = conditions_of(replica_set)
    if failure is None:
        return without_condition(old, _FAILURE)
    if condition_of(replica_set, _FAILURE) is not None:
        return old
    reason = "FailedCreate" if active < _size_of(replica_set) else "FailedDelete"
    return [*old, new_condition(_FAILURE, "True", reason, str(failure), now)]


_WORKLOAD_TYPE = WorkloadType(_REPLICATION_CONTROLLERS, lambda found: from_map(found["spec"].get("selector")), False)


def replicationcontroller_controller(manager: Manager, _: ControllerOptions) -> Controller:
    return _replicas_controller(manager, "replicationcontroller-controller", "replication-controller", _WORKLOAD_TYPE)
