"""DefaultBinder, preceded by the binding of volumes with WaitForFirstConsumer, and the eviction of preempted Pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.reconcile import Informer, key_of
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.scheduler.queue import SchedulingQueue
from setpoint.scheduler.writes import PODS, WriteQueue, condition_to_write, write_status

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.scheduler.preemption import Victims
    from setpoint.scheduler.volume_binder import VolumeReservation


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

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        """Wake the Pods that wait for volumes after a claim or volume has changed."""
        for waiting in self._waiting:
            waiting.set()

    async def bind(self, pod: Pod, node: str, reservation: VolumeReservation | None) -> None:
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

    async def _bind_volumes(self, pod: Pod, node: str, reservation: VolumeReservation) -> None:
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


log = logging.getLogger("setpoint.scheduler")


class Eviction:
    queue: SchedulingQueue
    """The queue in which preempting Pods wait."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        pods: Informer[Pod],
        recorders: Mapping[str, SeriesRecorder],
        writes: WriteQueue,
        nominations: Nominations,
    ) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods
        self._recorders = recorders
        self._writes = writes
        self._nominations = nominations
        self._in_progress: set[str] = set()
        """Uids of the Pods for which evictions are in progress."""

    def is_in_progress(self, pod: Pod) -> bool:
        return pod["metadata"]["uid"] in self._in_progress

    def begin(self, pod: Pod, victims: Victims, nominated: Iterable[Pod]) -> None:
        """Start the evictions. `nominated` are Pods of lower priority whose nomination for the node is cleared."""
        leaving = [placed.pod for placed in victims.pods if "deletionTimestamp" not in placed.pod["metadata"]]
        for other in nominated:
            self._submit_release(other)
        if not leaving:
            return
        uid = pod["metadata"]["uid"]
        self._in_progress.add(uid)
        self._nominations.choose_victims(leaving)

        async def evict() -> None:
            failed = False
            try:
                for victim in leaving:
                    try:
                        await self._evict(pod, victim, victims.node)
                    except (ApiError, Unreachable) as error:
                        log.warning("cannot preempt Pods for %s: %s", key_of(pod), error)
                        failed = True
                        break
            finally:
                self._in_progress.discard(uid)
            if failed:
                self._nominations.drop_victims(leaving)
                self.queue.activate(key_of(pod))
            else:
                self.queue.released(key_of(pod))

        self._writes.submit(f"evictions for {key_of(pod)}", evict)

    async def _evict(self, pod: Pod, victim: Pod, node: str) -> None:
        meta, scheduler = victim["metadata"], pod["spec"]["schedulerName"]
        current = self._pods.get(key_of(victim))
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            return
        message = f"{scheduler}: preempting to accommodate a higher priority pod"
        condition = condition_to_write(
            current, self._clock, "DisruptionTarget", "True", "PreemptionByScheduler", message
        )
        try:
            await write_status(self._client, current, condition, None)
            await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            return
        why = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self._recorders[scheduler].normal(victim, "Preempted", why, action="Preempting")

    def _submit_release(self, other: Pod) -> None:
        async def release() -> None:
            current = self._pods.get(key_of(other))
            if current is not None and current["metadata"]["uid"] == other["metadata"]["uid"]:
                try:
                    await write_status(self._client, current, None, "")
                except (ApiError, Unreachable) as error:
                    log.info("cannot clear the nominated node of %s: %s", key_of(other), error)

        self._writes.submit(key_of(other), release)
