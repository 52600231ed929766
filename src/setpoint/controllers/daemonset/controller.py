"""Reconciles DaemonSets: creates and deletes Pods on every node, then continues the rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.availability import requeue_when_available
from setpoint.controllers.backoff import Backoff
from setpoint.controllers.coalescing import coalescing_delay
from setpoint.controllers.daemonset.placement import Placement, Verdict, on_node, target_node, template_for
from setpoint.controllers.daemonset.revisions import DAEMON_SETS, DaemonHistory, hash_in
from setpoint.controllers.daemonset.rollout import next_step
from setpoint.controllers.daemonset.status import status_of
from setpoint.controllers.daemonset.upkeep import for_missing_nodes, is_leaving, needs_of
from setpoint.controllers.history import REVISIONS, History
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import Claim
from setpoint.controllers.pod_control import PODS, PodControl, is_namespace_terminating
from setpoint.controllers.pod_owners import PodOwners, selector_of
from setpoint.controllers.pods import phase
from setpoint.controllers.slow_start import slow_start
from setpoint.controllers.written_revisions import WrittenRevisions
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.reconcile import Controller, EventRecorder, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

NODES = builtin("nodes")
_BURST = 250
"""The maximum number of Pods created or deleted in one reconcile."""
_WORKERS = 2
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 900.0
"""Shortest and longest delay in seconds before a failed Pod is replaced on a node."""


def daemonset_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "daemon-set-controller"
    reconciler = DaemonSets(manager, manager.client_for(name), manager.recorder("daemonset-controller", name))
    controller = Controller("daemonset-controller", reconciler.reconcile, manager.clock, workers=_WORKERS)
    reconciler.watch(controller)
    return controller


def _by_set_and_node(pod: Obj) -> Iterable[str]:
    owner = controller_of(pod)
    if owner is not None and owner["kind"] == "DaemonSet":
        yield f"{owner['uid']}/{target_node(pod)}"


class DaemonSets:
    def __init__(self, manager: Manager, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._clock = manager.clock
        self._recorder = recorder
        self._sets, self._pods = manager.informer(DAEMON_SETS), manager.informer(PODS)
        self._nodes = manager.informer(NODES)
        self._revisions = manager.informer(REVISIONS)
        self._history = DaemonHistory(client, History(client, DAEMON_SETS, self._revisions))
        self._control = PodControl(client, recorder)
        self._writes = WrittenRevisions()
        self._backoff = Backoff(manager.clock, _FIRST_WAIT, _LONGEST_WAIT)
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

        def owned_changed(old: Obj | None, new: Obj | None) -> None:
            for key in owners.affected(old, new):
                status = (self._sets.items.get(key) or {}).get("status") or {}
                controller.queue.add_after(key, coalescing_delay(old, new, status.get("desiredNumberScheduled", 0)))

        def node_changed(old: Obj | None, new: Obj | None) -> None:
            if old is not None and new is not None and _is_equivalent(old, new):
                return
            for daemon_set in self._sets.items.values():
                if new is None or self._is_relevant(daemon_set, new):
                    controller.enqueue(key_of(daemon_set))

        self._sets.add_handler(set_changed)
        self._pods.add_handler(owned_changed)
        self._revisions.add_handler(owned_changed)
        self._nodes.add_handler(node_changed)

    def _is_relevant(self, daemon_set: Obj, node: Obj) -> bool:
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
        await self._write_status(daemon_set, status_of(daemon_set, should_run, _by_node(pods), revision, now))
        if failure is not None:
            raise failure
        later = requeue_when_available(pods, daemon_set["spec"].get("minReadySeconds", 0), now)
        if wait and (later is None or wait < (later.requeue_after or wait)):
            return Result(requeue_after=wait)
        return later

    async def _claimed(self, daemon_set: Obj) -> list[Obj]:
        meta = daemon_set["metadata"]
        claim = Claim(self._client, DAEMON_SETS, daemon_set, PODS, selector_of(daemon_set))
        return await claim.claimed([*self._pods.controlled_by(meta["uid"]), *self._pods.orphans(meta["namespace"])])

    def _owned(self, daemon_set: Obj) -> list[Obj]:
        selector = selector_of(daemon_set)
        owned = self._pods.controlled_by(daemon_set["metadata"]["uid"])
        return [pod for pod in owned if selector.matches(pod["metadata"].get("labels") or {})]

    async def _converge(
        self, daemon_set: Obj, pods: Sequence[Obj], verdicts: dict[str, Verdict], revision: str
    ) -> tuple[Exception | None, float]:
        """Create and delete Pods. Return the first error, and the seconds until failed Pods are to be checked again."""
        now, by_node = self._clock.now(), _by_node(pods)
        empty, doomed, wait = self._needed_changes(daemon_set, by_node, verdicts, revision, now)
        if not empty and not doomed and daemon_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            wanted = [name for name, verdict in verdicts.items() if verdict.should_run]
            doomed, empty = next_step(daemon_set, by_node, wanted, revision, now)
        if not empty and not doomed:
            return None, wait
        created = await self._create(daemon_set, empty[:_BURST], revision)
        deleted = await self._delete(daemon_set, doomed[:_BURST])
        return created or deleted, wait

    def _needed_changes(
        self,
        daemon_set: Obj,
        by_node: dict[str, list[Obj]],
        verdicts: dict[str, Verdict],
        revision: str,
        now: datetime,
    ) -> tuple[list[str], list[Obj], float]:
        """Return nodes without their Pod, Pods to delete, and the seconds for which recently failed Pods are
        retained."""
        empty: list[str] = []
        doomed: list[Obj] = []
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
                    doomed.append(pod)
            for pod in needs.succeeded:
                message = f"Found succeeded daemon pod {key_of(pod)} on node {name}, will try to delete it"
                self._recorder.normal(daemon_set, "SucceededDaemonPod", message)
                doomed.append(pod)
            doomed += needs.surplus
        doomed += for_missing_nodes(by_node, verdicts)
        return empty, doomed, min(waits, default=0.0)

    def _failure_delay(self, daemon_set: Obj, pod: Obj, node: str) -> float:
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

    async def _delete(self, daemon_set: Obj, doomed: Sequence[Obj]) -> Exception | None:
        async def delete_one(pod: Obj) -> None:
            try:
                answer = await self._control.delete(daemon_set, pod)
            except NotFound:
                return
            self._writes.wrote(key_of(daemon_set), self._pods, answer)

        outcomes = await asyncio.gather(*(delete_one(pod) for pod in doomed), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

    async def _write_status(self, daemon_set: Obj, status: Obj) -> None:
        if status == (daemon_set.get("status") or {}):
            return
        meta = daemon_set["metadata"]
        try:
            made = await self._client.update({**daemon_set, "status": status}, subresource="status")
        except Conflict:
            # Often only the spec changed meanwhile; observedGeneration says which spec this status refers to.
            fresh = await self._client.get(DAEMON_SETS, meta["name"], meta["namespace"])
            if fresh["metadata"]["uid"] != meta["uid"]:
                return
            made = await self._client.update({**fresh, "status": status}, subresource="status")
        self._writes.wrote(key_of(daemon_set), self._sets, made)


def _is_equivalent(old: Obj, new: Obj) -> bool:
    """Return whether two versions of a node are equal in everything that affects placement."""
    return bool(
        old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["spec"].get("taints") == new["spec"].get("taints")
    )


def _by_node(pods: Iterable[Obj]) -> dict[str, list[Obj]]:
    """Group Pods by node, without finished Pods that are being deleted."""
    found: dict[str, list[Obj]] = {}
    for pod in pods:
        if is_leaving(pod) and phase(pod) in ("Succeeded", "Failed"):
            continue
        node = target_node(pod)
        if node is not None:
            found.setdefault(node, []).append(pod)
    return found
