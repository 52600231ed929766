"""Computes the status of a Pod from the state of its containers. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.node.container_state import (
    EPHEMERAL,
    INIT,
    MAIN,
    RESTARTING_ALL,
    SIDECAR,
    ContainerState,
    restarts_after_exit,
)
from setpoint.node.pod_resources import reported_resources
from setpoint.node.runtime.interface import ContainerRecord

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL = (SUCCEEDED, FAILED)
UNLOCATED: Final = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}
"""The terminated state of a container without an end of its own in a Pod that has ended."""
REJECTED: Final = "Pod was rejected: "
"""The beginning of the message of Pods that their node rejected."""
_ADDRESSES = ("podIPs", "hostIPs")
_OWN_CONDITIONS = (
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodResizeInProgress",
    "PodResizePending",
    "PodReadyToStartContainers",
    "AllContainersRestarting",
)
"""The conditions that a kubelet owns."""
_FIELDS = {
    INIT: "initContainerStatuses",
    SIDECAR: "initContainerStatuses",
    MAIN: "containerStatuses",
    EPHEMERAL: "ephemeralContainerStatuses",
}


@lru_cache(maxsize=1024)
def _format_second(seconds: int) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def format_epoch(seconds: float) -> str:
    return _format_second(int(seconds))


@dataclass(slots=True)
class PodState:
    """The state of a Pod on its node, apart from its containers."""

    host_ip: str
    host_ips: Sequence[str] = ()
    """All addresses of the node, the primary one first; empty means `host_ip` alone."""
    pod_ips: Sequence[str] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """The node's allocatable resources."""
    recursive_read_only: bool = False
    """Whether the container runtime supports recursive read-only mounts."""
    tokens: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Service account tokens by volume and path, each with the time at which it must be renewed."""
    sandbox_ready: bool = False
    """Whether the Pod's sandbox, and so its network, is ready."""
    had_sandbox: bool = False
    ended: bool = False
    """Whether nothing runs and no container will be started again."""
    failure: tuple[str, str] | None = None
    """Reason and message if the node made the Pod fail, such as a rejection or a deadline; None otherwise."""
    rejected: bool = False
    """Whether the node rejected the Pod."""
    disruption: str = ""
    """The message of the condition DisruptionTarget if the node evicts the Pod; empty otherwise."""
    resize_conditions: Sequence[Obj] = ()
    """The conditions of an in-place resize; those with `$patch` are to be deleted."""


def _phase(
    spec: Mapping[str, Any], containers: Iterable[ContainerState], kept: Mapping[str, ObjView], ended: bool
) -> str:
    pending_init = pending_sidecars = failed_init = 0
    running = waiting = stopped = final = succeeded = 0
    initialized = any(container.kind == MAIN and container.record is not None for container in containers)
    for container in containers:
        record = container.record
        if container.kind == INIT:
            if record is None or record.running:
                pending_init += container.name not in kept
            elif record.exit_code and not _will_restart(container, spec):
                failed_init += 1
        elif container.kind == SIDECAR:
            if record is None:
                pending_sidecars += 1
                waiting += 1
            elif record.running:
                pending_sidecars += not container.started
                running += 1
        elif container.kind == MAIN:
            if record is None:
                waiting += 1
            elif record.running:
                running += 1
            else:
                stopped += 1
                final += not _will_restart(container, spec)
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


def _will_restart(container: ContainerState, spec: Mapping[str, Any]) -> bool:
    record = container.record
    assert record is not None
    anyway = container.replaced or record.reason == RESTARTING_ALL
    return anyway or restarts_after_exit(container.spec, spec, record.exit_code)


