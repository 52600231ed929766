"""Forks of a running cluster: logical clusters below `/forks/<name>/` of the same server.

A fork starts from the state of the cluster, now or in the past, and lives in memory until it is removed or the server
ends. Its nodes are all simulated. In a live fork the loops run in real time. In a virtual one time stands still, and
nothing runs, until it is advanced: an hour passes in a moment. An empty fork starts as a new cluster, with nodes of its
own and the objects that the request names; lessons take place in such forks.

A user with access to the path `/forks/*` acts in a fork under the same name, with the rights that the fork's own roles
give. `/setpoint/v1/forks` lists, creates and removes forks:

    POST   /setpoint/v1/forks         {"name": "try", "at": "-5m", "virtual": true, "advance": 3600}
    POST   /setpoint/v1/forks         {"name": "new", "empty": true, "nodes": 3, "pace": "learning", "apply": [...]}
    POST   /setpoint/v1/forks/try     {"advance": 3600} or {"until": "settled"}, with faults of components on request:
                                      {"advance": 60, "faults": {"controllers": "drop-watch:1"}}
    POST   /setpoint/v1/forks/new     {"sleepAfter": 30}: it stops if it is not used, until the next request
    POST   /setpoint/v1/forks/new     {"reset": true}, {"component": "controllers", "running": false} or
                                      {"operator": "postgres", "running": true}
    DELETE /setpoint/v1/forks/try
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from setpoint.apiserver.bodies import check_fields, json_object
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.filters.authenticate import authenticated_peer
from setpoint.apiserver.request_context import RequestContext
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.copy_source import CopySource
from setpoint.cluster.embedded import EmbeddedCluster, State, embedded_cluster
from setpoint.cluster.fork_controls import ForkControls
from setpoint.cluster.fork_endpoints import MANAGEMENT, PREFIX
from setpoint.cluster.fork_options import ForkLimits, without_loops
from setpoint.cluster.fresh_start import FreshStart, FreshStarts, fresh_start
from setpoint.cluster.virtual.advancing import Passed, advanced, state_of_cluster
from setpoint.cluster.virtual.component_faults import check_nodes, requested_faults
from setpoint.cluster.virtual.simulation import Interrupted, Livelock
from setpoint.cluster.virtual.time import run_virtual
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from setpoint.meta.times import format_time
from setpoint.view.fault_plan import Plan
from setpoint.wire.message import Answer, Request, Response

log = logging.getLogger("setpoint.cluster")

_MAX_OBJECTS = 200_000
_MAX_ADVANCE = 366 * 24 * 3600.0
_MAX_SLEEP_AFTER = 3600.0
_PASSING: dict[str, type | tuple[type, ...]] = {"advance": (int, float), "until": str, "faults": dict}
"""The fields of a request that let time pass."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NOT_PASSED_ON = ("authorization", "impersonate-user", "impersonate-group", "impersonate-uid")
_JSON = [("Content-Type", "application/json")]


class _ShiftedClock:
    """A clock that is ahead of another one, or that stands still."""

    def __init__(self, clock: Clock, now: datetime, *, stopped: bool) -> None:
        self._clock = clock
        self._ahead: timedelta | None = None if stopped else now - clock.now()
        self._now = now
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now(self) -> datetime:
        return self._now if self._ahead is None else self._clock.now() + self._ahead


@dataclass(slots=True)
class Fork:
    """A logical cluster that started from a copy of the running one."""

    name: str
    virtual: bool
    created: datetime
    revision: int
    """The revision of the original at which it branched off."""
    first: ClusterCopy
    """The state from which it started."""
    copy: ClusterCopy
    """The state from which it starts next."""
    fresh: FreshStart | None = None
    """The new cluster that an empty fork is; None for others."""
    used: datetime | None = None
    """The time of the last request to it; None if there was none."""
    controls: ForkControls = field(default_factory=ForkControls)
    cluster: EmbeddedCluster | None = None
    """The running cluster; None while it starts, is advanced or sleeps."""
    clock: Clock | None = None
    asleep: State | None = None
    """The state with its history in which it fell asleep; None while it is awake."""
    failure: str = ""
    """Why it ended; empty while it works."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    sleeps: bool = False
    """Whether its state is kept with the history when it stops, because it falls asleep."""
    task: asyncio.Task[None] | None = None
    timer: asyncio.Task[None] | None = None
    """Lets it sleep after a while, on request."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the fork is started, advanced or removed."""


