"""Restores Pod workers when the agent restarts: the containers kept running in the meantime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.meta.times import parse_time
from setpoint.node.container_state import MAIN, ContainerState
from setpoint.node.pod_status import TERMINAL
from setpoint.node.runtime.interface import ContainerRecord, Image

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_STATUS_FIELDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def recover(worker: PodWorker, now: float) -> None:
    """Restore the state from what the runtime has, and from the status that was last reported."""
    status = worker.reported
    known: dict[str, Mapping[str, Any]] = {
        found["name"]: found for field in _STATUS_FIELDS for found in status.get(field) or ()
    }
    for container in worker.containers:
        _recover_container(worker, container, known.get(container.name) or {}, now)
    pod_state = worker.pod_state
    if status.get("podIP"):
        pod_state.pod_ips = tuple(each["ip"] for each in status.get("podIPs") or ({"ip": status["podIP"]},))
        pod_state.had_sandbox = True
    if status.get("phase") in TERMINAL:
        pod_state.ended = worker.terminating = True
        if status.get("reason"):
            pod_state.failure = (status["reason"], status.get("message", ""))
    else:
        worker.allocate_resources()
        ips = worker.dependencies.runtime.restore_sandbox(worker.pod, worker.node)
        if ips is not None:
            pod_state.sandbox_ready = pod_state.had_sandbox = True
            pod_state.pod_ips = tuple(ips)
        worker.initialized = any(
            container.kind == MAIN and container.record is not None for container in worker.containers
        )


def _recover_container(worker: PodWorker, container: ContainerState, found: Mapping[str, Any], now: float) -> None:
    state = found.get("state") or {}
    container.attempt = found.get("restartCount", 0)
    container.last_state = found.get("lastState") or None
    if found.get("resources") is not None:
        container.allocated = found["resources"]
    config = worker.container_config(container, Image(found.get("image", ""), found.get("imageID", ""), 0))
    record = worker.dependencies.runtime.restore_container(worker.uid, config, found, now)
    container_id = found.get("containerID") or ""
    if record is not None:
        _adopt(container, record, found, now)
        return
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated")
    if ended is None or not container_id:
        return
    container.record = ContainerRecord(
        container.name,
        container_id,
        found.get("image", ""),
        found.get("imageID", ""),
        container.attempt,
        _time(ended.get("startedAt"), now),
        _time(ended.get("finishedAt"), now),
        ended.get("exitCode", 0),
        ended.get("reason", ""),
        ended.get("message", ""),
    )
    container.reported_run = (container_id, True)
    container.attempt += 1
    waiting = state.get("waiting")
    if waiting is not None:
        container.last_state = None
        container.waiting = (waiting.get("reason", ""), waiting.get("message", ""))
        if waiting.get("reason") != "CrashLoopBackOff":
            container.waiting = None


def _adopt(container: ContainerState, record: ContainerRecord, found: Mapping[str, Any], now: float) -> None:
    """Continue with a run that outlived the agent, or that ended while the agent was away."""
    container.record = record
    container.attempt = record.attempt + 1
    container.image = container.spec.get("image", "")
    if record.id == found.get("containerID"):
        container.reported_run = (record.id, "terminated" in (found.get("state") or {}))
    for probe in container.probes if record.running else ():
        probe.tick(now)
        if found.get("ready") or probe.kind == "liveness" or found.get("started"):
            probe.success = probe.kind != "readiness" or bool(found.get("ready"))
            probe.on_hold = probe.kind == "startup"


def _time(text: str | None, now: float) -> float:
    return parse_time(text).timestamp() if text else now
