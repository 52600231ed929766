"""One Pod of the API, its worker on a scripted runtime, and the invariants of both, checked at every step."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from scripted_runtime import Run, ScriptedOperation, ScriptedRuntime

from setpoint.kinds.core.pod_status_rules import validate_pod_status
from setpoint.kinds.typed import Pod
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.container_state import EPHEMERAL, INIT, MAIN, SIDECAR, ContainerState
from setpoint.node.dependencies import ObjectLister, PodWorkerDependencies
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import TERMINAL, format_epoch, runs_init_again, status_changes
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.interface import ContainerConfig
from setpoint.reconcile import EventRecorder

UID = "11111111-1111-1111-1111-111111111111"
START = 1_900_000_000.0
_CONDITIONS = {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
_PHASES = ("Pending", "Running", "Succeeded", "Failed")
_STATUS_FIELDS = {
    INIT: "initContainerStatuses",
    SIDECAR: "initContainerStatuses",
    MAIN: "containerStatuses",
    EPHEMERAL: "ephemeralContainerStatuses",
}
_MAX_STEPS = 12
"""The number of steps that may follow each other without anything happening in between."""
_MAX_FAIR_TURNS = 1500


class RecordedEvents:
    """Records the Events of a Pod."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []
        """Reason, message and field path of each Event."""

    def normal(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        self.found.append((reason, message, field_path))

    warning = normal

    def count(self, reason: str, field_path: str) -> int:
        return sum(each[0] == reason and each[2] == field_path for each in self.found)


class ScriptedPod:
    """A Pod whose worker is stepped as an agent does it: when the runtime or the Pod changed, or at the requested time."""

    def __init__(self, spec: Obj) -> None:
        self.now = START
        self.runtime = ScriptedRuntime(lambda: self.now)
        self.runtime.uid = UID
        self.runtime.on_start_request = self._check_start_request
        self.runtime.before_start = self._check_start
        self.node = NodeState("node-1", "192.0.2.1")
        self.events = RecordedEvents()
        self.stored: Obj = {
            "metadata": {"name": "pod", "namespace": "default", "uid": UID, "resourceVersion": "1", "generation": 1},
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        """The Pod in the API."""
        self.api_works = True
        self.crashes = 0
        self.replacements = 0
        """The number of changes of an image."""
        self.changed = True
        """Whether the worker must be stepped."""
        self.removed = False
        """Whether the Pod was removed from the API."""
        self._reported_ids: set[str] = set()
        """The ids of the runs that were reported."""
        self.worker = self._start_worker()

    def _start_worker(self) -> PodWorker:
        self.runtime.on_change = self._enqueue
        dependencies = PodWorkerDependencies(
            self.runtime, cast(EventRecorder, self.events), cast(ObjectLister, None), {"node-1": self.node}
        )
        self.changed = True
        return PodWorker(cast(Pod, deepcopy(self.stored)), self.node, dependencies, self.now)

    def _enqueue(self, uid: str) -> None:
        assert uid == UID
        self.changed = True

    # -- what the script does ------------------------------------------------------------------------------------------

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.stored["metadata"]

    def complete(self, operation: ScriptedOperation[Any], problem: str = "") -> None:
        self.runtime.complete(operation, problem)

    def exit(self, run: Run, code: int) -> None:
        self.runtime.exit(run, code)

    def advance(self, seconds: float) -> None:
        """Let time pass; the steps that are due in the meantime are taken."""
        end = self.now + seconds
        for _ in range(1000):
            due = self.worker.next_step_at
            if due is None or due > end or self.removed:
                break
            self.now = max(self.now, due)
            self.runtime.kill_overdue()
            self.sync()
            if not self.api_works:
                break
        self.now = max(end, self.now)
        self.runtime.kill_overdue()

    def delete(self, grace: int) -> None:
        meta = self.stored["metadata"]
        known = meta.get("deletionGracePeriodSeconds")
        if known is None or grace < known:
            self._write(lambda pod: pod["metadata"].update(_deletion(self.now, grace)), generation=True)

    def change_image(self, index: int) -> None:
        containers = self.stored["spec"]["containers"]
        self.replacements += 1
        image = f"example.com/image:{self.replacements + 1}"

        def change(pod: Obj) -> None:
            pod["spec"]["containers"][index % len(containers)]["image"] = image

        self._write(change, generation=True)

    def add_ephemeral(self) -> None:
        def change(pod: Obj) -> None:
            found = pod["spec"].setdefault("ephemeralContainers", [])
            found.append({"name": f"debug-{len(found)}", "image": "example.com/image:1"})

        self._write(change, generation=True)

    def change_metadata(self, field: str, value: Obj) -> None:
        self._write(lambda pod: pod["metadata"].update({field: value}), generation=False)

    def set_phase(self, phase: str) -> None:
        """Another client sets the phase, as the Pod garbage collector does."""
        if self.stored["status"]["phase"] not in TERMINAL:
            self._write(lambda pod: pod["status"].update({"phase": phase}), generation=False)

    def evict(self, grace: float) -> None:
        self.worker.evict("Evicted", "the node is low on resource: memory. ", grace, disruption=True)
        self.changed = True

    def crash(self, *, with_effect: bool, stops_go_on: bool, away: float = 0.0) -> None:
        """Kill the agent and start it again, after some seconds."""
        self.crashes += 1
        self.runtime.crash(with_effect=with_effect, stops_go_on=stops_go_on)
        self.now += away
        self.runtime.kill_overdue()
        self.node = NodeState("node-1", "192.0.2.1")
        self.worker = self._start_worker()

    def _write(self, change: Any, *, generation: bool) -> None:
        if self.removed:
            return
        pod = deepcopy(self.stored)
        change(pod)
        pod["metadata"]["resourceVersion"] = str(int(pod["metadata"]["resourceVersion"]) + 1)
        if generation:
            pod["metadata"]["generation"] += 1
        self.stored = pod
        if self.worker.update(cast(Pod, deepcopy(pod))):
            self.changed = True

    # -- the agent -----------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Step the worker until it has nothing to do, and report the status after each step."""
        if self.removed:
            return
        self.changed = False
        for _ in range(_MAX_STEPS):
            again = self.worker.step(self.now)
            self._check_worker()
            if not self._report():
                self.changed = True
                return
            if self.worker.finished and self.worker.deleting:
                self._remove()
                return
            if not again:
                break
        else:
            raise AssertionError(f"the worker is busy: {self.worker.status(self.now)}")
        ends = self.worker.reported["phase"] in TERMINAL and not self.worker.terminating
        if not self.changed and not ends:
            self._check_idle()

    def _report(self) -> bool:
        worker = self.worker
        before = self.stored["status"]
        status = worker.status(self.now)
        new = status_changes(worker.reported, status)
        if not new or runs_init_again(worker.containers, worker.reported, status, worker.spec):
            worker.status_written(worker.reported, worker.reported_version)
            return True
        if not self.api_works:
            return False
        pod = deepcopy(self.stored)
        pod["status"] = _merged(before, new)
        self._check_status(before, pod)
        pod["metadata"]["resourceVersion"] = str(int(pod["metadata"]["resourceVersion"]) + 1)
        self.stored = pod
        version = int(pod["metadata"]["resourceVersion"])
        worker.status_written(deepcopy(pod["status"]), version)
        worker.update(cast(Pod, deepcopy(pod)))
        return True

    def _remove(self) -> None:
        self.worker.cancel()
        self.worker.release_resources()
        self.runtime.remove_pod(UID)
        self.removed = True
        assert not self.runtime.running
        assert self.runtime.releases == 1 or self.crashes or not self.runtime.mounted
        assert not self.node.pods

    # -- progress ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything succeed from now on: the Pod must reach the state that it should have."""
        self.api_works = True
        for _ in range(_MAX_FAIR_TURNS):
            if self.changed:
                self.sync()
            elif self.removed or self._is_settled():
                return
            elif self.runtime.completable:
                self.complete(self.runtime.completable[0])
            elif stopping := [each for each in self.runtime.running if each.kill_at is not None]:
                self.exit(stopping[0], 0)
            elif init := [each for each in self.runtime.running if self._kind(each) == INIT]:
                self.exit(init[0], 0)
            else:
                due = self.worker.next_step_at
                assert due is not None, f"the worker waits for nothing: {self.worker.status(self.now)}"
                self.now = max(self.now, due)
                self.runtime.kill_overdue()
                self.changed = True
        raise AssertionError(f"no progress: {self.worker.status(self.now)}, {self.runtime.pending}")

    def _kind(self, run: Run) -> str:
        return self.worker.container(run.record.name).kind

    def _is_settled(self) -> bool:
        """Return whether the Pod is as it should be: removed, or ended, or all containers run that should."""
        worker = self.worker
        if self.deleting:
            return False
        if worker.finished:
            return self.stored["status"]["phase"] in TERMINAL
        if worker.terminating or self.stored["status"]["phase"] != "Running":
            return False
        images = {each["name"]: each["image"] for each in self.stored["spec"]["containers"]}
        if any(each.image != images.get(each.record.name, each.image) for each in self.runtime.running):
            return False
        return all(
            each.running and each.ready if each.needs_start(worker.spec) or each.running else True
            for each in worker.containers
            if each.kind in (MAIN, SIDECAR)
        )

    # -- invariants ----------------------------------------------------------------------------------------------------

    def _check_start_request(self, config: ContainerConfig) -> None:
        assert not self.worker.deleting and not self.worker.terminating, f"{config.name} starts at the end"
        assert self.worker.reported["phase"] not in TERMINAL

    def _check_start(self, config: ContainerConfig) -> None:
        """A container is about to start."""
        states = {each.name: each for each in self.worker.containers}
        name, kind = config.name, states[config.name].kind
        # A run whose start was not confirmed, and that ended with its sandbox, is not known to the agent.
        runs = [each for each in self.runtime.runs_of(name) if each.known or not each.removed]
        assert all(each.record.attempt < config.attempt for each in runs if not each.removed)
        if self.crashes:
            assert config.attempt <= len(runs)
        else:
            assert config.attempt == len(runs), f"attempt {config.attempt} of {name} after {len(runs)} runs"
        # A run that was not reported, and that the runtime removed, is not known to an agent that was restarted.
        known = [each for each in runs if not self.crashes or each.record.id in self._reported_ids]
        if self.stored["spec"]["restartPolicy"] == "Never" and kind in (INIT, MAIN):
            assert len(known) <= self.replacements, f"{name} restarts although its policy is Never"
        if kind == EPHEMERAL:
            assert not known, "an ephemeral container restarts"
            return
        if kind == INIT:
            running = [each for each in self.runtime.running if self._kind(each) == MAIN]
            assert not running, f"{name} starts while {running} run"
        for before in self.worker.containers[: self.worker.containers.index(states[name])]:
            earlier = self.runtime.runs_of(before.name)
            if before.kind == INIT:
                assert earlier and earlier[-1].record.finished_at is not None, f"{name} starts before {before.name}"
                assert earlier[-1].record.exit_code == 0, f"{name} starts although {before.name} failed"
            elif before.kind == SIDECAR:
                assert earlier, f"{name} starts before the sidecar {before.name}"

    def _check_worker(self) -> None:
        for container in self.worker.containers:
            if container.kind != EPHEMERAL:
                started = self.events.count("Started", container.field_path)
                assert started <= len(self.runtime.runs_of(container.name)), (
                    f"{container.name}: {started} times Started"
                )
        due = self.worker.next_step_at
        assert due is None or due > self.now - 1e-6, f"a step is due {self.now - (due or 0)} s ago"

    def _check_idle(self) -> None:
        """Nothing has happened since the last step: another one has nothing to do."""
        worker = self.worker
        due, requests, events = worker.next_step_at, len(self.runtime.requests), len(self.events.found)
        assert due is None or due > self.now, "the worker is busy"
        if not worker.finished and due is None:
            waits = self.runtime.pending or self.runtime.running
            assert waits, f"the worker waits for nothing: {worker.status(self.now)}"
        assert not worker.step(self.now), "a step without a change wants another one"
        due = worker.next_step_at
        assert due is None or due > self.now, "the worker is busy"
        new = self.runtime.requests[requests:]
        # After a container could not be created, the next one that starts looks for the image volumes again.
        assert not new or (worker.image_volumes is not None and set(new) == {"find image"}), new
        assert len(self.events.found) == events, self.events.found[events:]
        status = worker.status(self.now)
        if not runs_init_again(worker.containers, worker.reported, status, worker.spec):
            assert not status_changes(worker.reported, status)

    def _check_status(self, before: ObjView, pod: Obj) -> None:
        status = pod["status"]
        assert status["phase"] in _PHASES
        if before["phase"] in TERMINAL:
            assert status["phase"] == before["phase"], "a terminal phase changed"
        assert {each["type"] for each in status["conditions"]} >= _CONDITIONS
        problems: Errors = []
        validate_pod_status(pod, self.stored, problems)
        assert not problems, problems
        known = {each["name"]: each for field in _STATUS_FIELDS.values() for each in before.get(field) or ()}
        for container in self.worker.containers:
            (own,) = [each for each in status[_STATUS_FIELDS[container.kind]] if each["name"] == container.name]
            self._check_container_status(container, own, known.get(container.name) or {})

    def _check_container_status(self, container: ContainerState, status: ObjView, before: ObjView) -> None:
        assert len(status["state"]) == 1, status
        self._reported_ids.add(status.get("containerID", ""))
        assert status["restartCount"] >= before.get("restartCount", 0), "a restart count fell"
        runs = self.runtime.runs_of(container.name)
        if not self.crashes:
            ended = sum(not each.running for each in runs if each.record.attempt < status["restartCount"])
            assert ended == status["restartCount"], f"{ended} ended runs: {status}"
        if container.kind in (MAIN, SIDECAR) and status["ready"]:
            assert "running" in status["state"], status
        if self.worker.finished and container.kind == MAIN and not self.stored["spec"].get("initContainers"):
            assert "terminated" in status["state"], f"a Pod that has ended has a container that waits: {status}"
        if "running" in status["state"]:
            assert runs[-1].record.id == status["containerID"], "the status shows another run"


def _deletion(now: float, grace: int) -> Obj:
    return {"deletionTimestamp": format_epoch(now + grace), "deletionGracePeriodSeconds": grace}


def _merged(before: ObjView, new: ObjView) -> Obj:
    """Return the status after a strategic merge patch."""
    found = {**before, **{name: value for name, value in new.items() if name != "conditions"}}
    for name in ("podIPs", "hostIPs"):
        if {"$patch": "replace"} in (new.get(name) or ()):
            found[name] = [each for each in new[name] if "$patch" not in each]
        elif name in new and name in before:  # merged by address
            found[name] = [*new[name], *(each for each in before[name] if each not in new[name])]
    conditions = {each["type"]: each for each in before.get("conditions") or ()}
    for each in new.get("conditions") or ():
        if each.get("$patch") == "delete":
            conditions.pop(each["type"], None)
        else:
            merged = {**conditions.get(each["type"], {}), **each}
            conditions[each["type"]] = {name: value for name, value in merged.items() if value is not None}
    found["conditions"] = list(conditions.values())
    return deepcopy(found)
