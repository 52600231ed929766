"""The scheduler's writes: status updates of Pods, and a queue of concurrent writes, sequential for each Pod."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.client.current_run import current_run
from setpoint.client.resources import builtin
from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import changed_condition
from setpoint.meta.objects import Obj
from setpoint.reconcile.controller import LoopTimer
from setpoint.tasks import Workers

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

NO_NODES = "no nodes available to schedule pods"
_MAX_NOTE_LENGTH = 1024
PODS = builtin("pods")
UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
CONCURRENCY = 64
MAX_QUEUED = 512


def truncate_note(message: str) -> str:
    """Truncate a message to the length of an Event's note."""
    return message if len(message) <= _MAX_NOTE_LENGTH else f"{message[: _MAX_NOTE_LENGTH - 4]} ..."


def condition_to_write(pod: Pod, clock: Clock, kind: str, status: str, reason: str, message: str) -> Obj | None:
    """Return the condition to write, or None if the Pod has it already."""
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    changed = changed_condition(pod, wanted, clock.now())
    if changed is None:
        return None
    generation = pod["metadata"].get("generation")
    return {**changed, **({"observedGeneration": generation} if generation else {}), "lastProbeTime": None}


async def write_status(
    client: Client, pod: Pod, condition: Obj | None, nominated: str | None, *, if_unchanged: bool = False
) -> None:
    """Write condition and nominated node: an empty `nominated` clears it, None leaves it. Raise Conflict if the Pod was
    replaced or, with `if_unchanged`, changed."""
    change: Obj = {}
    if condition is not None:
        change["conditions"] = [condition]
    if nominated is not None and nominated != ((pod.get("status") or {}).get("nominatedNodeName") or ""):
        change["nominatedNodeName"] = nominated or None
    if change:
        meta = pod["metadata"]
        same = {"uid": meta["uid"], **({"resourceVersion": meta["resourceVersion"]} if if_unchanged else {})}
        patch = {"metadata": same, "status": change}
        await client.patch(PODS, meta["name"], patch, meta["namespace"], kind="strategic", subresource="status")


log = logging.getLogger("setpoint.scheduler")

Write = Callable[[], Awaitable[None]]
_Write = tuple[Write, Run | None]
"""A write, and the run that it belongs to."""


class WriteQueue:
    def __init__(self, clock: Clock, charge: Callable[[float], None] | None = None) -> None:
        """The time that writes hold the event loop is reported to `charge`, if it is given."""
        self._clock = clock
        self._charge = charge
        self._queued: deque[tuple[str, _Write]] = deque()
        self._queued_by_key: dict[str, deque[_Write]] = {}
        """Queued writes by key behind a running one; a key has an entry while one of its writes runs."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._capacity: asyncio.Future[None] | None = None
        self._workers = Workers(self._work, CONCURRENCY)

    def submit(self, key: str, write: Write) -> None:
        """Queue a write of the current run without blocking. Exceptions of the write are logged."""
        self._queued.append((key, (write, current_run.get())))
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._workers.add()

    async def wait_capacity(self) -> None:
        """Wait until fewer than MAX_QUEUED writes are queued."""
        while len(self._queued) > MAX_QUEUED:
            self._capacity = asyncio.get_running_loop().create_future()
            await self._capacity

    async def run(self) -> None:
        """Do the queued writes until cancelled."""
        async with self._workers.running():
            self._workers.add(len(self._queued))
            await asyncio.get_running_loop().create_future()

    async def _work(self) -> None:
        while True:
            while not self._queued:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            key, write = self._queued.popleft()
            if self._capacity is not None and not self._capacity.done() and len(self._queued) <= MAX_QUEUED // 2:
                self._capacity.set_result(None)
            if key in self._queued_by_key:
                self._queued_by_key[key].append(write)
                continue
            behind = self._queued_by_key[key] = deque((write,))
            try:
                while behind:
                    await self._do(behind.popleft())
            finally:
                del self._queued_by_key[key]

    async def _do(self, submitted: _Write) -> None:
        write, run = submitted
        current_run.set(run)
        try:
            if self._charge is None:
                await write()
            else:
                await self._charged(write, self._charge)
        except Exception:  # an exception in one write must not end the others
            log.exception("a write of the scheduler failed")

    async def _charged(self, write: Write, charge: Callable[[float], None]) -> None:
        writing = LoopTimer(write(), self._clock)
        try:
            await writing
        finally:
            charge(writing.seconds)
