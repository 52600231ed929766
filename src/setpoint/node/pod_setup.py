"""Sets up what the containers of a Pod share, its volumes and its sandbox, and releases it at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from setpoint.node.runtime.interface import Operation, SandboxResult

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

_MIN_MOUNT_BACKOFF, _MAX_MOUNT_BACKOFF = 0.5, 122.0
_SANDBOX_RETRY = 5.0
"""Seconds until a sandbox that could not be created or stopped is tried again."""


class PodSetup:
    """The volumes and the sandbox of one Pod. Each method is repeated until it returns True.

    Methods receive the worker: a reference to it would be a cycle, which only the garbage collector frees."""

    __slots__ = (
        "_creating_sandbox",
        "_mount_backoff",
        "_mount_retry_at",
        "_mounting",
        "_releasing",
        "_retry_at",
        "_volumes_mounted",
    )

    def __init__(self) -> None:
        self._volumes_mounted = False
        self._mounting: Operation[Sequence[str]] | None = None
        self._mount_backoff = 0.0
        self._mount_retry_at = 0.0
        self._creating_sandbox: Operation[SandboxResult] | None = None
        self._releasing: Operation[str] | None = None
        """The release of the sandbox and the volumes at the end; None if it is not in progress."""
        self._retry_at = 0.0
        """The time before which the sandbox is neither created nor stopped, after a failure."""

    def mount_volumes(self, worker: PodWorker, now: float) -> bool:
        """Return whether the volumes are mounted; otherwise schedule another attempt."""
        if self._volumes_mounted:
            return True
        if now < self._mount_retry_at:
            worker.schedule(self._mount_retry_at)
            return False
        if self._mounting is None:
            worker.refresh_allocatable()
            self._mounting = worker.dependencies.runtime.mount_volumes(worker.pod, worker)
        problems = self._mounting.result(now)
        if problems is None:
            worker.schedule(self._mounting.ready_at)
            return False
        self._mounting = None
        if not problems:
            self._volumes_mounted = True
            return True
        for problem in problems:
            worker.event("Warning", "FailedMount", problem)
        self._mount_backoff = min(self._mount_backoff * 2 or _MIN_MOUNT_BACKOFF, _MAX_MOUNT_BACKOFF)
        self._mount_retry_at = now + self._mount_backoff
        worker.schedule(self._mount_retry_at)
        return False

    def ensure_sandbox(self, worker: PodWorker, now: float) -> bool:
        """Return whether the Pod has a sandbox; create one if it has none."""
        pod_state, runtime = worker.pod_state, worker.dependencies.runtime
        if pod_state.sandbox_ready:
            if runtime.sandbox_ready(worker.uid):
                return True
            worker.sandbox_lost()
        if self._creating_sandbox is None:
            if now < self._retry_at:
                worker.schedule(self._retry_at)
                return False
            if pod_state.had_sandbox:
                worker.event("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
            self._creating_sandbox = runtime.create_sandbox(worker.pod, worker.node)
        result = self._creating_sandbox.result(now)
        if result is None:
            worker.schedule(self._creating_sandbox.ready_at)
            return False
        self._creating_sandbox = None
        for reason, message in result.warnings:
            worker.event("Warning", reason, message)
        if result.error:
            text = f"Failed to create pod sandbox: {result.error}"
            worker.event("Warning", "FailedCreatePodSandBox", text)
            self._retry_at = now + _SANDBOX_RETRY
            worker.schedule(self._retry_at)
            return False
        pod_state.sandbox_ready = pod_state.had_sandbox = True
        pod_state.pod_ips = tuple(result.ips)
        if not runtime.sandbox_ready(worker.uid):
            worker.sandbox_lost()
            self._retry_at = now + _SANDBOX_RETRY
            worker.schedule(self._retry_at)
        return pod_state.sandbox_ready

    def release(self, worker: PodWorker, now: float) -> bool:
        """Release the sandbox and the volumes. Return whether that is done; schedule another attempt if it failed."""
        if self._creating_sandbox is not None:
            if self._creating_sandbox.result(now) is None:
                return False
            self._creating_sandbox = None
        if self._releasing is None:
            if now < self._retry_at:
                worker.schedule(self._retry_at)
                return False
            self._releasing = worker.dependencies.runtime.stop_pod(worker.uid)
        error = self._releasing.result(now)
        if error is None:
            worker.schedule(self._releasing.ready_at)
            return False
        self._releasing = None
        if error:
            worker.event("Warning", "FailedKillPod", f"error killing pod: {error}")
            self._retry_at = now + _SANDBOX_RETRY
            worker.schedule(self._retry_at)
        return not error

    def cancel(self) -> None:
        """Give up what is in progress."""
        for operation in (self._mounting, self._creating_sandbox, self._releasing):
            if operation is not None:
                operation.cancel()
        self._mounting = self._creating_sandbox = self._releasing = None
