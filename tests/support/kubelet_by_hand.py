"""Plays the kubelet: Pods end, or run, when a test says so."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

PODS = builtin("pods")


class Kubelet:
    def __init__(self, client: Client, clock: Clock, namespace: str = "default") -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace

    async def pods(self, selector: str = "", *phases: str) -> list[Obj]:
        """Those that are there, by name; without phases all that have not ended and are not on their way out."""
        found = (await self._client.list(PODS, self._namespace, label_selector=selector)).items
        found.sort(key=lambda pod: pod["metadata"]["name"])
        if phases:
            return [pod for pod in found if pod["status"].get("phase") in phases]
        ended = ("Succeeded", "Failed")
        return [
            pod
            for pod in found
            if pod["status"].get("phase") not in ended and "deletionTimestamp" not in pod["metadata"]
        ]

    async def run(self, *pods: Obj, restarts: int = 0) -> None:
        """On a node: from now on a Pod that is deleted is there until it is buried."""
        for pod in pods:
            await self._bind(pod)
            now = format_time(self._clock.now())
            state = {"ready": True, "restartCount": restarts, "state": {"running": {"startedAt": now}}}
            containers = [
                {"name": each["name"], "image": each["image"], "imageID": "", **state}
                for each in pod["spec"]["containers"]
            ]
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
            status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}
            await self._set(pod, status)

    async def ready(self, *pods: Obj) -> None:
        """Running and ready, wherever."""
        for pod in pods:
            now = format_time(self._clock.now())
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
            await self._set(pod, {"phase": "Running", "conditions": conditions})

    async def succeed(self, *pods: Obj) -> None:
        for pod in pods:
            await self.end(pod, 0)

    async def fail(self, *pods: Obj, code: int = 1) -> None:
        for pod in pods:
            await self.end(pod, code)

    async def end(self, pod: Obj, code: int, conditions: Iterable[Obj] = ()) -> None:
        now = format_time(self._clock.now())
        ended = {"exitCode": code, "finishedAt": now, "startedAt": now, "reason": "Error" if code else "Completed"}
        containers = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": ended},
            }
            for each in pod["spec"]["containers"]
        ]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [ready, *conditions],
            "containerStatuses": containers,
        }
        await self._set(pod, status)

    async def bury(self, *pods: Obj) -> None:
        """What is on its way out is gone: its containers have stopped."""
        for pod in pods:
            meta = pod["metadata"]
            await self._client.delete(PODS, meta["name"], meta["namespace"], grace_period=0)

    async def _bind(self, pod: Obj) -> None:
        meta = pod["metadata"]
        if "nodeName" in (await self._client.get(PODS, meta["name"], meta["namespace"]))["spec"]:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": "by-hand"}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "target": target,
        }
        await self._client.create(binding, resource=PODS, name=meta["name"], subresource="binding")

    async def _set(self, pod: Obj, status: Obj) -> None:
        meta = pod["metadata"]
        await self._client.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")
