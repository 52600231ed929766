"""DefaultBinder, preceded by the binding of volumes with WaitForFirstConsumer."""

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
    from setpoint.scheduler.volume_binder import VolumeReservation

Obj = dict[str, Any]

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_POLL_SECONDS = 1.0


class Binder:
    def __init__(self, client: Client, clock: Clock, listers: Listers) -> None:
        self._client = client
        self._clock = clock
        self._listers = listers
        self._waiting: list[asyncio.Event] = []
        self.tasks: asyncio.TaskGroup | None = None
        """The task group in which Pods wait for volumes, which takes too long for the write queue; None before the
        scheduler runs."""

    def spawn(self, bind: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await bind()

        assert self.tasks is not None
        self.tasks.create_task(run())

    def changed(self, old: Obj | None, new: Obj | None) -> None:
        """Wake the Pods that wait for volumes after a claim or volume has changed."""
        for waiting in self._waiting:
            waiting.set()

    async def bind(self, pod: Obj, node: str, reservation: VolumeReservation | None) -> None:
        """Bind the Pod. Raise ApiError, Unreachable, ValueError or TimeoutError; after a failure no volume is
        reserved."""
        if reservation is not None:
            try:
                await self._bind_volumes(pod, node, reservation)
            except BaseException:
                reservation.binder.unreserve(reservation)
                raise
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create(binding, resource=PODS, subresource="binding")

    async def _bind_volumes(self, pod: Obj, node: str, reservation: VolumeReservation) -> None:
        # Nominate the node, so that its capacity stays reserved while volumes are provisioned.
        await write_status(self._client, pod, None, node)
        for volume, _ in reservation.volumes:
            await self._client.update(volume, resource=VOLUMES)
        for claim in reservation.claims:
            await self._client.update(claim, resource=CLAIMS)
        deadline = self._clock.monotonic() + reservation.binder.bind_timeout
        change = asyncio.Event()
        self._waiting.append(change)
        try:
            while not reservation.binder.is_bound(reservation, node):
                if self._clock.monotonic() >= deadline:
                    raise TimeoutError("context deadline exceeded")
                change.clear()
                await self._change_or_timeout(change)
        except (ValueError, TimeoutError) as error:
            raise type(error)(f'running PreBind plugin "VolumeBinding": binding volumes: {error}') from None
        finally:
            self._waiting.remove(change)

    async def _change_or_timeout(self, change: asyncio.Event) -> None:
        async def alarm() -> None:
            await self._clock.sleep(_POLL_SECONDS)
            change.set()

        async with asyncio.TaskGroup() as tasks:
            sleeper = tasks.create_task(alarm())
            await change.wait()
            sleeper.cancel()
