"""DefaultBinder, and what must come before it: volumes that wait for a node get theirs first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.pod_status import PODS, write_status

if TYPE_CHECKING:
    from setpoint.scheduler.volume_binder import Promise

Obj = dict[str, Any]

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_LOOK_EVERY = 1.0


class Binder:
    def __init__(self, client: Client, clock: Clock, listers: Listers) -> None:
        self._client = client
        self._clock = clock
        self._listers = listers
        self._waiting: list[asyncio.Event] = []
        self.tasks: asyncio.TaskGroup | None = None
        """Where Pods wait for volumes: for so long that nobody else may wait behind them."""

    def spawn(self, bind: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await bind()

        assert self.tasks is not None
        self.tasks.create_task(run())

    def changed(self, old: Obj | None, new: Obj | None) -> None:
        """A claim or a volume has."""
        for waiting in self._waiting:
            waiting.set()

    async def bind(self, pod: Obj, node: str, promise: Promise | None) -> None:
        """Raises ApiError, Unreachable, ValueError, TimeoutError. Nothing is promised any more when it fails."""
        if promise is not None:
            try:
                await self._keep(pod, node, promise)
            except BaseException:
                promise.binder.withdraw(promise)
                raise
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create(binding, resource=PODS, subresource="binding")

    async def _keep(self, pod: Obj, node: str, promise: Promise) -> None:
        # So that others see what the node is kept for while the volumes are made.
        await write_status(self._client, pod, None, node)
        for volume, _ in promise.volumes:
            await self._client.update(volume, resource=VOLUMES)
        for claim in promise.claims:
            await self._client.update(claim, resource=CLAIMS)
        deadline = self._clock.monotonic() + promise.binder.bind_timeout
        news = asyncio.Event()
        self._waiting.append(news)
        try:
            while not promise.binder.is_kept(promise, node):
                if self._clock.monotonic() >= deadline:
                    raise TimeoutError("context deadline exceeded")
                news.clear()
                await self._news_or_time(news)
        except (ValueError, TimeoutError) as error:
            raise type(error)(f'running PreBind plugin "VolumeBinding": binding volumes: {error}') from None
        finally:
            self._waiting.remove(news)

    async def _news_or_time(self, news: asyncio.Event) -> None:
        async def alarm() -> None:
            await self._clock.sleep(_LOOK_EVERY)
            news.set()

        async with asyncio.TaskGroup() as tasks:
            sleeper = tasks.create_task(alarm())
            await news.wait()
            sleeper.cancel()
