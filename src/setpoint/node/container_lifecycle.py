"""Starts and stops containers: back-off, image pull, configuration, lifecycle hooks, grace periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_duration
from setpoint.node.container_state import MAIN, SIDECAR, Backoff, ContainerState, Termination
from setpoint.node.environment import ContainerConfigError, check_environment
from setpoint.node.pod_status import terminated
from setpoint.node.runtime.containers import START_ERROR
from setpoint.node.runtime.images import ImageInfo
from setpoint.node.runtime.interface import ContainerConfig
from setpoint.node.runtime.network import ConnectionFailure, PodRequest, PodResponse
from setpoint.node.simulation_annotations import parse_seconds, simulation_annotation
from setpoint.node.volumes import check_mounts

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_MIN_GRACE = 2.0
"""The minimum of seconds between SIGTERM and SIGKILL."""
_BACKOFF_SHOWN_AFTER = 1.0
"""Seconds after a failure at which the status shows the back-off: a kubelet reports the plain failure first."""
_CONFIG_RETRY = 10.0
"""Seconds until a container that could not be configured is tried again."""


def _http_hook_succeeded(worker: PodWorker, container: ObjView, hook: ObjView) -> bool:
    """Return whether the request of the hook succeeds. It does where the simulation does not know what the server would
    respond."""
    path, _, query = str(hook.get("path") or "/").partition("?")
    request = PodRequest(resolve_port(container, hook.get("port")), path, query, "GET", hook.get("scheme") == "HTTPS")
    found = worker.dependencies.runtime.http_request(worker.uid, container["name"], hook.get("host") or "", request)
    return found is ConnectionFailure.RESET or (isinstance(found, PodResponse) and 200 <= found.status < 400)


def resolve_port(container: ObjView, wanted: Any) -> int:
    if isinstance(wanted, int):
        return wanted
    ports = container.get("ports") or ()
    named = next((each["containerPort"] for each in ports if each.get("name") == wanted), None)
    if named is not None:
        return int(named)
    return int(wanted) if str(wanted).isdigit() else 80


class ContainerStopper:
    """Stops the containers of a Pod: pre-stop hook, order of sidecars, SIGTERM, grace period."""

    __slots__ = ("_runtime", "_worker")

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker
        self._runtime = worker.dependencies.runtime

    def stop_all(self, now: float, grace: float) -> None:
        for container in self._worker.containers:
            if not container.running:
                continue
            if container.termination is None:
                self.stop(container, now, "", grace)
            elif now + grace < container.termination.deadline:
                # A later deletion request has a shorter grace period.
                container.termination.deadline = now + grace
                if container.termination.signaled:
                    self._runtime.stop_container(self._worker.uid, container.name, now, max(grace, _MIN_GRACE))

    def stop(self, container: ContainerState, now: float, message: str, grace: float | None) -> None:
        """Begin to stop a container; `progress` completes it. `grace` is in seconds; None means the Pod's grace
        period."""
        spec = self._worker.spec
        seconds = float(spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace
        container.termination = Termination(now, seconds)
        self._worker.event("Normal", "Killing", message or f"Stopping container {container.name}", container)
        hook = (container.spec.get("lifecycle") or {}).get("preStop")
        if hook and seconds > 0:
            if hook.get("sleep"):
                container.termination.hook_deadline = min(
                    now + float(hook["sleep"].get("seconds", 0)), container.termination.deadline
                )
            elif hook.get("httpGet"):
                if not _http_hook_succeeded(self._worker, container.spec, hook["httpGet"]):
                    self._worker.event("Warning", "FailedPreStopHook", "PreStopHook failed", container)
            elif hook.get("exec"):
                container.termination.pre_stop_hook = self._runtime.exec(
                    self._worker.uid, container.name, hook["exec"].get("command") or []
                )
                container.termination.hook_deadline = container.termination.deadline

    def progress(self, now: float) -> None:
        """Advance every termination that has begun: wait for the hook, then signal the container."""
        for container in self._worker.containers:
            termination = container.termination
            if termination is None:
                continue
            if not container.running:
                container.termination = None
            elif not termination.signaled:
                self._progress(container, termination, now)
                if container.superseded and not container.running:
                    container.termination = None

    def _progress(self, container: ContainerState, termination: Termination, now: float) -> None:
        if not self._hook_done(container, termination, now):
            return
        if self._worker.terminating and now < termination.deadline and not self._may_signal(container):
            self._worker.schedule(termination.deadline)
            return
        termination.signaled = True
        left = termination.deadline - termination.begun_at - int(now - termination.begun_at)
        self._runtime.stop_container(self._worker.uid, container.name, now, max(left, _MIN_GRACE))

    def _hook_done(self, container: ContainerState, termination: Termination, now: float) -> bool:
        until = termination.hook_deadline
        if until is None:
            return True
        until = min(until, termination.deadline)
        if termination.pre_stop_hook is not None and termination.pre_stop_hook.exit_code is not None:
            if termination.pre_stop_hook.exit_code:
                self._worker.event("Warning", "FailedPreStopHook", "PreStopHook failed", container)
            termination.pre_stop_hook = termination.hook_deadline = None
            return True
        if now < until:
            self._worker.schedule(until)
            return False
        termination.hook_deadline = None
        return True

    def _may_signal(self, container: ContainerState) -> bool:
        """Return whether the container may be signaled: a sidecar only after the containers behind it, in reverse
        order."""
        if container.kind != SIDECAR:
            return True
        containers = self._worker.containers
        after = containers[containers.index(container) + 1 :]
        return not any(other.running and other.kind in (SIDECAR, MAIN) for other in after)


class ContainerStarter:
    """Starts the containers of a Pod: back-off, image, configuration, creation, post-start hook."""

    __slots__ = ("_dependencies", "_worker")

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker
        self._dependencies = worker.dependencies

    def start(self, container: ContainerState, now: float) -> None:
        """Start the container as far as possible now; schedule the next step if it has to wait."""
        if self._in_crash_backoff(container, now):
            return
        info = self._ensure_image(container, now)
        if info is None:
            return
        try:
            check_environment(self._worker.pod, container.spec, self._dependencies.lister)
            check_mounts(self._worker, container.spec)
        except ContainerConfigError as problem:
            container.waiting = ("CreateContainerConfigError", str(problem))
            self._worker.event("Warning", "Failed", f"Error: {problem}", container)
            self._worker.schedule(now + _CONFIG_RETRY)
            return
        if self._creation_done(container, now):
            self._start_container(container, info, now)

    def _in_crash_backoff(self, container: ContainerState, now: float) -> bool:
        record = container.record
        if record is None or record.finished_at is None or container.counted_run is record:
            return False
        if container.crash_backoff is None:
            container.crash_backoff = Backoff(self._dependencies.runtime.pace.backoff)
        ends = container.crash_backoff.ends(record.finished_at)
        if ends is not None and now < ends:
            shown_at = min(record.finished_at + _BACKOFF_SHOWN_AFTER, ends)
            if now >= shown_at and container.waiting is None:
                meta = self._worker.pod["metadata"]
                pod = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
                wait = format_duration(int(container.crash_backoff.seconds * 1e9))
                container.waiting = (
                    "CrashLoopBackOff",
                    f"back-off {wait} restarting failed container={container.name} pod={pod}",
                )
                self._worker.event(
                    "Warning",
                    "BackOff",
                    f"Back-off restarting failed container {container.name} in pod {pod}",
                    container,
                )
            self._worker.schedule(ends if container.waiting is not None else shown_at)
            return True
        container.crash_backoff.next(record.finished_at, now)
        container.counted_run = record
        return False

    # -- images -------------------------------------------------------------------------------------------------------

    def _ensure_image(self, container: ContainerState, now: float) -> ImageInfo | None:
        """Return the image once it is present on the node; None while it is pulled or if it cannot be."""
        image, node = container.spec.get("image", ""), self._worker.node
        info = self._dependencies.runtime.images.info(image)
        if container.starting is not None and container.starting[0] == image:
            return info
        if info is None:
            problem = f'couldn\'t parse image name "{image}": invalid reference format'
            message = f'Failed to apply default image tag "{image}": {problem}'
            if container.waiting is None or container.waiting[0] != "InvalidImageName":
                self._worker.event("Warning", "InspectFailed", message, container)
                self._set_waiting(container, "InvalidImageName", message)
            return None
        policy = container.spec.get("imagePullPolicy") or "IfNotPresent"
        if container.pulling is not None:
            return self._progress_pull(container, info, image, now)
        if info.name in node.images and policy != "Always":
            text = f'Container image "{image}" already present on machine and can be accessed by the pod'
            self._worker.event("Normal", "Pulled", text, container)
            return info
        if policy == "Never":
            message = f'Container image "{image}" is not present with pull policy of Never'
            if container.waiting is None or container.waiting[0] != "ErrImageNeverPull":
                self._worker.event("Warning", "ErrImageNeverPull", message, container)
                self._set_waiting(container, "ErrImageNeverPull", message)
            self._worker.schedule(now + _CONFIG_RETRY)
            return None
        if container.pull_backoff is not None and not self._pull_backoff_over(
            container, container.pull_backoff, image, now
        ):
            return None
        self._worker.event("Normal", "Pulling", f'Pulling image "{image}"', container)
        duration = (
            0.0
            if info.name in node.images
            else parse_seconds(simulation_annotation(self._worker.pod, "pull-seconds"), info.pull_seconds)
        )
        until = now + duration
        if not info.error:
            until = node.pulls_in_progress.get(info.name, until)  # another container may be pulling the image already
            if until > now:
                node.pulls_in_progress[info.name] = until
        container.pulling = (now, until)
        return self._progress_pull(container, info, image, now)

    def _progress_pull(self, container: ContainerState, info: ImageInfo, image: str, now: float) -> ImageInfo | None:
        assert container.pulling is not None
        began, until = container.pulling
        if now < until:
            self._worker.schedule(until)
            return None
        container.pulling = None
        if info.error:
            self._worker.event("Warning", "Failed", f'Failed to pull image "{image}": {info.error}', container)
            container.pull_backoff = container.pull_backoff or Backoff(self._dependencies.runtime.pace.backoff)
            container.pull_backoff.next(now, now)
            container.pull_error = info.error
            self._set_waiting(container, "ErrImagePull", info.error)
            self._worker.schedule(now + _BACKOFF_SHOWN_AFTER)
            return None
        node = self._worker.node
        node.pulls_in_progress.pop(info.name, None)
        node.add_image(info.name, info.id, info.size_bytes)
        container.pull_backoff = None
        duration = format_duration(int(round(until - began, 3) * 1e9))
        self._worker.event(
            "Normal",
            "Pulled",
            f'Successfully pulled image "{image}" in {duration} ({duration} including waiting). '
            f"Image size: {info.size_bytes} bytes.",
            container,
        )
        return info

    def _pull_backoff_over(self, container: ContainerState, pull: Backoff, image: str, now: float) -> bool:
        ends = pull.updated + pull.seconds
        if now >= ends:
            return True
        if now < pull.updated + _BACKOFF_SHOWN_AFTER:
            self._worker.schedule(pull.updated + _BACKOFF_SHOWN_AFTER)
            return False
        if container.waiting is None or container.waiting[0] != "ImagePullBackOff":
            message = f'Back-off pulling image "{image}"'
            self._worker.event("Normal", "BackOff", message, container)
            self._set_waiting(container, "ImagePullBackOff", f"{message}: ErrImagePull: {container.pull_error}")
        self._worker.schedule(ends)
        return False

    def _set_waiting(self, container: ContainerState, reason: str, message: str) -> None:
        container.waiting = (reason, message)
        self._worker.event("Warning", "Failed", f"Error: {reason}", container)

    def _creation_done(self, container: ContainerState, now: float) -> bool:
        """Return whether the simulated time that the creation of a container takes is over."""
        image = container.spec.get("image", "")
        if container.starting is None or container.starting[0] != image:
            duration = self._dependencies.runtime.pace.start.sample(
                f"{self._worker.uid} {container.name} {container.attempt}"
            )
            container.starting = (image, now + duration)
        if now < container.starting[1]:
            container.waiting = None
            self._worker.schedule(container.starting[1])
            return False
        container.starting = None
        return True

    # -- start and post-start hook -------------------------------------------------------------------------------------

    def _start_container(self, container: ContainerState, info: ImageInfo, now: float) -> None:
        worker = self._worker
        self._worker.event("Normal", "Created", "Container created", container)
        if container.record is not None:
            container.last_state = terminated(container.record)
        container.record = self._dependencies.runtime.start_container(
            worker.uid, self.container_config(container, info), now
        )
        container.attempt += 1
        container.image = container.spec.get("image", "")
        container.replaced = False
        container.waiting = container.termination = None
        for probe in container.probes:
            probe.reset()
        if container.record.reason == START_ERROR:
            worker.event("Warning", "Failed", f"Error: {container.record.message}", container)
        else:
            worker.event("Normal", "Started", "Container started", container)
        hook = (container.spec.get("lifecycle") or {}).get("postStart")
        if (
            hook
            and container.record.running
            and hook.get("httpGet")
            and not _http_hook_succeeded(worker, container.spec, hook["httpGet"])
        ):
            self._hook_failed(container, now)
        if hook and container.record.running and (hook.get("exec") or hook.get("sleep")):
            command = (hook.get("exec") or {}).get("command") or [
                "sleep",
                str((hook.get("sleep") or {}).get("seconds", 0)),
            ]
            container.post_start_hook = self._dependencies.runtime.exec(worker.uid, container.name, command)
            self.post_start_done(container, now)

    def container_config(self, container: ContainerState, info: ImageInfo, container_id: str = "") -> ContainerConfig:
        worker = self._worker
        return ContainerConfig(
            container.name,
            info.name,
            info.id,
            container.attempt,
            container.spec,
            worker.pod,
            worker,
            container_id,
        )

    def post_start_done(self, container: ContainerState, now: float) -> bool:
        """Return whether the post-start hook has completed; stop the container if it failed."""
        hook = container.post_start_hook
        if hook is None or not container.running:
            container.post_start_hook = None
            return True
        if hook.exit_code is None:
            self._worker.schedule(self._dependencies.runtime.advance(self._worker.uid, now))
            return False
        container.post_start_hook = None
        if hook.exit_code:
            self._hook_failed(container, now)
        return True

    def _hook_failed(self, container: ContainerState, now: float) -> None:
        self._worker.event("Warning", "FailedPostStartHook", "PostStartHook failed", container)
        ContainerStopper(self._worker).stop(container, now, "FailedPostStartHook", None)
