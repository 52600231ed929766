"""Several who ask for the same thing at the same time are answered by one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Abandoned(Exception):
    """Who had asked for all was cancelled."""


class SingleFlight(Generic[K, V]):
    def __init__(self) -> None:
        self._flying: dict[K, asyncio.Future[V]] = {}

    async def run(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """What `ask` gives or raises: our own, or that of somebody who asked for the same before. If that one gives
        up, one of those who wait asks in its place."""
        while key in self._flying:
            try:
                return await asyncio.shield(self._flying[key])
            except _Abandoned:
                continue
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._flying[key] = future
        try:
            value = await ask()
        except BaseException as error:
            future.set_exception(error if isinstance(error, Exception) else _Abandoned())
            future.exception()  # nobody may have waited for it
            raise
        else:
            future.set_result(value)
            return value
        finally:
            del self._flying[key]
