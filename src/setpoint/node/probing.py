"""Runs the probes of a Pod's containers when they are due, and acts on what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.node.annotations import said
from setpoint.node.http_hooks import port_number
from setpoint.node.probes import LIVENESS, READINESS, STARTUP, Probe
from setpoint.node.restarts import restarts_when_killed
from setpoint.node.runtime.interface import NoSuchContainer
from setpoint.node.runtime.usage import exceeds_its_limit
from setpoint.node.runtime.web_messages import WebRequest
from setpoint.node.slots import SIDECAR, Slot
from setpoint.node.stopping import Stopper

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker


class Prober:
    __slots__ = ("_worker",)

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker

    def begin(self, now: float) -> bool:
        """Containers that have just started are asked at once whether they are ready."""
        for slot in self._worker.slots:
            for probe in slot.probes:
                if probe.kind == READINESS and slot.started and not probe.success and probe.last is None:
                    probe.trigger(now)
        return self.run(now)

    def run(self, now: float) -> bool:
        """Whether anything came out that is to be told."""
        told = False
        for slot in self._worker.slots:
            if slot.running:
                told |= self._meddle(slot, now)
            for probe in slot.probes:
                if slot.running and self._probe(slot, probe, now):
                    told = True
        return told

    def _meddle(self, slot: Slot, now: float) -> bool:
        """What annotations and limits do to a running container."""
        worker = self._worker
        if exceeds_its_limit(worker.pod, slot.spec):
            worker.tools.runtime.kill(worker.uid, slot.name, now, "OOMKilled")
            return True
        if not worker.pod["metadata"].get("annotations"):
            return False
        code = worker.exit_asked(slot)
        if code and code.isdigit():
            slot.said_exit = code
            worker.tools.runtime.exit(worker.uid, slot.name, now, int(code) & 255)
            return True
        return False

    def _probe(self, slot: Slot, probe: Probe, now: float) -> bool:
        worker, record = self._worker, slot.record
        assert record is not None
        if probe.on_hold or (worker.ending and probe.kind != READINESS):
            return False
        if probe.next_at > now:
            worker.due(probe.next_at)
            return False
        probe.tick(now)
        worker.due(probe.next_at)
        if slot.stop is not None and probe.kind != READINESS:
            return False
        if probe.delayed(record.started_at, now) or slot.started == (probe.kind == STARTUP):
            return False
        result, output = self._ask(slot, probe)
        if not result:
            kind = probe.kind.capitalize()
            worker.event("Warning", "Unhealthy", f"{kind} probe failed: {output}", slot)
        if not probe.take(result):
            return False
        if probe.failed and probe.kind in (LIVENESS, STARTUP):
            self._restart(slot, probe, now)
        elif probe.kind == STARTUP:
            self.begin(now)
        return True

    def _restart(self, slot: Slot, probe: Probe, now: float) -> None:
        worker = self._worker
        if slot.kind == SIDECAR:
            message = f"Init container {slot.name} failed {probe.kind} probe"
        else:
            message = f"Container {slot.name} failed {probe.kind} probe"
            if restarts_when_killed(slot.spec, worker.spec):
                message += ", will be restarted"
        grace = probe.spec.get("terminationGracePeriodSeconds")
        Stopper(worker).stop(slot, now, message, None if grace is None else float(grace))

    def _ask(self, slot: Slot, probe: Probe) -> tuple[bool, str]:
        """Whether it succeeds, and what it says if not."""
        worker = self._worker
        wish = said(worker.pod, probe.kind, slot.name)
        if wish == "true":
            return True, ""
        command = (probe.spec.get("exec") or {}).get("command")
        if command and wish != "false":
            return self._execute(slot, probe, command)
        if wish == "false":
            return False, self._complaint(probe)
        return self._look(slot, probe)

    def _look(self, slot: Slot, probe: Probe) -> tuple[bool, str]:
        worker, page, grpc = self._worker, probe.spec.get("httpGet"), probe.spec.get("grpc")
        target = page or grpc
        if not target or target.get("host"):
            return True, ""
        path, _, query = str(target.get("path") or "/").partition("?")
        port = port_number(slot.spec, target.get("port"))
        asked = WebRequest(port, path, query, "GET", target.get("scheme") == "HTTPS")
        status = worker.tools.runtime.servers.health(worker.uid, slot.name, asked, grpc=bool(grpc))
        if 200 <= status < 400:
            return True, ""
        if status:
            return False, f"HTTP probe failed with statuscode: {status}"
        address = worker.situation.pod_ips[0] if worker.situation.pod_ips else ""
        if grpc:
            limit = probe.spec.get("timeoutSeconds") or 1
            return (
                False,
                f'timeout: failed to connect service "{address}:{port}" within {limit}s: context deadline exceeded',
            )
        refused = f"dial tcp {address}:{port}: connect: connection refused"
        return False, f'Get "http://{address}:{port}{target.get("path") or "/"}": {refused}'

    def _execute(self, slot: Slot, probe: Probe, command: list[str]) -> tuple[bool, str]:
        limit = float(probe.spec.get("timeoutSeconds") or 1)
        try:
            code, output = self._worker.tools.runtime.run_to_its_end(self._worker.uid, slot.name, command, limit)
        except NoSuchContainer:
            return False, "container not running"
        if code is None:
            return False, f'command timed out: "{" ".join(command)}" timed out after {limit:g}s'
        return code == 0, output

    def _complaint(self, probe: Probe) -> str:
        address = self._worker.situation.pod_ips[0] if self._worker.situation.pod_ips else ""
        spec = probe.spec
        if spec.get("httpGet"):
            return "HTTP probe failed with statuscode: 503"
        if spec.get("tcpSocket"):
            port = spec["tcpSocket"].get("port")
            return f"dial tcp {address}:{port}: connect: connection refused"
        if spec.get("grpc"):
            return 'service unhealthy (responded with "NOT_SERVING")'
        return ""
