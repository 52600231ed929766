"""Brings images onto a node, those of containers and those of image volumes: search, pull policy, pull, back-off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.meta.times import format_duration
from setpoint.node.container_state import Backoff, ContainerState
from setpoint.node.runtime.images import reference_problem
from setpoint.node.runtime.interface import Image, ImageLookup, Operation, PullResult

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

ERR_IMAGE_PULL = "ErrImagePull"
_BACK_OFF = "ImagePullBackOff"
_BACKOFF_SHOWN_AFTER = 1.0
"""Seconds after a failure at which the status shows the back-off: a kubelet reports the plain failure first."""
_RETRY = 10.0
"""Seconds until an image that must not or cannot be pulled is looked for again."""


class PullFailure(NamedTuple):
    """The reason and the message of the waiting state of containers that need the image."""

    reason: str
    message: str


class ImagePull:
    """Finds or pulls one image, and waits between attempts that fail."""

    __slots__ = ("_backoff", "_error", "_image", "_lookup", "_policy", "_pulling", "_retry_at", "_shown")

    def __init__(self, image: str, policy: str) -> None:
        self._image = image
        self._policy = policy or "IfNotPresent"
        self._lookup: Operation[ImageLookup] | None = None
        """The search for the image on the node; None if none is in progress."""
        self._pulling: Operation[PullResult] | None = None
        """The pull of the image; None if none is in progress."""
        self._backoff: Backoff | None = None
        """The back-off between pulls; None if none failed."""
        self._error = ""
        """The error of the last pull; empty if none failed."""
        self._shown = False
        """Whether the back-off has been reported since the last pull."""
        self._retry_at = 0.0
        """The time before which the image is not looked for again."""

    def cancel(self) -> None:
        """Give up what is in progress."""
        for operation in (self._lookup, self._pulling):
            if operation is not None:
                operation.cancel()
        self._lookup = self._pulling = None

    def progress(self, worker: PodWorker, container: ContainerState | None, now: float) -> Image | PullFailure | None:
        """Return the image once it is present on the node, or a failure, once when it occurs; None otherwise, with the
        next step scheduled. Events are about the container, or about the Pod if that is None."""
        image = self._image
        if now < self._retry_at:
            worker.schedule(self._retry_at)
            return None
        problem = reference_problem(image)
        if problem:
            message = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {problem}'
            return self._failed(worker, container, now, "InspectFailed", "InvalidImageName", message)
        if self._pulling is not None:
            return self._take_result(worker, container, self._pulling, now)
        if self._backoff is not None and now < self._backoff.updated + self._backoff.seconds:
            return self._show_backoff(worker, container, self._backoff, now)
        if self._lookup is None:
            self._lookup = worker.dependencies.runtime.find_image(image, worker.pod, worker.node)
        lookup = self._lookup.result(now)
        if lookup is None:
            worker.schedule(self._lookup.ready_at)
            return None
        self._lookup = None
        if lookup.error:
            message = f'Failed to inspect image "{image}": {lookup.error}'
            return self._failed(worker, container, now, "InspectFailed", "ImageInspectError", message)
        if lookup.image is not None and self._policy != "Always":
            text = f'Container image "{image}" already present on machine and can be accessed by the pod'
            worker.event("Normal", "Pulled", text, container)
            return lookup.image
        if self._policy == "Never":
            message = f'Container image "{image}" is not present with pull policy of Never'
            return self._failed(worker, container, now, "ErrImageNeverPull", "ErrImageNeverPull", message)
        worker.event("Normal", "Pulling", f'Pulling image "{image}"', container)
        self._pulling = worker.dependencies.runtime.pull_image(image, worker.pod, worker.node, now)
        return self._take_result(worker, container, self._pulling, now)

    def _failed(
        self, worker: PodWorker, container: ContainerState | None, now: float, event: str, reason: str, message: str
    ) -> PullFailure:
        """Report a failure without a pull."""
        worker.event("Warning", event, message, container)
        self._retry_at = now + _RETRY
        worker.schedule(self._retry_at)
        return PullFailure(reason, message)

    def _take_result(
        self, worker: PodWorker, container: ContainerState | None, pulling: Operation[PullResult], now: float
    ) -> Image | PullFailure | None:
        result = pulling.result(now)
        if result is None:
            worker.schedule(pulling.ready_at)
            return None
        self._pulling = None
        image = self._image
        if result.image is None:
            worker.event("Warning", "Failed", f'Failed to pull image "{image}": {result.error}', container)
            self._backoff = self._backoff or Backoff(worker.dependencies.runtime.initial_backoff)
            self._backoff.next(now, now)
            self._error, self._shown = f"{result.reason}: {result.error}", False
            worker.schedule(now + _BACKOFF_SHOWN_AFTER)
            return PullFailure(result.reason, result.error)
        self._backoff = None
        seconds, waited = (
            format_duration(int(round(each, 3) * 1e9)) for each in (result.seconds, result.waited_seconds)
        )
        worker.event(
            "Normal",
            "Pulled",
            f'Successfully pulled image "{image}" in {seconds} ({waited} including waiting). '
            f"Image size: {result.image.size_bytes} bytes.",
            container,
        )
        return result.image

    def _show_backoff(
        self, worker: PodWorker, container: ContainerState | None, backoff: Backoff, now: float
    ) -> PullFailure | None:
        shown_at, ends = backoff.updated + _BACKOFF_SHOWN_AFTER, backoff.updated + backoff.seconds
        if now < shown_at:
            worker.schedule(shown_at)
            return None
        worker.schedule(ends)
        if self._shown:
            return None
        self._shown = True
        message = f'Back-off pulling image "{self._image}"'
        worker.event("Normal", "BackOff", message, container)
        return PullFailure(_BACK_OFF, f"{message}: {self._error}")


class ImageVolumes:
    """The images that a Pod mounts as volumes. They are pulled before its containers start."""

    __slots__ = ("_failures", "_pulls", "images")

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._pulls = {
            each["name"]: ImagePull(each["image"].get("reference") or "", each["image"].get("pullPolicy") or "")
            for each in spec.get("volumes") or ()
            if each.get("image") is not None
        }
        self._failures: dict[str, PullFailure] = {}
        """The last failure by the name of the volume, as long as the image is not present."""
        self.images: dict[str, Image] = {}
        """The images that are present, by the name of the volume."""

    def progress(self, worker: PodWorker, container: ContainerState, now: float) -> bool | PullFailure:
        """Return whether the container can start: True if the images that it mounts are present, False as long as any
        image of the Pod has not been tried, or a failure."""
        tried = True
        for name, pull in self._pulls.items():
            if name in self.images:
                continue
            found = pull.progress(worker, None, now)
            if isinstance(found, Image):
                self.images[name] = found
                self._failures.pop(name, None)
            elif found is not None:
                self._failures[name] = found
            tried = tried and (found is not None or name in self._failures)
        if not tried:
            return False
        mounted = [each["name"] for each in container.spec.get("volumeMounts") or ()]
        failures = [self._failures[name] for name in mounted if name in self._failures]
        return failures[-1] if failures else True

    def forget(self) -> None:
        """Look for the images again before the next container starts: they may have been removed."""
        self.images.clear()

    def cancel(self) -> None:
        for pull in self._pulls.values():
            pull.cancel()
