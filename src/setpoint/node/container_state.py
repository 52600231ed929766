"""The agent's state of one container of a Pod: its probes, restart policy, back-off and termination."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.meta.objects import Obj, ObjView
from setpoint.node.runtime.interface import (
    ContainerRecord,
    HookResult,
    Operation,
    ProbeResult,
    StartResult,
)

if TYPE_CHECKING:
    from setpoint.node.image_pulls import ImagePull

INIT, SIDECAR, MAIN, EPHEMERAL = "init", "sidecar", "main", "ephemeral"
_SPEC_FIELDS = {INIT: "initContainers", SIDECAR: "initContainers", MAIN: "containers", EPHEMERAL: "ephemeralContainers"}
RESTARTING_ALL = "RestartingAllContainers"
"""The reason of containers that were terminated because a restart rule of another container restarts all of them."""
POST_START_HOOK_ERROR = "PostStartHookError"
"""The reason that a container waits for its restart after its post-start hook failed."""
STARTUP, LIVENESS, READINESS = "startup", "liveness", "readiness"
_PROBE_FIELDS = ((STARTUP, "startupProbe"), (LIVENESS, "livenessProbe"), (READINESS, "readinessProbe"))
INITIAL_BACKOFF, _MAX_BACKOFF_FACTOR = 10.0, 30
"""The first delay of a back-off in seconds, and the ratio of its maximum to that."""


class Backoff:
    """An exponential back-off from 10 s to 5 min, which resets after twice its maximum without a failure."""

    __slots__ = ("_initial", "seconds", "updated")

    def __init__(self, initial: float = INITIAL_BACKOFF) -> None:
        """Create a back-off. `initial` is the first delay in seconds; the maximum is thirty times as long."""
        self._initial = initial
        self.seconds = 0.0
        """The current delay in seconds; zero means that no failure has occurred."""
        self.updated = 0.0

    @property
    def _maximum(self) -> float:
        return self._initial * _MAX_BACKOFF_FACTOR

    def resume(self, seconds: float, updated: float) -> None:
        """Continue with a delay that was reported before a restart, and was last increased at `updated`."""
        self.seconds, self.updated = min(seconds, self._maximum), updated

    def ends(self, since: float) -> float | None:
        """Return the time of the next attempt after a failure at `since`, or None if it may be made at once."""
        if not self.seconds or since - self.updated > 2 * self._maximum:
            return None
        return since + self.seconds

    def next(self, event: float, now: float) -> None:
        """Increase the delay because of a failure at `event`."""
        if not self.seconds or event - self.updated > 2 * self._maximum:
            self.seconds = self._initial
        else:
            self.seconds = min(self.seconds * 2, self._maximum)
        self.updated = now


class ProbeWorker:
    """The state of one probe of a container, as the kubelet's probe workers hold it; `reset` begins a new run."""

    __slots__ = (
        "attempted",
        "failed",
        "failures",
        "kind",
        "last_result",
        "next_at",
        "on_hold",
        "result_run",
        "running",
        "spec",
        "success",
        "successes",
    )

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self.kind = kind
        self.spec = spec
        self.next_at = 0.0
        """The time of the next tick; zero before the first one is scheduled."""
        self.last_result: bool | None = None
        self.result_run = 0
        """The number of consecutive results equal to `last_result`."""
        self.success = kind == LIVENESS
        """Whether the probe counts as successful, after its thresholds."""
        self.failed = False
        """Whether the probe counts as failed, after its thresholds; ends a run if the kind is liveness or startup."""
        self.on_hold = False
        self.attempted = False
        """Whether the probe was run since the container started, with or without a result."""
        self.running: Operation[ProbeResult] | None = None
        """The run of the probe that is in progress; None between runs."""
        self.failures = self.successes = 0
        """The number of runs of the probe by result."""

    @property
    def started(self) -> bool:
        return self.kind != STARTUP or self.success

    @property
    def ready(self) -> bool:
        return self.kind != READINESS or self.success

    @property
    def period(self) -> float:
        return float(self.spec.get("periodSeconds") or 10)

    def reset(self) -> None:
        self.success, self.failed, self.on_hold, self.attempted = self.kind == LIVENESS, False, False, False
        self.cancel()

    def cancel(self) -> None:
        """Give up the run that is in progress."""
        if self.running is not None:
            self.running.cancel()
            self.running = None

    def tick(self, now: float) -> None:
        """Schedule the next tick after `now`, in step with the earlier ones."""
        period = self.period
        if self.next_at <= 0:
            self.next_at = now + period
        while self.next_at <= now:
            self.next_at += period

    def trigger(self, now: float) -> None:
        """Run the probe now, and every period from now on."""
        self.next_at = now

    def in_initial_delay(self, started_at: float, now: float) -> bool:
        return int(now - started_at + 1e-9) < int(self.spec.get("initialDelaySeconds") or 0)

    def record_result(self, result: bool) -> bool:
        """Count a result. Return whether `success` or `failed` changed."""
        if result:
            self.successes += 1
        else:
            self.failures += 1
        if self.last_result is result:
            self.result_run += 1
        else:
            self.last_result, self.result_run = result, 1
        threshold = self.spec.get("successThreshold" if result else "failureThreshold") or (1 if result else 3)
        if self.result_run < threshold:
            return False
        before = (self.success, self.failed)
        self.success, self.failed = result, not result
        if self.kind == STARTUP or (self.kind == LIVENESS and not result):
            self.on_hold, self.result_run = True, 0
        return before != (self.success, self.failed)


