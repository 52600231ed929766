"""The paths of forks (`cluster/forks.py`) and plans, which are loaded when the first of them is requested."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from setpoint.apiserver.admission.default_toleration_seconds import DEFAULT_TOLERATION_SECONDS
from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import MARKS, Moments
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.server import PathHandler
from setpoint.meta.errors import ServiceUnavailable
from setpoint.wire.message import Answer

if TYPE_CHECKING:
    from setpoint.cluster.forks import Forks

_TOLERATION_SECONDS = (DEFAULT_TOLERATION_SECONDS, DEFAULT_TOLERATION_SECONDS)
PREFIX, MANAGEMENT, PLAN = "/forks/", "/setpoint/v1/forks", "/setpoint/v1/plan"


class ForkEndpoints:
    """The forks of a server. `run` owns their tasks, and ends them with the server."""

    def __init__(self, resources: ApiResources, toleration_seconds: tuple[int, int] = _TOLERATION_SECONDS) -> None:
        """`toleration_seconds` are those of the server's flags (see `ClusterCopy`)."""
        self._resources = resources
        self._toleration_seconds = toleration_seconds
        self._forks: Forks | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self.paths: dict[str, PathHandler] = {
            PREFIX: self._answer,
            MANAGEMENT: self._manage,
            f"{MANAGEMENT}/": self._manage,
            PLAN: self._plan,
        }
        """The handlers by path."""
        self.plan = {PLAN: self._plan}
        """The handlers that work if other processes serve the same port: a plan does not outlive its request."""

    async def run(self) -> None:
        """Run the forks until the server stops."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.Event().wait()
        finally:
            if self._forks is not None:
                self._forks.end()
            self._tasks = self._forks = None

    async def _answer(self, ctx: RequestContext) -> Answer:
        return await self._opened().answer(ctx)

    async def _manage(self, ctx: RequestContext) -> Answer:
        return await self._opened().manage(ctx)

    async def _plan(self, ctx: RequestContext) -> Answer:
        from setpoint.cluster.plan_endpoint import PlanEndpoint  # it loads all components of a cluster

        return await PlanEndpoint(self._opened(), self._resources.clock).answer(ctx)

    def _opened(self) -> Forks:
        if self._tasks is None:
            raise ServiceUnavailable("the server has not started yet, or is stopping")
        if self._forks is None:
            # These load all components of a cluster.
            from setpoint.cluster.copy_source import CopySource
            from setpoint.cluster.forks import Forks

            resources, reader = self._resources, CacheReader(self._resources)
            moments = Moments(HistoryReader(resources.store), lambda: reader.get("", "configmaps", *MARKS) or {})
            source = CopySource(resources.store, moments, self._toleration_seconds)
            self._forks = Forks(source, resources.clock, resources.ids, self._tasks)
        return self._forks
