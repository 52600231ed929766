"""The seats of one worker: the logical clusters of each learner, their limits, and their sleep.

A seat looks like a server of its own: the cluster of the seat at `/`, the clusters of its lessons at
`/forks/<name>/`, and `/setpoint/v1/forks` to create and reset those.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final

import orjson

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import Moments
from setpoint.cluster.classroom.messages import json_body, json_response
from setpoint.cluster.components import MASTERS
from setpoint.cluster.copy_source import CopySource
from setpoint.cluster.fork_endpoints import MANAGEMENT, PREFIX
from setpoint.cluster.fork_options import ForkLimits
from setpoint.cluster.forks import Fork, Forks
from setpoint.cluster.fresh_start import FreshStart
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, BadRequest, Forbidden, MethodNotAllowed, NotFound, TooManyRequests
from setpoint.meta.token_bucket import TokenBucket
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.store.memory import MemoryStore
from setpoint.store.quota import StoreQuota
from setpoint.wire.message import (
    Answer,
    Peer,
    RawConnection,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    UpgradeResponse,
)

SEAT_USER: Final = "kubernetes-admin"
"""The user as whom a learner acts in the clusters of the seat."""
_SEAT: Final = object()
"""The attribute of a peer that names its seat."""
_ID: Final = re.compile("s[0-9a-f]{8}")
_SLEEP_CHECK: Final = 5.0
"""Seconds between two searches for clusters that are not used."""
_JSON: Final = [("Content-Type", "application/json")]

QUOTA: Final = StoreQuota(
    16 << 20,
    2_000,
    {
        "core/pods/": (500, "Pods"),
        "core/events/": (1_000, "Events"),
        "core/nodes/": (20, "Nodes"),
        "core/namespaces/": (100, "Namespaces"),
        "apiextensions.k8s.io/customresourcedefinitions/": (50, "CustomResourceDefinitions"),
    },
)
"""The largest content of each cluster of a seat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatLimits:
    """The limits of each seat."""

    requests: float = 50.0
    """Requests in a second, on average."""
    burst: int = 200
    """Requests at once."""
    lessons: int = 4
    """Clusters of lessons that are kept; with one more, the one that was not used for longest is removed."""
    streams: int = 256
    """Watches and other streams that are open at once."""
    cpu: float = 0.1
    """Cores that the control loops of its clusters use, on average."""
    cpu_burst: float = 1.0
    """Seconds of CPU time that they use at once."""
    idle: float = 300.0
    """Seconds without a request or an open stream after which a cluster sleeps."""


@dataclass(slots=True)
class Seat:
    """The place of one learner."""

    id: str
    rate: TokenBucket
    cpu: CpuLimit
    clusters: list[str] = field(default_factory=list)
    """The names of its forks."""
    streams: dict[str, int] = field(default_factory=dict)
    """The number of open streams of each of its forks, by name."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a cluster of the seat is created."""


