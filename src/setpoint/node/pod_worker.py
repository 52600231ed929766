"""One Pod on its node: what is to be done next, and when. No call waits; `step` does all that is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.host_ports import host_ports
from setpoint.meta.times import parse_time
from setpoint.node.admission import admission_problem, demand
from setpoint.node.annotations import said
from setpoint.node.environment import compose_environment
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import TERMINAL, Situation, pod_status, terminated
from setpoint.node.probing import Prober
from setpoint.node.recovery import recover
from setpoint.node.resizing import Resizer
from setpoint.node.restarts import matching_action
from setpoint.node.runtime.files import Mount
from setpoint.node.slots import EPHEMERAL, INIT, MAIN, RESTARTING_ALL, SIDECAR, Slot, slots_of
from setpoint.node.starting import Starter
from setpoint.node.stopping import Stopper
from setpoint.node.tools import Tools
from setpoint.node.volumes import VolumeProblem, mount_problem, mounts_of

Obj = dict[str, Any]

_FIRST_MOUNT_RETRY, _LONGEST_MOUNT_RETRY = 0.5, 122.0
_DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    __slots__ = (
        "_due_at", "_mount_pause", "_mount_retry_at", "_mounted", "ending", "heard", "held", "initialized", "node",
        "pod", "reported", "reported_version", "resizable", "seen", "situation", "slots", "tools", "uid",
    )  # fmt: skip

    def __init__(self, pod: Mapping[str, Any], node: NodeState, tools: Tools, now: float) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.node = node
        self.tools = tools
        self.slots = slots_of(pod["spec"])
        self.reported: Mapping[str, Any] = pod.get("status") or {}
        """The status as the API has it."""
        self.reported_version = int(pod["metadata"]["resourceVersion"])
        self.heard: list[int] | None = None
        """While the API is being told: the versions that were seen meanwhile, of which one may be our own."""
        self.situation = Situation(node.address)
        self.seen = False
        """Whether it was let in."""
        self.ending = False
        self.initialized = False
        """The init containers have done their part, and those after them were started."""
        self.held: dict[str, int] = {}
        """Of the node's resources."""
        self.resizable = bool(self.reported.get("containerStatuses"))
        """Its resources may have changed since they were given to it."""
        self._mounted = False
        self._mount_pause = 0.0
        self._mount_retry_at = 0.0
        self._due_at = float("inf")
        if self.reported.get("containerStatuses") or self.reported.get("phase") in TERMINAL:
            self.seen = True
            recover(self, now)

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.pod["spec"]
        return found

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def finished(self) -> bool:
        """Nothing runs, nothing will."""
        return self.situation.ended

    def slot(self, name: str) -> Slot:
        return next(slot for slot in self.slots if slot.name == name)

    def due(self, at: float | None) -> None:
        if at is not None and at < self._due_at:
            self._due_at = at

    @property
    def due_at(self) -> float | None:
        return None if self._due_at == float("inf") else self._due_at

    def event(self, kind: str, reason: str, message: str, slot: Slot | None = None) -> None:
        path = slot.field_path if slot is not None else ""
        record = self.tools.events.normal if kind == "Normal" else self.tools.events.warning
        record(self.pod, reason, message, field_path=path, host=self.node.name)

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        self._look_at_node()
        return compose_environment(self.pod, container, self.situation, self.tools.lookup)

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        self._look_at_node()
        return mounts_of(self, container)

    def _look_at_node(self) -> None:
        self.situation.allocatable = ((self.node.object or {}).get("status") or {}).get("allocatable") or {}

    # -- hearing ------------------------------------------------------------------------------------------------------

    def update(self, pod: Mapping[str, Any]) -> bool:
        """The Pod as it is now; whether there is anything in it that we did not write ourselves."""
        old, self.pod = self.pod, pod
        version = int(pod["metadata"]["resourceVersion"])
        if version < self.reported_version:
            return True
        own = version == self.reported_version
        self.reported, self.reported_version = pod.get("status") or {}, version
        before, after = old["metadata"], pod["metadata"]
        if before.get("generation") != after.get("generation"):
            self._new_spec()
            self.resizable = True
        if before.get("annotations") != after.get("annotations"):
            self.tools.runtime.update(self.uid, pod)
            return True
        if self.heard is not None and before.get("deletionTimestamp") == after.get("deletionTimestamp"):
            self.heard.append(version)
            return False
        return not own

    def _new_spec(self) -> None:
        known = {slot.name: slot for slot in self.slots}
        fresh = slots_of(self.spec)
        for slot in fresh:
            before = known.get(slot.name)
            if before is not None:
                if before.spec.get("image") != slot.spec.get("image"):
                    before.pull = before.pulling = None  # its failures were another image's
                before.spec = slot.spec
        self.slots = [known.get(slot.name, slot) for slot in fresh]

    def status(self, now: float) -> Obj:
        return pod_status(self.pod, self.slots, self.situation, self.reported, now)

    def shown(self, status: Mapping[str, Any], version: int) -> None:
        """The API has been told."""
        if version > self.reported_version:
            self.reported, self.reported_version = status, version
        for slot in self.slots:
            if slot.record is not None:
                slot.shown = (slot.record.id, not slot.record.running)

    # -- acting -------------------------------------------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Does what is due. True: what happened is to be told before anything else is done."""
        self._due_at = float("inf")
        if self.finished:
            return False
        self.due(self.tools.runtime.advance(self.uid, now))
        if self._untold():
            return True
        over = self.reported.get("phase") in TERMINAL  # somebody else has said so
        if self.ending or over or self.deleting or self._past_deadline(now):
            return self._end(now)
        if not self.seen and not self._admit(now):
            return False
        if not self._mount(now) or not self._network():
            return False
        if Prober(self).run(now):
            return True
        if self.resizable and Resizer(self).progress(now):
            return True
        self._replace_changed(now)
        Stopper(self).progress(now)
        if self._restart_all(now):
            return True
        again = self._run_containers(now)
        self.due(self.tools.runtime.advance(self.uid, now))
        return again

    def _untold(self) -> bool:
        """Whether a container ended that was last reported as running, or failed."""
        for slot in self.slots:
            record = slot.record
            if record is None or record.running or slot.shown == (record.id, True):
                continue
            if slot.superseded:
                continue  # it is told together with what takes its place
            if record.exit_code or slot.shown == (record.id, False) or slot.kind == MAIN:
                return True
        return False

    def _past_deadline(self, now: float) -> bool:
        seconds, started = self.spec.get("activeDeadlineSeconds"), self.reported.get("startTime")
        if seconds is None:
            return False
        at = (parse_time(started).timestamp() if started else int(now)) + seconds
        if now < at:
            self.due(at)
            return False
        if self.situation.verdict is None:
            self.situation.verdict = _DEADLINE
            self.event("Normal", *_DEADLINE)
        return True

    def _admit(self, now: float) -> bool:
        self.seen = True
        problem = admission_problem(self.pod, self.node, self.tools)
        if problem is None:
            self.hold_resources()
            for slot in self.slots:
                for probe in slot.probes:
                    probe.tick(now)
            return True
        reason, message = problem
        self.event("Warning", reason, message)
        self.situation.verdict = (reason, f"Pod was rejected: {message}")
        self.situation.ended = True
        return False

    def _mount(self, now: float) -> bool:
        if self._mounted:
            return True
        if now < self._mount_retry_at:
            self.due(self._mount_retry_at)
            return False
        problem: VolumeProblem | None = mount_problem(self.pod, self.tools.lookup)
        if problem is None:
            self._mounted = True
            return True
        self.event("Warning", "FailedMount", str(problem))
        self._mount_pause = min(self._mount_pause * 2 or _FIRST_MOUNT_RETRY, _LONGEST_MOUNT_RETRY)
        self._mount_retry_at = now + self._mount_pause
        self.due(self._mount_retry_at)
        return False

    def _network(self) -> bool:
        situation = self.situation
        if not situation.sandbox:
            if situation.had_sandbox:
                text = "Pod sandbox changed, it will be killed and re-created."
                self.event("Normal", "SandboxChanged", text)
            situation.sandbox = situation.had_sandbox = True
            if not situation.pod_ips:
                address = self.node.address_for(self.pod)
                situation.pod_ips = (address,)
            self.be_found()
        return True

    # -- containers ---------------------------------------------------------------------------------------------------

    def _run_containers(self, now: float) -> bool:
        """True: something ended at once and is to be told."""
        starter = Starter(self)
        for slot in self.slots:
            if slot.kind == EPHEMERAL and slot.record is None:
                starter.start(slot, now)
        if not self._initialize(starter, now):
            return self._untold() or Prober(self).begin(now)
        wanted = False
        for slot in self.slots:
            if slot.kind != MAIN:
                continue
            if slot.stop is not None or slot.running:
                wanted = True
                if slot.hook is not None and not starter.hook_over(slot, now):
                    return False  # the containers after it wait until its hook is done
            elif slot.wants_start(self.spec):
                wanted = True
                starter.start(slot, now)
                if slot.hook is not None:
                    return False
        if not wanted:
            return self._end(now)
        if self._untold():
            return True
        return Prober(self).begin(now)

    def _replace_changed(self, now: float) -> None:
        """A container that is no longer what the Pod asks for ends, and is started as it asks now."""
        for slot in self.slots:
            if slot.running and slot.stop is None and slot.image != slot.spec.get("image"):
                if slot.kind == MAIN:
                    text = f"Container {slot.name} definition changed, will be restarted"
                elif slot.kind == SIDECAR:
                    text = f"Init container {slot.name} definition changed"
                else:
                    continue
                Stopper(self).stop(slot, now, text, None)
                slot.replaced = True

    def _initialize(self, starter: Starter, now: float) -> bool:
        """Whether all init containers have done their part."""
        begun = self.initialized
        for slot in self.slots:
            if slot.kind == SIDECAR:
                if slot.stop is None and slot.wants_start(self.spec):
                    starter.start(slot, now)
                if slot.hook is not None:
                    starter.hook_over(slot, now)
                if not begun and not slot.started:
                    return False
            elif slot.kind == INIT and not begun:
                if slot.ready:
                    continue
                if slot.wants_start(self.spec):
                    starter.start(slot, now)
                elif not slot.running:
                    self._end(now)
                    return False
                if not slot.ready:
                    return False
        self.initialized = True
        return True

    # -- from the beginning ----------------------------------------------------------------------------------------

    def power_lost(self, now: float) -> None:
        """The node goes down: everything ends as it is, and begins anew if the node comes back."""
        if self.finished:
            return
        self.tools.runtime.halt(self.uid, now)
        self.situation.sandbox = False
        if self.spec.get("restartPolicy") != "Never":
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Init containers run again."""
        self.initialized = False
        for slot in self.slots:
            slot.stop = slot.hook = None
            if slot.kind == INIT and slot.record is not None and not slot.record.running:
                slot.last, slot.record = terminated(slot.record), None

    def _restart_all(self, now: float) -> bool:
        """A container ended for which a rule says that all of the Pod begin anew."""
        for slot in self.slots:
            record = slot.record
            if record is None or record.running or record.reason == RESTARTING_ALL:
                continue
            if matching_action(slot.spec, record.exit_code) == "RestartAllContainers" and slot.counted is not record:
                break
        else:
            return False
        for slot in self.slots:
            if slot.record is not None and slot.kind != EPHEMERAL:
                self.tools.runtime.kill(self.uid, slot.name, now, RESTARTING_ALL)
                slot.record.reason = RESTARTING_ALL
                slot.counted = slot.record  # none of them failed, so none backs off
        self._begin_anew()
        return True

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, now: float) -> bool:
        stopper = Stopper(self)
        if not self.ending:
            self.ending = True
            self.seen = True
        meta = self.pod["metadata"]
        if "deletionGracePeriodSeconds" in meta and self.deleting:
            grace = float(meta["deletionGracePeriodSeconds"])
        else:
            grace = float(self.spec.get("terminationGracePeriodSeconds", 30))
        stopper.stop_all(now, grace)
        stopper.progress(now)
        self.due(self.tools.runtime.advance(self.uid, now))
        Prober(self).run(now)
        if any(slot.running for slot in self.slots):
            return self._untold()
        self.situation.ended = True
        self.situation.sandbox = False
        self.give_back()
        return False

    def be_found(self) -> None:
        """By those who ask for what is at its address; that of a node stands for many."""
        if self.situation.pod_ips and not self.spec.get("hostNetwork"):
            self.tools.runtime.place(self.uid, self.situation.pod_ips[0], self.node.name)

    def hold_resources(self, again: bool = False) -> None:
        if again:
            self.give_back()
        if self.uid not in self.node.pods:
            self.held = demand(self.pod)
            self.node.hold(self.uid, self.held)
            ports = host_ports(self.spec)
            if ports:
                self.node.ports[self.uid] = ports

    def give_back(self) -> None:
        """Others may have what it had."""
        self.node.give_back(self.uid, self.held)

    def exit_asked(self, slot: Slot) -> str:
        """An annotation that tells a container to end, if it is a new one."""
        text = said(self.pod, "exit-code", slot.name)
        return text if text != slot.said_exit else ""
