"""The two forms of maintenance: reconciling a key after a change, and periodic tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.watch_cache import Change, ResourceCache, Watch
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.store.interface import StoreError

log = logging.getLogger("setpoint.upkeep")

_MIN_BACKOFF, _MAX_BACKOFF = 0.05, 30.0


Sync = Callable[[str], Awaitable[float | None]]
"""Reconciles a key and returns the seconds until the next run, or None."""


class KeyedLoop:
    """Calls `sync(key)` for every key that is due, one at a time. `sync` returns the seconds until the next run, or
    None.

    A key that fails is retried with exponential backoff.
    """

    def __init__(self, name: str, clock: Clock, sync: Sync) -> None:
        self.on_started: Callable[[], None] | None = None
        """Called once, when every key that was due at the start has been processed."""
        self._name = name
        self._clock = clock
        self._sync = sync
        self._due: dict[str, None] = {}
        self._processing: str | None = None
        self._wakeup = asyncio.Event()
        self._is_running = self._is_working = False
        self._idle = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._watching: list[tuple[ResourceCache, Watch]] = []

    def due(self, *keys: str) -> None:
        """Mark keys as due."""
        self._due.update(dict.fromkeys(keys))
        self._wakeup.set()

    @property
    def is_busy(self) -> bool:
        """Whether a key is due or being processed."""
        return bool(self._due) or self._processing is not None

    def is_pending(self, key: str) -> bool:
        """Return whether this key is due or being processed."""
        return key in self._due or key == self._processing

    async def idle(self) -> None:
        """Wait until no key is due or being processed. Return at once if the loop does not run."""
        while self._is_working or (self._is_running and self._due):
            self._idle.clear()
            await self._idle.wait()

    def follow(self, cache: ResourceCache, keys_of: Callable[[Entry], Iterable[str]]) -> None:
        """Make keys due with every change of an object in the cache; those of existing objects are due at once."""

        def deliver(_: str, entry: Entry, change: Change) -> None:
            self.due(*keys_of(entry))

        watch = Watch.everything(deliver)
        cache.add(watch)
        self._watching.append((cache, watch))
        for entry in cache.scan():
            self.due(*keys_of(entry))

    async def run(self) -> None:
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    if self.on_started is not None and not self._due:
                        self.on_started()
                        self.on_started = None
                    self._is_working = False
                    self._idle.set()
                    await self._wakeup.wait()
                    self._wakeup.clear()
                    self._is_working = True
                    while self._due:
                        key = self._processing = next(iter(self._due))
                        del self._due[key]
                        delay = await self._sync_key(key)
                        self._processing = None
                        if delay is not None:
                            tasks.create_task(self._requeue_after(key, delay))
        finally:
            self._is_running = self._is_working = False
            self._processing = None
            self._idle.set()
            for cache, watch in self._watching:
                cache.remove(watch)

    async def _sync_key(self, key: str) -> float | None:
        try:
            delay: float | None = await self._sync(key)
        except Exception as error:
            _report(self._name, key, error)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            return min(_MIN_BACKOFF * 2.0 ** min(failures - 1, 16), _MAX_BACKOFF)
        self._failures.pop(key, None)
        return delay

    async def _requeue_after(self, key: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.due(key)


async def every(
    name: str,
    clock: Clock,
    seconds: float,
    do: Callable[[], Awaitable[None]],
    *,
    immediately: bool = True,
    started: Callable[[], None] | None = None,
) -> None:
    """Call `do` periodically, forever. A failure is logged. `started` is called after the first call."""
    if not immediately:
        await clock.sleep(seconds)
    while True:
        await run_once(name, do)
        if started is not None:
            started()
            started = None
        await clock.sleep(seconds)


async def run_once(name: str, do: Callable[[], Awaitable[None]]) -> None:
    """Call `do`. A failure is logged."""
    try:
        await do()
    except Exception as error:
        _report(name, "", error)


def _report(name: str, key: str, error: Exception) -> None:
    """Log a failure: no failure of a loop may end the others, or the server."""
    if isinstance(error, (ApiError, StoreError)):
        log.warning("%s %s: %s", name, key, error)
    else:
        log.error("%s %s", name, key, exc_info=error)
