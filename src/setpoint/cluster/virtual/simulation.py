"""A copy of a cluster in virtual time: all loops run as in the original, and an hour passes in a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from setpoint.client import Client
from setpoint.cluster.cluster_copy import ClusterCopy, copied_items
from setpoint.cluster.component import Component
from setpoint.cluster.embedded import EmbeddedCluster, embedded_cluster
from setpoint.cluster.klog import concerns_copy
from setpoint.cluster.virtual.conditions import Checked, is_retrying, unfinished
from setpoint.cluster.virtual.link import Link, LinkedClient
from setpoint.cluster.virtual.time import VirtualClock, VirtualLoop
from setpoint.meta.cause import WriteCause, decode
from setpoint.meta.objects import Obj
from setpoint.meta.times import unix_milliseconds
from setpoint.node.pace import REAL, Pace
from setpoint.reconcile.gate import Mode
from setpoint.store.interface import Event
from setpoint.system import RandomIds
from setpoint.view.changes import changes
from setpoint.view.plan import Unfinished

HEARTBEATS = ("coordination.k8s.io/leases/", "core/events/", "events.k8s.io/events/", "ranges/")
"""Prefixes of keys whose writes are not changes of the cluster."""
SERVER = "system:apiserver"
"""The user of the writes that an API server makes for itself."""
_NODES, _PODS, _CRON_JOBS = "core/nodes/", "core/pods/", "batch/cronjobs/"
_ENDPOINTS = ("core/endpoints/", "discovery.k8s.io/endpointslices/")
_MAX_RETRIES = 10_000
_HEARTBEAT_FIELDS = ("lastHeartbeatTime",)
MAX_WRITES = 500_000
"""The number of writes that a simulation keeps; of more, only the number is known."""
_MAX_OWNERS = 8
_STEP = 5.0
"""Virtual seconds between two checks whether the simulation was interrupted or is quiet."""
QUIET, QUIET_IF_UNFINISHED = 75.0, 660.0
"""Seconds without a write after which a cluster is settled. A lost node is found 50 to 60 s after its last heartbeat,
because heartbeats are examined every 5 s. The longer time applies if something is still expected: the tolerations of
Pods on a lost node end after 300 s, the deadline of a rollout by default after 600 s."""
FIRST_LOOK = 1800.0
"""Seconds that the loops of a copy have to settle before anything is changed in it."""
_MAX_LIVELOCK_CHECKS = 5_000
_PARTS = {"controllers": "controllers", "scheduler": "scheduler", "nodes": "fleet"}
"""The attributes of `Components` by the names of their links."""


class Interrupted(Exception):
    """The simulation was interrupted from outside."""


class Livelock(Exception):
    """The loops write so much at one instant that virtual time cannot advance."""


class SimulatedWrite(NamedTuple):
    """The change of one object."""

    at: float
    """Seconds of virtual time since the start of the simulation."""
    key: str
    before: bytes | None
    """The stored object before the write; None if it was created."""
    now: bytes | None
    """The stored object after the write; None if it was deleted."""
    cause: WriteCause
    is_retry: bool = False
    """Whether it is a further attempt of a kubelet to run a container that cannot run, or a status that follows."""

    def object(self) -> Obj:
        """Return the object after the write, or the one that was deleted."""
        found: Obj = orjson.loads(self.now or self.before or b"{}")
        return found


class Simulation:
    """A running simulation. `writes` grows with every change of an object, except heartbeats and Events."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        clock: VirtualClock,
        after: int,
        interrupted: Callable[[], bool],
        max_writes: int = MAX_WRITES,
        links: Mapping[str, Link] | None = None,
    ) -> None:
        """Record the writes after the revision `after`, at most `max_writes`."""
        self._max_writes = max_writes
        self.embedded = cluster
        self.links: Mapping[str, Link] = links or {}
        """The link between each component and the server, by component name; empty if components have none."""
        self.clock = clock
        self.client: Client = cluster.client
        """A client with an administrator's rights."""
        self.writes: list[SimulatedWrite] = []
        self.dropped = 0
        """The number of writes beyond those that are kept."""
        self._start = clock.monotonic()
        self._interrupted = interrupted
        self._last_activity = self._start
        self._checked: Checked = {}
        self._retries: set[int] = set()
        """The latest revisions of writes that are retries."""
        self._owners: dict[str, tuple[str, str]] = {}
        """The kind and uid of the controlling owner, by the uid of the object."""
        for key, value in self.state().items():
            self._note_owner(key, value)
        self._subscription = cluster.store.watch("", after, self._record)

    @property
    def elapsed(self) -> float:
        """The seconds since the start."""
        return self.clock.monotonic() - self._start

    def state(self) -> dict[str, bytes]:
        """Return all objects by key, without Events, Leases and the server's own records."""
        items = self.embedded.store.entries()
        return {key: item.value for key, item in items.items() if not key.startswith(HEARTBEATS)}

    def copy(self) -> ClusterCopy:
        """Return a copy of the simulated cluster as it is now."""
        store = self.embedded.store
        return copied_items(store.entries().values(), store.revision, self.clock.now())

    def retrying(self) -> list[tuple[str, str, str]]:
        """Return the kind, namespace and name of the Pods of which kubelets try again and again to run a container."""
        now = unix_milliseconds(self.clock.now())
        pods = {key: value for key, value in self.state().items() if key.startswith(_PODS)}
        names = (key[len(_PODS) :].partition("/") for key, value in pods.items() if is_retrying(value, now))
        return [("Pod", namespace, name) for namespace, _, name in names]

    def unfinished(self) -> list[Unfinished]:
        """Return the objects that are not as desired."""
        return unfinished(self.state(), self._checked)

    # -- time ----------------------------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass. Raises Interrupted, Livelock."""
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            await self._pass_time(min(left, _STEP))

    async def settle(self, within: float, quiet: float | None = None) -> bool:
        """Let time pass until the loops are quiet, and return whether that happened within `within` seconds.

        They are quiet after `quiet` seconds without a write; by default long enough for tolerations and deadlines.
        What CronJobs start again and again does not count, nor do further attempts of kubelets to run containers that
        keep exiting or whose images cannot be pulled. Raises Interrupted, Livelock."""
        begin = self.clock.monotonic()
        self._last_activity = max(self._last_activity, begin)
        least = QUIET if quiet is None else quiet
        checked, needed = -1.0, least
        while True:
            now, last = self.clock.monotonic(), self._last_activity
            if now - last >= least and checked != last:
                checked, needed = last, QUIET_IF_UNFINISHED if quiet is None and self.unfinished() else least
            if checked == last and now - last >= needed:
                return True
            if now - begin >= within:
                return False
            await self._pass_time(_STEP)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass in a task beside the one that calls `advance` or `settle`."""
        await self.clock.sleep(seconds)

    async def wait_while(self, check: Callable[[], bool]) -> None:
        """Let time pass as long as `check` returns true. Raises Interrupted, Livelock."""
        while check():
            await self._pass_time(_STEP)

    async def _pass_time(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        done: asyncio.Future[None] = loop.create_future()
        checks = 0

        def check() -> None:
            nonlocal checks
            checks += 1
            if done.done():
                return
            if self._interrupted():
                done.set_exception(Interrupted())
            elif checks > _MAX_LIVELOCK_CHECKS:
                done.set_exception(Livelock(_busiest(self.writes[-300:])))

        def end() -> None:
            if not done.done():
                done.set_result(None)

        timer = loop.call_later(seconds, end)
        loop.livelock_callbacks.append(check)
        try:
            await done
        finally:
            timer.cancel()
            loop.livelock_callbacks.remove(check)
        if self._interrupted():
            raise Interrupted

    def resume(self) -> None:
        """Let the loops run after a start in which they were paused."""
        self.embedded.components.gates.set_mode(Mode.RUN)

    # -- components ----------------------------------------------------------------------------------------------------

    def _component(self, name: str) -> Component[Any]:
        found: Component[Any] = getattr(self.embedded.components, _PARTS[name])
        return found

    async def kill(self, name: str) -> None:
        """Sever the link of a component, and end it as a process crash does."""
        self.links[name].severed = True
        await self._component(name).kill()

    async def start(self, name: str) -> None:
        """Start a component that was killed, and return when it is ready."""
        self.links[name].severed = False
        await self.embedded.components.start(self._component(name))

    # -- writes --------------------------------------------------------------------------------------------------------

    def _record(self, events: Sequence[Event], revision: int) -> None:
        at, store = self.clock.monotonic(), self.embedded.store
        for event in events:
            if event.key.startswith(HEARTBEATS):
                continue
            now = event.now.value if event.now is not None else None
            before = event.before.value if event.before is not None else None
            cause = decode(store.cause_of(event.revision))
            write = SimulatedWrite(at - self._start, event.key, before, now, cause)
            if _is_attempt(write) or self._follows_retries(write):
                write = write._replace(is_retry=True)
                self._note_retry(event.revision)
            if event.key.startswith(_NODES) and _is_heartbeat(write):
                continue
            if now is not None:
                self._note_owner(event.key, now)
            if len(self.writes) < self._max_writes:
                self.writes.append(write)
            else:
                self.dropped += 1
            if not self.is_scheduled(write) and not write.is_retry:
                self._last_activity = at

    def _note_retry(self, revision: int) -> None:
        if len(self._retries) >= 2 * _MAX_RETRIES:
            self._retries = {each for each in self._retries if each > revision - _MAX_RETRIES}
        self._retries.add(revision)

    def _follows_retries(self, write: SimulatedWrite) -> bool:
        """Return whether retries alone have triggered the write, and it only reports them."""
        claim = write.cause.claim
        if not claim.triggers or claim.count > len(claim.triggers) or not self._retries.issuperset(claim.triggers):
            return False
        if write.before is None or write.now is None:
            return False
        return write.key.startswith(_ENDPOINTS) or _is_status_change(write)

    def loop_writes(self) -> list[SimulatedWrite]:
        """Return the writes so far, without those of the API server itself and what CronJobs start."""
        return [each for each in self.writes if each.cause.user != SERVER and not self.is_scheduled(each)]

    def is_scheduled(self, write: SimulatedWrite) -> bool:
        """Return whether the write belongs to what a CronJob does by itself."""
        if write.key.startswith(_CRON_JOBS):
            return write.before is not None and write.now is not None and _is_status_change(write)
        return self.belongs_to_cron_job(write.key, write.object())

    def belongs_to_cron_job(self, key: str, obj: Mapping[str, Any]) -> bool:
        """Return whether the object is owned, directly or not, by a CronJob."""
        uid = (obj.get("metadata") or {}).get("uid", "")
        for _ in range(_MAX_OWNERS):
            kind, uid = self._owners.get(uid, ("", ""))
            if kind == "CronJob":
                return True
            if not uid:
                break
        return False

    def _note_owner(self, key: str, value: bytes) -> None:
        if b'"ownerReferences"' not in value:
            return
        meta = orjson.loads(value)["metadata"]
        for owner in meta.get("ownerReferences") or ():
            if owner.get("controller"):
                self._owners[meta["uid"]] = (owner.get("kind", ""), owner.get("uid", ""))


def _is_status_change(write: SimulatedWrite) -> bool:
    found = changes(orjson.loads(write.before or b"{}"), orjson.loads(write.now or b"{}"))
    return all(change.path[:1] == ("status",) for change in found)


def _is_heartbeat(write: SimulatedWrite) -> bool:
    if write.before is None or write.now is None:
        return False
    found = changes(orjson.loads(write.before), orjson.loads(write.now))
    return all(change.path[-1] in _HEARTBEAT_FIELDS for change in found)


def _is_attempt(write: SimulatedWrite) -> bool:
    """Return whether the write is a further attempt of a kubelet to run a container that cannot run."""
    if not write.key.startswith(_PODS) or write.before is None or write.now is None:
        return False
    if not (is_retrying(write.before, write.cause.at) and is_retrying(write.now, write.cause.at)):
        return False
    return _is_status_change(write)


def _busiest(writes: Sequence[SimulatedWrite]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for write in writes:
        at = (write.key, write.cause.user)
        counts[at] = counts.get(at, 0) + 1
    (key, user), count = max(counts.items(), key=lambda each: each[1], default=(("", ""), 0))
    return f"{user} writes {key} without end, {count} of the last {len(writes)} writes" if key else "loops never pause"


@asynccontextmanager
async def simulation(
    copy: ClusterCopy,
    *,
    seed: int = 1,
    pace: Pace = REAL,
    max_writes: int = MAX_WRITES,
    interrupted: Callable[[], bool] = lambda: False,
    linked: bool = False,
    paused: bool = False,
) -> AsyncIterator[Simulation]:
    """Run a copy of a cluster; requires a virtual loop (`run_virtual`). All nodes are simulated.

    The loops begin with a first look at everything; see `Simulation.settle`. `interrupted` is called now and then and
    returns whether to stop, because the simulation may run in a thread. With `linked`, components have links, into
    which faults can be injected; with `paused`, the loops do nothing until `Simulation.resume` is called."""
    copy, clock = copy.isolated(), VirtualClock.going_on(copy.now)
    options, links = copy.embedded_options(pace), {name: Link(name) for name in _PARTS if linked}
    if links:
        by_part = {_PARTS[name]: link for name, link in links.items()}

        def wrap(part: str, client: Client) -> Client:
            return LinkedClient(client, by_part[part])

        options = replace(options, components=replace(options.components, wrap=wrap))
    if paused:
        options = replace(options, components=replace(options.components, paused=True))
    token = concerns_copy.set(True)
    try:
        async with embedded_cluster(clock, RandomIds(seed), options, copy.state()) as cluster:
            yield Simulation(cluster, clock, copy.revision, interrupted, max_writes, links)
    finally:
        concerns_copy.reset(token)
