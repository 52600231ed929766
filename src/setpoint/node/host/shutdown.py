"""Ends the Pods of a node gracefully before its machine shuts down, as the kubelet does: critical Pods last."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.node.host.logind import LogindError
from setpoint.node.pod_status import TERMINAL
from setpoint.node.pod_worker import PodWorker

log = logging.getLogger("setpoint.node")

REJECTED: Final = ("NodeShutdown", "Pod was rejected as the node is shutting down.")
TERMINATED: Final = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
_EVENT: Final = "NodeShutdown"
_CRITICAL_PRIORITY: Final = 2_000_000_000
_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0
"""Seconds until logind is tried again after a failure, at first and at most."""
_POLL_PERIOD: Final = 0.1
_REPORT_SECONDS: Final = 2.0
"""Seconds that a shutdown waits for the status of Pods that have ended to reach the API."""


class ShutdownSource(Protocol):
    """Announces shutdowns of the machine, and delays them."""

    async def missing(self) -> str: ...

    async def permit_delay(self, seconds: float) -> None: ...

    async def is_shutting_down(self) -> bool: ...

    async def inhibit(self) -> None: ...

    async def release(self) -> None: ...

    def shutdowns(self) -> AbstractAsyncContextManager[AsyncIterator[bool]]: ...


class ShutdownGroup(NamedTuple):
    """Pods that end at the same time."""

    priority: int
    """The lowest priority of the Pods in the group."""
    seconds: int
    """The time that they have to end."""


def shutdown_groups(grace: float, critical_grace: float) -> tuple[ShutdownGroup, ...]:
    """Return the groups in the order in which they end; none if a shutdown is not delayed. `critical_grace` is the part
    of `grace` that is left for critical Pods."""
    if not 0 <= critical_grace <= grace or not grace:
        return ()
    return (
        ShutdownGroup(0, int(grace - critical_grace)),
        ShutdownGroup(_CRITICAL_PRIORITY, int(critical_grace)),
    )


def group_of(pod: ObjView, groups: Sequence[ShutdownGroup]) -> ShutdownGroup:
    """Return the group of a Pod: the last one whose priority it has, or the first."""
    priority = pod["spec"].get("priority") or 0
    return next((group for group in reversed(groups) if group.priority <= priority), groups[0])


@dataclass(slots=True)
class NodeShutdown:
    """Waits for a shutdown of the machine, and ends the Pods."""

    groups: tuple[ShutdownGroup, ...]
    source: ShutdownSource
    clock: Clock
    workers: Callable[[], Iterable[PodWorker]]
    """Returns the workers of all Pods of the node."""
    enqueue: Callable[[str], None]
    """Steps the worker of the Pod with this uid."""
    event: Callable[[str, str], None]
    """Records an Event about the Node, with a reason and a message."""
    changed: Callable[[bool], None]
    """Called when a shutdown begins (True) or was cancelled (False)."""
    active: bool = False
    """Whether the machine is shutting down."""

    def rejection(self) -> tuple[str, str] | None:
        """Return the reason and the message with which new Pods are rejected; None if they are not."""
        return REJECTED if self.active else None

    async def run(self) -> None:
        """Watch until cancelled. Returns at once if this machine cannot announce shutdowns, or none is delayed."""
        if not self.groups:
            return
        if problem := await self.source.missing():
            log.warning("Pods are not ended gracefully when this machine shuts down: %s", problem)
            return
        pause, reported = _MIN_PAUSE, ""
        while True:
            try:
                await self._watch()
                problem, pause = "the connection to the system bus was lost", _MIN_PAUSE
            except LogindError as error:
                problem = str(error)
            if problem != reported:
                log.warning("a shutdown of this machine is not noticed: %s", problem)
            reported = problem
            await self.clock.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _watch(self) -> None:
        await self.source.permit_delay(sum(group.seconds for group in self.groups))
        async with self.source.shutdowns() as announcements:
            try:
                await self.source.inhibit()
                # One may have been announced before.
                await self._set(await self.source.is_shutting_down())
                async for announced in announcements:
                    await self._set(announced)
            finally:
                await self.source.release()

    async def _set(self, active: bool) -> None:
        if active == self.active:
            return
        self.active = active
        if active:
            log.warning("the machine shuts down: ending the Pods")
            self.event(_EVENT, "Shutdown manager detected shutdown event")
            self.changed(True)
            try:
                await self._end_pods()
            finally:
                await self.source.release()
            log.warning("the Pods have ended, and the machine may shut down")
        else:
            log.warning("the shutdown of the machine was cancelled")
            self.event(_EVENT, "Shutdown manager detected shutdown cancellation")
            self.changed(False)
            await self.source.inhibit()

    async def _end_pods(self) -> None:
        running = [worker for worker in self.workers() if not worker.finished]
        for group in self.groups:
            members = [worker for worker in running if group_of(worker.pod, self.groups) is group]
            if members:
                await self._end_group(members, group.seconds)

    async def _end_group(self, members: Sequence[PodWorker], seconds: int) -> None:
        for worker in members:
            own = worker.spec.get("terminationGracePeriodSeconds")
            grace = min(seconds, own) if own is not None else seconds
            # The kubelet gives every Pod a second.
            worker.evict(*TERMINATED, max(1.0, float(grace)), disruption=True, announced=False)
            self.enqueue(worker.uid)
        started = self.clock.monotonic()
        ended: float | None = None
        while (now := self.clock.monotonic()) - started < seconds:
            if all(worker.finished for worker in members):
                ended = now if ended is None else ended
                if now - ended >= _REPORT_SECONDS or all(map(_is_reported, members)):
                    return
            await self.clock.sleep(_POLL_PERIOD)
        names = ", ".join(worker.pod["metadata"]["name"] for worker in members if not worker.finished)
        if names:
            log.warning("Pods have not ended within %d s: %s", seconds, names)


def _is_reported(worker: PodWorker) -> bool:
    return worker.reported.get("phase") in TERMINAL
