"""Starts and stops containers: back-off, image pull, configuration, lifecycle hooks, grace periods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_duration
from setpoint.node.container_state import (
    MAIN,
    POST_START_HOOK_ERROR,
    SIDECAR,
    Backoff,
    ContainerState,
    Termination,
)
from setpoint.node.environment import ContainerConfigError, check_environment
from setpoint.node.image_pulls import ERR_IMAGE_PULL, ImagePull, PullFailure
from setpoint.node.pod_status import terminated
from setpoint.node.runtime.interface import START_ERROR, Image
from setpoint.node.volumes import check_mounts

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_MIN_GRACE = 2.0
"""The minimum of seconds between SIGTERM and SIGKILL."""
_BACKOFF_SHOWN_AFTER = 1.0
"""Seconds after a failure at which the status shows the back-off: a kubelet reports the plain failure first."""
_CONFIG_RETRY = 10.0
"""Seconds until a container that could not be configured is tried again."""


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
        if hook and seconds > 0 and _has_action(hook):
            container.termination.pre_stop_hook = self._runtime.run_hook(
                self._worker.uid, container.spec, hook, now, pre_stop=True
            )

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
        """Return whether the pre-stop hook has completed or its time is over."""
        hook = termination.pre_stop_hook
        if hook is None:
            return True
        result = hook.result(now)
        if result is None:
            if now < termination.deadline:
                self._worker.schedule(termination.deadline)
                self._worker.schedule(hook.ready_at)
                return False
            hook.cancel()
        elif not result.success:
            self._worker.event("Warning", "FailedPreStopHook", "PreStopHook failed", container)
        termination.pre_stop_hook = None
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
        if container.starting is not None:
            self.progress_start(container, now)
            return
        if self._in_crash_backoff(container, now):
            return
        if now < container.start_retry_at:
            self._worker.schedule(container.start_retry_at)
            return
        image = self._ensure_images(container, now)
        if image is None:
            return
        try:
            check_environment(self._worker.pod, container.spec, self._dependencies.lister)
            check_mounts(self._worker, container.spec)
        except ContainerConfigError as problem:
            self._creation_failed(container, "CreateContainerConfigError", str(problem), now)
            return
        config = self._worker.container_config(container, image)
        container.starting = (
            container.spec.get("image", ""),
            self._dependencies.runtime.start_container(self._worker.uid, config, now),
        )
        self.progress_start(container, now)

    def _creation_failed(self, container: ContainerState, reason: str, message: str, now: float) -> None:
        container.waiting = (reason, message)
        self._worker.event("Warning", "Failed", f"Error: {message}", container)
        if self._worker.image_volumes is not None:
            self._worker.image_volumes.forget()
        container.start_retry_at = now + _CONFIG_RETRY
        self._worker.schedule(container.start_retry_at)

    def _in_crash_backoff(self, container: ContainerState, now: float) -> bool:
        record = container.record
        if record is None or record.finished_at is None or container.counted_run is record:
            return False
        if container.crash_backoff is None:
            container.crash_backoff = Backoff(self._dependencies.runtime.initial_backoff)
        ends = container.crash_backoff.ends(record.finished_at)
        if ends is not None and now < ends:
            shown_at = min(record.finished_at + _BACKOFF_SHOWN_AFTER, ends)
            shown = container.waiting is not None and container.waiting[0] == "CrashLoopBackOff"
            if now >= shown_at and not shown:
                shown = True
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
            self._worker.schedule(ends if shown else shown_at)
            return True
        container.crash_backoff.next(record.finished_at, now)
        container.counted_run = record
        if self._worker.image_volumes is not None:
            self._worker.image_volumes.forget()
        return False

    # -- images -------------------------------------------------------------------------------------------------------

    def _ensure_images(self, container: ContainerState, now: float) -> Image | None:
        """Return the image of the container once it and the image volumes are present on the node; None while they are
        pulled or if they cannot be."""
        volumes = self._worker.image_volumes
        if volumes is not None:
            found = volumes.progress(self._worker, container, now)
            if isinstance(found, PullFailure):
                if container.waiting is not found:
                    self._pull_failed(container, found)
                return None
            if not found:
                return None
        if container.pull is None:
            container.pull = ImagePull(container.spec.get("image", ""), container.spec.get("imagePullPolicy") or "")
        image = container.pull.progress(self._worker, container, now)
        if isinstance(image, Image):
            container.pull = None
            return image
        if image is not None:
            self._pull_failed(container, image)
        return None

    def _pull_failed(self, container: ContainerState, failure: PullFailure) -> None:
        worker = self._worker
        container.waiting = failure
        worker.event("Warning", "Failed", f"Error: {failure.reason}", container)
        if failure.reason != ERR_IMAGE_PULL:
            return
        namespace = worker.pod["metadata"]["namespace"]
        names = [each.get("name") or "" for each in worker.spec.get("imagePullSecrets") or ()]
        missing = [name for name in names if name and self._dependencies.lister.secret(namespace, name) is None]
        if missing:
            text = "attempting to pull the image may not succeed."
            text = f"Unable to retrieve some image pull secrets ({', '.join(missing)}); {text}"
            worker.event("Warning", "FailedToRetrieveImagePullSecret", text)

    # -- start and post-start hook -------------------------------------------------------------------------------------

    def progress_start(self, container: ContainerState, now: float) -> None:
        """Take over the result of a start that is in progress, if it has one."""
        assert container.starting is not None
        image, starting = container.starting
        result = starting.result(now)
        if result is None:
            self._worker.schedule(starting.ready_at)
            return
        container.starting = None
        if result.record is None:
            self._creation_failed(container, result.reason, result.error, now)
            return
        worker = self._worker
        worker.event("Normal", "Created", "Container created", container)
        if container.record is not None:
            container.last_state = terminated(container.record)
        container.record = result.record
        container.attempt += 1
        container.image = "" if result.record.outdated else image
        container.replaced = False
        container.waiting = container.termination = None
        for probe in container.probes:
            probe.reset()
        if container.record.reason == START_ERROR:
            worker.event("Warning", "Failed", f"Error: {container.record.message}", container)
            container.waiting = ("RunContainerError", container.record.message)
        else:
            worker.event("Normal", "Started", "Container started", container)
        hook = (container.spec.get("lifecycle") or {}).get("postStart")
        if hook and container.record.running and _has_action(hook) and not worker.terminating:
            container.post_start_hook = self._dependencies.runtime.run_hook(
                worker.uid, container.spec, hook, now, pre_stop=False
            )
            self.post_start_done(container, now)

    def post_start_done(self, container: ContainerState, now: float) -> bool:
        """Return whether the post-start hook has completed; stop the container if it failed."""
        hook = container.post_start_hook
        if hook is None or not container.running:
            container.post_start_hook = None
            return True
        result = hook.result(now)
        if result is None:
            self._worker.schedule(hook.ready_at)
            self._worker.schedule(self._dependencies.runtime.advance(self._worker.uid, now))
            return False
        container.post_start_hook = None
        if not result.success:
            self._worker.event("Warning", "FailedPostStartHook", "PostStartHook failed", container)
            container.waiting = (POST_START_HOOK_ERROR, result.message)
            stopper = ContainerStopper(self._worker)
            if container.termination is None:
                stopper.stop(container, now, "FailedPostStartHook", None)
            stopper.progress(now)
        return True


def _has_action(hook: ObjView) -> bool:
    """Return whether a lifecycle hook does anything; the kubelet ignores `tcpSocket`."""
    return any(hook.get(action) for action in ("exec", "httpGet", "sleep"))


def _shown(seconds: float) -> str:
    return format_duration(int(round(seconds, 3) * 1e9))