def _probe_workers(container: Mapping[str, Any]) -> tuple[ProbeWorker, ...]:
    return tuple(ProbeWorker(kind, container[field]) for kind, field in _PROBE_FIELDS if container.get(field))


def matching_action(container: ObjView, exit_code: int) -> str:
    """Return the action of the first restart rule that matches the exit code; empty if none does."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        listed = exit_code in (codes.get("values") or ())
        if (codes.get("operator") == "In") == listed and codes:
            return str(rule.get("action", ""))
    return ""


def restarts_after_exit(container: ObjView, spec: ObjView, exit_code: int) -> bool:
    """Return whether the container restarts after it exited with this code."""
    policy = container.get("restartPolicy")
    if policy is not None and matching_action(container, exit_code) in ("Restart", "RestartAllContainers"):
        return True
    policy = policy or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))


def restarts_when_killed(container: ObjView, spec: ObjView) -> bool:
    """Return whether the container restarts after a failed probe, when there is no exit code yet."""
    return bool((container.get("restartPolicy") or spec.get("restartPolicy") or "Always") != "Never")


def resources_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the limits and requests of a container, without those that are empty."""
    resources = container.get("resources")
    if not resources:
        return {}
    found = {which: resources[which] for which in ("limits", "requests") if resources.get(which)}
    return _shared(orjson.dumps(found))


@lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> Mapping[str, Any]:
    """Return the same object for containers with equal resources; nothing changes it."""
    found: Mapping[str, Any] = orjson.loads(encoded)
    return found