class Seats:
    """The seats of one process. `run` lets idle clusters sleep."""

    def __init__(self, clock: Clock, ids: Ids, tasks: asyncio.TaskGroup, most: int, limits: SeatLimits) -> None:
        """`most` is the number of seats, `tasks` runs their clusters."""
        store = MemoryStore()
        self.limits = limits
        self._clock = clock
        self._most = most
        self._seats: dict[str, Seat] = {}
        bounds = ForkLimits(
            most=most * (1 + limits.lessons), quota=QUOTA, isolated=True, frugal=True, cpu_limit=self._cpu_limit
        )
        self.forks = Forks(CopySource(store, Moments(HistoryReader(store), dict)), clock, ids, tasks, bounds)

    async def prepare(self) -> None:
        """Make the start state of the clusters, so that the first learner does not wait for it."""
        import_module("setpoint.scheduler.engine")  # its NumPy would be charged to the first seat with a Pod
        await self.forks.prepare(FreshStart())

    @property
    def ids(self) -> list[str]:
        return [*self._seats]

    def add(self, seat: str) -> None:
        """Add a seat, whose cluster starts with the first request. Adding it again has no effect. Raises ApiError."""
        if not _ID.fullmatch(seat):
            raise BadRequest("the id of a seat is s and eight hexadecimal digits")
        if seat not in self._seats:
            if len(self._seats) >= self._most:
                raise Forbidden(f"all {self._most} seats of this process are taken")
            limits = self.limits
            rate = TokenBucket(self._clock, limits.requests, limits.burst)
            self._seats[seat] = Seat(seat, rate, CpuLimit(self._clock, limits.cpu, limits.cpu_burst))

    async def remove(self, seat: str) -> None:
        """Remove a seat with its clusters. Raises NotFound."""
        found = self._find(seat)
        del self._seats[found.id]
        clusters, found.clusters = found.clusters, []
        for name in clusters:
            await self.forks.remove(name)

    def live(self) -> int:
        """Return the number of clusters that run."""
        return sum(fork.cluster is not None for seat in self._seats.values() for fork in self._forks_of(seat))

    def state(self, seat: str) -> str:
        """Return `new`, `live` or `asleep`. Raises NotFound."""
        forks = self._forks_of(self._find(seat))
        return "new" if not forks else "live" if any(each.cluster is not None for each in forks) else "asleep"

    async def run(self) -> None:
        """Let clusters sleep that are not used, until cancelled."""
        while True:
            await self._clock.sleep(_SLEEP_CHECK)
            await self.sleep_idle(self._clock.now())

    async def sleep_idle(self, now: datetime) -> None:
        """Let the clusters sleep that have no open stream and were not used lately."""
        before = now - timedelta(seconds=self.limits.idle)
        for seat in [*self._seats.values()]:
            for fork in self._forks_of(seat):
                is_used = (fork.used or fork.created) > before or seat.streams.get(fork.name)
                if fork.cluster is not None and not is_used:
                    await self.forks.sleep(fork)

    # -- requests ------------------------------------------------------------------------------------------------------

    def peer(self, seat: str) -> Peer:
        """Return the peer of a connection to a seat. Raises NotFound."""
        peer = in_process_peer(SEAT_USER, (MASTERS,))
        peer.attributes[_SEAT] = self._find(seat).id
        return peer

    async def handle(self, request: Request) -> Answer:
        """Answer a request of a peer of a seat, as a server would."""
        try:
            seat = self._find(str(request.peer.attributes.get(_SEAT, "")))
            if not seat.rate.try_take():
                raise TooManyRequests.of("too many requests, please try again later.", 1)
            if request.path == MANAGEMENT or request.path.startswith(f"{MANAGEMENT}/"):
                return await self._manage(seat, request)
            name, path = await self._target(seat, request.path)
            request.path = path
            answer = await self.forks.handle(name, request, self._clock.now())
            is_stream = isinstance(answer, (StreamResponse, UpgradeResponse))
            if is_stream and sum(seat.streams.values()) >= self.limits.streams:
                raise TooManyRequests.of(f"a seat may have at most {self.limits.streams} open streams", 1)
            return self._counted(seat, name, answer)
        except ApiError as error:
            retry = [("Retry-After", str(error.retry_after))] if error.retry_after else []
            return Response(error.code, orjson.dumps(error.status()), [*_JSON, *retry])

    def _find(self, seat: str) -> Seat:
        found = self._seats.get(seat)
        if found is None:
            raise NotFound("there is no such seat")
        return found

    def _cpu_limit(self, fork: str) -> CpuLimit | None:
        """Return the limit of the seat that a fork belongs to; None if the seat is being removed."""
        seat = self._seats.get(fork.partition("-")[0])
        return None if seat is None else seat.cpu

    def _forks_of(self, seat: Seat) -> list[Fork]:
        return [self.forks.find(name) for name in seat.clusters]

    async def _target(self, seat: Seat, path: str) -> tuple[str, str]:
        """Return the fork that a request is for, and its path there."""
        if path.startswith(PREFIX):
            name, slash, rest = path.removeprefix(PREFIX).partition("/")
            return f"{seat.id}-{name}", slash + rest
        if seat.id not in seat.clusters:
            async with seat.lock:
                if seat.id not in seat.clusters:
                    await self.forks.create(seat.id, fresh=FreshStart())
                    seat.clusters.append(seat.id)
        return seat.id, path

    def _counted(self, seat: Seat, fork: str, answer: Answer) -> Answer:
        """Count a stream as a use of its cluster for as long as it is open."""
        if isinstance(answer, StreamResponse):
            stream = answer.run

            async def run(writer: StreamWriter) -> None:
                await self._while_open(seat, fork, lambda: stream(writer))

            return StreamResponse(answer.status, answer.headers, run)
        if isinstance(answer, UpgradeResponse):
            upgrade = answer.run

            async def run_upgraded(connection: RawConnection) -> None:
                await self._while_open(seat, fork, lambda: upgrade(connection))

            return UpgradeResponse(answer.headers, run_upgraded)
        return answer

    async def _while_open(self, seat: Seat, fork: str, run: Callable[[], Awaitable[None]]) -> None:
        seat.streams[fork] = seat.streams.get(fork, 0) + 1
        try:
            await run()
        finally:
            seat.streams[fork] -= 1
            if not seat.streams[fork]:
                del seat.streams[fork]
                if fork in seat.clusters:
                    self.forks.find(fork).used = self._clock.now()

    # -- the clusters of lessons ---------------------------------------------------------------------------------------

    async def _manage(self, seat: Seat, request: Request) -> Response:
        """Answer a request to `/setpoint/v1/forks` or below, in terms of the seat."""
        method, name = request.method, request.path.removeprefix(MANAGEMENT).strip("/")
        if not name and method == "GET":
            return json_response({"forks": [self._described(seat, each) for each in self._lessons(seat)]})
        if not name and method == "POST":
            return json_response(await self._create(seat, json_body(request)), 201)
        if name and method in ("GET", "POST", "DELETE"):
            fork = self.forks.find(f"{seat.id}-{name}")
            if method == "DELETE":
                await self._drop(seat, fork)
                return json_response({"removed": name})
            if method == "POST":
                await self.forks.change_as_asked(fork, json_body(request))
            return json_response(self._described(seat, fork))
        raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})

    async def _create(self, seat: Seat, wanted: dict[str, Any]) -> dict[str, Any]:
        name = wanted.get("name")
        if not isinstance(name, str) or wanted.get("empty") is not True or wanted.get("virtual"):
            raise BadRequest('a seat can only have new clusters: {"name": "...", "empty": true}')
        async with seat.lock:
            lessons = self._lessons(seat)
            if len(lessons) >= self.limits.lessons:
                oldest = min(lessons, key=lambda each: each.used or each.created)
                await self._drop(seat, oldest)
            await self.forks.create_as_asked({**wanted, "name": f"{seat.id}-{name}"}, self._clock.now())
            seat.clusters.append(f"{seat.id}-{name}")
        return self._described(seat, self.forks.find(f"{seat.id}-{name}"))

    async def _drop(self, seat: Seat, fork: Fork) -> None:
        await self.forks.remove(fork.name)
        if fork.name in seat.clusters:
            seat.clusters.remove(fork.name)

    def _lessons(self, seat: Seat) -> list[Fork]:
        return [each for each in self._forks_of(seat) if each.name != seat.id]

    def _described(self, seat: Seat, fork: Fork) -> dict[str, Any]:
        name = fork.name.removeprefix(f"{seat.id}-")
        return {**self.forks.described(fork), "name": name, "path": PREFIX + name}
