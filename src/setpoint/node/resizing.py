"""Giving a running Pod more or less than it had, without starting it anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from setpoint.meta.quantity import compare, parse
from setpoint.node.admission import demand
from setpoint.node.pod_status import stamp
from setpoint.node.slots import EPHEMERAL, INIT, Slot, amounts_of
from setpoint.node.stopping import Stopper

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

Obj = dict[str, Any]

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_RETRY = 10.0


class Resizer:
    __slots__ = ("_worker",)

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker

    def progress(self, now: float) -> bool:
        """True: what was found is to be told before anything else is done."""
        worker = self._worker
        changed = [slot for slot in worker.slots if slot.kind != EPHEMERAL and amounts_of(slot.spec) != slot.allocated]
        if not changed:
            return self._settled(now)
        problem = self._problem()
        if problem is not None:
            return self._postpone(*problem, now)
        for slot in changed:
            if slot.running and slot.stop is None and _needs_restart(slot):
                Stopper(worker).stop(slot, now, f"Container {slot.name} resize requires restart", None)
                slot.replaced = True
            slot.allocated = amounts_of(slot.spec)
        if not worker.initialized:
            return False  # nothing runs yet that would have to be changed
        worker.hold_resources(again=True)
        worker.event("Normal", "ResizeStarted", f"Pod resize started: {self._summary()}")
        worker.situation.resize = [self._condition(IN_PROGRESS, "", "", now)]
        self._drop(PENDING)
        return True

    def _settled(self, now: float) -> bool:
        """What is wanted is what it has; says so once."""
        worker, held = self._worker, [each for each in self._worker.situation.resize if "$patch" not in each]
        if not held and not any(self._reported(kind) for kind in (PENDING, IN_PROGRESS)):
            worker.situation.resize = ()
            worker.resizable = False
            return False
        if any(slot.stop is not None for slot in worker.slots):
            return False  # until it runs again
        if any(each["type"] == IN_PROGRESS for each in held):
            worker.event("Normal", "ResizeCompleted", f"Pod resize completed: {self._summary()}")
        worker.situation.resize = []
        self._drop(PENDING)
        self._drop(IN_PROGRESS)
        return False

    def _problem(self) -> tuple[str, str] | None:
        """Why it cannot be done: never, or not now."""
        worker = self._worker
        node = worker.node
        allocatable = ((node.object or {}).get("status") or {}).get("allocatable") or {}
        held = worker.held
        for resource, amount in demand(worker.pod).items():
            if resource not in allocatable:
                continue
            quantity = parse(allocatable[resource])
            capacity = quantity.milli_value() if resource == "cpu" else quantity.value()
            if amount > capacity:
                text = f"Node didn't have enough capacity: {resource}, requested: {amount}, capacity: {capacity}"
                return "Infeasible", text
            used = node.used.get(resource, 0) - held.get(resource, 0)
            if used + amount > capacity:
                return "Deferred", (
                    f"Node didn't have enough resource: {resource}, requested: {amount}, used: {used}, "
                    f"capacity: {capacity}"
                )
        return None

    def _postpone(self, reason: str, message: str, now: float) -> bool:
        worker = self._worker
        if reason == "Deferred":
            worker.due(now + _RETRY)
        known = next(
            (each for each in worker.situation.resize if each["type"] == PENDING and "$patch" not in each), None
        )
        made = self._condition(PENDING, reason, message, now)
        if known is not None and (known["reason"], known["observedGeneration"]) == (reason, made["observedGeneration"]):
            return False
        worker.situation.resize = [made]
        worker.event("Warning", f"Resize{reason}", f"Pod resize {reason}: {self._summary(message)}")
        return False

    def _condition(self, kind: str, reason: str, message: str, now: float) -> Obj:
        made: Obj = {"type": kind, "status": "True", "lastTransitionTime": stamp(now)}
        made["observedGeneration"] = self._worker.pod["metadata"].get("generation", 0)
        if reason:
            made |= {"reason": reason, "message": message}
        return made

    def _reported(self, kind: str) -> bool:
        return any(each["type"] == kind for each in self._worker.reported.get("conditions") or ())

    def _drop(self, kind: str) -> None:
        if self._reported(kind):
            self._worker.situation.resize = [*self._worker.situation.resize, {"type": kind, "$patch": "delete"}]

    def _summary(self, error: str = "") -> str:
        pod = self._worker.pod
        told: Obj = {}
        for field in ("initContainers", "containers"):
            containers = pod["spec"].get(field)
            if containers:
                told[field] = [{"name": each["name"], "resources": each.get("resources") or {}} for each in containers]
        told["generation"] = pod["metadata"].get("generation", 0)
        if error:
            told["error"] = error
        return json.dumps(told, separators=(",", ":"))


def _needs_restart(slot: Slot) -> bool:
    """Whether one of the resources that change cannot change while it runs."""
    if slot.kind == INIT:
        return False
    policies = {each["resourceName"]: each["restartPolicy"] for each in slot.spec.get("resizePolicy") or ()}
    for which in ("requests", "limits"):
        old, new = slot.allocated.get(which) or {}, amounts_of(slot.spec).get(which) or {}
        for resource in {**old, **new}:
            if policies.get(resource) == "RestartContainer" and compare(old.get(resource, "0"), new.get(resource, "0")):
                return True
    return False
