"""The workers of a node's Pods: one for each Pod, stepped from one queue, and their status reported to the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.node.dependencies import PodWorkerDependencies
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import status_changes
from setpoint.node.pod_worker import PodWorker
from setpoint.node.simulation_annotations import RUNNING
from setpoint.reconcile import Controller, Informer, Result, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_PODS = builtin("pods")
_WORKERS = 64
_MAX_STEPS_PER_SYNC = 100
_MAX_SLEW = 1.0
"""Seconds by which the wall clock may fall behind without having been set back: it is adjusted continuously."""


class PodSync:
    """Runs a worker for each Pod of one or more nodes, and reports the Pods' status."""

    def __init__(
        self,
        dependencies: PodWorkerDependencies,
        pods: Informer[Pod],
        client_for: Callable[[str], Client],
        clock: Clock,
        prepare: Callable[[PodWorker], Awaitable[None]],
    ) -> None:
        """Create the workers' owner. `client_for(node)` returns a client with the identity of the node;
        `prepare(worker)` completes before each step what the step needs and what takes time."""
        self._dependencies = dependencies
        self._pods = pods
        self._client_for = client_for
        self._clock = clock
        self._prepare = prepare
        self.workers: dict[str, PodWorker] = {}
        """Pod workers by the uid of the Pod."""
        self._latest, self._latest_at = clock.now().timestamp(), clock.monotonic()
        """The last result of `now`, and the time of the monotonic clock at that moment."""
        self.controller = Controller("node", self.sync, clock, workers=_WORKERS)
        dependencies.runtime.on_change = self.enqueue

    def now(self) -> float:
        """Return the time for Pods: that of the wall clock, but it never decreases. If the wall clock is set back,
        probes, restarts and grace periods would otherwise wait for that much longer."""
        wall, at = self._clock.now().timestamp(), self._clock.monotonic()
        steady = self._latest + at - self._latest_at
        self._latest, self._latest_at = (wall if steady - wall < _MAX_SLEW else steady), at
        return self._latest

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return self.workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def enqueue(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is not None:
            self.controller.enqueue(key_of(worker.pod))

    def start_worker(self, pod: Pod, node: NodeState) -> None:
        self.workers[pod["metadata"]["uid"]] = PodWorker(pod, node, self._dependencies, self.now())
        self.controller.enqueue(key_of(pod))

    def update_worker(self, worker: PodWorker, pod: Pod) -> None:
        """Pass a new version of the Pod to its worker."""
        if worker.update(pod):
            self.controller.enqueue(key_of(pod))

    def remove_worker(self, uid: str, node: NodeState) -> None:
        """Forget a Pod that was deleted, and remove what it has left in the runtime."""
        worker = self.workers.pop(uid, None)
        if worker is not None:
            worker.cancel()
            worker.release_resources()
        self._dependencies.runtime.remove_pod(uid)
        node.release_addresses(uid)

    # -- reconcile -----------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        worker = self.workers.get(pod["metadata"]["uid"]) if pod is not None else None
        if worker is None:
            return None
        await self._prepare(worker)
        for _ in range(_MAX_STEPS_PER_SYNC):
            if worker.node.state != RUNNING:
                return None  # the node is stopped or partitioned: it neither reports nor receives anything
            again = worker.step(self.now())
            try:
                await self._report(worker)
                if worker.finished and worker.deleting:
                    await self._remove(worker)
                    return None
            except (NotFound, Conflict):
                return None  # the Pod was deleted, or replaced by another: the informer reports it
            if not again:
                break
        if worker.next_step_at is None:
            return None
        return Result(requeue_after=max(0.001, worker.next_step_at - self.now()))

    async def _report(self, worker: PodWorker) -> None:
        new = status_changes(worker.reported, worker.status(self.now()))
        if not new:
            worker.status_written(worker.reported, worker.reported_version)
            return
        meta, version = worker.pod["metadata"], 0
        observed_versions: list[int] = []
        worker.observed_versions = observed_versions
        try:
            written = await self._client_for(worker.node.name).patch(
                _PODS,
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "status": new},
                meta["namespace"],
                kind="strategic",
                subresource="status",
            )
            version = int(written["metadata"]["resourceVersion"])
            worker.status_written(written.get("status") or {}, version)
        finally:
            worker.observed_versions = None
            if any(each != version for each in observed_versions):
                # Another client changed the Pod during the write.
                self.controller.enqueue(key_of(worker.pod))

    async def _remove(self, worker: PodWorker) -> None:
        meta = worker.pod["metadata"]
        with suppress(NotFound):
            await self._client_for(worker.node.name).delete(
                _PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"]
            )
