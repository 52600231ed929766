"""Restores Pod workers when the agent restarts: the containers kept running in the meantime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.meta.times import parse_duration, parse_time
from setpoint.node.container_state import INIT, MAIN, SIDECAR, Backoff, ContainerState, ProbeWorker
from setpoint.node.pod_status import FAILED, REJECTED, TERMINAL, UNLOCATED, mark_unlocated
from setpoint.node.runtime.interface import ContainerRecord, Image

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_BACK_OFF = re.compile(r"back-off ((?:[0-9]{1,3}m)?[0-9]{1,3}(?:\.[0-9]{1,9})?s) restarting")
"""The message of a container that waits for its next start. Other clients may have written anything else."""
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
        worker.terminating = True
        # Another client may have set the phase, and the agent may have ended before it released everything.
        pod_state.ended = not (
            worker.dependencies.runtime.sandbox_ready(worker.uid)
            or any(container.running for container in worker.containers)
        )
        if status.get("reason"):
            pod_state.failure = (status["reason"], status.get("message", ""))
        rejected = status["phase"] == FAILED and (status.get("message") or "").startswith(REJECTED)
        pod_state.rejected = rejected and not status.get("containerStatuses")
        if pod_state.ended:
            mark_unlocated(worker.pod, worker.containers, _was_initialized(worker.containers), status)
    else:
        worker.allocate_resources()
        ips = worker.dependencies.runtime.restore_sandbox(worker.pod, worker.node)
        if ips is not None:
            pod_state.sandbox_ready = pod_state.had_sandbox = True
            pod_state.pod_ips = tuple(ips)
        worker.initialized = any(
            container.kind == MAIN and container.record is not None for container in worker.containers
        )


def _was_initialized(containers: Sequence[ContainerState]) -> bool:
    """Return whether the init containers of a Pod that has ended had completed."""
    if any(container.kind == MAIN and (container.record or container.unlocated) for container in containers):
        return True
    return all(
        container.ready if container.kind == INIT else container.record is not None
        for container in containers
        if container.kind in (INIT, SIDECAR)
    )


def restore_reported(worker: PodWorker, status: Mapping[str, Any]) -> None:
    """Take over what was reported of a static Pod before the agent restarted: times, results of probes, and the state
    before the last restart of containers. The phase is not: a static Pod that ended starts again."""
    ended = ("phase", "reason", "message") if status.get("phase") in TERMINAL else ()
    reported = {name: value for name, value in status.items() if name not in ended}
    worker.status_written(reported, worker.reported_version + 1)
    known = {found["name"]: found for field in _STATUS_FIELDS for found in status.get(field) or ()}
    for container in worker.containers:
        found = known.get(container.name) or {}
        record = container.record
        if record is None or record.id != found.get("containerID"):
            continue
        container.last_state = container.last_state or found.get("lastState") or None
        for probe in container.probes if record.running else ():
            if probe.last_result is None:
                _restore_probe(probe, found)


def _restore_probe(probe: ProbeWorker, found: Mapping[str, Any]) -> None:
    if found.get("ready") or probe.kind == "liveness" or found.get("started"):
        probe.success = probe.kind != "readiness" or bool(found.get("ready"))
        probe.on_hold = probe.kind == "startup"


def _recover_container(worker: PodWorker, container: ContainerState, found: Mapping[str, Any], now: float) -> None:
    state = found.get("state") or {}
    container.attempt = found.get("restartCount", 0)
    container.last_state = found.get("lastState") or None
    if "terminated" in state and worker.reported.get("phase") in TERMINAL:
        container.unlocated = not state["terminated"].get("containerID")
    if found.get("resources") is not None:
        container.allocated = found["resources"]
    config = worker.container_config(container, Image(found.get("image", ""), found.get("imageID", ""), 0))
    record = worker.dependencies.runtime.restore_container(worker.uid, config, found, now)
    container_id = found.get("containerID") or ""
    if record is not None:
        _adopt(container, record, found, now)
        return
    running = state.get("running")
    ended: Mapping[str, Any] | None
    if running is not None:
        # The runtime does not know the run any more.
        ended = {**UNLOCATED, "startedAt": running.get("startedAt")}
    else:
        ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated")
    if ended is None:
        return
    if container.unlocated:
        ended = (found.get("lastState") or {}).get("terminated") or ended
    container.attempt += 1
    if not container_id:
        return
    container.record = ContainerRecord(
        container.name,
        container_id,
        found.get("image", ""),
        found.get("imageID", ""),
        found.get("restartCount", 0),
        _time(ended.get("startedAt"), now),
        _time(ended.get("finishedAt"), now),
        ended.get("exitCode", 0),
        ended.get("reason", ""),
        ended.get("message", ""),
        (found.get("user") or {}).get("linux"),
    )
    container.reported_run = (container_id, running is None)
    waiting = state.get("waiting")
    if waiting is not None:
        container.last_state = None
        container.waiting = (waiting.get("reason", ""), waiting.get("message", ""))
        if waiting.get("reason") != "CrashLoopBackOff":
            container.waiting = None
        elif (delay := resumed_delay(waiting.get("message", ""))) is not None:
            container.crash_backoff = Backoff(worker.dependencies.runtime.initial_backoff)
            container.crash_backoff.resume(delay, _time(ended.get("finishedAt"), now))


def resumed_delay(message: str) -> float | None:
    """Return the seconds of the back-off that this message of a waiting container reports; None if it reports none."""
    found = _BACK_OFF.match(message)
    return parse_duration(found[1]) / 1e9 if found is not None else None


def _adopt(container: ContainerState, record: ContainerRecord, found: Mapping[str, Any], now: float) -> None:
    """Continue with a run that outlived the agent, or that ended while the agent was away."""
    container.record = record
    container.attempt = record.attempt + 1
    container.image = "" if record.outdated else container.spec.get("image", "")
    if record.id == found.get("containerID"):
        container.reported_run = (record.id, "terminated" in (found.get("state") or {}))
    for probe in container.probes if record.running else ():
        probe.tick(now)
        _restore_probe(probe, found)


def _time(text: str | None, now: float) -> float:
    return parse_time(text).timestamp() if text else now
