"""Runs the probes of a Pod's containers when they are due, and acts on their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.node.container_lifecycle import ContainerStopper, resolve_port
from setpoint.node.container_state import (
    LIVENESS,
    READINESS,
    SIDECAR,
    STARTUP,
    ContainerState,
    ProbeWorker,
    restarts_when_killed,
)
from setpoint.node.runtime.container_behavior import exceeds_memory_limit
from setpoint.node.runtime.interface import NoSuchContainer
from setpoint.node.runtime.network import PodRequest
from setpoint.node.simulation_annotations import simulation_annotation

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
                if probe.kind == READINESS and container.started and not probe.success and probe.last_result is None:
                    probe.trigger(now)
        return self.run(now)

    def run(self, now: float) -> bool:
        """Run the probes that are due. Return whether the status must be reported."""
        changed = False
        for container in self._worker.containers:
            if container.running:
                changed |= self._apply_forced_exit(container, now)
            for probe in container.probes:
                if container.running and self._probe_if_due(container, probe, now):
                    changed = True
        return changed

    def _apply_forced_exit(self, container: ContainerState, now: float) -> bool:
        """Terminate the container if it exceeds its memory limit or an annotation requests an exit. Return whether it
        did."""
        worker = self._worker
        if exceeds_memory_limit(worker.pod, container.spec):
            worker.dependencies.runtime.kill_container(worker.uid, container.name, now, "OOMKilled")
            return True
        if not worker.pod["metadata"].get("annotations"):
            return False
        code = worker.requested_exit_code(container)
        if code and code.isdigit():
            container.applied_exit_code = code
            worker.dependencies.runtime.exit_container(worker.uid, container.name, now, int(code) & 255)
            return True
        return False

    def _probe_if_due(self, container: ContainerState, probe: ProbeWorker, now: float) -> bool:
        worker, record = self._worker, container.record
        assert record is not None
        if probe.on_hold or (worker.terminating and probe.kind != READINESS):
            return False
        if probe.next_at > now:
            worker.schedule(probe.next_at)
            return False
        probe.tick(now)
        worker.schedule(probe.next_at)
        if container.termination is not None and probe.kind != READINESS:
            return False
        if probe.in_initial_delay(record.started_at, now) or container.started == (probe.kind == STARTUP):
            return False
        result, output = self._run_probe(container, probe)
        if not result:
            kind = probe.kind.capitalize()
            worker.event("Warning", "Unhealthy", f"{kind} probe failed: {output}", container)
        if not probe.record_result(result):
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
        ContainerStopper(worker).stop(container, now, message, None if grace is None else float(grace))

    def _run_probe(self, container: ContainerState, probe: ProbeWorker) -> tuple[bool, str]:
        """Return whether the probe succeeds, and its output if it fails."""
        worker = self._worker
        forced = simulation_annotation(worker.pod, probe.kind, container.name)
        if forced == "true":
            return True, ""
        command = (probe.spec.get("exec") or {}).get("command")
        if command and forced != "false":
            return self._exec_probe(container, probe, command)
        if forced == "false":
            return False, self._forced_failure_output(probe)
        return self._probe_server(container, probe)

    def _probe_server(self, container: ContainerState, probe: ProbeWorker) -> tuple[bool, str]:
        worker, http_get, grpc = self._worker, probe.spec.get("httpGet"), probe.spec.get("grpc")
        target = http_get or grpc
        if not target or target.get("host"):
            return True, ""
        path, _, query = str(target.get("path") or "/").partition("?")
        port = resolve_port(container.spec, target.get("port"))
        request = PodRequest(port, path, query, "GET", target.get("scheme") == "HTTPS")
        status = worker.dependencies.runtime.servers.probe_status(worker.uid, container.name, request, grpc=bool(grpc))
        if 200 <= status < 400:
            return True, ""
        if status:
            return False, f"HTTP probe failed with statuscode: {status}"
        address = worker.pod_state.pod_ips[0] if worker.pod_state.pod_ips else ""
        if grpc:
            limit = probe.spec.get("timeoutSeconds") or 1
            return (
                False,
                f'timeout: failed to connect service "{address}:{port}" within {limit}s: context deadline exceeded',
            )
        refused = f"dial tcp {address}:{port}: connect: connection refused"
        return False, f'Get "http://{address}:{port}{target.get("path") or "/"}": {refused}'

    def _exec_probe(self, container: ContainerState, probe: ProbeWorker, command: list[str]) -> tuple[bool, str]:
        limit = float(probe.spec.get("timeoutSeconds") or 1)
        try:
            code, output = self._worker.dependencies.runtime.exec_sync(self._worker.uid, container.name, command, limit)
        except NoSuchContainer:
            return False, "container not running"
        if code is None:
            return False, f'command timed out: "{" ".join(command)}" timed out after {limit:g}s'
        return code == 0, output

    def _forced_failure_output(self, probe: ProbeWorker) -> str:
        address = self._worker.pod_state.pod_ips[0] if self._worker.pod_state.pod_ips else ""
        spec = probe.spec
        if spec.get("httpGet"):
            return "HTTP probe failed with statuscode: 503"
        if spec.get("tcpSocket"):
            port = spec["tcpSocket"].get("port")
            return f"dial tcp {address}:{port}: connect: connection refused"
        if spec.get("grpc"):
            return 'service unhealthy (responded with "NOT_SERVING")'
        return ""