def pod_status(
    pod: Pod,
    containers: Sequence[ContainerState],
    pod_state: PodState,
    before: Mapping[str, Any],
    now: float,
) -> Obj:
    """Return the fields of the status that the node owns. `before` is the current status."""
    if pod_state.rejected:
        return _rejected_status(pod, pod_state, before, now)
    spec, deleting = pod["spec"], "deletionTimestamp" in pod["metadata"]
    kept = _kept_statuses(containers, before)
    phase = FAILED if pod_state.failure and pod_state.ended else _phase(spec, containers, kept, pod_state.ended)
    if before.get("phase") in TERMINAL:
        phase = before["phase"]  # a terminal phase is final, whichever client set it
    conditions = _conditions(pod, containers, kept, pod_state, phase, before, now)
    if pod_state.ended and phase not in TERMINAL:
        phase = FAILED  # a Pod that never ran, and never will, has failed
    by_kind: dict[str, list[Obj]] = {"initContainerStatuses": [], "containerStatuses": []}
    has_init = bool(spec.get("initContainers"))
    for container in containers:
        status = kept.get(container.name)
        if status is None:
            status = _container_status(container, spec, has_init, pod_state.ended or deleting)
            if container.spec.get("volumeMounts"):
                status["volumeMounts"] = [_mount(each, pod_state) for each in container.spec["volumeMounts"]]
        by_kind.setdefault(_FIELDS[container.kind], []).append(dict(status))
    if len(by_kind["containerStatuses"]) > 1:
        by_kind["containerStatuses"].sort(key=lambda each: each["name"])
    if not by_kind["initContainerStatuses"]:
        del by_kind["initContainerStatuses"]
    found: Obj = {
        "phase": phase,
        "conditions": conditions,
        "startTime": before.get("startTime") or format_epoch(now),
        "hostIP": pod_state.host_ip,
        "hostIPs": [{"ip": each} for each in pod_state.host_ips or (pod_state.host_ip,)],
        **by_kind,
        **reported_resources(pod, containers),
    }
    pod_ips = pod_state.pod_ips
    if not pod_ips and spec.get("hostNetwork"):
        pod_ips = pod_state.host_ips or (pod_state.host_ip,)
    if pod_ips:
        found["podIP"] = pod_ips[0]
        found["podIPs"] = [{"ip": each} for each in pod_ips]
    if pod_state.failure and phase == FAILED:
        found["reason"], found["message"] = pod_state.failure
    generation = pod["metadata"].get("generation")
    if generation is not None:
        found["observedGeneration"] = generation
    return found


def _rejected_status(pod: Pod, pod_state: PodState, before: Mapping[str, Any], now: float) -> Obj:
    """Return the status of a Pod that its node rejected: nothing but the rejection."""
    status: Obj = {"phase": FAILED}
    if before.get("phase") in TERMINAL:
        return status
    assert pod_state.failure is not None
    owned = [each["type"] for each in before.get("conditions") or () if each["type"] in _OWN_CONDITIONS]
    status["conditions"] = [{"type": kind, "$patch": "delete"} for kind in owned]
    status["startTime"] = before.get("startTime") or format_epoch(now)
    status["reason"], status["message"] = pod_state.failure
    generation = pod["metadata"].get("generation")
    return status | ({"observedGeneration": generation} if generation is not None else {})


def _kept_statuses(containers: Sequence[ContainerState], before: Mapping[str, Any]) -> dict[str, ObjView]:
    """Return the reported statuses of the init containers that have ended and have not yet run again in a new sandbox.
    As with a kubelet, they stay as they are: the API does not accept that a container waits which has succeeded, unless
    it is always restarted."""
    again = {
        container.name
        for container in containers
        if container.kind == INIT
        and container.record is None
        and not container.unlocated
        and ((container.last_state or {}).get("terminated") or {}).get("reason") != RESTARTING_ALL
    }
    return {each["name"]: each for each in _ended_init(before) if each["name"] in again} if again else {}


def _ended_init(status: Mapping[str, Any]) -> list[ObjView]:
    found = status.get("initContainerStatuses") or ()
    return [each for each in found if "terminated" in (each.get("state") or {})]


def runs_init_again(
    containers: Sequence[ContainerState], before: Mapping[str, Any], status: Mapping[str, Any], spec: Mapping[str, Any]
) -> bool:
    """Return whether an init container runs again, in a new sandbox, that was reported to have succeeded. The API
    accepts this only of containers that are always restarted. A kubelet reports no status until it has ended."""
    ended = {each["name"]: each["state"]["terminated"].get("exitCode", 0) for each in _ended_init(before)}
    if not ended or any(_may_restart_all(container.spec) for container in containers):
        return False
    still = {each["name"] for each in _ended_init(status)}
    return any(
        container.kind == INIT
        and container.name in ended.keys() - still
        and not restarts_after_exit(container.spec, spec, ended[container.name])
        for container in containers
    )