class ContainerState:
    """A container of a Pod: its spec, its current run in the runtime, and the progress of starting or stopping it."""

    __slots__ = (
        "allocated",
        "attempt",
        "counted_run",
        "crash_backoff",
        "image",
        "kind",
        "last_state",
        "name",
        "post_start_hook",
        "probes",
        "pull",
        "record",
        "replaced",
        "reported_run",
        "spec",
        "start_retry_at",
        "starting",
        "termination",
        "unlocated",
        "update_retry_at",
        "updating_resources",
        "waiting",
    )

    def __init__(self, spec: Mapping[str, Any], kind: str) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.kind = kind
        self.record: ContainerRecord | None = None
        """The current run of the container; None before the first."""
        self.last_state: Obj | None = None
        """The `lastState` of the container: the end of the run before the current one; None if there was none."""
        self.waiting: tuple[str, str] | None = None
        """Reason and message of the `waiting` state; None if the container is not reported as waiting."""
        self.image = ""
        """The image of the current run, as the spec had it."""
        self.replaced = False
        """Whether the container was stopped because its spec changed; it is then restarted regardless of the restart
        policy."""
        self.unlocated = False
        """Whether the Pod has ended and the container has no end of its own: it never ran, or waited for a restart."""
        self.attempt = 0
        """The number of the next run; 0 for the first."""
        self.reported_run: tuple[str, bool] | None = None
        """Id of the run that was last reported, and whether it had ended; None before the first report."""
        self.pull: ImagePull | None = None
        """The search for the image and its pull; None if the container is not being started, or has its image."""
        self.starting: tuple[str, Operation[StartResult]] | None = None
        """The image of the container that is being created, as the spec had it, and the operation; None if none is
        being created."""
        self.start_retry_at = 0.0
        """The time before which a container that could not be created is not tried again."""
        self.crash_backoff: Backoff | None = None
        self.counted_run: ContainerRecord | None = None
        """The run that `crash_backoff` has counted already; None if it has counted none."""
        self.post_start_hook: Operation[HookResult] | None = None
        """The post-start hook while it runs; None otherwise."""
        self.termination: Termination | None = None
        """The termination in progress; None if the container is not being stopped."""
        self.probes: tuple[ProbeWorker, ...] = () if kind in (INIT, EPHEMERAL) else _probe_workers(spec)
        self.allocated = resources_of(spec)
        """The limits and requests that the node has allocated."""
        self.updating_resources: Operation[str] | None = None
        """The change of the resources of the current run; None if none is in progress."""
        self.update_retry_at = 0.0
        """The time at which a failed change of the resources is repeated; 0 if none failed."""

    @property
    def field_path(self) -> str:
        return f"spec.{_SPEC_FIELDS[self.kind]}{{{self.name}}}"

    @property
    def running(self) -> bool:
        return self.record is not None and self.record.finished_at is None

    @property
    def started(self) -> bool:
        return self.running and self._post_start_done and all(probe.started for probe in self.probes)

    @property
    def ready(self) -> bool:
        record = self.record
        if record is None:
            return False
        if self.kind == INIT:
            return record.finished_at is not None and record.exit_code == 0
        if record.finished_at is not None or self.kind == EPHEMERAL:
            return False
        return self._post_start_done and all(probe.started and probe.ready for probe in self.probes)

    @property
    def _post_start_done(self) -> bool:
        failed = self.waiting is not None and self.waiting[0] == POST_START_HOOK_ERROR
        return self.post_start_hook is None and not failed

    @property
    def superseded(self) -> bool:
        """Return whether a container with another image replaces this one as soon as it has ended."""
        return self.replaced and self.image != self.spec.get("image")

    @property
    def is_restarted_with_all(self) -> bool:
        """Return whether the current run is ended, or was, because all containers of the Pod restart."""
        return self.record is not None and self.record.reason == RESTARTING_ALL

    def cancel(self) -> None:
        """Give up all operations that are in progress."""
        start = self.starting[1] if self.starting is not None else None
        for operation in (self.pull, start, self.post_start_hook, self.updating_resources):
            if operation is not None:
                operation.cancel()
        self.pull = self.starting = self.post_start_hook = self.updating_resources = None
        for probe in self.probes:
            probe.cancel()

    def needs_start(self, spec: Mapping[str, Any]) -> bool:
        """Return whether the container has never run, or has ended and must be restarted."""
        record = self.record
        if record is None:
            return True
        if record.finished_at is None or self.kind == EPHEMERAL:
            return False
        anyway = self.kind == SIDECAR or self.replaced or self.is_restarted_with_all
        return anyway or restarts_after_exit(self.spec, spec, record.exit_code)


class Termination:
    """The termination of a container: its pre-stop hook runs, then it waits for the containers it serves, then it is
    signaled."""

    __slots__ = ("begun_at", "deadline", "pre_stop_hook", "signaled")

    def __init__(self, begun_at: float, grace: float) -> None:
        self.begun_at = begun_at
        self.deadline = begun_at + grace
        self.pre_stop_hook: Operation[HookResult] | None = None
        """The pre-stop hook while it runs; None otherwise."""
        self.signaled = False


def container_states(spec: Mapping[str, Any]) -> list[ContainerState]:
    found = [
        ContainerState(each, SIDECAR if each.get("restartPolicy") == "Always" else INIT)
        for each in spec.get("initContainers") or ()
    ]
    found += [ContainerState(each, MAIN) for each in spec.get("containers") or ()]
    found += [ContainerState(each, EPHEMERAL) for each in spec.get("ephemeralContainers") or ()]
    return found
