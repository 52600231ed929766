"""Runs the probes of a Pod's containers when they are due, and acts on their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.node.container_lifecycle import ContainerStopper
from setpoint.node.container_state import (
    LIVENESS,
    READINESS,
    SIDECAR,
    STARTUP,
    ContainerState,
    ProbeWorker,
    restarts_when_killed,
)
from setpoint.node.runtime.interface import Operation, ProbeResult
from setpoint.reconcile.run import current_run

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker


class Prober:
    """Runs the probes of one Pod."""

    __slots__ = ("_worker",)

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker

    def start(self, now: float) -> bool:
        """Run the readiness probes of newly started containers at once. Return whether the status must be reported."""
        for container in self._worker.containers:
            for probe in container.probes:
                if (
                    probe.kind != READINESS
                    or probe.success
                    or probe.last_result is not None
                    or probe.attempted
                    or probe.running is not None
                ):
                    continue
                if container.started:
                    probe.trigger(now)
        return self.run(now)

    def run(self, now: float) -> bool:
        """Run the probes that are due. Return whether the status must be reported."""
        changed = False
        for container in self._worker.containers:
            for probe in container.probes:
                if container.running and self._probe_if_due(container, probe, now):
                    changed = True
        return changed

    def _probe_if_due(self, container: ContainerState, probe: ProbeWorker, now: float) -> bool:
        worker, record = self._worker, container.record
        assert record is not None
        if worker.terminating and probe.kind != READINESS:
            probe.cancel()
            return False
        changed = probe.running is not None and self._take_result(container, probe, probe.running, now)
        if probe.on_hold:
            return changed
        if probe.running is not None or probe.next_at > now:
            worker.schedule(probe.next_at if probe.next_at > now else None)
            return changed
        probe.tick(now)
        worker.schedule(probe.next_at)
        if (container.termination is not None and probe.kind != READINESS) or container.post_start_hook is not None:
            return changed
        if probe.in_initial_delay(record.started_at, now) or container.started == (probe.kind == STARTUP):
            return changed
        ip = worker.pod_state.pod_ips[0] if worker.pod_state.pod_ips else ""
        probe.attempted = True
        probe.running = worker.dependencies.runtime.probe(
            worker.uid, container.spec, probe.kind, probe.spec, worker.pod, ip
        )
        return self._take_result(container, probe, probe.running, now) or changed

    def _take_result(
        self, container: ContainerState, probe: ProbeWorker, running: Operation[ProbeResult], now: float
    ) -> bool:
        """Act on the result of a probe, if there is one. Return whether the status must be reported."""
        worker, found = self._worker, running.result(now)
        if found is None:
            worker.schedule(running.ready_at)
            return False
        probe.running = None
        kind = probe.kind.capitalize()
        if found.errored:
            text = f"{kind} probe errored and resulted in unknown state: {found.output}"
            worker.event("Warning", "Unhealthy", text, container)
            return False
        if not found.success:
            worker.event("Warning", "Unhealthy", f"{kind} probe failed: {found.output}", container)
        elif found.output:
            worker.event("Warning", "ProbeWarning", f"{kind} probe warning: {found.output}", container)
        if not probe.record_result(found.success):
            return False
        if probe.failed and probe.kind in (LIVENESS, STARTUP):
            self._restart(container, probe, now)
        elif probe.kind == STARTUP:
            self.start(now)
        return True

    def _restart(self, container: ContainerState, probe: ProbeWorker, now: float) -> None:
        worker = self._worker
        if container.kind == SIDECAR:
            message = f"Init container {container.name} failed {probe.kind} probe"
        else:
            message = f"Container {container.name} failed {probe.kind} probe"
            if restarts_when_killed(container.spec, worker.spec):
                message += ", will be restarted"
        grace = probe.spec.get("terminationGracePeriodSeconds")
        run = current_run.get()
        if run is not None:
            run.note(f"probe:{probe.kind}", message)
        ContainerStopper(worker).stop(container, now, message, None if grace is None else float(grace))
