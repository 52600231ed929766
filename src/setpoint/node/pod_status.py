"""From what the agent knows of a Pod's containers to the status that the API shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from setpoint.meta.times import format_time
from setpoint.node.restarts import restarts
from setpoint.node.runtime.interface import ContainerRecord
from setpoint.node.slots import EPHEMERAL, INIT, MAIN, RESTARTING_ALL, SIDECAR, Slot

Obj = dict[str, Any]

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL = (SUCCEEDED, FAILED)


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def stamp(seconds: float) -> str:
    return _second(int(seconds))


@dataclass(slots=True)
class Situation:
    """A Pod on its node, beyond its containers."""

    host_ip: str
    pod_ips: Sequence[str] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What the node has for Pods."""
    tokens: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Of its service account, by volume and path: and until when each is to be used."""
    sandbox: bool = False
    """Its network is there."""
    had_sandbox: bool = False
    ended: bool = False
    """Nothing of it will be started again."""
    verdict: tuple[str, str] | None = None
    """Why it was made to fail: reason and message."""
    resize: Sequence[Obj] = ()
    """Conditions about a resize."""


def phase_of(spec: Mapping[str, Any], slots: Iterable[Slot], ended: bool) -> str:
    pending_init = pending_sidecars = failed_init = 0
    running = waiting = stopped = final = succeeded = 0
    initialized = any(slot.kind == MAIN and slot.record is not None for slot in slots)
    for slot in slots:
        record = slot.record
        if slot.kind == INIT:
            if record is None or record.running:
                pending_init += 1
            elif record.exit_code and not _comes_back(slot, spec):
                failed_init += 1
        elif slot.kind == SIDECAR:
            if record is None:
                pending_sidecars += 1
                waiting += 1
            elif record.running:
                pending_sidecars += not slot.started
                running += 1
        elif slot.kind == MAIN:
            if record is None:
                waiting += 1
            elif record.running:
                running += 1
            else:
                stopped += 1
                final += not _comes_back(slot, spec)
                succeeded += not record.exit_code
    if failed_init:
        return FAILED
    if pending_init or (pending_sidecars and not initialized) or waiting:
        return PENDING
    if running:
        return RUNNING
    if stopped:
        if not ended and stopped != final:
            return RUNNING
        return SUCCEEDED if stopped == succeeded else FAILED
    return PENDING


def _comes_back(slot: Slot, spec: Mapping[str, Any]) -> bool:
    record = slot.record
    assert record is not None
    return record.reason == RESTARTING_ALL or restarts(slot.spec, spec, record.exit_code)


def pod_status(
    pod: Mapping[str, Any], slots: Sequence[Slot], situation: Situation, before: Mapping[str, Any], now: float
) -> Obj:
    """The fields that belong to the node; all others stay as they are. `before` is the status so far."""
    spec = pod["spec"]
    phase = FAILED if situation.verdict and situation.ended else phase_of(spec, slots, situation.ended)
    if before.get("phase") in TERMINAL:
        phase = before["phase"]  # whoever said so, it is over
    elif situation.ended and phase not in TERMINAL:
        phase = FAILED  # what never ran, and never will, has failed
    by_kind: dict[str, list[Obj]] = {"initContainerStatuses": [], "containerStatuses": []}
    has_init = bool(spec.get("initContainers"))
    for slot in slots:
        field = _FIELDS[slot.kind]
        by_kind.setdefault(field, []).append(_container(slot, spec, has_init, situation.ended))
    if len(by_kind["containerStatuses"]) > 1:
        by_kind["containerStatuses"].sort(key=lambda each: each["name"])
    if not by_kind["initContainerStatuses"]:
        del by_kind["initContainerStatuses"]
    status: Obj = {
        "phase": phase,
        "conditions": _conditions(pod, slots, situation, phase, before, now),
        "startTime": before.get("startTime") or stamp(now),
        "hostIP": situation.host_ip,
        "hostIPs": [{"ip": situation.host_ip}],
        **by_kind,
    }
    if situation.pod_ips:
        status["podIP"] = situation.pod_ips[0]
        status["podIPs"] = [{"ip": each} for each in situation.pod_ips]
    if situation.verdict and phase == FAILED:
        status["reason"], status["message"] = situation.verdict
    generation = pod["metadata"].get("generation")
    if generation is not None:
        status["observedGeneration"] = generation
    return status


_FIELDS = {
    INIT: "initContainerStatuses", SIDECAR: "initContainerStatuses", MAIN: "containerStatuses",
    EPHEMERAL: "ephemeralContainerStatuses",
}  # fmt: skip


def changes(before: Mapping[str, Any], status: Mapping[str, Any]) -> Obj:
    """The part of it that the API does not have yet."""
    found: Obj = {}
    for name, value in status.items():
        if name == "conditions":
            current = {each["type"]: each for each in before.get("conditions") or ()}
            # All of them at first: that is what puts them in order.
            new = [each for each in value if not _same(current.get(each["type"]), each)]
            if new:
                found[name] = value if len(current) <= 1 else new
        elif before.get(name) != value:
            found[name] = value
    return found


def differs(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether writing it would change anything."""
    return bool(changes(before, status))


