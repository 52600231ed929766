"""Reconciles DaemonSets: creates and deletes Pods on every node, continues the rollout, writes the status."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.daemonset.placement import (
    Placement,
    Verdict,
    is_updated,
    on_node,
    target_node,
    template_for,
)
from setpoint.controllers.daemonset.rollout import (
    DAEMON_SETS,
    DaemonHistory,
    by_age,
    for_missing_nodes,
    hash_in,
    is_leaving,
    needs_of,
    next_step,
)
from setpoint.controllers.expectations import WrittenRevisions
from setpoint.controllers.history import REVISIONS, History
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim, PodOwners, selector_of
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating, slow_start
from setpoint.controllers.pods import coalescing_delay, is_available, is_ready, phase, requeue_when_available
from setpoint.controllers.subresources import write_status
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

_ALWAYS_SHOWN = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_NODES = builtin("nodes")
_BURST = 250
"""The maximum number of Pods created or deleted in one reconcile."""
_WORKERS = 2
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 900.0
"""Shortest and longest delay in seconds before a failed Pod is replaced on a node."""


class KeyedBackoff:
    """Exponential backoff per key, forgotten after a period without failures."""

    def __init__(self, clock: Clock, first: float, longest: float) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._entries: dict[str, tuple[float, float]] = {}
        """The time of the last failure and the delay from then on, by key; least recent first."""

    def remaining(self, key: str) -> float:
        """Return the seconds until the key may be retried; zero means now."""
        at, wait = self._entries.get(key, (0.0, 0.0))
        return max(0.0, at + wait - self._clock.monotonic())

    def failed(self, key: str) -> None:
        now = self._clock.monotonic()
        self._forget_until(now - 2 * self._longest)
        _, wait = self._entries.pop(key, (0.0, 0.0))
        self._entries[key] = (now, min(self._longest, wait * 2) if wait else self._first)

    def _forget_until(self, then: float) -> None:
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest][0] >= then:
                return
            del self._entries[oldest]


# -- status -----------------------------------------------------------------------------------------------------------


def _status_of(
    daemon_set: Obj,
    should_run: Mapping[str, bool],
    by_node: Mapping[str, Sequence[Pod]],
    revision: str,
    now: datetime,
) -> Obj:
    """Compute the status. `should_run` has an entry for every node."""
    before = daemon_set.get("status") or {}
    min_ready = daemon_set["spec"].get("minReadySeconds", 0)
    desired = current = misplaced = ready = updated = available = 0
    for name, wanted in should_run.items():
        pods = by_node.get(name)
        if not wanted:
            misplaced += bool(pods)
            continue
        desired += 1
        if not pods:
            continue
        current += 1
        pod = pods[0] if len(pods) == 1 else by_age(pods)[0]
        if is_ready(pod):
            ready += 1
            available += is_available(pod, min_ready, now)
        updated += is_updated(daemon_set, pod, revision)
    counts = {
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    status: Obj = {name: count for name, count in counts.items() if count or name in _ALWAYS_SHOWN}
    status["observedGeneration"] = daemon_set["metadata"]["generation"]
    for name in ("collisionCount", "conditions"):
        if name in before:
            status[name] = before[name]
    return status


# -- controller -------------------------------------------------------------------------------------------------------


def daemonset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "daemon-set-controller"
    reconciler = DaemonSets(manager, manager.client_for(name), manager.recorder("daemonset-controller", name))
    controller = Controller("daemonset-controller", reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


def _by_set_and_node(pod: Pod) -> Iterable[str]:
    owner = controller_of(pod)
    if owner is not None and owner["kind"] == "DaemonSet":
        yield f"{owner['uid']}/{target_node(pod)}"


class DaemonSets:
    def __init__(self, manager: Manager, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._clock = manager.clock
        self._recorder = recorder
        self._sets: Informer[Obj] = manager.informer(DAEMON_SETS)
        self._pods: Informer[Pod] = manager.informer(PODS)
        self._nodes: Informer[Node] = manager.informer(_NODES)
        self._revisions = manager.informer(REVISIONS)
        self._history = DaemonHistory(client, History(client, DAEMON_SETS, self._revisions))
        self._control = PodControl(client, recorder)
        self._writes = WrittenRevisions()
        self._backoff = KeyedBackoff(manager.clock, _FIRST_WAIT, _LONGEST_WAIT)
        self._placements: dict[str, tuple[int, Placement]] = {}
        """Placements by uid, with the generation of the DaemonSet they were computed from."""
        self._pods.add_index("daemon", _by_set_and_node)

    # -- event handlers -----------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        owners = PodOwners("DaemonSet", self._sets)

        def set_changed(old: Obj | None, new: Obj | None) -> None:
            if new is None and old is not None:
                self._placements.pop(old["metadata"]["uid"], None)
            controller.enqueue(key_of(new or old or {}))

        def owned_changed(old: Pod | None, new: Pod | None) -> None:
            for key in owners.affected(old, new):
                status = (self._sets.items.get(key) or {}).get("status") or {}
                controller.queue.add_after(key, coalescing_delay(old, new, status.get("desiredNumberScheduled", 0)))

        def node_changed(old: Node | None, new: Node | None) -> None:
            if old is not None and new is not None and _is_equivalent(old, new):
                return
            for daemon_set in self._sets.items.values():
                if new is None or self._is_relevant(daemon_set, new):
                    controller.enqueue(key_of(daemon_set))

        self._sets.add_handler(set_changed)
        self._pods.add_handler(owned_changed)
        self._revisions.add_handler(owned_changed)
        self._nodes.add_handler(node_changed)

    def _is_relevant(self, daemon_set: Obj, node: Node) -> bool:
        verdict = self._placement(daemon_set).on(node)
        key = f"{daemon_set['metadata']['uid']}/{node['metadata']['name']}"
        if not self._pods.by_index("daemon", key):
            return verdict.should_run
        return not verdict.may_stay or bool((daemon_set.get("status") or {}).get("numberMisscheduled"))

    def _placement(self, daemon_set: Obj) -> Placement:
        meta = daemon_set["metadata"]
        generation, found = self._placements.get(meta["uid"], (-1, None))
        if found is None or generation != meta["generation"]:
            found = Placement(daemon_set)
            self._placements[meta["uid"]] = (meta["generation"], found)
        return found

    # -- reconcile ----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        if not self._writes.seen(key):
            return Result(retry=True)
        daemon_set = self._sets.get(key)
        if daemon_set is None:
            self._writes.forget(key)
            return None
        if is_leaving(daemon_set):
            return None  # its revisions may be deleted already, and without them its Pods cannot be assessed
        pods = await self._claimed(daemon_set)
        current, old = await self._history.of(daemon_set, pods)
        revision = hash_in(current)
        placement = self._placement(daemon_set)
        verdicts = {name: placement.on(node) for name, node in self._nodes.items.items()}
        failure, wait = await self._converge(daemon_set, pods, verdicts, revision)
        if failure is None:
            await self._history.tidy(daemon_set, old, pods)
        now = self._clock.now()
        pods = self._owned(daemon_set)
        should_run = {name: verdict.should_run for name, verdict in verdicts.items()}
        await self._write_status(daemon_set, _status_of(daemon_set, should_run, _by_node(pods), revision, now))
        if failure is not None:
            raise failure
        later = requeue_when_available(pods, daemon_set["spec"].get("minReadySeconds", 0), now)
        if wait and (later is None or wait < (later.requeue_after or wait)):
            return Result(requeue_after=wait)
        return later

    async def _claimed(self, daemon_set: Obj) -> list[Pod]:
        meta = daemon_set["metadata"]
        claim = Claim(self._client, DAEMON_SETS, daemon_set, PODS, selector_of(daemon_set))
        return await claim.claimed([*self._pods.controlled_by(meta["uid"]), *self._pods.orphans(meta["namespace"])])

    def _owned(self, daemon_set: Obj) -> list[Pod]:
        selector = selector_of(daemon_set)
        owned = self._pods.controlled_by(daemon_set["metadata"]["uid"])
        return [pod for pod in owned if selector.matches(pod["metadata"].get("labels") or {})]

    async def _converge(
        self, daemon_set: Obj, pods: Sequence[Pod], verdicts: dict[str, Verdict], revision: str
    ) -> tuple[Exception | None, float]:
        """Create and delete Pods. Return the first error, and the seconds until failed Pods are to be checked again."""
        now, by_node = self._clock.now(), _by_node(pods)
        empty, to_delete, wait = self._needed_changes(daemon_set, by_node, verdicts, revision, now)
        if not empty and not to_delete and daemon_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            wanted = [name for name, verdict in verdicts.items() if verdict.should_run]
            to_delete, empty = next_step(daemon_set, by_node, wanted, revision, now)
        if not empty and not to_delete:
            return None, wait
        if empty:
            more = f" and {len(empty) - 1} more nodes need" if len(empty) > 1 else " needs"
            because(f"{empty[0]}{more} a Pod of the DaemonSet and {'have' if len(empty) > 1 else 'has'} none")
        created = await self._create(daemon_set, empty[:_BURST], revision)
        if to_delete:
            because("the Pod has ended, is outdated, or is on a node that needs none")
        deleted = await self._delete(daemon_set, to_delete[:_BURST])
        return created or deleted, wait

    def _needed_changes(
        self,
        daemon_set: Obj,
        by_node: dict[str, list[Pod]],
        verdicts: dict[str, Verdict],
        revision: str,
        now: datetime,
    ) -> tuple[list[str], list[Pod], float]:
        """Return nodes without their Pod, Pods to delete, and the seconds for which recently failed Pods are
        retained."""
        empty: list[str] = []
        to_delete: list[Pod] = []
        waits: list[float] = []
        for name, verdict in verdicts.items():
            pods = by_node.get(name, [])
            if not pods and not verdict.should_run:
                continue
            needs = needs_of(daemon_set, verdict, pods, revision, now)
            if needs.is_empty:
                empty.append(name)
            for pod in needs.failed:
                wait = self._failure_delay(daemon_set, pod, name)
                if wait:
                    waits.append(wait)
                else:
                    to_delete.append(pod)
            for pod in needs.succeeded:
                message = f"Found succeeded daemon pod {key_of(pod)} on node {name}, will try to delete it"
                self._recorder.normal(daemon_set, "SucceededDaemonPod", message)
                to_delete.append(pod)
            to_delete += needs.surplus
        to_delete += for_missing_nodes(by_node, verdicts)
        return empty, to_delete, min(waits, default=0.0)

    def _failure_delay(self, daemon_set: Obj, pod: Pod, node: str) -> float:
        """Return the seconds to wait before a failed Pod is deleted; zero means now. The delay prevents an endless loop
        on a node that rejects Pods."""
        generation = (daemon_set.get("status") or {}).get("observedGeneration", 0)
        key = f"{daemon_set['metadata']['uid']}/{generation}/{node}"
        wait = self._backoff.remaining(key)
        if not wait:
            self._backoff.failed(key)
            message = f"Found failed daemon pod {key_of(pod)} on node {node}, will try to kill it"
            self._recorder.warning(daemon_set, "FailedDaemonPod", message)
        return wait

    async def _create(self, daemon_set: Obj, nodes: Sequence[str], revision: str) -> Exception | None:
        template, remaining = template_for(daemon_set, revision), iter(nodes)
        key = key_of(daemon_set)

        async def create_one() -> None:
            try:
                made = await self._control.create(daemon_set, on_node(template, next(remaining)))
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise
            else:
                self._writes.wrote(key, self._pods, made)

        return (await slow_start(len(nodes), create_one))[1]

    async def _delete(self, daemon_set: Obj, to_delete: Sequence[Pod]) -> Exception | None:
        async def delete_one(pod: Pod) -> None:
            try:
                answer = await self._control.delete(daemon_set, pod)
            except NotFound:
                return
            self._writes.wrote(key_of(daemon_set), self._pods, answer)

        outcomes = await asyncio.gather(*(delete_one(pod) for pod in to_delete), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

    async def _write_status(self, daemon_set: Obj, status: Obj) -> None:
        if status == (daemon_set.get("status") or {}):
            return
        written = await write_status(self._client, DAEMON_SETS, daemon_set, status)
        if written is not None:
            self._writes.wrote(key_of(daemon_set), self._sets, written)


def _is_equivalent(old: Node, new: Node) -> bool:
    """Return whether two versions of a node are equal in everything that affects placement."""
    return bool(
        old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["spec"].get("taints") == new["spec"].get("taints")
    )


def _by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group Pods by node, without finished Pods that are being deleted."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if is_leaving(pod) and phase(pod) in ("Succeeded", "Failed"):
            continue
        node = target_node(pod)
        if node is not None:
            found.setdefault(node, []).append(pod)
    return found
