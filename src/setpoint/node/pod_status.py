"""From what a runtime reports to the status that the API shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from setpoint.meta.times import format_time
from setpoint.node.runtime.interface import ContainerReport, PodReport

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Addresses:
    host: str
    pod: str


def pod_status(pod: Mapping[str, Any], report: PodReport, addresses: Addresses, now: datetime) -> Obj:
    """The fields that belong to the node; all others stay as they are."""
    spec, before = pod["spec"], pod.get("status") or {}
    generation = pod["metadata"].get("generation")
    phase = _phase(spec, report)
    status: Obj = {
        "phase": phase,
        "startTime": before.get("startTime") or format_time(now),
        "hostIP": addresses.host,
        "hostIPs": [{"ip": addresses.host}],
        "podIP": addresses.pod,
        "podIPs": [{"ip": addresses.pod}],
        "conditions": _conditions(pod, report, phase, now),
        "containerStatuses": [_container(found, before, "containerStatuses") for found in report.containers],
    }
    if report.init_containers:
        status["initContainerStatuses"] = [
            _container(found, before, "initContainerStatuses") for found in report.init_containers
        ]
    if generation is not None:
        status["observedGeneration"] = generation
    return status


def differs(pod: Mapping[str, Any], status: Obj) -> bool:
    """Whether writing it would change anything."""
    before = pod.get("status") or {}
    for name, value in status.items():
        if name == "conditions":
            current = {found["type"]: found for found in before.get("conditions") or ()}
            if any(not _same(current.get(found["type"]), found) for found in value):
                return True
        elif before.get(name) != value:
            return True
    return False


def _same(current: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    return current is not None and all(current.get(name) == value for name, value in wanted.items())


def _phase(spec: Mapping[str, Any], report: PodReport) -> str:
    containers = report.containers
    if not containers or any(found.started_at is None for found in containers):
        return "Pending"
    if any(found.running for found in containers):
        return "Running"
    return "Failed" if any(found.exit_code for found in containers) else "Succeeded"


def _conditions(pod: Mapping[str, Any], report: PodReport, phase: str, now: datetime) -> list[Obj]:
    ended = phase in ("Succeeded", "Failed")
    unready = [found.name for found in report.containers if not found.running]
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    current = {found["type"]: found for found in (pod.get("status") or {}).get("conditions") or ()}
    closed = [gate for gate in gates if (current.get(gate) or {}).get("status") != "True"]
    reason, message = "", ""
    if ended:
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = (reason, message)
    if not reason and closed:
        missing = f'corresponding condition of pod readiness gate "{closed[0]}" does not exist.'
        ready = ("ReadinessGatesNotReady", missing)
    generation = pod["metadata"].get("generation")

    def condition(kind: str, why: tuple[str, str] = ("", ""), *, holds: bool | None = None) -> Obj:
        value = "True" if (not why[0] if holds is None else holds) else "False"
        before = current.get(kind) or {}
        stamp = before.get("lastTransitionTime") if before.get("status") == value else None
        made: Obj = {"type": kind, "status": value, "lastTransitionTime": stamp or format_time(now)}
        if why[0]:
            made["reason"] = why[0]
        if why[1]:
            made["message"] = why[1]
        if generation is not None:
            made["observedGeneration"] = generation
        return made

    initialized = all(found.finished_at is not None or found.running for found in report.init_containers)
    return [
        condition("PodReadyToStartContainers", holds=not ended),
        condition("Initialized", ("PodCompleted", "") if phase == "Succeeded" else ("", ""), holds=initialized),
        condition("Ready", ready),
        condition("ContainersReady", (reason, message)),
        condition("PodScheduled"),
    ]


def _container(report: ContainerReport, before: Mapping[str, Any], field: str) -> Obj:
    statuses: Sequence[Mapping[str, Any]] = before.get(field) or ()
    earlier = next((found for found in statuses if found["name"] == report.name), {})
    state: Obj
    if report.started_at is None:
        state = {"waiting": {"reason": "ContainerCreating"}}
    elif report.finished_at is None:
        state = {"running": {"startedAt": format_time(report.started_at)}}
    else:
        state = {
            "terminated": {
                "exitCode": report.exit_code,
                "reason": "Error" if report.exit_code else "Completed",
                "startedAt": format_time(report.started_at),
                "finishedAt": format_time(report.finished_at),
                "containerID": report.container_id,
            }
        }
    finished_init = field == "initContainerStatuses" and report.finished_at is not None and not report.exit_code
    return {
        "name": report.name,
        "image": report.image,
        "imageID": report.image_id,
        "containerID": report.container_id,
        "state": state,
        "lastState": earlier.get("lastState") or {},
        "ready": report.running or finished_init,
        "started": report.running,
        "restartCount": report.restarts,
    }
