"""What an agent that starts again finds: containers have been running all the time, only it was away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.meta.times import parse_time
from setpoint.node.pod_status import TERMINAL
from setpoint.node.runtime.interface import ContainerRecord
from setpoint.node.slots import MAIN, Slot
from setpoint.node.starting import Starter

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_FIELDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def recover(worker: PodWorker, now: float) -> None:
    """From the status that was last reported."""
    status = worker.reported
    known: dict[str, Mapping[str, Any]] = {
        found["name"]: found for field in _FIELDS for found in status.get(field) or ()
    }
    for slot in worker.slots:
        found = known.get(slot.name)
        if found is not None:
            _recover_container(worker, slot, found, now)
    situation = worker.situation
    if status.get("podIP"):
        situation.pod_ips = tuple(each["ip"] for each in status.get("podIPs") or ({"ip": status["podIP"]},))
        situation.had_sandbox = True
        worker.node.address_for(worker.pod)
    if status.get("phase") in TERMINAL:
        situation.ended = worker.ending = True
        if status.get("reason"):
            situation.verdict = (status["reason"], status.get("message", ""))
    else:
        worker.hold_resources()
        situation.sandbox = situation.had_sandbox
        worker.be_found()
        worker.initialized = any(slot.kind == MAIN and slot.record is not None for slot in worker.slots)


def _recover_container(worker: PodWorker, slot: Slot, found: Mapping[str, Any], now: float) -> None:
    state = found.get("state") or {}
    slot.attempt = found.get("restartCount", 0)
    slot.last = found.get("lastState") or None
    if found.get("resources") is not None:
        slot.allocated = found["resources"]
    container_id = found.get("containerID") or ""
    if "running" in state:
        began = parse_time(state["running"]["startedAt"]).timestamp() if state["running"].get("startedAt") else now
        facts = worker.tools.runtime.images.facts(slot.spec.get("image", ""))
        if facts is None:
            return
        launch = Starter(worker).launch_of(slot, facts, container_id)
        slot.record = worker.tools.runtime.start(worker.uid, launch, began)
        slot.attempt += 1
        slot.shown = (slot.record.id, False)
        slot.image = slot.spec.get("image", "")
        worker.node.add_image(facts.name, facts.id, facts.size_bytes)
        for probe in slot.probes:
            probe.tick(now)
            if found.get("ready") or probe.kind == "liveness" or found.get("started"):
                probe.success = probe.kind != "readiness" or bool(found.get("ready"))
                probe.on_hold = probe.kind == "startup"
        return
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated")
    if ended is None or not container_id:
        return
    slot.record = ContainerRecord(
        slot.name, container_id, found.get("image", ""), found.get("imageID", ""), slot.attempt,
        _time(ended.get("startedAt"), now), _time(ended.get("finishedAt"), now), ended.get("exitCode", 0),
        ended.get("reason", ""), ended.get("message", ""),
    )  # fmt: skip
    slot.shown = (container_id, True)
    slot.attempt += 1
    waiting = state.get("waiting")
    if waiting is not None:
        slot.last = None
        slot.waiting = (waiting.get("reason", ""), waiting.get("message", ""))
        if waiting.get("reason") != "CrashLoopBackOff":
            slot.waiting = None


def _time(text: str | None, now: float) -> float:
    return parse_time(text).timestamp() if text else now