def mark_unlocated(
    pod: Pod, containers: Sequence[ContainerState], initialized: bool, before: Mapping[str, Any]
) -> None:
    """Mark the containers of a Pod that has ended which have no end of their own, as the kubelet does: those that would
    be reported as waiting. The init containers after the last one that ran are not, except the first, and no others are
    unless the Pod was `initialized`. `before` is the current status."""
    spec, deleting = pod["spec"], "deletionTimestamp" in pod["metadata"]
    kept = _kept_statuses(containers, before)

    def is_waiting(container: ContainerState) -> bool:
        if container.record is None:
            return container.name not in kept
        return not deleting and _waits_for_restart(container, spec)

    initial = [container for container in containers if container.kind in (INIT, SIDECAR)]
    ran = [at for at, container in enumerate(initial) if container.record is not None or container.last_state]
    for container in initial[: max(ran, default=0) + 1]:
        container.unlocated = container.unlocated or is_waiting(container)
    for container in containers:
        if container.kind == MAIN and (initialized or not initial):
            container.unlocated = container.unlocated or is_waiting(container)


def _waits_for_restart(container: ContainerState, spec: Mapping[str, Any]) -> bool:
    """Return whether a container that has ended is reported as waiting."""
    return container.waiting is not None and not container.running and container.needs_start(spec)


def status_changes(before: Mapping[str, Any], status: Mapping[str, Any]) -> Obj:
    """Return the fields that differ from the stored status, as a strategic merge patch."""
    found: Obj = {}
    for name, value in status.items():
        if name == "conditions":
            current = {each["type"]: each for each in before.get("conditions") or ()}
            # The first write contains all conditions, which determines their order.
            new = [each for each in value if not _is_current(current.get(each["type"]), each)]
            if new:
                found[name] = value if len(current) <= 1 else new
        elif before.get(name) != value:
            # Lists of addresses are merged by address: without the directive, former ones would remain.
            found[name] = [{"$patch": "replace"}, *value] if name in _ADDRESSES and before.get(name) else value
    return found


def with_changes(before: Mapping[str, Any], status: Mapping[str, Any]) -> Obj:
    """Return the status that the API would store if `status` were written to it."""
    conditions = [
        {name: value for name, value in each.items() if value is not None}
        for each in status["conditions"]
        if "$patch" not in each
    ]
    return {**before, **status, "conditions": conditions}


