"""Table columns of Pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from setpoint.kinds.cell_texts import NONE, since
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.pod_binding import SCHEDULING_GATED
from setpoint.kinds.core.podspec.resources import is_sidecar
from setpoint.kinds.strategy import Column
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.objects import Obj, ObjView

_NOTHING: ObjView = {}


class _Summary(NamedTuple):
    ready: str
    status: str
    restarts: int
    last_restart: str


def _later(left: str, right: str | None) -> str:
    # RFC 3339 in UTC: the order of the texts is the order of the times.
    return right if right and right > left else left


def _last_termination_time(status: ObjView) -> str | None:
    found: str | None = ((status.get("lastState") or _NOTHING).get("terminated") or _NOTHING).get("finishedAt")
    return found


def _termination_reason(terminated: ObjView) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _summarize(pod: Obj) -> _Summary:
    spec, status = pod.get("spec") or _NOTHING, pod.get("status") or _NOTHING
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    if (condition_of(pod, "PodScheduled") or _NOTHING).get("reason") == SCHEDULING_GATED:
        reason = SCHEDULING_GATED
    init = {container.get("name", ""): container for container in spec.get("initContainers", ())}
    total = len(spec.get("containers") or ()) + sum(map(is_sidecar, init.values()))
    ready = restarts = sidecar_restarts = 0
    last = sidecar_last = ""
    initializing = False
    for i, one in enumerate(status.get("initContainerStatuses", ())):
        restarts += one.get("restartCount", 0)
        last = _later(last, _last_termination_time(one))
        sidecar = is_sidecar(init.get(one.get("name", ""), _NOTHING))
        if sidecar:
            sidecar_restarts += one.get("restartCount", 0)
            sidecar_last = _later(sidecar_last, _last_termination_time(one))
        state = one.get("state") or _NOTHING
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and one.get("started"):
            ready += bool(one.get("ready"))
            continue
        waiting = (state.get("waiting") or _NOTHING).get("reason", "")
        if terminated is not None:
            reason = "Init:" + _termination_reason(terminated)
        elif waiting and waiting != "PodInitializing":
            reason = "Init:" + waiting
        else:
            reason = f"Init:{i}/{len(init)}"
        initializing = True
        break
    if not initializing or is_true(pod, "Initialized"):
        restarts, last = sidecar_restarts, sidecar_last
        running, failure = False, ""
        for one in reversed(status.get("containerStatuses", ())):
            restarts += one.get("restartCount", 0)
            last = _later(last, _last_termination_time(one))
            state = one.get("state") or _NOTHING
            terminated = state.get("terminated")
            waiting = (state.get("waiting") or _NOTHING).get("reason", "")
            if waiting:
                reason = waiting
            elif terminated is not None:
                reason = _termination_reason(terminated)
                if terminated.get("exitCode"):
                    failure = reason
            elif one.get("ready") and "running" in state:
                running = True
                ready += 1
        if reason == "Completed":
            # A container that still runs or has failed determines the status.
            if running and is_true(pod, "Ready"):
                reason = "Running"
            elif failure:
                reason = failure
            elif running:
                reason = "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            reason = "Terminating"
    return _Summary(f"{ready}/{total}", reason, restarts, last)


def _ready(pod: Obj, now: datetime) -> str:
    return _summarize(pod).ready


def _status(pod: Obj, now: datetime) -> str:
    return _summarize(pod).status


def _restarts(pod: Obj, now: datetime) -> str:
    summary = _summarize(pod)
    if summary.restarts and summary.last_restart:
        return f"{summary.restarts} ({since(summary.last_restart, now)} ago)"
    return str(summary.restarts)


def _ip(pod: Obj, now: datetime) -> str:
    ips: Any = (pod.get("status") or _NOTHING).get("podIPs") or ({},)
    return ips[0].get("ip") or NONE


def _node(pod: Obj, now: datetime) -> str:
    return (pod.get("spec") or _NOTHING).get("nodeName") or NONE


def _nominated(pod: Obj, now: datetime) -> str:
    return (pod.get("status") or _NOTHING).get("nominatedNodeName") or NONE


def _readiness_gates(pod: Obj, now: datetime) -> str:
    gates = (pod.get("spec") or _NOTHING).get("readinessGates")
    if not gates:
        return NONE
    met = sum(is_true(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}"


COLUMNS = (
    NAME,
    Column("Ready", _ready, description="How many of the pod's containers are ready."),
    Column("Status", _status, description="What the pod and its containers are doing, in one word."),
    Column("Restarts", _restarts, description="How often containers were restarted, and when last."),
    AGE,
    Column("IP", _ip, priority=1, description="Address of the pod."),
    Column("Node", _node, priority=1, description="Node that the pod is bound to."),
    Column("Nominated Node", _nominated, priority=1, description="Node on which Pods are preempted for this one."),
    Column("Readiness Gates", _readiness_gates, priority=1, description="How many of the extra conditions are met."),
)
