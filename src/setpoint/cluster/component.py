"""The life cycle of a component: start, stop and restart while the rest of the cluster runs, and leader election."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

from setpoint.cluster.component_logs import current_component
from setpoint.cluster.supervisor import Restarts
from setpoint.meta.exposition import Family, gauge
from setpoint.reconcile import LeaderElection, LeadershipLost, Manager
from setpoint.tasks import first_completed

log = logging.getLogger("setpoint.cluster")

T = TypeVar("T")


class Component(Generic[T]):
    """A part of a cluster that can be stopped and started. Like a restarted process, it keeps nothing but stored
    objects."""

    def __init__(
        self, name: str, open_component: Callable[[], AbstractAsyncContextManager[T]], restarts: Restarts | None = None
    ) -> None:
        """`open_component` returns a context manager that enters when the component is ready. With `restarts`, a
        component that fails after it was ready is restarted; otherwise its failure ends the task group."""
        self.name = name
        self.restarts = restarts
        self._open = open_component
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._running: T | None = None

    @property
    def running(self) -> T:
        """Return what the last start yielded. Raises RuntimeError if the component is not running."""
        if self._running is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._running

    @property
    def is_started(self) -> bool:
        """Whether it was started and not stopped; it may be starting, or waiting for a restart."""
        return self._task is not None

    @property
    def current(self) -> T | None:
        """Return what the last start yielded; None if the component is not running."""
        return self._running

    async def start(self, tasks: asyncio.TaskGroup, *, retry: bool = False) -> None:
        """Return when the component is ready. A failure before that ends the task group, unless `retry` is set and the
        component has restarts."""
        if self._task is not None:
            raise RuntimeError(f"{self.name} is already running")
        stop, ready = asyncio.Event(), asyncio.Event()

        self._stop = stop
        self._task = tasks.create_task(self._run(stop, ready, retry))
        await ready.wait()

    async def _run(self, stop: asyncio.Event, ready: asyncio.Event, retry: bool) -> None:
        current_component.set(self.name)
        restarts = self.restarts
        while not stop.is_set():
            if restarts is not None:
                restarts.starting()
            try:
                async with self._open() as opened:
                    self._running = opened
                    if restarts is not None:
                        restarts.ready()
                    ready.set()
                    await stop.wait()
            except Exception as error:
                if restarts is None or not (retry or ready.is_set()):
                    raise
                self._running = None
                await restarts.pause(restarts.failed(error), stop)

    async def stop(self) -> None:
        """Stop the component and return when it has ended. Does nothing if it is not running."""
        task, stop = self._task, self._stop
        if task is None or stop is None:
            return
        if self._running is None:
            await self.kill()  # it is still starting
            return
        stop.set()
        await asyncio.wait([task])
        self._task = self._running = self._stop = None

    async def kill(self) -> None:
        """Cancel the component without an orderly shutdown, and return when it has ended."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self._task = self._running = self._stop = None


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]], ready: asyncio.Event) -> AsyncIterator[None]:
    """Run `run` while the block runs, which begins when `ready` is set. A failure of either ends both."""

    async def supervised() -> None:
        await run()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(supervised())
        await ready.wait()
        try:
            yield
        finally:
            task.cancel()


class ElectedComponent:
    """A component that works only while it leads. Each term has a new manager, because the caches of an earlier one may
    be stale."""

    def __init__(
        self,
        election: LeaderElection | None,
        term: Callable[[], AbstractAsyncContextManager[Manager]],
        restarts: Restarts | None = None,
    ) -> None:
        """`term` enters when the manager is ready. Without an election there is one endless term. With `restarts`, a
        term that fails is followed by another; otherwise its error ends `run`."""
        self.election = election
        self._restarts = restarts
        self.manager: Manager | None = None
        """The manager of the current term; None between terms."""
        self._term = term
        self._working = asyncio.Event()

    @property
    def state(self) -> str:
        """Return a description of the state, for users."""
        if self.election is None:
            return "running"
        if self.election.leading.is_set():
            return f"leading as {self.election.identity}"
        why = f"{self.election.holder} is the leader" if self.election.holder else "the lease cannot be acquired"
        return f"standing by as {self.election.identity}: {why}"

    def families(self) -> list[Family]:
        """Return the metrics of the current manager, and whether this component leads."""
        if self.manager is None and self.election is None:
            return []
        leads = [] if self.election is None else [({"name": self.election.name}, int(self.manager is not None))]
        return [
            gauge("leader_election_master_status", "1 if this process is the leader, 0 if it stands by.", leads),
            *(self.manager.families() if self.manager is not None else ()),
        ]

    def error(self) -> str:
        """Return why a health check fails: a failure, or a Lease that was not renewed in time; empty if healthy."""
        if self._restarts is not None and self._restarts.error:
            return self._restarts.error
        if self.election is None or self.election.overdue <= 0:
            return ""
        return f"failed election to renew leadership on lease {self.election.name}"

    async def settled(self) -> None:
        """Return when the component works, or when it is known that another process leads."""
        if self.election is None:
            await self._working.wait()
        else:
            await first_completed(self._working.wait(), self.election.standing_by.wait())

    async def run(self) -> None:
        """Work whenever this process leads, until cancelled."""
        while True:
            try:
                if self.election is None:
                    await self._work()
                else:
                    await self.election.lead(self._work)
            except LeadershipLost as error:
                log.warning("%s", error)
            except Exception as error:
                if self._restarts is None:
                    raise
                await self._restarts.pause(self._restarts.failed(error))

    async def _work(self) -> None:
        if self._restarts is not None:
            self._restarts.starting()
        try:
            async with self._term() as manager:
                if self._restarts is not None:
                    self._restarts.ready()
                self.manager = manager
                self._working.set()
                await asyncio.Event().wait()
        finally:
            self.manager = None
            self._working.clear()
