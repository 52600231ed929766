"""The workers of a node's Pods: one for each Pod, stepped from one queue, and their status reported to the API."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.node.dependencies import PodWorkerDependencies
from setpoint.node.node_state import NodeState
from setpoint.node.observations import observation
from setpoint.node.pod_status import runs_init_again, status_changes, with_changes
from setpoint.node.simulation_annotations import RUNNING
from setpoint.reconcile import Controller, Informer, Result, key_of
from setpoint.reconcile.run import because, current_run

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.pod_worker import PodWorker

log = logging.getLogger("setpoint.node")

_PODS = builtin("pods")
_WORKERS = 64
_MAX_STEPS_PER_SYNC = 100
_STATIC = "static:"
"""The prefix of static Pods in the queue: a Pod of the API may have the same name."""
_RETRY_SECONDS = 5.0
"""Seconds until a status that the API did not accept is reported again."""
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
        *,
        continues_offline: bool = False,
    ) -> None:
        """Create the workers' owner. `client_for(node)` returns a client with the identity of the node;
        `prepare(worker)` completes before each step what the step needs and what takes time. With `continues_offline`,
        Pods go on while the API does not accept their status, which is reported later."""
        self._dependencies = dependencies
        self._pods = pods
        self._client_for = client_for
        self._clock = clock
        self._prepare = prepare
        self._continues_offline = continues_offline
        self.workers: dict[str, PodWorker] = {}
        """Pod workers by the uid of the Pod."""
        self.static: dict[str, PodWorker] = {}
        """The workers of static Pods by namespace and name; they are in `workers` too."""
        self.on_static_change: Callable[[str], None] = lambda key: None
        """Called with the namespace and name of a static Pod whose status has changed, or that has ended for good and
        is forgotten."""
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
        """Return the worker of a Pod. That of a static Pod is found by the name of its mirror Pod."""
        return self._api_worker(f"{namespace}/{name}") or self.static.get(f"{namespace}/{name}")

    def is_static(self, worker: PodWorker) -> bool:
        return self.static.get(key_of(worker.pod)) is worker

    def enqueue(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is not None:
            self.controller.enqueue(f"{_STATIC if self.is_static(worker) else ''}{key_of(worker.pod)}")

    def start_worker(self, pod: Pod, node: NodeState) -> None:
        self.workers[pod["metadata"]["uid"]] = self._new_worker(pod, node)
        self.controller.enqueue(key_of(pod))

    def start_static_worker(self, pod: Pod, node: NodeState) -> None:
        """Run a static Pod. Its status is not written to the API, but announced by `on_static_change`."""
        worker = self._new_worker(pod, node)
        self.workers[worker.uid] = self.static[key_of(pod)] = worker
        self.enqueue(worker.uid)

    def _new_worker(self, pod: Pod, node: NodeState) -> PodWorker:
        # Imported here because nodes start without Pods, and sooner so.
        from setpoint.node.pod_worker import PodWorker

        return PodWorker(pod, node, self._dependencies, self.now())

    def update_worker(self, worker: PodWorker, pod: Pod) -> None:
        """Pass a new version of the Pod to its worker."""
        if worker.update(pod):
            worker.trigger = int(pod["metadata"]["resourceVersion"])
            self.controller.enqueue(key_of(pod))

    def remove_worker(self, uid: str, node: NodeState) -> None:
        """Forget a Pod that was deleted, and remove what it has left in the runtime."""
        worker = self.workers.pop(uid, None)
        if worker is not None:
            if self.is_static(worker):
                del self.static[key_of(worker.pod)]
            worker.cancel()
            worker.release_resources()
        self._dependencies.runtime.remove_pod(uid)
        node.release_addresses(uid)

    # -- reconcile -----------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> Result | None:
        worker = self.static.get(key.removeprefix(_STATIC)) if key.startswith(_STATIC) else self._api_worker(key)
        if worker is None:
            return None
        run = current_run.get()
        if run is not None and not run.triggers:
            # A timer, or the runtime: what the agent does with the Pod is still due to the Pod's last change.
            if worker.trigger:
                run.act_on(worker.trigger)
            elif not run.besides:
                run.note("static")
        await self._prepare(worker)
        retry_after = float("inf")
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
            except (ApiError, Unreachable) as error:
                if not self._continues_offline:
                    raise
                log.info("the status of Pod %s is not reported: %s", key, error)
                worker.status_written(worker.reported, worker.reported_version)
                retry_after = _RETRY_SECONDS
            if not again:
                break
        if worker.next_step_at is not None:
            retry_after = min(retry_after, max(0.001, worker.next_step_at - self.now()))
        return Result(requeue_after=retry_after) if retry_after != float("inf") else None

    def _api_worker(self, key: str) -> PodWorker | None:
        pod = self._pods.get(key)
        return self.workers.get(pod["metadata"]["uid"]) if pod is not None else None

    async def _report(self, worker: PodWorker) -> None:
        status = worker.status(self.now())
        new = status_changes(worker.reported, status)
        if not new or runs_init_again(worker.containers, worker.reported, status, worker.spec):
            worker.status_written(worker.reported, worker.reported_version)
            return
        if self.is_static(worker):
            worker.status_written(with_changes(worker.reported, status), worker.reported_version + 1)
            self.on_static_change(key_of(worker.pod))
            return
        run, seen = current_run.get(), observation(worker.reported, new)
        if run is not None and (seen.trigger or seen.reason):
            run.note(seen.trigger or run.besides, seen.reason)
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
        if self.is_static(worker):
            self.remove_worker(worker.uid, worker.node)
            self.on_static_change(key_of(worker.pod))
            return
        meta = worker.pod["metadata"]
        because("the containers have ended")
        with suppress(NotFound):
            await self._client_for(worker.node.name).delete(
                _PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"]
            )
