"""The two shapes of upkeep: look at an object when something around it changed, or do something every so often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from setpoint.apiserver.watch_cache import Change, Entry, ResourceCache, Watch
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.selectors import EVERYTHING
from setpoint.store.interface import StoreError

log = logging.getLogger("setpoint.upkeep")

_FIRST_RETRY, _LONGEST_RETRY = 0.05, 30.0


Sync = Callable[[str], Awaitable[float | None]]


class KeyedLoop:
    """`sync(key)` for every key that is due; it returns after how many seconds to look again (None: when told).

    A key that fails is tried again, later and later."""

    def __init__(self, name: str, clock: Clock, sync: Sync) -> None:
        self.on_started: Callable[[], None] | None = None
        """Called once, when every key that was due at the start has been tried."""
        self._name = name
        self._clock = clock
        self._sync = sync
        self._due: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._running = self._at_work = False
        self._idle = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._watching: list[tuple[ResourceCache, Watch]] = []

    def due(self, *keys: str) -> None:
        self._due.update(dict.fromkeys(keys))
        self._woken.set()

    async def idle(self) -> None:
        """Return when no key is due and none is being worked on, or the loop does not run at all."""
        while self._at_work or (self._running and self._due):
            self._idle.clear()
            await self._idle.wait()

    def follow(self, cache: ResourceCache, keys_of: Callable[[Entry], Iterable[str]]) -> None:
        """Every change of an object in the cache makes keys due; what is there already makes them due now."""

        def deliver(_: str, entry: Entry, change: Change) -> None:
            self.due(*keys_of(entry))

        watch = Watch(
            namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=lambda obj: {}, deliver=deliver
        )
        cache.add(watch)
        self._watching.append((cache, watch))
        for entry in cache.scan():
            self.due(*keys_of(entry))

    async def run(self) -> None:
        self._running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    if self.on_started is not None and not self._due:
                        self.on_started()
                        self.on_started = None
                    self._at_work = False
                    self._idle.set()
                    await self._woken.wait()
                    self._woken.clear()
                    self._at_work = True
                    while self._due:
                        key = next(iter(self._due))
                        del self._due[key]
                        delay = await self._attempt(key)
                        if delay is not None:
                            tasks.create_task(self._later(key, delay))
        finally:
            self._running = self._at_work = False
            self._idle.set()
            for cache, watch in self._watching:
                cache.remove(watch)

    async def _attempt(self, key: str) -> float | None:
        try:
            delay: float | None = await self._sync(key)
        except Exception as error:
            _report(self._name, key, error)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            return min(_FIRST_RETRY * 2.0 ** min(failures - 1, 16), _LONGEST_RETRY)
        self._failures.pop(key, None)
        return delay

    async def _later(self, key: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.due(key)


async def every(
    name: str,
    clock: Clock,
    seconds: float,
    do: Callable[[], Awaitable[None]],
    *,
    at_once: bool = True,
    started: Callable[[], None] | None = None,
) -> None:
    """Forever. A failure is logged and the next turn comes as usual. `started` is called after the first turn."""
    if not at_once:
        await clock.sleep(seconds)
    while True:
        try:
            await do()
        except Exception as error:
            _report(name, "", error)
        if started is not None:
            started()
            started = None
        await clock.sleep(seconds)


def _report(name: str, key: str, error: Exception) -> None:
    """No failure of one loop may end the others, let alone the server."""
    if isinstance(error, (ApiError, StoreError)):
        log.warning("%s %s: %s", name, key, error)
    else:
        log.error("%s %s", name, key, exc_info=error)
