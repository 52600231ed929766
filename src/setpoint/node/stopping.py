"""Stopping containers: the hook first, then their turn, then the signal, then the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.node.http_hooks import answered
from setpoint.node.slots import MAIN, SIDECAR, Slot, Stop

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_LEAST_GRACE = 2.0


class Stopper:
    __slots__ = ("_runtime", "_worker")

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker
        self._runtime = worker.tools.runtime

    def stop_all(self, now: float, grace: float) -> None:
        for slot in self._worker.slots:
            if not slot.running:
                continue
            if slot.stop is None:
                self.stop(slot, now, "", grace)
            elif now + grace < slot.stop.deadline:
                # Somebody has less patience than the one before.
                slot.stop.deadline = now + grace
                if slot.stop.told:
                    self._runtime.stop(self._worker.uid, slot.name, now, max(grace, _LEAST_GRACE))

    def stop(self, slot: Slot, now: float, message: str, grace: float | None) -> None:
        """Begins it; `progress` goes on."""
        spec = self._worker.spec
        seconds = float(spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace
        slot.stop = Stop(now, seconds)
        self._worker.event("Normal", "Killing", message or f"Stopping container {slot.name}", slot)
        hook = (slot.spec.get("lifecycle") or {}).get("preStop")
        if hook and seconds > 0:
            if hook.get("sleep"):
                slot.stop.hook_until = min(now + float(hook["sleep"].get("seconds", 0)), slot.stop.deadline)
            elif hook.get("httpGet"):
                if not answered(self._worker, slot.spec, hook["httpGet"]):
                    self._worker.event("Warning", "FailedPreStopHook", "PreStopHook failed", slot)
            elif hook.get("exec"):
                slot.stop.hook = self._runtime.run_command(
                    self._worker.uid, slot.name, hook["exec"].get("command") or []
                )
                slot.stop.hook_until = slot.stop.deadline

    def progress(self, now: float) -> None:
        """Everything that is being stopped, one step further."""
        for slot in self._worker.slots:
            stop = slot.stop
            if stop is None:
                continue
            if not slot.running:
                slot.stop = None
            elif not stop.told:
                self._progress(slot, stop, now)
                if slot.superseded and not slot.running:
                    slot.stop = None

    def _progress(self, slot: Slot, stop: Stop, now: float) -> None:
        if not self._hook_over(slot, stop, now):
            return
        if self._worker.ending and now < stop.deadline and not self._its_turn(slot):
            self._worker.due(stop.deadline)
            return
        stop.told = True
        left = stop.deadline - stop.begun - int(now - stop.begun)
        self._runtime.stop(self._worker.uid, slot.name, now, max(left, _LEAST_GRACE))

    def _hook_over(self, slot: Slot, stop: Stop, now: float) -> bool:
        until = stop.hook_until
        if until is None:
            return True
        until = min(until, stop.deadline)
        if stop.hook is not None and stop.hook.exit_code is not None:
            if stop.hook.exit_code:
                self._worker.event("Warning", "FailedPreStopHook", "PreStopHook failed", slot)
            stop.hook = stop.hook_until = None
            return True
        if now < until:
            self._worker.due(until)
            return False
        stop.hook_until = None
        return True

    def _its_turn(self, slot: Slot) -> bool:
        """Sidecars go after the containers they serve, the last one first."""
        if slot.kind != SIDECAR:
            return True
        slots = self._worker.slots
        after = slots[slots.index(slot) + 1 :]
        return not any(other.running and other.kind in (SIDECAR, MAIN) for other in after)
