"""Coalesces concurrent calls for the same key into one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Abandoned(Exception):
    """The caller that made the call was cancelled."""


class SingleFlight(Generic[K, V]):
    def __init__(self) -> None:
        self._in_progress: dict[K, asyncio.Future[V]] = {}

    async def run(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        """Return or raise the result of `call`, or that of a call for the same key in progress. If the caller that made
        the call is cancelled, one of the waiting callers makes it again."""
        while key in self._in_progress:
            try:
                return await asyncio.shield(self._in_progress[key])
            except _Abandoned:
                continue
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._in_progress[key] = future
        try:
            value = await call()
        except BaseException as error:
            future.set_exception(error if isinstance(error, Exception) else _Abandoned())
            future.exception()  # mark it as retrieved: there may be no waiting caller
            raise
        else:
            future.set_result(value)
            return value
        finally:
            del self._in_progress[key]
