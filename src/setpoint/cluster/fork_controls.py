"""The parts of a fork that can be started and stopped while it runs: its components, and operators of lessons."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from setpoint.cluster.component import running
from setpoint.cluster.embedded import EmbeddedCluster
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import BadRequest
from setpoint.reconcile.gate import Gates
from setpoint.tasks import child_tasks
from setpoint.view.course.facts import LESSON_AGENT

log = logging.getLogger("setpoint.cluster")

COMPONENTS = ("controllers", "scheduler")


class ForkControls:
    """Starts and stops parts of one fork. What was started or stopped holds for the fork's next cluster too, which it
    has after it was advanced or has slept."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None
        self._clock: Clock | None = None
        self._ids: Ids | None = None
        self._wanted: set[str] = set()
        """The operators that should run."""
        self._stopped: set[str] = set()
        """The components that should not run."""
        self._operators: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}
        """Why operators ended, by name."""

    @asynccontextmanager
    async def serving(self, cluster: EmbeddedCluster, clock: Clock, ids: Ids) -> AsyncIterator[None]:
        """Run operators while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks, self._clock, self._ids = tasks, clock, ids
            try:
                for name in sorted(self._stopped):
                    await self._set_component(cluster, name, False)
                for name in sorted(self._wanted):
                    await self._set_operator(cluster, name, True)
                yield
            finally:
                self._tasks = None
                for task in self._operators.values():
                    task.cancel()
                self._operators.clear()
                self._failures.clear()

    def described(self, cluster: EmbeddedCluster | None) -> dict[str, Any]:
        """Return which components and operators run."""
        running = {
            name: cluster is not None and getattr(cluster.components, name).current is not None for name in COMPONENTS
        }
        return {"components": running, "operators": sorted(self._operators), "failures": dict(self._failures)}

    async def change(self, cluster: EmbeddedCluster, wanted: dict[str, Any]) -> None:
        """Start or stop what a request names: `component` or `operator`, and `running`. Raises BadRequest."""
        running = wanted.get("running")
        if not isinstance(running, bool) or ("component" in wanted) == ("operator" in wanted):
            raise BadRequest('say "component" or "operator", and whether it is "running"')
        if "component" in wanted:
            await self._set_component(cluster, wanted["component"], running)
        else:
            await self._set_operator(cluster, wanted["operator"], running)

    async def _set_component(self, cluster: EmbeddedCluster, name: str, running: bool) -> None:
        if name not in COMPONENTS:
            raise BadRequest(f"component must be one of {', '.join(COMPONENTS)}")
        component = getattr(cluster.components, name)
        if not running:
            self._stopped.add(name)
            await component.stop()
            return
        self._stopped.discard(name)
        if component.current is None:
            await cluster.components.start(component)

    async def _set_operator(self, cluster: EmbeddedCluster, name: str, running: bool) -> None:
        from setpoint.lessons.operators import OPERATORS  # few clusters have one

        if name not in OPERATORS:
            raise BadRequest(f"operator must be one of {', '.join(OPERATORS)}")
        task = self._operators.pop(name, None) if not running else self._operators.get(name)
        if running:
            self._wanted.add(name)
        else:
            self._wanted.discard(name)
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
            return
        if task is None and self._tasks is not None:
            self._failures.pop(name, None)
            ready = asyncio.Event()
            self._operators[name] = self._tasks.create_task(self._run(cluster, name, ready))
            await ready.wait()

    async def _run(self, cluster: EmbeddedCluster, name: str, ready: asyncio.Event) -> None:
        """Run an operator until it is cancelled. A failure ends the operator alone."""
        from setpoint.lessons.operators import OPERATORS

        assert self._clock is not None and self._ids is not None
        try:
            operator = OPERATORS[name]()
            await operator.install(cluster.client.named(LESSON_AGENT), self._clock)
            manager = operator.manager(cluster.client.named(operator.name), self._clock, self._ids)
            # Its gates are its own: users pause the loops of the cluster, but both share the limit of CPU time.
            manager.gates = Gates(self._clock, cluster.components.gates.cpu_limit)
            async with child_tasks(manager.gates.run()), running(manager.run, manager.ready):
                ready.set()
                await asyncio.Event().wait()
        except Exception as error:
            self._failures[name] = str(error) or type(error).__name__
            self._operators.pop(name, None)
            log.exception("operator %s of a fork ended", name)
        finally:
            ready.set()
