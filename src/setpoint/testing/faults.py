"""Faults that a component must survive: the end is the same, whatever happened on the way.

    found = await disturbed(scenario, crash_after(7))

A scenario is what users do, with enough time between for the loops to act. It is run once undisturbed and again with a
fault; `end_state` tells whether both came to the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from setpoint.client import Unreachable
from setpoint.client.interface import ObjectList, WatchEvent, WatchStream
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, Expired, InternalError
from setpoint.testing.cluster import VirtualCluster, virtual_cluster
from setpoint.testing.end_state import end_state
from setpoint.testing.link import Link, Write

Scenario = Callable[[VirtualCluster], Awaitable[None]]
Fault = Callable[[VirtualCluster], Awaitable[None]]
"""Begins with the scenario and runs beside it; it is cancelled at the end."""

_DOWN = 1.0
_AFTERWARDS = 360.0
"""Quiet seconds at the end. Some loops look at everything only every five minutes: what fell between is theirs."""


async def disturbed(scenario: Scenario, fault: Fault | None = None, **options: Any) -> Counter[str]:
    """The end state of a fresh cluster after the scenario and a quiet while."""
    async with virtual_cluster(**options) as cluster, asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(_run(fault, cluster)) if fault is not None else None
        await scenario(cluster)
        if beside is not None:
            beside.cancel()
            for link in cluster.links.values():
                quiet(link)
            for name in cluster.links:
                if cluster.links[name].severed:
                    await cluster.kill(name)
                    await cluster.start(name)
        await cluster.sleep(_AFTERWARDS)
        return await end_state(cluster.client)


async def _run(fault: Fault, cluster: VirtualCluster) -> None:
    await fault(cluster)


def quiet(link: Link) -> None:
    """From now on nothing goes wrong on it."""
    link.before_write = link.after_write = link.watched = link.listed = None


def counts(write: Write) -> bool:
    """Leases and events are written all the time and decide nothing."""
    return write.resource not in ("Event", "events", "Lease", "leases")


async def writes_of(scenario: Scenario, component: str = "controllers", **options: Any) -> list[Write]:
    """What a component writes when nothing goes wrong."""
    seen: list[Write] = []

    async def fault(cluster: VirtualCluster) -> None:
        async def after(write: Write) -> None:
            if counts(write):
                seen.append(write)

        cluster.links[component].after_write = after

    await disturbed(scenario, fault, **options)
    return seen


def crash_after(nth: int, component: str = "controllers", *, stale: bool = False) -> Fault:
    """The component dies as soon as its nth write has happened, before it knows; a second later it is started anew.
    With `stale`, what it lists then is what was there when it was first started: it must catch up from its watches."""

    async def fault(cluster: VirtualCluster) -> None:
        link = cluster.links[component]
        died, count = asyncio.Event(), 0

        async def after(write: Write) -> None:
            nonlocal count
            count += counts(write)
            if count == nth and not died.is_set():
                link.severed = True
                died.set()
                await asyncio.Event().wait()

        link.after_write = after
        if stale:
            await cluster.kill(component)
            link.listed = StaleLists().listed
            await cluster.start(component)
        await died.wait()
        await cluster.kill(component)
        await cluster.sleep(_DOWN)
        await cluster.start(component)

    return fault


class StaleLists:
    """The first answer to each list, again and again, where any revision will do."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], ObjectList] = {}

    def listed(self, plural: str, asked: dict[str, Any], found: ObjectList) -> ObjectList:
        if asked.get("resource_version") != "0":
            return found
        where = tuple(sorted((key, value) for key, value in asked.items() if key != "resource_version"))
        return self._first.setdefault((plural, where), found)


def noise(seed: int, *components: str, lasting: float = 60.0) -> Fault:
    """For a while everything goes wrong that may: writes are refused, or happen without an answer; watches come late,
    twice, break off, or expire."""

    async def fault(cluster: VirtualCluster) -> None:
        chance = random.Random(seed)
        for name in components or ("controllers", "scheduler"):
            link = cluster.links[name]
            link.before_write = _refusing(chance)
            link.after_write = _unanswered(chance)
            link.watched = lambda plural, real: _NoisyWatch(real, chance, cluster.clock)
        # The watches that are open were opened before: they break off once, and come back noisy.
        for name in components or ("controllers", "scheduler"):
            await cluster.kill(name)
            await cluster.start(name)
        await cluster.sleep(lasting)
        for name in components or ("controllers", "scheduler"):
            quiet(cluster.links[name])

    return fault


def _refusing(chance: random.Random) -> Callable[[Write], Awaitable[None]]:
    async def before(write: Write) -> None:
        drawn = chance.random()
        if not counts(write) or drawn > 0.2:
            return
        if drawn < 0.08:
            raise Conflict(f'Operation cannot be fulfilled on {write.resource} "{write.name}": the object has changed')
        if drawn < 0.14:
            raise InternalError("the server is not well")
        raise Unreachable("the connection broke")

    return before


def _unanswered(chance: random.Random) -> Callable[[Write], Awaitable[None]]:
    async def after(write: Write) -> None:
        if counts(write) and chance.random() < 0.1:
            raise Unreachable("the connection broke before the answer came")

    return after


class _NoisyWatch:
    def __init__(self, real: WatchStream, chance: random.Random, clock: Clock) -> None:
        self._real = real
        self._chance = chance
        self._clock = clock
        self._again: deque[WatchEvent] = deque()
        self.resource_version = real.resource_version

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        if self._again:
            return self._again.popleft()
        event = await self._real.__anext__()
        drawn = self._chance.random()
        if drawn < 0.04:
            raise Unreachable("the watch broke off")  # the event is lost with it, and comes again from its revision
        if drawn < 0.06:
            raise Expired("too old resource version")
        if drawn < 0.3:
            await self._clock.sleep(self._chance.uniform(0, 3))
        self.resource_version = self._real.resource_version
        if drawn > 0.85:
            self._again.append(event)
        return event

    async def __aenter__(self) -> _NoisyWatch:
        await self._real.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._real.__aexit__(*error)

    def close(self) -> None:
        self._real.close()
