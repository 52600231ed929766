"""Runs the static Pods of a real node, whether the API server is reachable or not, and keeps their mirror Pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.node.mirror_pods import MirrorPods
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import with_changes
from setpoint.node.pod_sync import PodSync
from setpoint.node.pod_worker import PodWorker
from setpoint.node.recovery import restore_reported
from setpoint.reconcile import Controller, Informer, Result

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_REMOVAL_PERIOD: Final = 0.2
"""Seconds between checks whether a Pod with the same uid has been removed."""
_OPTIONAL_FIELDS: Final = (
    "podIP",
    "podIPs",
    "reason",
    "message",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
)
"""The fields of the status that are removed from the mirror Pod if the static Pod does not have them."""


class HostStaticPods:
    """The static Pods of a real node. `set` says which ones there are."""

    def __init__(
        self,
        node: NodeState,
        sync: PodSync,
        pods: Informer[Pod],
        client: Client,
        clock: Clock,
        is_removing: Callable[[str], bool],
    ) -> None:
        """Create the owner of the static Pods. `pods` has the Pods of the node, among them the mirror Pods;
        `is_removing(uid)` returns whether something of a former Pod with this uid is left."""
        self._node = node
        self._sync = sync
        self._clock = clock
        self._is_removing = is_removing
        self._wanted: Mapping[str, Pod] = {}
        self._restored: dict[str, PodWorker] = {}
        """The workers that have taken over what was reported before, by namespace and name."""
        self._mirrors = MirrorPods(node.name, self, pods, client, clock)
        self._controller = Controller("static-pod-files", self._reconcile, clock)
        self.known = asyncio.Event()
        """Set when `set` was called for the first time: other Pods that run are not static Pods."""
        sync.on_static_change = self._controller.enqueue

    def set(self, pods: Mapping[str, Pod]) -> None:
        """Run these static Pods from now on, by namespace and name, and no others. One with another uid replaces the
        former one, which ends gracefully before."""
        before, self._wanted = self._wanted, pods
        for key in {**before, **pods}:
            if _uid(before.get(key)) != _uid(pods.get(key)):
                self._controller.enqueue(key)
        self.known.set()

    def restart_failed(self) -> None:
        """Start the static Pods again that the node has ended, such as for a shutdown that was cancelled."""
        for key, worker in tuple(self._sync.static.items()):
            if worker.finished and worker.pod_state.failure is not None:
                self._sync.remove_worker(worker.uid, self._node)
                self._controller.enqueue(key)

    async def run(self) -> None:
        """Run the static Pods until cancelled. Their containers continue afterwards."""
        await self._controller.run()

    async def run_mirrors(self) -> None:
        """Keep the mirror Pods up to date until cancelled. Call it when the informer of Pods has synced."""
        await self.known.wait()
        self._mirrors.watch()
        for key in {**self._wanted, **self._sync.static}:
            self._mirrors.controller.enqueue(key)
        await self._mirrors.controller.run()

    async def _reconcile(self, key: str) -> Result | None:
        wanted, worker = self._wanted.get(key), self._sync.static.get(key)
        self._mirrors.controller.enqueue(key)
        if worker is None:
            self._restored.pop(key, None)
            if wanted is not None:
                if self._is_removing(wanted["metadata"]["uid"]):
                    return Result(requeue_after=_REMOVAL_PERIOD)
                self._sync.start_static_worker(wanted, self._node)
        elif _uid(wanted) != worker.uid and not worker.deleting:
            worker.delete(format_time(self._clock.now()))
            self._sync.enqueue(worker.uid)
        return None

    # -- for the mirror Pods -------------------------------------------------------------------------------------------

    def static_pod(self, key: str) -> ObjView | None:
        """Return the static Pod; a former one until it has ended."""
        worker = self._sync.static.get(key)
        return worker.pod if worker is not None else self._wanted.get(key)

    def status_patch(self, key: str, mirror: Pod) -> Obj:
        worker, stored = self._sync.static.get(key), mirror.get("status") or {}
        if worker is None:
            return {}
        if self._restored.get(key) is not worker:
            self._restored[key] = worker
            if stored.get("startTime"):
                restore_reported(worker, stored)
                self._sync.enqueue(worker.uid)
        return mirror_status_patch(stored, with_changes(worker.reported, worker.status(self._sync.now())))


def mirror_status_patch(stored: ObjView, status: ObjView) -> Obj:
    """Return the changes of a JSON merge patch. Conditions of other clients remain; that of a shutdown does not outlive
    it."""
    own = {each["type"] for each in status["conditions"]}
    others = [
        each
        for each in stored.get("conditions") or ()
        if each["type"] not in own and each.get("reason") != "TerminationByKubelet"
    ]
    wanted = {**dict.fromkeys(_OPTIONAL_FIELDS), **status, "conditions": [*status["conditions"], *others]}
    return {name: value for name, value in wanted.items() if stored.get(name) != value}


def _uid(pod: Pod | None) -> str | None:
    return pod["metadata"]["uid"] if pod is not None else None
