"""Orphans the dependents of deleted owners."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from setpoint.controllers.garbagecollector.graph import ORPHAN, Graph
from setpoint.controllers.garbagecollector.identity import Identity
from setpoint.controllers.garbagecollector.live import Live, NeedsNamespace, UnknownKind
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Result

_AT_ONCE = 50


class Orphaning:
    def __init__(self, graph: Graph, live: Live) -> None:
        self._graph = graph
        self._live = live

    async def reconcile(self, uid: str) -> Result | None:
        """Remove the references from all dependents, then the finalizer from the owner, so that dependents never look
        abandoned."""
        owner = self._graph.get(uid)
        if owner is None:
            return None
        dependents = [dependent.identity for dependent in self._graph.dependents(uid)]
        for start in range(0, len(dependents), _AT_ONCE):
            some = dependents[start : start + _AT_ONCE]
            outcomes = await asyncio.gather(*(self._release(one, uid) for one in some), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        try:
            await self._live.drop_finalizer(owner.identity, ORPHAN)
        except (UnknownKind, NeedsNamespace):
            return Result(retry=True)
        return None

    async def _release(self, dependent: Identity, uid: str) -> None:
        with suppress(NotFound):  # deleted dependents need not be released
            await self._live.drop_owners(dependent, [uid])