class Forks:
    """The forks of one server."""

    def __init__(
        self,
        source: CopySource,
        clock: Clock,
        ids: Ids,
        tasks: asyncio.TaskGroup,
        limits: ForkLimits | None = None,
    ) -> None:
        """`source` makes copies of the cluster, and `tasks` runs the forks."""
        self.limits = limits or ForkLimits()
        self.copy = source.copy
        self._clock = clock
        self._ids = ids
        self._fresh_starts = FreshStarts(ids)
        self._forks: dict[str, Fork] = {}
        self._tasks = tasks
        self._ending = threading.Event()
        self.advancing = asyncio.Semaphore(1)
        """Bounds the number of forks that are advanced at once: each needs a processor."""

    async def prepare(self, fresh: FreshStart) -> None:
        """Make the start state of an empty fork now, so that forks which start from it later need not wait."""
        await self._fresh_starts.copy(fresh, self._clock.now())

    def names(self) -> list[str]:
        return [*self._forks]

    def end(self) -> None:
        """Interrupt what runs in threads, because the server stops."""
        self._ending.set()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def answer(self, ctx: RequestContext) -> Answer:
        """Pass a request below `/forks/<name>/` to the fork."""
        request = ctx.request
        name, _, rest = request.path.removeprefix(PREFIX).partition("/")
        headers = {
            key: value
            for key, value in request.headers.items()
            if key not in _NOT_PASSED_ON and not key.startswith("impersonate-extra-")
        }
        peer = authenticated_peer(ctx.user, request.peer.address, request.peer.remote)
        inner = Request(request.method, f"/{rest}", request.query, headers, request.body, peer, request.repeated)
        return await self.handle(name, inner, ctx.now)

    async def handle(self, name: str, request: Request, now: datetime) -> Answer:
        """Let a fork answer a request. A fork that sleeps is woken. Raises ApiError."""
        fork = self.find(name)
        fork.used = now
        if fork.asleep is not None:
            await self._wake(fork)
        cluster = fork.cluster
        if cluster is None:
            if fork.failure:
                raise ServiceUnavailable(f"fork {name} has ended: {fork.failure}")
            raise ServiceUnavailable(f"fork {name} is being started or advanced", details={"retryAfterSeconds": 1})
        return await cluster.write_log.recording(cluster.api.handle)(request)

    async def manage(self, ctx: RequestContext) -> Answer:
        """Answer a request to `/setpoint/v1/forks` or below."""
        method, name = ctx.request.method, ctx.request.path.removeprefix(MANAGEMENT).strip("/")
        if not name:
            if method == "GET":
                return _answer({"forks": [self.described(each) for each in self._forks.values()]})
            if method == "POST":
                return _answer(await self.create_as_asked(json_object(ctx), ctx.now), 201)
        elif method == "GET":
            return _answer(self.described(self.find(name)))
        elif method == "DELETE":
            await self.remove(name)
            return _answer({"removed": name})
        elif method == "POST":
            return _answer(await self.change_as_asked(self.find(name), json_object(ctx)))
        raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})

    def find(self, name: str) -> Fork:
        fork = self._forks.get(name)
        if fork is None:
            raise NotFound(f"there is no fork {name[:63]}; `setpoint forks` lists them")
        return fork

    def described(self, fork: Fork) -> dict[str, Any]:
        """Return a fork as the endpoints show it."""
        cluster, clock = fork.cluster, fork.clock
        return {
            "name": fork.name,
            "path": PREFIX + fork.name,
            "virtual": fork.virtual,
            "empty": fork.fresh is not None,
            **fork.controls.described(cluster),
            "used": format_time(fork.used or fork.created),
            "created": format_time(fork.created),
            "branchedAt": fork.revision,
            "now": format_time(clock.now() if clock is not None else fork.copy.now),
            "revision": cluster.store.revision if cluster is not None else fork.copy.revision,
            "objects": len(fork.copy.objects),
            "state": _phase(fork),
            "message": fork.failure,
            "leftOut": fork.copy.left_out,
        }

    # -- life ----------------------------------------------------------------------------------------------------------

    async def create_as_asked(self, wanted: dict[str, Any], now: datetime) -> dict[str, Any]:
        """Create the fork that the body of a request describes. Raises ApiError."""
        known: dict[str, type | tuple[type, ...]]
        known = {"name": str, "virtual": bool, **_PASSING, "empty": bool}
        is_empty = wanted.get("empty") is True
        more: dict[str, type] = {"nodes": int, "pace": str, "apply": list} if is_empty else {"at": str}
        check_fields(wanted, {**known, **more})
        fresh = fresh_start(wanted) if is_empty else None
        virtual = bool(wanted.get("virtual"))
        if passing := {key: value for key, value in wanted.items() if key in _PASSING}:
            _checked_passing(passing)  # no fork remains of a request that is refused
        name = wanted.get("name") or self._unused_name()
        fork = await self.create(name, at=wanted.get("at", ""), virtual=virtual, now=now, fresh=fresh)
        result = self.described(fork)
        if passing:
            result = await self._advance_as_asked(fork, passing)
        return result

    async def change_as_asked(self, fork: Fork, wanted: dict[str, Any]) -> dict[str, Any]:
        """Advance or reset a fork, let it sleep, or start and stop a part of it. Raises ApiError."""
        if "sleepAfter" in wanted:
            check_fields(wanted, {"sleepAfter": (int, float)})
            if not 0 <= wanted["sleepAfter"] <= _MAX_SLEEP_AFTER:
                raise BadRequest(f"sleepAfter must be a number of seconds up to {_MAX_SLEEP_AFTER:.0f}")
            if fork.timer is not None:
                fork.timer.cancel()
            fork.timer = self._tasks.create_task(self._sleep_later(fork, wanted["sleepAfter"]))
            return self.described(fork)
        if fork.asleep is not None:
            await self._wake(fork)
        if "reset" in wanted:
            check_fields(wanted, {"reset": bool})
            await self.reset(fork)
        elif "component" in wanted or "operator" in wanted:
            check_fields(wanted, {"component": str, "operator": str, "running": bool})
            async with fork.lock:
                if fork.cluster is None or fork.virtual:
                    raise ServiceUnavailable(f"fork {fork.name} does not run")
                await fork.controls.change(fork.cluster, wanted)
        else:
            return await self._advance_as_asked(fork, wanted)
        return self.described(fork)

    def _unused_name(self) -> str:
        return next(
            name for number in range(1, 2 * self.limits.most + 2) if (name := f"fork-{number}") not in self._forks
        )

    async def create(
        self,
        name: str,
        *,
        at: str = "",
        virtual: bool = False,
        now: datetime | None = None,
        fresh: FreshStart | None = None,
    ) -> Fork:
        """Start a fork of the state now, or at a moment of the past, or an empty one. Raises ApiError."""
        self._check(name, fresh)
        now = now or self._clock.now()
        copy = await (self.copy(at, now) if fresh is None else self._fresh_starts.copy(fresh, now))
        if len(copy.objects) > _MAX_OBJECTS:
            raise Forbidden(f"a fork may have at most {_MAX_OBJECTS:,} objects, not {len(copy.objects):,}")
        copy = copy.isolated()
        return await self._add(Fork(name, virtual, now, copy.revision, copy, copy, fresh))

    def _check(self, name: str, fresh: FreshStart | None) -> None:
        if not _NAME.fullmatch(name):
            raise BadRequest("the name of a fork must consist of lower case letters, digits and -, at most 63")
        if name in self._forks:
            raise AlreadyExists(f"there is a fork {name} already")
        if sum((each.fresh is None) == (fresh is None) for each in self._forks.values()) >= self.limits.most:
            raise Forbidden(
                f"there are {self.limits.most} {'' if fresh is None else 'empty '}forks already; remove one first"
            )

    async def _add(self, fork: Fork) -> Fork:
        name = fork.name
        if name in self._forks:
            raise AlreadyExists(f"there is a fork {name} already")
        self._forks[name] = fork
        try:
            async with fork.lock:
                await self._start(fork)
        except BaseException:
            self._forks.pop(name, None)
            raise
        return fork

    async def put(self, name: str, copy: ClusterCopy, revision: int, now: datetime) -> Fork:
        """Start a virtual fork with this state, instead of one that has the name. `revision` is where the original
        branched off. Raises ApiError."""
        if name in self._forks:
            if not self._forks[name].virtual:
                raise AlreadyExists(f"there is a fork {name} already, and its time does not stand still")
            await self.remove(name)
        self._check(name, None)
        return await self._add(Fork(name, True, now, revision, copy, copy))

    def state_of(self, name: str) -> ClusterCopy:
        """Return the present state of a virtual fork. Raises ApiError."""
        fork = self.find(name)
        if not fork.virtual:
            raise BadRequest(f"the time of fork {name} does not stand still")
        if fork.cluster is None or fork.clock is None:
            raise ServiceUnavailable(f"fork {name} is being started or advanced", details={"retryAfterSeconds": 1})
        return state_of_cluster(fork.cluster, fork.clock.now(), fork.copy)

    @property
    def is_ending(self) -> Callable[[], bool]:
        """A function for threads that returns whether the server stops."""
        return self._ending.is_set

    async def _start(self, fork: Fork) -> None:
        fork.stop, ready = asyncio.Event(), asyncio.Event()
        fork.task = self._tasks.create_task(self._serve(fork, ready))
        await ready.wait()
        if fork.failure:
            raise ApiError(f"fork {fork.name} cannot start: {fork.failure}", code=500, reason="InternalError")

    async def _serve(self, fork: Fork, ready: asyncio.Event) -> None:
        """Run the cluster of a fork until it is stopped. A failure ends the fork alone."""
        clock = _ShiftedClock(self._clock, fork.copy.now, stopped=fork.virtual)
        if fork.asleep is None and not fork.virtual and fork.copy.now <= self._clock.now():
            clock = _ShiftedClock(self._clock, self._clock.now(), stopped=False)
        options = fork.copy.embedded_options() if fork.fresh is None else fork.fresh.embedded_options()
        options = self.limits.applied_to(fork.name, options)
        if fork.virtual:
            options = without_loops(options)
        try:
            async with embedded_cluster(clock, self._ids, options, _take_state(fork)) as cluster:
                fork.cluster, fork.clock = cluster, clock
                async with fork.controls.serving(cluster, clock, self._ids):
                    ready.set()
                    await fork.stop.wait()
                if fork.sleeps:
                    fork.asleep, fork.copy = cluster.state(), replace(fork.copy, now=clock.now())
                else:
                    fork.copy = state_of_cluster(cluster, clock.now(), fork.copy)
                fork.cluster = None
        except Exception as error:
            fork.failure = str(error) or type(error).__name__
            log.exception("fork %s ended", fork.name)
        finally:
            fork.cluster = fork.clock = None
            ready.set()

    async def _end(self, fork: Fork) -> None:
        fork.stop.set()
        if fork.task is not None:
            await asyncio.wait([fork.task])
            fork.task = None

    async def reset(self, fork: Fork) -> None:
        """Let a fork begin again from the state in which it started. Raises ApiError."""
        async with fork.lock:
            await self._end(fork)
            fork.copy, fork.failure, fork.asleep, fork.controls = fork.first, "", None, ForkControls()
            await self._start(fork)

    async def sleep(self, fork: Fork) -> None:
        """Stop a fork until the next request to it, and keep its state and history. It does not age meanwhile: its
        clock goes on from where it stopped."""
        async with fork.lock:
            if fork.cluster is None or fork.virtual:
                return
            fork.sleeps = True
            try:
                await self._end(fork)
            finally:
                fork.sleeps = False

    async def _sleep_later(self, fork: Fork, seconds: float) -> None:
        """Let a fork sleep if there is no request to it for so many seconds."""
        used = fork.used
        await self._clock.sleep(seconds)
        if fork.used == used and self._forks.get(fork.name) is fork:
            await self.sleep(fork)

    async def _wake(self, fork: Fork) -> None:
        async with fork.lock:
            if fork.asleep is not None:
                await self._start(fork)

    async def remove(self, name: str) -> None:
        """End a fork and forget it. Raises NotFound."""
        fork = self.find(name)
        if fork.timer is not None:
            fork.timer.cancel()
        async with fork.lock:
            await self._end(fork)
            self._forks.pop(name, None)

    # -- virtual time --------------------------------------------------------------------------------------------------

    async def _advance_as_asked(self, fork: Fork, wanted: dict[str, Any]) -> dict[str, Any]:
        passed = await self.advance(fork, *_checked_passing(wanted))
        report = {"faults": passed.faults.to_json()} if passed.faults is not None else {}
        return {**self.described(fork), "writes": passed.writes, "settled": passed.settled, **report}

    async def advance(self, fork: Fork, seconds: float | None, faults: Mapping[str, Plan]) -> Passed:
        """Let virtual time pass in a fork, or let its loops settle if `seconds` is None, with faults of components.

        The loops run in a thread meanwhile; afterwards the fork continues from there, standing still if it is virtual
        and in real time otherwise. Raises ApiError."""
        async with fork.lock, self.advancing:
            await self._end(fork)
            if fork.failure:
                raise ServiceUnavailable(f"fork {fork.name} has ended: {fork.failure}")
            try:
                check_nodes(fork.copy, faults)
                passed = await asyncio.to_thread(
                    run_virtual, advanced, fork.copy, seconds, faults, self._ids.below(1 << 30), self._ending.is_set
                )
                fork.copy = passed.copy
            except (Interrupted, Livelock) as error:
                raise ServiceUnavailable(f"fork {fork.name} could not be advanced: {error or 'interrupted'}") from None
            finally:
                await self._start(fork)
            return passed


def _checked_passing(wanted: dict[str, Any]) -> tuple[float | None, dict[str, Plan]]:
    """Return the seconds that a request lets pass, None until the loops settle, and the fault plans by component.
    Raises BadRequest."""
    check_fields(wanted, _PASSING)
    seconds, until = wanted.get("advance"), wanted.get("until")
    if (seconds is None) == (until is None) or until not in (None, "settled"):
        raise BadRequest('say either "advance" with a number of seconds, or "until": "settled"')
    if seconds is not None and not 0 < seconds <= _MAX_ADVANCE:
        raise BadRequest(f"a fork can be advanced by up to {_MAX_ADVANCE:.0f} seconds")
    return seconds, requested_faults(wanted)


def _take_state(fork: Fork) -> State:
    """Return the state from which a fork starts now. The state in which it slept is not kept any longer."""
    slept, fork.asleep = fork.asleep, None
    return slept or fork.copy.state()


def _phase(fork: Fork) -> str:
    if fork.failure:
        return "failed"
    if fork.asleep is not None:
        return "asleep"
    return "ready" if fork.cluster is not None else "busy"


def _answer(value: dict[str, Any], status: int = 200) -> Response:
    return Response(status, orjson.dumps(value), list(_JSON))
