"""Evicts the victims of preemption while the preempting Pod waits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from setpoint.client import Client, Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.reconcile import Informer, key_of
from setpoint.reconcile.event_series import SeriesRecorder
from setpoint.scheduler.pod_status import PODS, with_condition, write_status
from setpoint.scheduler.queue import SchedulingQueue
from setpoint.scheduler.writes import WriteQueue

if TYPE_CHECKING:
    from setpoint.scheduler.preemption import Victims

log = logging.getLogger("setpoint.scheduler")

Obj = dict[str, Any]


class Eviction:
    queue: SchedulingQueue
    """The queue in which preempting Pods wait."""

    def __init__(
        self, client: Client, clock: Clock, pods: Informer, recorders: Mapping[str, SeriesRecorder], writes: WriteQueue
    ) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods
        self._recorders = recorders
        self._writes = writes
        self._for: set[str] = set()
        """Uids of the Pods for which evictions are in progress."""

    def is_under_way(self, pod: Obj) -> bool:
        return pod["metadata"]["uid"] in self._for

    def begin(self, pod: Obj, victims: Victims, nominated: Iterable[Obj]) -> None:
        """Start the evictions. `nominated` are Pods of lower priority whose nomination for the node is cleared."""
        leaving = [placed.pod for placed in victims.pods if "deletionTimestamp" not in placed.pod["metadata"]]
        for other in nominated:
            self._submit_release(other)
        if not leaving:
            return
        uid = pod["metadata"]["uid"]
        self._for.add(uid)

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
                self._for.discard(uid)
            if failed:
                self.queue.activate(key_of(pod))
            else:
                self.queue.released(key_of(pod))

        self._writes.submit(f"room for {key_of(pod)}", evict)

    async def _evict(self, pod: Obj, victim: Obj, node: str) -> None:
        meta, scheduler = victim["metadata"], pod["spec"]["schedulerName"]
        current = self._pods.get(key_of(victim))
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            return
        message = f"{scheduler}: preempting to accommodate a higher priority pod"
        condition = with_condition(current, self._clock, "DisruptionTarget", "True", "PreemptionByScheduler", message)
        try:
            await write_status(self._client, current, condition, None)
            await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            return
        why = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self._recorders[scheduler].normal(victim, "Preempted", why, action="Preempting")

    def _submit_release(self, other: Obj) -> None:
        async def release() -> None:
            current = self._pods.get(key_of(other))
            if current is not None and current["metadata"]["uid"] == other["metadata"]["uid"]:
                try:
                    await write_status(self._client, current, None, "")
                except (ApiError, Unreachable) as error:
                    log.info("cannot clear the nominated node of %s: %s", key_of(other), error)

        self._writes.submit(key_of(other), release)