def differs(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether writing the status would change anything."""
    return bool(status_changes(before, status))


def _is_current(current: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    if current is None or "$patch" in wanted:
        return (current is None) == ("$patch" in wanted)
    return all(current.get(name) == value for name, value in wanted.items())


# -- conditions -------------------------------------------------------------------------------------------------------


def _conditions(
    pod: Pod,
    containers: Sequence[ContainerState],
    kept: Mapping[str, ObjView],
    pod_state: PodState,
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
        made["lastTransitionTime"] = known["lastTransitionTime"] if unchanged and known else format_epoch(now)
        if reason or (known or {}).get("reason"):
            made["reason"] = reason or None
        if message or (known or {}).get("message"):
            made["message"] = message or None
        if generation is not None:
            made["observedGeneration"] = generation
        return made

    ready, reason, message = _containers_ready(containers, phase)
    found = [*pod_state.resize_conditions]
    if pod_state.disruption:
        found.append(condition("DisruptionTarget", True, "TerminationByKubelet", pod_state.disruption))
    if pod_state.sandbox_ready:
        found.append(condition("PodReadyToStartContainers", True))
    else:
        why = "pod sandbox is not ready" if pod_state.had_sandbox else "no pod sandbox exists"
        found.append(condition("PodReadyToStartContainers", False, "PodSandboxNotReady", why))
    found.append(condition("Initialized", *_initialized(containers, kept, phase)))
    gates = _unsatisfied_gates(pod["spec"], current) if ready else ""
    if gates:
        found.append(condition("Ready", False, "ReadinessGatesNotReady", gates))
    else:
        found.append(condition("Ready", ready, reason, message))
    found.append(condition("ContainersReady", ready, reason, message))
    found.append(condition("PodScheduled", True))
    if any(_may_restart_all(container.spec) for container in containers):
        ending = {SUCCEEDED: "PodCompleted", FAILED: "PodFailed"}.get(phase, "")
        under_way = not ending and any(
            container.record is not None and container.record.reason == RESTARTING_ALL and not container.record.running
            for container in containers
        )
        if under_way:
            why = "container exited with restart policy rule"
            found.append(condition("AllContainersRestarting", True, "RestartAllContainersStarted", why))
        else:
            found.append(condition("AllContainersRestarting", False, ending))
    return found


def _may_restart_all(container_spec: Mapping[str, Any]) -> bool:
    rules = container_spec.get("restartPolicyRules")
    return bool(rules) and any(rule.get("action") == "RestartAllContainers" for rule in rules or ())


def _containers_ready(containers: Sequence[ContainerState], phase: str) -> tuple[bool, str, str]:
    if phase in TERMINAL:
        return False, "PodCompleted" if phase == SUCCEEDED else "PodFailed", ""
    unready = [container.name for container in containers if container.kind in (SIDECAR, MAIN) and not container.ready]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _initialized(
    containers: Sequence[ContainerState], kept: Mapping[str, ObjView], phase: str
) -> tuple[bool, str, str]:
    if phase == SUCCEEDED:
        return True, "PodCompleted", ""
    if any(container.kind == MAIN and container.record is not None for container in containers):
        return True, "", ""
    incomplete = [
        container.name
        for container in containers
        if (container.kind == SIDECAR and not container.started)
        or (container.kind == INIT and not (kept.get(container.name) or {}).get("ready", container.ready))
    ]
    if incomplete:
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]"
    return True, "", ""


def _unsatisfied_gates(spec: Mapping[str, Any], current: Mapping[str, Any]) -> str:
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
    found["startedAt"] = format_epoch(record.started_at)
    found["finishedAt"] = format_epoch(record.finished_at)
    found["containerID"] = record.id
    return {"terminated": found}


def _container_status(container: ContainerState, spec: Mapping[str, Any], has_init: bool, ending: bool) -> Obj:
    """Return the status of a container; if its Pod is `ending`, it does not wait for its restart."""
    record, last = container.record, container.last_state or {}
    status: Obj = {"name": container.name, "state": {}, "lastState": last, "ready": container.ready}
    if record is None:
        reason, message = container.waiting or ("PodInitializing" if has_init else "ContainerCreating", "")
        status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        restarts = max(0, container.attempt - 1)  # an init container runs again in a new sandbox
        status |= {"restartCount": restarts, "image": container.spec.get("image", ""), "imageID": ""}
    else:
        if record.running:
            status["state"] = {"running": {"startedAt": format_epoch(record.started_at)}}
        elif container.waiting is not None and not ending and container.needs_start(spec):
            reason, message = container.waiting
            status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
            status["lastState"] = terminated(record)
        elif container.replaced and not ending and not restarts_after_exit(container.spec, spec, record.exit_code):
            # The API does not accept that a terminated container runs again in spite of its restart policy.
            status["state"] = {"waiting": {"reason": "ContainerCreating"}}
            status["lastState"] = terminated(record)
        else:
            status["state"] = terminated(record)
        status |= {
            "restartCount": record.attempt,
            "image": record.image,
            "imageID": record.image_id,
            "containerID": record.id,
        }
    if container.unlocated:
        if record is not None:
            status["lastState"] = terminated(record)
        status["state"] = {"terminated": dict(UNLOCATED)}
    if container.kind != EPHEMERAL:
        status["started"] = container.started
    if record is not None:
        allocated = container.allocated
        if allocated.get("requests"):
            status["allocatedResources"] = dict(allocated["requests"])
        status["resources"] = {key: dict(value) for key, value in allocated.items()}
        if record.user is not None:
            status["user"] = {"linux": record.user}
    return status


def _mount(mount: Mapping[str, Any], pod_state: PodState) -> Obj:
    found: Obj = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        recursive = (
            pod_state.recursive_read_only
            and mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")
            and mount.get("mountPropagation") in (None, "None")
        )
        found |= {"readOnly": True, "recursiveReadOnly": "Enabled" if recursive else "Disabled"}
    return found
