"""The loop: every Pod that waits for a node gets one, or hears why not."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.times import format_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, RateLimitingQueue, key_of
from setpoint.reconcile.rate_limiting import ExponentialBackoff
from setpoint.scheduler.cycle import Unschedulable, choose
from setpoint.scheduler.snapshot import Snapshot, has_ended

Obj = dict[str, Any]

NAME = "default-scheduler"
PODS, NODES = builtin("pods"), builtin("nodes")
_BINDING_AT_ONCE = 64
"""Deciding takes no await, so decisions come one after the other whatever this number is."""
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 10.0


def add_scheduler(manager: Manager) -> Controller:
    scheduler = Scheduler(manager.client, manager.clock, manager.recorder(NAME), manager.informer(PODS))
    queue = RateLimitingQueue(manager.clock, (ExponentialBackoff(_FIRST_RETRY, _LONGEST_RETRY),))
    controller = Controller(NAME, scheduler.schedule, manager.clock, workers=_BINDING_AT_ONCE, queue=queue)
    scheduler.watch(controller, manager.informer(NODES))
    manager.add(controller)
    return controller


class Scheduler:
    def __init__(self, client: Client, clock: Clock, recorder: EventRecorder, pods: Informer) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._pods = pods
        self._snapshot = Snapshot()
        self._parked: dict[str, None] = {}
        """Pods that fit nowhere as things are, in the order in which that was found."""

    def watch(self, controller: Controller, nodes: Informer) -> None:
        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            freed = self._snapshot.pod_changed(old, new)
            key = key_of(new or old or {})
            if new is not None and self._is_waiting(new):
                if old is None or old["spec"] != new["spec"]:  # its status is of no interest here
                    self._parked.pop(key, None)
                    controller.enqueue(key)
            else:
                self._parked.pop(key, None)
                controller.queue.forget(key)
            if freed:
                self._retry(controller)

        def node_changed(old: Obj | None, new: Obj | None) -> None:
            self._snapshot.node_changed(old, new)
            if new is not None:
                self._retry(controller)

        nodes.add_handler(node_changed)
        self._pods.add_handler(pod_changed)

    def _retry(self, controller: Controller) -> None:
        parked, self._parked = self._parked, {}
        for key in parked:
            controller.queue.add_rate_limited(key)

    def _is_waiting(self, pod: Obj) -> bool:
        spec = pod["spec"]
        return (
            not spec.get("nodeName")
            and spec.get("schedulerName") == NAME
            and not spec.get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and not has_ended(pod)
        )

    async def schedule(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not self._is_waiting(pod) or self._snapshot.is_placed(key):
            return
        try:
            node = choose(pod, self._snapshot.nodes())
        except Unschedulable as error:
            self._parked[key] = None
            await self._say_why_not(pod, str(error))
            return
        self._snapshot.place(pod, node)
        try:
            await self._bind(pod, node)
        except BaseException as error:
            self._take_back(key)
            if not isinstance(error, (Conflict, NotFound)):  # gone, or bound by another: the informer tells
                raise

    def _take_back(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not pod["spec"].get("nodeName"):
            self._snapshot.remove(key)

    async def _bind(self, pod: Obj, node: str) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create(binding, resource=PODS, subresource="binding")
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._recorder.normal(pod, "Scheduled", message)

    async def _say_why_not(self, pod: Obj, why: str) -> None:
        self._recorder.warning(pod, "FailedScheduling", why)
        conditions = (pod.get("status") or {}).get("conditions") or ()
        current: Obj = next((found for found in conditions if found["type"] == "PodScheduled"), {})
        wanted = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        if all(current.get(name) == value for name, value in wanted.items()):
            return
        if current.get("status") != "False":
            wanted["lastTransitionTime"] = format_time(self._clock.now())
        meta = pod["metadata"]
        change = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [wanted]}}
        await self._client.patch(PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status")
