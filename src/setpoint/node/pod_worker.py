"""The worker of one Pod: decides what to do next, and when. No call suspends; `step` does everything that is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from setpoint.kinds.core.pod_demand import host_ports
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.node.allocation import PodResizer, admission_failure, requested_resources
from setpoint.node.container_lifecycle import ContainerStarter, ContainerStopper
from setpoint.node.container_state import (
    EPHEMERAL,
    INIT,
    MAIN,
    RESTARTING_ALL,
    SIDECAR,
    ContainerState,
    container_states,
    matching_action,
)
from setpoint.node.dependencies import PodWorkerDependencies
from setpoint.node.environment import build_environment
from setpoint.node.image_pulls import ImageVolumes
from setpoint.node.node_state import NodeState
from setpoint.node.pod_setup import PodSetup
from setpoint.node.pod_status import REJECTED, TERMINAL, PodState, mark_unlocated, pod_status, terminated
from setpoint.node.prober import Prober
from setpoint.node.recovery import recover
from setpoint.node.runtime.files import Mount
from setpoint.node.runtime.interface import ContainerConfig, Image
from setpoint.node.volumes import mounts_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    """Drives one Pod from admission to termination; `step` is called whenever something may have changed."""

    __slots__ = (
        "_next_step_at",
        "_setup",
        "admission_done",
        "allocated_resources",
        "containers",
        "dependencies",
        "eviction_grace",
        "image_volumes",
        "initialized",
        "may_need_resize",
        "node",
        "observed_versions",
        "pod",
        "pod_state",
        "reported",
        "reported_version",
        "terminating",
        "trigger",
        "uid",
    )

    def __init__(self, pod: Pod, node: NodeState, dependencies: PodWorkerDependencies, now: float) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.node = node
        self.dependencies = dependencies
        self.containers = container_states(pod["spec"])
        self.reported: Mapping[str, Any] = pod.get("status") or {}
        """The status as stored in the API."""
        self.reported_version = int(pod["metadata"].get("resourceVersion") or 0)
        """The resource version of `reported`; for a static Pod, which has none, the number of its changes."""
        self.trigger = self.reported_version
        """The last revision of the Pod that this agent did not write."""
        self.observed_versions: list[int] | None = None
        """Resource versions that were observed during a status write, one of which may be that of the write; None
        otherwise."""
        self.pod_state = PodState(node.address, node.addresses)
        self.admission_done = False
        """Whether the node has admitted or rejected the Pod."""
        self.terminating = False
        """Whether all containers are being stopped for good."""
        self.eviction_grace: float | None = None
        """The grace period in seconds with which the node evicts the Pod; None if it does not."""
        self.image_volumes = ImageVolumes(pod["spec"]) if _has_image_volumes(pod["spec"]) else None
        """The images that the Pod mounts as volumes; None if it mounts none."""
        self.initialized = False
        """Whether the init containers have completed and the main containers may start."""
        self.allocated_resources: Mapping[str, int] = {}
        """The node's resources that are allocated to the Pod, by resource."""
        self.may_need_resize = bool(self.reported.get("containerStatuses"))
        """Whether the requested resources may differ from the allocated ones."""
        self._setup = PodSetup()
        self._next_step_at = float("inf")
        known = self.reported.get("containerStatuses") or dependencies.runtime.records(self.uid).current
        if known or self.reported.get("phase") in TERMINAL:
            self.admission_done = True
            recover(self, now)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.pod["spec"]
        return found

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def finished(self) -> bool:
        """Return whether nothing runs and no container will be started again."""
        return self.pod_state.ended

    def container(self, name: str) -> ContainerState:
        return next(container for container in self.containers if container.name == name)

    def schedule(self, at: float | None) -> None:
        """Take the next step at this time, unless it is scheduled earlier; None changes nothing."""
        if at is not None and at < self._next_step_at:
            self._next_step_at = at

    @property
    def next_step_at(self) -> float | None:
        """The time of the next step; None if it depends on a change of the Pod or of the runtime."""
        return None if self._next_step_at == float("inf") else self._next_step_at

    def event(self, kind: str, reason: str, message: str, container: ContainerState | None = None) -> None:
        path = container.field_path if container is not None else ""
        record = self.dependencies.events.normal if kind == "Normal" else self.dependencies.events.warning
        record(self.pod, reason, message, field_path=path, host=self.node.name)

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        self.refresh_allocatable()
        return build_environment(self.pod, container, self.pod_state, self.dependencies.lister)

    def container_config(self, container: ContainerState, image: Image) -> ContainerConfig:
        config = ContainerConfig(
            container.name, image.name, image.id, container.attempt, container.spec, self.pod, self
        )
        if self.image_volumes is not None:
            config.image_volumes = {name: each.id for name, each in self.image_volumes.images.items()}
        return config

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        self.refresh_allocatable()
        return mounts_of(self, container)

    def refresh_allocatable(self) -> None:
        """Take over the node's allocatable resources, which the downward API shows."""
        self.pod_state.allocatable = ((self.node.object or {}).get("status") or {}).get("allocatable") or {}

    # -- updates -------------------------------------------------------------------------------------------------------

    def update(self, pod: Pod) -> bool:
        """Take over a new version of the Pod. Return whether it contains a change that this agent did not write."""
        old, self.pod = self.pod, pod
        self.dependencies.runtime.update_pod(self.uid, pod)
        version = int(pod["metadata"]["resourceVersion"])
        if version < self.reported_version:
            return True
        own = version == self.reported_version
        self.reported, self.reported_version = pod.get("status") or {}, version
        before, after = old["metadata"], pod["metadata"]
        if before.get("generation") != after.get("generation"):
            self._apply_new_spec()
            self.may_need_resize = True
        if any(before.get(name) != after.get(name) for name in ("labels", "annotations")):
            return True
        if self.observed_versions is not None and before.get("deletionTimestamp") == after.get("deletionTimestamp"):
            self.observed_versions.append(version)
            return False
        return not own

    def delete(self, at: str) -> None:
        """End a static Pod whose file is gone, gracefully, as the API deletes other Pods."""
        grace = self.spec.get("terminationGracePeriodSeconds", 30)
        meta = {**self.pod["metadata"], "deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
        self.pod = cast("Pod", {**self.pod, "metadata": meta})

    def _apply_new_spec(self) -> None:
        known = {container.name: container for container in self.containers}
        fresh = container_states(self.spec)
        for container in fresh:
            before = known.get(container.name)
            if before is not None:
                if before.spec.get("image") != container.spec.get("image"):
                    # The failed pulls were of another image.
                    before.pull = None
                    before.start_retry_at = 0.0
                before.spec = container.spec
        self.containers = [known.get(container.name, container) for container in fresh]

    def status(self, now: float) -> Obj:
        self.pod_state.recursive_read_only = self.node.recursive_read_only
        return pod_status(self.pod, self.containers, self.pod_state, self.reported, now)

    def status_written(self, status: Mapping[str, Any], version: int) -> None:
        """Record that the API stores this status, as of this resource version."""
        if version > self.reported_version:
            self.reported, self.reported_version = status, version
        for container in self.containers:
            if container.record is not None:
                container.reported_run = (container.record.id, not container.record.running)

    # -- step ----------------------------------------------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Do everything that is due. Return whether the status must be reported before the next step."""
        self._next_step_at = float("inf")
        if self.finished:
            return False
        self.schedule(self.dependencies.runtime.advance(self.uid, now))
        if self._has_unreported_exit():
            return True
        is_terminal = self.reported.get("phase") in TERMINAL  # another client may have set the phase
        evicted = self.eviction_grace is not None
        if self.terminating or is_terminal or self.deleting or evicted or self._deadline_exceeded(now):
            return self._end(now)
        if not self.admission_done and not self._admit(now):
            return False
        if not self._setup.mount_volumes(self, now) or not self._setup.ensure_sandbox(self, now):
            return False
        if Prober(self).run(now):
            return True
        if self.may_need_resize and PodResizer(self).progress(now):
            return True
        self._replace_changed(now)
        ContainerStopper(self).progress(now)
        if self._restart_all(now):
            return True
        if any(container.running and container.is_restarted_with_all for container in self.containers):
            return False  # no container starts before all have ended
        again = self._run_containers(now)
        if self.may_need_resize and PodResizer(self).progress(now):
            again = True  # a resize completes when the containers that it has stopped run again
        self.schedule(self.dependencies.runtime.advance(self.uid, now))
        return again or any(self._must_replace(container) for container in self.containers)

    def _has_unreported_exit(self) -> bool:
        """Return whether a container ended that was last reported as running, or that failed."""
        for container in self.containers:
            record = container.record
            if record is None or record.running or container.reported_run == (record.id, True):
                continue
            if container.superseded:
                continue  # reported together with the container that replaces it
            if record.exit_code or container.reported_run == (record.id, False) or container.kind in (MAIN, SIDECAR):
                return True
        return False

    def _deadline_exceeded(self, now: float) -> bool:
        seconds, started = self.spec.get("activeDeadlineSeconds"), self.reported.get("startTime")
        if seconds is None:
            return False
        at = (parse_time(started).timestamp() if started else int(now)) + seconds
        if now < at:
            self.schedule(at)
            return False
        if self.pod_state.failure is None:
            self.pod_state.failure = _DEADLINE
            # A kubelet records it whenever it computes the status: now, when it begins and ends to stop the containers,
            # and at the end.
            self.event("Normal", *_DEADLINE)
            self.event("Normal", *_DEADLINE)
        return True

    def _admit(self, now: float) -> bool:
        """Admit or reject the Pod. Return whether it is admitted."""
        self.admission_done = True
        problem = admission_failure(self.pod, self.node) or self.dependencies.admission_check(self.pod)
        if problem is None:
            self.allocate_resources()
            for container in self.containers:
                for probe in container.probes:
                    probe.tick(now)
            return True
        reason, message = problem
        self.event("Warning", reason, message)
        self.pod_state.failure = (reason, REJECTED + message)
        self.pod_state.ended = self.pod_state.rejected = True
        return False

    def sandbox_lost(self) -> None:
        """Prepare the start of all containers in a new sandbox."""
        self.pod_state.sandbox_ready = False
        if self.spec.get("restartPolicy") != "Never":
            self._restart_init_containers()

    # -- containers ---------------------------------------------------------------------------------------------------

    def _run_containers(self, now: float) -> bool:
        """Start the containers that are due. Return whether the status must be reported before the next step."""
        starter = ContainerStarter(self)
        for container in self.containers:
            if container.kind == EPHEMERAL and container.record is None:
                starter.start(container, now)
        if not self._initialize(starter, now):
            return self._has_unreported_exit() or Prober(self).start(now)
        wanted = False
        for container in self.containers:
            if container.kind != MAIN:
                continue
            if container.termination is not None or container.running:
                wanted = True
                if container.post_start_hook is not None and not starter.post_start_done(container, now):
                    return Prober(self).run(now)  # the following containers wait until the hook has completed
            elif container.needs_start(self.spec):
                wanted = True
                starter.start(container, now)
                if container.post_start_hook is not None:
                    return Prober(self).run(now)
        if not wanted:
            return self._end(now)
        if self._has_unreported_exit():
            return True
        return Prober(self).start(now)

    def _replace_changed(self, now: float) -> None:
        """Stop containers whose image in the spec has changed, so that they restart with the new one."""
        for container in self.containers:
            if self._must_replace(container):
                if container.kind == MAIN:
                    text = f"Container {container.name} definition changed, will be restarted"
                else:
                    text = f"Init container {container.name} definition changed"
                ContainerStopper(self).stop(container, now, text, None)
                container.replaced = True

    def _must_replace(self, container: ContainerState) -> bool:
        if self.terminating or container.kind not in (MAIN, SIDECAR) or container.is_restarted_with_all:
            return False
        return container.running and container.termination is None and container.image != container.spec.get("image")

    def _initialize(self, starter: ContainerStarter, now: float) -> bool:
        """Start the init containers that are due. Return whether all have completed."""
        was_initialized = self.initialized
        for container in self.containers:
            if container.kind == SIDECAR:
                if container.termination is None and container.needs_start(self.spec):
                    starter.start(container, now)
                if container.post_start_hook is not None:
                    starter.post_start_done(container, now)
                if not was_initialized and not container.started:
                    return False
            elif container.kind == INIT and not was_initialized:
                if container.ready:
                    continue
                if container.needs_start(self.spec):
                    starter.start(container, now)
                elif not container.running:
                    self._end(now)
                    return False
                if not container.ready:
                    return False
        self.initialized = True
        return True

    # -- restarts of the whole Pod -------------------------------------------------------------------------------------

    def power_lost(self, now: float) -> None:
        """End all containers abruptly, as when the node loses power; they restart if the node comes back."""
        if self.finished:
            return
        self.dependencies.runtime.power_off(self.uid, now)
        self.sandbox_lost()

    def _restart_init_containers(self) -> None:
        """Reset the init containers, so that they run again."""
        self.initialized = False
        for container in self.containers:
            container.termination = container.post_start_hook = None
            if container.kind == INIT and container.record is not None and not container.record.running:
                container.last_state, container.record = terminated(container.record), None

    def _restart_all(self, now: float) -> bool:
        """Restart all containers if one ended for which a restart rule demands it. Return whether that happened."""
        for container in self.containers:
            record = container.record
            if record is None or record.running or record.reason == RESTARTING_ALL:
                continue
            if (
                matching_action(container.spec, record.exit_code) == "RestartAllContainers"
                and container.counted_run is not record
            ):
                break
        else:
            return False
        for container in self.containers:
            if container.record is not None and container.kind != EPHEMERAL:
                self.dependencies.runtime.kill_container(self.uid, container.name, now, RESTARTING_ALL)
                container.record.reason = RESTARTING_ALL
                container.counted_run = container.record  # no container failed, so there is no back-off
        self._restart_init_containers()
        return True

    # -- termination ---------------------------------------------------------------------------------------------------

    def evict(self, reason: str, message: str, grace: float, *, disruption: bool, announced: bool = True) -> None:
        """Fail the Pod with this reason and message in the next step. With `disruption`, it gets the condition
        DisruptionTarget too; if it is `announced`, there is an Event."""
        if self.pod_state.failure is None and not self.finished:
            self.pod_state.failure, self.eviction_grace = (reason, message), grace
            self.pod_state.disruption = message if disruption else ""
            if announced:
                self.event("Warning", reason, message)

    def _end(self, now: float) -> bool:
        """Stop all containers. Return whether the status must be reported before the next step."""
        stopper = ContainerStopper(self)
        if not self.terminating:
            self.terminating = True
            self.admission_done = True
        meta = self.pod["metadata"]
        if "deletionGracePeriodSeconds" in meta and self.deleting:
            grace = float(meta["deletionGracePeriodSeconds"])
        elif self.eviction_grace is not None:
            grace = self.eviction_grace
        else:
            grace = float(self.spec.get("terminationGracePeriodSeconds", 30))
        starts_done = self._finish_starts(now)
        stopper.stop_all(now, grace)
        stopper.progress(now)
        self.schedule(self.dependencies.runtime.advance(self.uid, now))
        Prober(self).run(now)
        if not starts_done or any(container.running for container in self.containers):
            return self._has_unreported_exit()
        if not self._setup.release(self, now):
            return False
        if self.pod_state.failure == _DEADLINE:
            self.event("Normal", *_DEADLINE)
            self.event("Normal", *_DEADLINE)
        self.pod_state.ended = True
        mark_unlocated(self.pod, self.containers, self.initialized, self.reported)
        self.pod_state.sandbox_ready = False
        self.release_resources()
        return False

    def _finish_starts(self, now: float) -> bool:
        """Take over the containers that were being started when the Pod began to end. Return whether none is left."""
        starter = ContainerStarter(self)
        for container in self.containers:
            if container.starting is None:
                continue
            starting = container.starting[1]
            if starting.result(now) is not None:
                starter.progress_start(container, now)
            elif starting.ready_at is not None:
                starting.cancel()
                container.starting = None
        return not any(container.starting for container in self.containers)

    def allocate_resources(self, again: bool = False) -> None:
        """Allocate the node's resources and ports that the Pod requests; with `again`, after a resize."""
        if again:
            self.release_resources()
        if self.uid not in self.node.pods:
            self.allocated_resources = requested_resources(self.pod)
            self.node.allocate_resources(self.uid, self.allocated_resources)
            ports = host_ports(self.spec)
            if ports:
                self.node.ports[self.uid] = ports

    def cancel(self) -> None:
        """Give up all operations that are in progress, because the Pod does not exist any more."""
        self._setup.cancel()
        if self.image_volumes is not None:
            self.image_volumes.cancel()
        for container in self.containers:
            container.cancel()

    def release_resources(self) -> None:
        """Release the resources that were allocated to the Pod."""
        self.node.release_resources(self.uid, self.allocated_resources)


def _has_image_volumes(spec: Mapping[str, Any]) -> bool:
    return any(each.get("image") is not None for each in spec.get("volumes") or ())
