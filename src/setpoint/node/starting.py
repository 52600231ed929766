"""Starting one container: wait out its back-off, get its image, put together its configuration, start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.meta.times import format_duration
from setpoint.node.annotations import said, seconds
from setpoint.node.backoff import Backoff
from setpoint.node.environment import EnvironmentProblem, check_environment
from setpoint.node.http_hooks import answered
from setpoint.node.pod_status import terminated
from setpoint.node.runtime.containers import START_ERROR
from setpoint.node.runtime.images import ImageFacts
from setpoint.node.runtime.interface import Launch
from setpoint.node.slots import Slot
from setpoint.node.volumes import check_mounts

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_NEXT_LOOK = 1.0
"""A kubelet shows the plain failure first, and at its next look that it backs off."""
_CONFIG_RETRY = 10.0


class Starter:
    __slots__ = ("_tools", "_worker")

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker
        self._tools = worker.tools

    def start(self, slot: Slot, now: float) -> None:
        """As far as it goes now; when it can go on, the worker is due again."""
        if self._backs_off(slot, now):
            return
        facts = self._image(slot, now)
        if facts is None:
            return
        try:
            check_environment(self._worker.pod, slot.spec, self._tools.lookup)
            check_mounts(self._worker, slot.spec)
        except EnvironmentProblem as problem:
            slot.waiting = ("CreateContainerConfigError", str(problem))
            self._worker.event("Warning", "Failed", f"Error: {problem}", slot)
            self._worker.due(now + _CONFIG_RETRY)
            return
        if self._is_made(slot, now):
            self._launch(slot, facts, now)

    def _backs_off(self, slot: Slot, now: float) -> bool:
        record = slot.record
        if record is None or record.finished_at is None or slot.counted is record:
            return False
        if slot.crash is None:
            slot.crash = Backoff(self._tools.runtime.pace.backoff)
        ends = slot.crash.ends(record.finished_at)
        if ends is not None and now < ends:
            shown_at = min(record.finished_at + _NEXT_LOOK, ends)
            if now >= shown_at and slot.waiting is None:
                meta = self._worker.pod["metadata"]
                pod = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
                wait = format_duration(int(slot.crash.seconds * 1e9))
                slot.waiting = (
                    "CrashLoopBackOff", f"back-off {wait} restarting failed container={slot.name} pod={pod}"
                )  # fmt: skip
                self._worker.event(
                    "Warning", "BackOff", f"Back-off restarting failed container {slot.name} in pod {pod}", slot
                )
            self._worker.due(ends if slot.waiting is not None else shown_at)
            return True
        slot.crash.next(record.finished_at, now)
        slot.counted = record
        return False

    # -- images -------------------------------------------------------------------------------------------------------

    def _image(self, slot: Slot, now: float) -> ImageFacts | None:
        """The image, when it is there."""
        image, node = slot.spec.get("image", ""), self._worker.node
        facts = self._tools.runtime.images.facts(image)
        if slot.starting is not None and slot.starting[0] == image:
            return facts
        if facts is None:
            problem = f'couldn\'t parse image name "{image}": invalid reference format'
            message = f'Failed to apply default image tag "{image}": {problem}'
            if slot.waiting is None or slot.waiting[0] != "InvalidImageName":
                self._worker.event("Warning", "InspectFailed", message, slot)
                self._failed(slot, "InvalidImageName", message)
            return None
        policy = slot.spec.get("imagePullPolicy") or "IfNotPresent"
        if slot.pulling is not None:
            return self._pulling(slot, facts, image, now)
        if facts.name in node.images and policy != "Always":
            text = f'Container image "{image}" already present on machine and can be accessed by the pod'
            self._worker.event("Normal", "Pulled", text, slot)
            return facts
        if policy == "Never":
            message = f'Container image "{image}" is not present with pull policy of Never'
            if slot.waiting is None or slot.waiting[0] != "ErrImageNeverPull":
                self._worker.event("Warning", "ErrImageNeverPull", message, slot)
                self._failed(slot, "ErrImageNeverPull", message)
            self._worker.due(now + _CONFIG_RETRY)
            return None
        if slot.pull is not None and not self._may_pull_again(slot, slot.pull, image, now):
            return None
        self._worker.event("Normal", "Pulling", f'Pulling image "{image}"', slot)
        taken = (
            0.0 if facts.name in node.images else seconds(said(self._worker.pod, "pull-seconds"), facts.pull_seconds)
        )
        until = now + taken
        if not facts.error:
            until = node.pulls.get(facts.name, until)  # somebody else may be pulling it already
            if until > now:
                node.pulls[facts.name] = until
        slot.pulling = (now, until)
        return self._pulling(slot, facts, image, now)

    def _pulling(self, slot: Slot, facts: ImageFacts, image: str, now: float) -> ImageFacts | None:
        assert slot.pulling is not None
        began, until = slot.pulling
        if now < until:
            self._worker.due(until)
            return None
        slot.pulling = None
        if facts.error:
            self._worker.event("Warning", "Failed", f'Failed to pull image "{image}": {facts.error}', slot)
            slot.pull = slot.pull or Backoff(self._tools.runtime.pace.backoff)
            slot.pull.next(now, now)
            slot.pull_failure = facts.error
            self._failed(slot, "ErrImagePull", facts.error)
            self._worker.due(now + _NEXT_LOOK)
            return None
        node = self._worker.node
        node.pulls.pop(facts.name, None)
        node.add_image(facts.name, facts.id, facts.size_bytes)
        slot.pull = None
        taken = format_duration(int(round(until - began, 3) * 1e9))
        self._worker.event(
            "Normal", "Pulled",
            f'Successfully pulled image "{image}" in {taken} ({taken} including waiting). '
            f"Image size: {facts.size_bytes} bytes.", slot,
        )  # fmt: skip
        return facts

    def _may_pull_again(self, slot: Slot, pull: Backoff, image: str, now: float) -> bool:
        ends = pull.updated + pull.seconds
        if now >= ends:
            return True
        if now < pull.updated + _NEXT_LOOK:
            self._worker.due(pull.updated + _NEXT_LOOK)
            return False
        if slot.waiting is None or slot.waiting[0] != "ImagePullBackOff":
            message = f'Back-off pulling image "{image}"'
            self._worker.event("Normal", "BackOff", message, slot)
            self._failed(slot, "ImagePullBackOff", f"{message}: ErrImagePull: {slot.pull_failure}")
        self._worker.due(ends)
        return False

    def _failed(self, slot: Slot, reason: str, message: str) -> None:
        slot.waiting = (reason, message)
        self._worker.event("Warning", "Failed", f"Error: {reason}", slot)

    def _is_made(self, slot: Slot, now: float) -> bool:
        """Whether the time is over that it takes to make a container."""
        image = slot.spec.get("image", "")
        if slot.starting is None or slot.starting[0] != image:
            taken = self._tools.runtime.pace.start.of(f"{self._worker.uid} {slot.name} {slot.attempt}")
            slot.starting = (image, now + taken)
        if now < slot.starting[1]:
            slot.waiting = None
            self._worker.due(slot.starting[1])
            return False
        slot.starting = None
        return True

    # -- running ------------------------------------------------------------------------------------------------------

    def _launch(self, slot: Slot, facts: ImageFacts, now: float) -> None:
        worker = self._worker
        self._worker.event("Normal", "Created", "Container created", slot)
        if slot.record is not None:
            slot.last = terminated(slot.record)
        slot.record = self._tools.runtime.start(worker.uid, self.launch_of(slot, facts), now)
        slot.attempt += 1
        slot.image = slot.spec.get("image", "")
        slot.replaced = False
        slot.waiting = slot.stop = None
        for probe in slot.probes:
            probe.reset()
        if slot.record.reason == START_ERROR:
            worker.event("Warning", "Failed", f"Error: {slot.record.message}", slot)
        else:
            worker.event("Normal", "Started", "Container started", slot)
        hook = (slot.spec.get("lifecycle") or {}).get("postStart")
        if hook and slot.record.running and hook.get("httpGet") and not answered(worker, slot.spec, hook["httpGet"]):
            self._hook_failed(slot, now)
        if hook and slot.record.running and (hook.get("exec") or hook.get("sleep")):
            command = (hook.get("exec") or {}).get("command") or [
                "sleep",
                str((hook.get("sleep") or {}).get("seconds", 0)),
            ]
            slot.hook = self._tools.runtime.run_command(worker.uid, slot.name, command)
            self.hook_over(slot, now)

    def launch_of(self, slot: Slot, facts: ImageFacts, container_id: str = "") -> Launch:
        worker = self._worker
        return Launch(
            slot.name, facts.name, facts.id, slot.attempt, slot.spec, worker.pod,
            worker, container_id,
        )  # fmt: skip

    def hook_over(self, slot: Slot, now: float) -> bool:
        """Whether the post-start hook has ended. If it failed, the container is stopped."""
        hook = slot.hook
        if hook is None or not slot.running:
            slot.hook = None
            return True
        if hook.exit_code is None:
            self._worker.due(self._tools.runtime.advance(self._worker.uid, now))
            return False
        slot.hook = None
        if hook.exit_code:
            self._hook_failed(slot, now)
        return True

    def _hook_failed(self, slot: Slot, now: float) -> None:
        from setpoint.node.stopping import Stopper

        self._worker.event("Warning", "FailedPostStartHook", "PostStartHook failed", slot)
        Stopper(self._worker).stop(slot, now, "FailedPostStartHook", None)
