"""What the clients do until they are stopped: registers, lists, watches, Services, Deployments, leader election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from tests.robustness.etcd_log import summary
from tests.robustness.history import OK, Call, Converged, Frame, History, Leading, WatchStart
from tests.robustness.network import MACHINES
from tests.robustness.recording_client import RecordingClient, Servers

from setpoint.client import Client, Unreachable
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, Expired
from setpoint.meta.objects import Obj
from setpoint.reconcile.leader_election import ElectionTimes, LeaderElection, LeadershipLost

NAMESPACE = "robust"
CONFIGMAPS, SERVICES = f"core/configmaps/{NAMESPACE}/", f"core/services/{NAMESPACE}/"
_CONFIGMAPS, _DEPLOYMENTS, _PODS = builtin("configmaps"), builtin("deployments", "apps"), builtin("pods")
_DEPLOYMENT_NAMES = ("d0", "d1")
_KEYS = 6
_MOST_SERVICES = 15
_IDLE_WATCH = 4.0
"""Seconds without an event after which a client resumes its watch at another server; writes are much more frequent."""
_LONGEST_WATCH = 30.0
_LEASE = ElectionTimes(lease_duration=6.0, renew_deadline=4.0, retry_period=1.0)
_CONVERGENCE_TIMEOUT = 120.0
_POLL = 0.2
_RETRY_PAUSE = 0.05
_PREPARE_ATTEMPTS = 10


class Workload:
    """All clients of a run. They use the servers in different order."""

    def __init__(
        self, access: Mapping[str, Access], history: History, clock: Clock, ids: Ids, random: Random, rate: float
    ) -> None:
        """`rate` is the number of calls a second that each client makes at most."""
        self._access = access
        self._history = history
        self._clock = clock
        self._ids = ids
        self._random = random
        self._pause = 1 / rate
        self._servers: list[Servers] = []
        self._written = 0
        self._positions: dict[str, int] = {}
        """The revision that each watch has reached."""
        self._delivered = asyncio.Event()

    def servers(self, first: int) -> Servers:
        found = Servers(self._access, self._clock, MACHINES[first % len(MACHINES)])
        self._servers.append(found)
        return found

    def client(self, name: str, first: int) -> RecordingClient:
        return RecordingClient(name, self.servers(first), self._history, self._clock)

    async def close(self) -> None:
        for servers in self._servers:
            await servers.close()

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        """Return all clients except the watches; they end by cancellation."""
        return [
            *(self._registers(number) for number in range(4)),
            self._lists(),
            self._services(),
            *(self._scaling(name, number) for number, name in enumerate(_DEPLOYMENT_NAMES)),
            *(self._candidate(number) for number in range(3)),
        ]

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        return [self._watch(f"watch-{number}", number) for number in range(3)]

    async def prepare(self) -> None:
        client = Client(self.servers(0), self._clock)
        namespace: Obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for obj in (namespace, *(_deployment(name, 2) for name in _DEPLOYMENT_NAMES)):
            await _ensure(client, obj)

    def _value(self) -> str:
        self._written += 1
        return f"v{self._written}"

    async def _rest(self, call: Call, periods: float = 1.0) -> None:
        """Pause after a call; after one that failed, only for a moment, before the next server is tried."""
        await asyncio.sleep(_RETRY_PAUSE if call.failed else periods * self._pause * self._random.uniform(0.5, 1.5))

    # -- objects ------------------------------------------------------------------------------------------------------

    async def _registers(self, number: int) -> None:
        """Create, read, compare-and-swap and delete a few ConfigMaps that all these clients share. Many writes are read
        at once from another server."""
        client, random = self.client(f"register-{number}", number), self._random
        reader = self.client(f"reader-{number}", number + 1)
        known: dict[str, int] = {}
        while True:
            key = f"{CONFIGMAPS}r{random.randrange(_KEYS)}"
            revision = known.get(key)
            if revision is None or random.random() < 0.4:
                call = await client.get(key)
                if call.code == 404:
                    call = await client.create(key, self._value())
            elif random.random() < 0.15:
                call = await client.delete(key, revision)
            else:
                call = await client.update(key, self._value(), revision)
            if call.outcome == OK and call.verb != "delete":
                known[key] = call.revision
            else:
                known.pop(key, None)
            if call.verb != "get" and random.random() < 0.5:
                reader.servers.advance()
                while (read := await reader.get(key)).failed:
                    await self._rest(read)
            await self._rest(call)

    async def _lists(self) -> None:
        client, random = self.client("lists", 1), self._random
        while True:
            kind = random.random()
            call = await client.list(CONFIGMAPS, limit=3 if kind < 0.4 else 0, stale_allowed=kind > 0.8)
            if call.outcome == OK:
                client.servers.advance()
            await self._rest(call, 2.0)

    async def _services(self) -> None:
        client = self.client("services", 2)
        spec = {"ports": [{"port": 80}]}
        held: list[tuple[str, int]] = []
        number = 0
        while True:
            number += 1
            key = f"{SERVICES}s{number}"
            call = await client.create(key, "", spec=spec)
            while call.failed:
                await self._rest(call)
                call = await client.get(key)
            if call.outcome == OK:
                held.append((key, call.revision))
            if len(held) > _MOST_SERVICES:
                await client.delete(*held.pop(self._random.randrange(len(held))))
            await self._rest(call, 3.0)

    # -- watches ------------------------------------------------------------------------------------------------------

    async def _watch(self, name: str, first: int) -> None:
        recording = self.client(name, first)
        client = Client(recording.servers, self._clock)
        connection, revision, relist = 0, 0, True
        while True:
            if relist:
                call = await recording.list(CONFIGMAPS)
                if call.outcome != OK:
                    await asyncio.sleep(_POLL)
                    continue
                revision = call.revision
            connection += 1
            started = WatchStart(
                name, connection, recording.servers.current, CONFIGMAPS, self._clock.monotonic(), revision, relist
            )
            self._history.add(started)
            relist = False
            try:
                async with asyncio.timeout(self._random.uniform(0.3, 1.0) * _LONGEST_WATCH):
                    async for frame in self._frames(client, started):
                        self._history.add(frame)
                        self._positions[name] = revision = frame.revision
                        self._delivered.set()
            except Expired:
                relist = True
            except (ApiError, Unreachable, TimeoutError):
                await asyncio.sleep(_POLL)
            recording.servers.advance()

    async def watched(self, revision: int, timeout: float) -> None:
        """Return when all watches have reached a revision. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while min(self._positions.values(), default=0) < revision:
                self._delivered.clear()
                await self._delivered.wait()

    async def _frames(self, client: Client, start: WatchStart) -> AsyncIterator[Frame]:
        watch = client.watch(_CONFIGMAPS, NAMESPACE, resource_version=str(start.revision))
        try:
            while True:
                try:
                    async with asyncio.timeout(_IDLE_WATCH):
                        event = await anext(watch)
                except StopAsyncIteration:
                    return
                meta = event.object["metadata"]
                key = "" if event.type == "BOOKMARK" else CONFIGMAPS + meta["name"]
                value = summary(key, event.object) if key else None
                revision, at = int(meta["resourceVersion"]), self._clock.monotonic()
                yield Frame(start.watch, start.connection, at, event.type, revision, key, value)
        finally:
            watch.close()

    # -- controllers --------------------------------------------------------------------------------------------------

    async def _scaling(self, name: str, first: int) -> None:
        """Scale a Deployment up and down, and record how long it takes until the Pods are there."""
        servers, random = self.servers(first), self._random
        client = Client(servers, self._clock)
        while True:
            replicas = random.randint(1, 5)
            invoked = self._clock.monotonic()
            while True:
                if await self._scaled(client, name, replicas):
                    break
                await asyncio.sleep(_POLL)
            answered = self._clock.monotonic()
            key = f"apps/deployments/{NAMESPACE}/{name}"
            self._history.add(Call("deployments", servers.current, "converge", key, invoked, answered, OK))
            await asyncio.sleep(random.uniform(1.0, 4.0))

    async def _scaled(self, client: Client, name: str, replicas: int) -> bool:
        """Return whether a Deployment has this number of Pods. Scale it if it demands another number, also again: an
        earlier request that was not answered may take effect late, when a suspended server continues."""
        try:
            found = await client.get(_DEPLOYMENTS, name, NAMESPACE)
            if found["spec"]["replicas"] != replicas:
                await client.patch(_DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, NAMESPACE)
                return False
            return _is_complete(found, replicas)
        except (ApiError, Unreachable):
            return False

    async def converge(self) -> None:
        """Wait until the Deployments have their Pods, and record what they have then or at the end of the timeout."""
        client = Client(self.servers(0), self._clock)
        for name in _DEPLOYMENT_NAMES:
            found = Converged(name, -1, 0, 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONVERGENCE_TIMEOUT):
                    while not found.wanted == found.pods == found.available:
                        with suppress(ApiError, Unreachable):
                            found = await self._pods(client, name)
                        await asyncio.sleep(_POLL)
            self._history.add(found)

    async def _pods(self, client: Client, name: str) -> Converged:
        pods = await client.list(_PODS, NAMESPACE, label_selector=f"app={name}")
        deployment = await client.get(_DEPLOYMENTS, name, NAMESPACE)
        available = (deployment.get("status") or {}).get("availableReplicas") or 0
        return Converged(name, deployment["spec"]["replicas"], len(pods.items), available)

    # -- leader election ----------------------------------------------------------------------------------------------

    async def _candidate(self, number: int) -> None:
        """Lead whenever possible, resign now and then, and record when this candidate could act as the leader."""
        client = Client(self.servers(number), self._clock)
        name, identity = "election", f"candidate-{number}"
        while True:
            election = LeaderElection(
                client, self._clock, self._ids, name=name, identity=identity, namespace=NAMESPACE, times=_LEASE
            )
            acting = _Acting(election, self._clock)
            try:
                await election.lead(partial(acting.until, self._random.uniform(4.0, 12.0)))
            except (LeadershipLost, ApiError, Unreachable):
                pass
            finally:
                if acting.began:
                    self._history.add(Leading(identity, f"{NAMESPACE}/{name}", acting.began, acting.ended))
            await asyncio.sleep(self._random.uniform(0.5, 2.0))


