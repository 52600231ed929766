"""Deletes Pods of nodes that no longer exist, terminating Pods that were never bound, and surplus finished Pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from setpoint.client import Client, Unreachable
from setpoint.controllers.node_lifecycle.taints import NODES, taints_of
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import disruption_target, phase
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import is_true
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.node_labels import TAINT_OUT_OF_SERVICE
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer, Manager
from setpoint.reconcile.gate import Checkpoint
from setpoint.reconcile.run import because, current_run, periodic_run
from setpoint.tasks import run_all

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

log = logging.getLogger("setpoint.controllers")


_NAME, _ACCOUNT = "pod-garbage-collector-controller", "pod-garbage-collector"
_EVERY = 20.0
_MISSING_GRACE = 40.0
"""Seconds a node must be missing from the cache before the server is asked whether it exists."""
_MAX_CONCURRENT = 16
_FINISHED_PHASES = ("Succeeded", "Failed")


def pod_gc_controller(manager: Manager, options: ControllerOptions) -> PodGc:
    threshold = options.terminated_pod_gc_threshold
    pods, nodes = manager.informer(PODS), manager.informer(NODES)
    return PodGc(manager.client_for(_ACCOUNT), manager.clock, pods, nodes, threshold, Checkpoint(manager.gates, _NAME))


class PodGc:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        pods: Informer[Pod],
        nodes: Informer[Node],
        threshold: int,
        checkpoint: Checkpoint,
    ) -> None:
        """Create the collector. It deletes the oldest finished Pods beyond `threshold`; zero disables that."""
        self._client = client
        self._clock = clock
        self._pods = pods
        self._nodes = nodes
        self._threshold = threshold
        self._checkpoint = checkpoint
        self._missing: dict[str, float] = {}
        """Nodes that Pods are bound to and that are missing from the cache, with the time at which they were first
        missed."""

    async def run(self) -> None:
        current_run.set(periodic_run(_NAME, self._clock.now(), f"timer:{_EVERY:g}"))
        with self._checkpoint.guarded():
            while True:
                await self._checkpoint.wait()
                try:
                    await self.collect()
                except (ApiError, Unreachable) as error:
                    log.warning("pod garbage collector: %s", error)
                except Exception:
                    log.exception("pod garbage collector: the collection failed; retrying")
                await self._clock.sleep(_EVERY)

    async def collect(self) -> None:
        pods = list(self._pods.items.values())
        if self._threshold > 0:
            because(f"more than {self._threshold} Pods have ended")
            await self._delete(surplus_finished(pods, self._threshold))
        because("its node is out of service")
        await self._delete(pod for pod in pods if self._is_out_of_service(pod))
        gone = await self._gone_nodes(pods)
        if gone:
            because("its node does not exist")
            await self._delete((pod for pod in pods if pod["spec"].get("nodeName") in gone), orphaned=True)
        because("it is being deleted and was never bound to a node")
        await self._delete(
            pod for pod in pods if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
        )

    def _is_out_of_service(self, pod: Pod) -> bool:
        """Return whether the Pod's node is not ready and has the out-of-service taint."""
        if "deletionTimestamp" not in pod["metadata"]:
            return False
        node = self._nodes.get(pod["spec"].get("nodeName") or "")
        if node is None or is_true(node, "Ready"):
            return False
        return any(taint["key"] == TAINT_OUT_OF_SERVICE for taint in taints_of(node))

    async def _gone_nodes(self, pods: list[Pod]) -> set[str]:
        now = self._clock.monotonic()
        named = {pod["spec"].get("nodeName") for pod in pods} - {None, ""}
        missing = sorted(str(name) for name in named if self._nodes.get(str(name)) is None)
        self._missing = {name: self._missing.get(name, now) for name in missing}
        gone = set()
        for name, since in self._missing.items():
            if now - since >= _MISSING_GRACE and not await self._exists(name):
                gone.add(name)
        return gone

    async def _exists(self, node: str) -> bool:
        """Ask the server, because the cache may be stale."""
        try:
            await self._client.get(NODES, node)
        except NotFound:
            return False
        return True

    async def _delete(self, pods: Iterable[Pod], *, orphaned: bool = False) -> None:
        limit = asyncio.Semaphore(_MAX_CONCURRENT)

        async def one(pod: Pod) -> None:
            async with limit:
                try:
                    await self._fail_and_delete(pod, orphaned)
                except NotFound:
                    return
                except (ApiError, Unreachable) as error:
                    meta = pod["metadata"]
                    log.warning(
                        "pod garbage collector: cannot delete %s/%s: %s", meta["namespace"], meta["name"], error
                    )

        await run_all(*(one(pod) for pod in pods))

    async def _fail_and_delete(self, pod: Pod, orphaned: bool) -> None:
        """Set the phase to Failed before deleting, because no kubelet will and other controllers depend on it."""
        meta = pod["metadata"]
        if phase(pod) not in _FINISHED_PHASES:
            status: Obj = {"phase": "Failed"}
            if meta.get("generation"):
                status["observedGeneration"] = meta["generation"]
            if orphaned:
                reason, message = "DeletionByPodGC", "PodGC: node no longer exists"
                target = disruption_target(pod, reason, message, self._clock.now())
                if target is not None:
                    status["conditions"] = [target]
            change = {"metadata": {"uid": meta["uid"]}, "status": status}
            await self._client.patch(
                PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
            )
        await self._client.delete(PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"])


def surplus_finished(pods: Iterable[Pod], threshold: int) -> list[Pod]:
    """Return the finished Pods to delete first: the evicted ones, then the oldest."""
    over = [pod for pod in pods if phase(pod) not in ("Pending", "Running", "Unknown")]
    excess = len(over) - threshold
    if excess <= 0:
        return []

    def order(pod: Pod) -> tuple[bool, str, str]:
        status, meta = pod.get("status") or {}, pod["metadata"]
        evicted = phase(pod) == "Failed" and status.get("reason") == "Evicted"
        return not evicted, meta.get("creationTimestamp") or "", meta["name"]

    return sorted(over, key=order)[:excess]
