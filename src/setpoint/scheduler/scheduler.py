"""The scheduling loop: binds every unscheduled Pod or reports why it cannot."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.exposition import Family
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer, Manager, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import RecentRuns, Run, because, current_run, process_of
from setpoint.scheduler.binding import Binder, Eviction
from setpoint.scheduler.cluster_events import (
    ASSIGNED_POD,
    ATTACHMENT,
    CLAIM,
    CSI_CAPACITY,
    CSI_DRIVER,
    CSI_NODE,
    NODE,
    STORAGE_CLASS,
    VOLUME,
    Action,
    ClusterEvent,
    QueueingHints,
    node_changes,
    pod_changes,
)
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.metrics import Metrics
from setpoint.scheduler.nominations import Nominations, nominated_node
from setpoint.scheduler.queue import QueueEntry, SchedulingQueue
from setpoint.scheduler.writes import (
    NO_NODES,
    PODS,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    WriteQueue,
    condition_to_write,
    truncate_note,
    write_status,
)
from setpoint.view.why.facts import SchedulingAttempt

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod
    from setpoint.scheduler.engine import Engine
    from setpoint.scheduler.framework import Cycle


_ACTIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects Pods that have not ended; ended ones use no resources and are treated as deleted."""
_STORAGE = "storage.k8s.io"
NAME = "default-scheduler"
LOOP = "kube-scheduler"
NODES = builtin("nodes")
_WARM_UP_DELAY = 1.0
_MAX_VERDICTS = 8
_BATCH_SECONDS, _MAX_BATCH = 0.008, 32
_ADDED, _DELETED = ClusterEvent(ASSIGNED_POD, Action.ADD), ClusterEvent(ASSIGNED_POD, Action.DELETE)


def _watch_others(manager: Manager, listers: Listers, queue: SchedulingQueue, binder: Binder) -> None:
    def informer(plural: str, group: str = "", event: str = "") -> Informer[Any]:
        found = manager.informer(builtin(plural, group))
        if event:
            found.add_handler(lambda old, new: _notify(queue, event, old, new))
        return found

    listers.namespaces = informer("namespaces")
    listers.services = informer("services")
    listers.replication_controllers = informer("replicationcontrollers")
    listers.replica_sets = informer("replicasets", "apps")
    listers.stateful_sets = informer("statefulsets", "apps")
    listers.disruption_budgets = informer("poddisruptionbudgets", "policy")
    listers.claims = informer("persistentvolumeclaims", event=CLAIM)
    listers.volumes = informer("persistentvolumes", event=VOLUME)
    listers.storage_classes = informer("storageclasses", _STORAGE, STORAGE_CLASS)
    listers.csi_nodes = informer("csinodes", _STORAGE, CSI_NODE)
    listers.csi_drivers = informer("csidrivers", _STORAGE, CSI_DRIVER)
    listers.csi_capacities = informer("csistoragecapacities", _STORAGE, CSI_CAPACITY)
    listers.attachments = informer("volumeattachments", _STORAGE, ATTACHMENT)
    for lister in (listers.claims, listers.volumes):
        lister.add_handler(binder.changed)


def _is_static(pod: Pod) -> bool:
    """Return whether a Pod belongs to its node, and is not scheduled."""
    owner = controller_of(pod)
    return owner is not None and owner["kind"] == "Node"


def _notify(queue: SchedulingQueue, resource: str, old: Obj | None, new: Obj | None) -> None:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.OTHER
    queue.move_on_event(ClusterEvent(resource, action), old, new)


log = logging.getLogger("setpoint.scheduler")


def add_scheduler(manager: Manager, configuration: Configuration | None = None) -> Scheduler:
    scheduler = Scheduler(manager, configuration or Configuration())
    manager.add(scheduler)
    manager.add_metrics(scheduler.families)
    return scheduler