class _Acting:
    """The time during which a leader may write."""

    def __init__(self, election: LeaderElection, clock: Clock) -> None:
        self._election = election
        self._clock = clock
        self.began = self.ended = 0.0

    async def until(self, seconds: float) -> None:
        self.began = self.ended = self._clock.monotonic()
        while self.ended < self.began + seconds:
            with suppress(Conflict):
                self._election.term()
                self.ended = self._clock.monotonic()
            await asyncio.sleep(0.05)


async def _ensure(client: Client, obj: Obj) -> None:
    """Create an object unless it exists. A busy machine may answer late: another server is then tried, a few times."""
    for left in reversed(range(_PREPARE_ATTEMPTS)):
        try:
            await client.create(obj)
        except AlreadyExists:
            return
        except (ApiError, Unreachable) as error:
            if not left or (isinstance(error, ApiError) and error.code < 500):
                raise
            await asyncio.sleep(_RETRY_PAUSE)
        else:
            return


def _deployment(name: str, replicas: int) -> Obj:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def _is_complete(deployment: Obj, replicas: int) -> bool:
    status = deployment.get("status") or {}
    counts = [status.get(each) or 0 for each in ("replicas", "updatedReplicas", "availableReplicas")]
    current = (status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]
    return current and counts == [replicas] * 3
