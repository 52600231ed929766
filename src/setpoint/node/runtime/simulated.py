"""A runtime that runs nothing: containers start at once and stop when told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from setpoint.meta.clock import Clock, Ids
from setpoint.meta.times import parse_time
from setpoint.node.runtime.interface import ContainerReport, PodReport

_SCHEME = "simulated://"


class SimulatedRuntime:
    version = "1.0.0"

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._pods: dict[str, PodReport] = {}

    async def start(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            return
        spec, status = pod["spec"], pod.get("status") or {}
        # What the API says was running has been running all the time: it was only the agent that was away.
        earlier = {
            found["name"]: found
            for field in ("initContainerStatuses", "containerStatuses")
            for found in status.get(field) or ()
        }
        report = PodReport()
        for container in spec.get("initContainers") or ():
            made = self._started(container, earlier)
            if container.get("restartPolicy") != "Always" and made.finished_at is None:
                made.finished_at = made.started_at
            report.init_containers.append(made)
        report.containers = [self._started(container, earlier) for container in spec.get("containers") or ()]
        self._pods[uid] = report

    async def stop(self, pod: Mapping[str, Any], grace_seconds: float) -> None:
        report = self._pods.get(pod["metadata"]["uid"])
        now = self._clock.now()
        for container in [*report.init_containers, *report.containers] if report is not None else ():
            if container.running:
                container.finished_at = now

    def status(self, uid: str) -> PodReport | None:
        return self._pods.get(uid)

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def running(self) -> Sequence[str]:
        return [uid for uid, report in self._pods.items() if any(container.running for container in report.containers)]

    def _started(self, container: Mapping[str, Any], earlier: Mapping[str, Any]) -> ContainerReport:
        image = container["image"]
        report = ContainerReport(container["name"], image, image_id_of(image))
        known = earlier.get(container["name"]) or {}
        state = known.get("state") or {}
        if "running" in state or "terminated" in state:
            ended = state.get("terminated")
            stamp = (ended or state["running"]).get("startedAt")
            report.started_at = parse_time(stamp) if stamp else self._clock.now()
            if ended is not None:
                report.finished_at = parse_time(ended["finishedAt"]) if ended.get("finishedAt") else self._clock.now()
                report.exit_code = ended.get("exitCode", 0)
            report.container_id = known.get("containerID", "")
            report.restarts = known.get("restartCount", 0)
            return report
        report.container_id = _SCHEME + sha256(self._ids.uid().encode()).hexdigest()
        report.started_at = self._clock.now()
        return report


def image_id_of(image: str) -> str:
    """Where a registry would say which content a name stands for: the same name, the same content."""
    name, _, digest = image.partition("@")
    if not digest:
        digest = "sha256:" + sha256(image.encode()).hexdigest()
        last = name.rpartition("/")[2]
        name = name.removesuffix(":" + last.partition(":")[2]) if ":" in last else name
    return f"{name}@{digest}"