class Scheduler:
    """Makes decisions one at a time without suspending; only writes are awaited, many concurrently."""

    def __init__(self, manager: Manager, configuration: Configuration) -> None:
        self._clock = manager.clock
        self._client = manager.client
        self._ids = manager.ids
        self._gates = manager.gates
        self._configuration = configuration
        self._profiles = frozenset(profile.name for profile in configuration.profiles)
        self._recorders = {name: manager.series_recorder(name) for name in sorted(self._profiles)}
        self.metrics = Metrics()
        self._pods: Informer[Pod] = manager.informer(PODS, field_selector=_ACTIVE_PODS)
        self._nodes: Informer[Node] = manager.informer(NODES)
        self._queueing_hints = QueueingHints()
        self.nominations = Nominations(self._pods.get)
        self._charge = manager.gates.charge
        self._writes = WriteQueue(self._clock, self._charge)
        self._eviction = Eviction(
            self._client, self._clock, self._pods, self._recorders, self._writes, self.nominations
        )
        self.queue = SchedulingQueue(
            self._clock,
            self._queueing_hints,
            initial_backoff=configuration.initial_backoff,
            max_backoff=configuration.max_backoff,
            is_held=self._eviction.is_in_progress,
        )
        self._eviction.queue = self.queue
        self._listers = Listers()
        self._binder = Binder(self._client, self._clock, self._listers)
        _watch_others(manager, self._listers, self.queue, self._binder)
        self._engine: Engine | None = None
        self._process = ""
        self._number = 0
        self.decided = 0
        """The number of attempts that found a node."""
        self.recent = RecentRuns()
        """The latest attempts."""
        self._nodes.add_handler(self._node_changed)
        self._pods.add_handler(self._pod_changed)

    # -- event handlers -----------------------------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if self._engine is None:
            if new is None or not self.queue:
                return  # no Pod waits: later ones see the current state
            self._engine = self._start_engine()
        snapshot = self._engine.snapshot
        if new is None:
            assert old is not None
            self.queue.move_on_event(ClusterEvent(NODE, Action.DELETE), old, None)
            snapshot.remove_node(old["metadata"]["name"])
            return
        snapshot.put_node(new)
        actions = [Action.ADD] if old is None else node_changes(old, new)
        for action in actions:
            self.queue.move_on_event(ClusterEvent(NODE, action), old, new)

    def _start_engine(self) -> Engine:
        # Deferred until there is something to decide: NumPy is the slowest import of a cluster's start.
        from setpoint.scheduler.engine import Engine

        engine = Engine(self._configuration, self._listers, self.nominations, self._ids, self._queueing_hints)
        for node in self._nodes.items.values():
            engine.snapshot.put_node(node)
        for pod in self._pods.items.values():
            if name := pod["spec"].get("nodeName"):
                engine.snapshot.put(pod, name)
        return engine

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._pod_deleted(old)
        elif node := new["spec"].get("nodeName"):
            self._pod_placed(old, new, node)
        elif new["spec"].get("schedulerName") in self._profiles:
            self._pod_unscheduled(old, new)

    def _pod_deleted(self, old: Pod) -> None:
        key = key_of(old)
        self.queue.remove(key)
        self.nominations.remove(old)
        self.nominations.drop_victims((old,))
        placed = self._engine.snapshot.remove(key) if self._engine is not None else None
        if placed is not None or old["spec"].get("nodeName"):
            self.queue.move_on_event(_DELETED, placed.pod if placed is not None else old, None)
        elif nominated_node(old):
            self._nomination_ended(old)

    def _pod_placed(self, old: Pod | None, new: Pod, node: str) -> None:
        if self._engine is not None:
            self._engine.snapshot.put(new, node)
        if "deletionTimestamp" in new["metadata"]:
            self.nominations.drop_victims((new,))
        if old is not None and old["spec"].get("nodeName"):
            for action in pod_changes(old, new):
                if action is not Action.OTHER:
                    self.queue.move_on_event(ClusterEvent(ASSIGNED_POD, action), old, new)
            return
        self.queue.remove(key_of(new))
        self.nominations.remove(new)
        self.queue.move_on_event(_ADDED, None, new)

    def _pod_unscheduled(self, old: Pod | None, new: Pod) -> None:
        if old is None:
            self.nominations.put(new)
            self.queue.add(new)
            return
        if self._engine is not None and self._engine.snapshot.is_assumed(key_of(new)):
            if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
                # The binding will fail; the assumed resources are free already.
                assumed = self._engine.forget(new)
                self.queue.move_on_event(_DELETED, assumed, None)
            return
        self.nominations.update(old, new)
        self.queue.update(old, new)
        if nominated_node(old) and nominated_node(old) != nominated_node(new):
            self._nomination_ended(old)

    def _nomination_ended(self, pod: Pod) -> None:
        """Requeue Pods of no higher priority, which could not use the nominated node."""
        priority = _priority(pod)
        self.queue.move_on_event(_DELETED, pod, None, lambda other: _priority(other) <= priority)

    def last_attempt(self, key: str) -> SchedulingAttempt | None:
        """Return the last attempt for a Pod that waits; None if it does not wait, or was not tried."""
        entry, run = self.queue.entry(key), self.recent.last(key)
        if entry is None or not entry.message:
            return None
        verdicts = self._engine.verdicts(entry.pod, _MAX_VERDICTS) if self._engine is not None else []
        ago = 0.0 if run is None else self._clock.monotonic() - run.began
        at = int((self._clock.now().timestamp() - ago) * 1000)
        return SchedulingAttempt(entry.attempts, at, entry.message, verdicts)

    @property
    def attempts(self) -> int:
        """The number of attempts."""
        return self._number

    def families(self) -> list[Family]:
        return self.metrics.families(self.queue.sizes())

    # -- decisions ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        self._process = process_of(NAME, self._clock.now())
        with self._gates.guarding(LOOP, self.queue):
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._binder.tasks = tasks
            tasks.create_task(self.queue.run())
            tasks.create_task(self._writes.run())
            tasks.create_task(self._warm_up())
            while True:
                self._schedule_batch(await self.queue.pop())
                await self._writes.wait_capacity()
                await asyncio.sleep(0)  # yield to informers and writes, however many Pods wait

    async def _warm_up(self) -> None:
        """Load the engine after the start of a cluster with Pods. Others load it with their first Pod, because NumPy
        takes 12 MB."""
        await self._clock.sleep(_WARM_UP_DELAY)
        if self._engine is None and not all(_is_static(pod) for pod in self._pods.items.values()):
            self._engine = self._start_engine()

    def _schedule_batch(self, first: QueueEntry) -> None:
        """Decide about a batch of Pods: on a busy loop iterations are rare, and what is decided together is written
        together."""
        self._run_attempt(first)
        ends = self._clock.monotonic() + _BATCH_SECONDS
        for _ in range(_MAX_BATCH - 1):
            if self._clock.monotonic() >= ends or (entry := self.queue.pop_nowait()) is None:
                return
            self._run_attempt(entry)

    def _run_attempt(self, entry: QueueEntry) -> None:
        self._number += 1
        found, now = entry.triggers, self._clock.monotonic()
        triggers = tuple(found.revisions)
        run = Run(LOOP, self._process, self._number, entry.key, triggers, found.unlisted, found.besides, now)
        current_run.set(run)
        self.recent.add(run)
        try:
            self._attempt(entry)
        finally:
            current_run.set(None)
            run.ended = self._clock.monotonic()
            if self._charge is not None:
                self._charge(run.ended - now)

    def _attempt(self, entry: QueueEntry) -> None:
        pod, start = entry.pod, self._clock.monotonic()
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            self.queue.remove(entry.key)
            self._record_failure(pod, f"skip schedule deleting pod: {meta['namespace']}/{meta['name']}")
            return
        if self._engine is None:
            if not self._nodes.items:
                self._failed(entry, UNSCHEDULABLE, NO_NODES, None, nominate="")
                return
            self._engine = self._start_engine()
        if self._engine.snapshot.is_assumed(entry.key):
            return
        try:
            self._decide(self._engine, entry, pod, start)
        except Exception as error:  # an error with one Pod must not block the others
            log.exception("scheduling of %s failed", entry.key)
            self._engine.forget(pod)
            self.metrics.attempted("error", entry.scheduler, self._clock.monotonic() - start)
            self._failed(entry, SCHEDULER_ERROR, f"{type(error).__name__}: {error}", None, nominate="")

    def _decide(self, engine: Engine, entry: QueueEntry, pod: Pod, start: float) -> None:
        try:
            cycle, choice = engine.decide(pod)
        except engine.NoNodes as error:
            self.metrics.attempted("unschedulable", entry.scheduler, self._clock.monotonic() - start)
            self._failed(entry, UNSCHEDULABLE, str(error), None, nominate="")
        except engine.FitError as error:
            victims = engine.preempt(pod, error.diagnosis)
            nominate: str | None = error.diagnosis.nominate
            if victims is not None:
                nominate = victims.node
                lower = [other for other in self.nominations.on(victims.node) if _priority(other) < _priority(pod)]
                self._eviction.begin(pod, victims, lower)
                self.metrics.preempted(len(victims.pods))
            self.metrics.attempted("unschedulable", entry.scheduler, self._clock.monotonic() - start)
            plugins = tuple(error.diagnosis.plugins)
            self._failed(entry, UNSCHEDULABLE, error.diagnosis.message(), plugins, nominate=nominate)
        else:
            self.decided += 1
            because(choice.reason(len(cycle.table)))
            engine.assume(cycle, choice.node)
            self.nominations.remove(pod)
            self._bind(entry, cycle, choice.node, start)

    # -- results ------------------------------------------------------------------------------------------------------

    def _bind(self, entry: QueueEntry, cycle: Cycle, node: str, start: float) -> None:
        assert self._engine is not None
        pod = cycle.pod
        reservation = self._engine.reserve(cycle, node)

        async def bind() -> None:
            try:
                await self._binder.bind(pod, node, reservation)
            except BaseException as error:
                self._not_bound(entry, pod, error)
                if not isinstance(error, Exception):
                    raise
                return
            meta = pod["metadata"]
            message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
            self._recorders[entry.scheduler].normal(pod, "Scheduled", message, action="Binding")
            now = self._clock.monotonic()
            self.metrics.scheduled(entry.scheduler, now - start, entry.attempts, now - (entry.first_attempt or now))

        if reservation is None:
            self._writes.submit(entry.key, bind)
        else:
            self._binder.spawn(bind)

    def _not_bound(self, entry: QueueEntry, pod: Pod, error: BaseException) -> None:
        assert self._engine is not None
        assumed = self._engine.forget(pod)
        if assumed is not None:
            self.queue.move_on_event(_DELETED, assumed, None)
        if not isinstance(error, Exception):
            return
        if isinstance(error, NotFound | Conflict):
            log.info("cannot bind %s: %s", entry.key, error)
        else:
            log.warning("cannot bind %s: %s", entry.key, error)
        self.metrics.attempted("error", entry.scheduler, 0.0)
        # It may have been bound although the response was lost: then report nothing.
        self._failed(entry, SCHEDULER_ERROR, str(error), None, nominate="", if_unchanged=True)

    def _failed(
        self,
        entry: QueueEntry,
        reason: str,
        message: str,
        rejectors: tuple[str, ...] | None,
        *,
        nominate: str | None,
        if_unchanged: bool = False,
    ) -> None:
        """Record a failed attempt. `nominate` is the node to nominate; empty clears the nomination, None leaves it."""
        current = self._pods.get(entry.key)
        if current is None or current["spec"].get("nodeName") or current["metadata"]["uid"] != entry.uid:
            # Deleted, or bound by another scheduler: the informer reports it.
            if self.queue.entry(entry.key) is entry:
                self.queue.remove(entry.key)
            return
        because(message)
        entry.message = message
        self.queue.add_unschedulable(entry, current, rejectors)
        self.nominations.put(current, nominate)
        self._record_failure(current, truncate_note(message))
        condition = condition_to_write(current, self._clock, "PodScheduled", "False", reason, message)
        unchanged = nominate is None or nominate == nominated_node(current)
        if condition is None and unchanged:
            return

        async def write() -> None:
            try:
                await write_status(self._client, current, condition, nominate, if_unchanged=if_unchanged)
            except (ApiError, Unreachable) as error:
                log.info("cannot update the status of unschedulable Pod %s: %s", entry.key, error)

        self._writes.submit(entry.key, write)

    def _record_failure(self, pod: Pod, why: str) -> None:
        self._recorders[pod["spec"]["schedulerName"]].warning(pod, "FailedScheduling", why, action="Scheduling")


def _priority(pod: Pod) -> int:
    return int(pod["spec"].get("priority") or 0)