def _same(current: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    if current is None or "$patch" in wanted:
        return (current is None) == ("$patch" in wanted)
    return all(current.get(name) == value for name, value in wanted.items())


# -- conditions -------------------------------------------------------------------------------------------------------


def _conditions(
    pod: Mapping[str, Any],
    slots: Sequence[Slot],
    situation: Situation,
    phase: str,
    before: Mapping[str, Any],
    now: float,
) -> list[Obj]:
    current = {found["type"]: found for found in before.get("conditions") or ()}
    generation = pod["metadata"].get("generation")

    def condition(kind: str, value: bool, reason: str = "", message: str = "") -> Obj:
        made: Obj = {"type": kind, "status": "True" if value else "False"}
        known = current.get(kind)
        unchanged = known is not None and known.get("status") == made["status"]
        made["lastTransitionTime"] = known["lastTransitionTime"] if unchanged and known else stamp(now)
        if reason or (known or {}).get("reason"):
            made["reason"] = reason or None
        if message or (known or {}).get("message"):
            made["message"] = message or None
        if generation is not None:
            made["observedGeneration"] = generation
        return made

    ready, reason, message = _containers_ready(slots, phase)
    found = [*situation.resize]
    if situation.sandbox:
        found.append(condition("PodReadyToStartContainers", True))
    else:
        why = "Pod sandbox is not ready" if situation.had_sandbox else "No pod sandbox found"
        found.append(condition("PodReadyToStartContainers", False, "PodSandboxNotReady", why))
    found.append(condition("Initialized", *_initialized(slots, phase)))
    gates = _closed_gates(pod["spec"], current) if ready else ""
    if gates:
        found.append(condition("Ready", False, "ReadinessGatesNotReady", gates))
    else:
        found.append(condition("Ready", ready, reason, message))
    found.append(condition("ContainersReady", ready, reason, message))
    found.append(condition("PodScheduled", True))
    if any(_may_restart_all(slot.spec) for slot in slots):
        ending = {SUCCEEDED: "PodCompleted", FAILED: "PodFailed"}.get(phase, "")
        under_way = not ending and any(
            slot.record is not None and slot.record.reason == RESTARTING_ALL and not slot.record.running
            for slot in slots
        )
        if under_way:
            why = "container exited with restart policy rule"
            found.append(condition("AllContainersRestarting", True, "RestartAllContainersStarted", why))
        else:
            found.append(condition("AllContainersRestarting", False, ending))
    return found


def _may_restart_all(container: Mapping[str, Any]) -> bool:
    rules = container.get("restartPolicyRules")
    return bool(rules) and any(rule.get("action") == "RestartAllContainers" for rule in rules or ())


def _containers_ready(slots: Sequence[Slot], phase: str) -> tuple[bool, str, str]:
    if phase in TERMINAL:
        return False, "PodCompleted" if phase == SUCCEEDED else "PodFailed", ""
    unready = [slot.name for slot in slots if slot.kind in (SIDECAR, MAIN) and not slot.ready]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _initialized(slots: Sequence[Slot], phase: str) -> tuple[bool, str, str]:
    if phase == SUCCEEDED:
        return True, "PodCompleted", ""
    if any(slot.kind == MAIN and slot.record is not None for slot in slots):
        return True, "", ""
    incomplete = [
        slot.name
        for slot in slots
        if (slot.kind == SIDECAR and not slot.started) or (slot.kind == INIT and not slot.ready)
    ]
    if incomplete:
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]"
    return True, "", ""


def _closed_gates(spec: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    closed = []
    for gate in spec.get("readinessGates") or ():
        kind = gate["conditionType"]
        found = current.get(kind)
        if found is None:
            closed.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found.get("status") != "True":
            closed.append(f'the status of pod readiness gate "{kind}" is not "True", but {found.get("status")}')
    return ", ".join(closed)


# -- containers -------------------------------------------------------------------------------------------------------


def terminated(record: ContainerRecord) -> Obj:
    assert record.finished_at is not None
    found: Obj = {"exitCode": record.exit_code, "reason": record.reason}
    if record.message:
        found["message"] = record.message
    found["startedAt"] = stamp(record.started_at)
    found["finishedAt"] = stamp(record.finished_at)
    found["containerID"] = record.id
    return {"terminated": found}


def _container(slot: Slot, spec: Mapping[str, Any], has_init: bool, ended: bool) -> Obj:
    record, last = slot.record, slot.last or {}
    status: Obj = {"name": slot.name, "state": {}, "lastState": last, "ready": slot.ready}
    if record is None:
        reason, message = slot.waiting or ("PodInitializing" if has_init else "ContainerCreating", "")
        status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        status |= {"restartCount": 0, "image": slot.spec.get("image", ""), "imageID": ""}
    else:
        if record.running:
            status["state"] = {"running": {"startedAt": stamp(record.started_at)}}
        elif slot.waiting is not None and not ended:
            reason, message = slot.waiting
            status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
            status["lastState"] = terminated(record)
        else:
            status["state"] = terminated(record)
        status |= {
            "restartCount": record.attempt, "image": record.image, "imageID": record.image_id,
            "containerID": record.id,
        }  # fmt: skip
    if slot.kind != EPHEMERAL:
        status["started"] = slot.started
    if record is not None:
        allocated = slot.allocated
        if allocated.get("requests"):
            status["allocatedResources"] = dict(allocated["requests"])
        status["resources"] = {key: dict(value) for key, value in allocated.items()}
        status["user"] = {"linux": _user(slot.spec, spec)}
    mounts = slot.spec.get("volumeMounts")
    if mounts:
        status["volumeMounts"] = [_mount(each) for each in mounts]
    return status


def _mount(mount: Mapping[str, Any]) -> Obj:
    found: Obj = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        found |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return found


def _user(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Obj:
    own, pod = container.get("securityContext") or {}, spec.get("securityContext") or {}
    uid = own.get("runAsUser", pod.get("runAsUser", 0))
    gid = own.get("runAsGroup", pod.get("runAsGroup", 0))
    groups = [gid, *(pod.get("supplementalGroups") or ()), *([pod["fsGroup"]] if "fsGroup" in pod else [])]
    return {"uid": uid, "gid": gid, "supplementalGroups": list(dict.fromkeys(groups))}
