"""Answers many independent writes in one call.

Each write is answered as if it were sent alone: it is audited, authorized, admitted, validated, counted and committed
by itself, with its own cause and its own revision, and refused by itself. The writes of one client with one verb to one
resource in one namespace are a group and share what is the same for all of them: the authentication, the seats of
priority and fairness, and the authorization, unless it depends on the name. All writes of a call share the task and the
transactions' way to the store (`CallBatcher`).

A write for which something is unusual is handled as a single request: its client is not authenticated, impersonates a
user, or has to wait for a seat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from setpoint.apiserver.fairness.fairness import Fairness, FlowRequest
from setpoint.apiserver.filters.authorize import Access, Ruling, access_of
from setpoint.apiserver.filters.request_limits import LONG_RUNNING, InFlight, Overloaded
from setpoint.apiserver.request_context import RequestContext
from setpoint.batching import CallBatcher
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import ApiError
from setpoint.store.interface import StoreError
from setpoint.wire.message import Answer, Request

if TYPE_CHECKING:
    from datetime import datetime

    from setpoint.apiserver.api_resources import ApiResources
    from setpoint.apiserver.server import ServerParts

MAX_WRITES = 512
"""Greatest number of writes in one call."""
_WRITES = frozenset({"create", "update", "patch", "delete"})
_WRITES_PER_SEAT = 16
_MAX_SEATS = 10


class SingleRequests(Protocol):
    """The part of the API server that handles one request."""

    async def handle(self, request: Request) -> Answer: ...

    def context(self, request: Request, now: datetime) -> RequestContext | None: ...

    async def respond(self, ctx: RequestContext, started: float, answered: Awaitable[Answer]) -> Answer: ...

    async def answer_authorized(self, ctx: RequestContext, access: Access, ruling: Ruling) -> Answer: ...

    @property
    def is_disturbed(self) -> bool: ...


@dataclass(slots=True, eq=False)
class _Group:
    """Writes of one client with one verb to one resource in one namespace."""

    writes: list[tuple[int, RequestContext]] = field(default_factory=list)
    """The position of each write in the call, and its context."""
    user: UserInfo = field(default_factory=UserInfo)
    warnings: dict[str, None] = field(default_factory=dict)
    """Warnings of the authentication."""
    flow_headers: tuple[tuple[str, str], ...] = ()
    seat: FlowRequest | None = None
    """The seats of the group; None without priority and fairness."""
    counted: bool | None = None
    rulings: dict[str, Ruling] = field(default_factory=dict)
    """The authorization of the writes, by the name of the object; that of a creation by an empty name."""


@dataclass(slots=True)
class _Identity:
    user: UserInfo
    warnings: dict[str, None]
    headers: dict[str, str]
    """The headers without the credentials."""
    repeated: dict[str, list[str]]


class Bulk:
    def __init__(self, server: SingleRequests, resources: ApiResources, parts: ServerParts) -> None:
        self._server = server
        self._store = resources.store
        self._clock = resources.clock
        self._authenticator = parts.authenticator
        self._authorizer = parts.authorizer
        self._auditor = parts.auditor
        self._fairness: Fairness | None = parts.fairness
        self._in_flight: InFlight = parts.in_flight

    async def handle_all(self, requests: Sequence[Request]) -> list[Answer | Exception]:
        """Answer each of the requests, at most `MAX_WRITES`. The results are in their order; an exception takes the
        place of an answer where `handle` would raise it."""
        if len(requests) > MAX_WRITES:
            raise ValueError(f"a call may have at most {MAX_WRITES} writes")
        results: list[Any] = [None] * len(requests)
        alone: list[int] = []
        groups = await self._groups(requests, alone)
        try:
            await self._answer_all(requests, groups, alone, results)
        finally:
            for group in groups:
                self._in_flight.leave(group.counted)
                if group.seat is not None:
                    group.seat.finish()
        return results

    async def _answer_all(
        self, requests: Sequence[Request], groups: Sequence[_Group], alone: Sequence[int], results: list[Any]
    ) -> None:
        batcher = CallBatcher(self._store.txn_all)
        started = self._clock.monotonic()
        positions: list[int] = []
        writes: list[Callable[[], Coroutine[Any, Any, Answer]]] = []
        for group in groups:
            for at, ctx in group.writes:
                ctx.transactions = batcher
                positions.append(at)
                writes.append(partial(self._one, ctx, group, started))
        if alone:
            async with asyncio.TaskGroup() as tasks:
                for at in alone:
                    tasks.create_task(self._alone(requests[at], at, results))
                answers = await batcher.run(writes)
        else:
            answers = await batcher.run(writes)
        for at, answer in zip(positions, answers, strict=True):
            results[at] = answer

    async def _alone(self, request: Request, at: int, results: list[Any]) -> None:
        try:
            results[at] = await self._server.handle(request)
        except Exception as error:
            results[at] = error

    # -- groups -------------------------------------------------------------------------------------------------------

    async def _groups(self, requests: Sequence[Request], alone: list[int]) -> list[_Group]:
        """Return the groups that have their seats; add the positions of all other requests to `alone`."""
        if self._server.is_disturbed or self._store.shared or not await self._is_synced():
            alone += range(len(requests))
            return []
        now = self._clock.now()
        groups: dict[tuple[Any, ...], _Group] = {}
        for at, request in enumerate(requests):
            ctx = self._server.context(request, now)
            if ctx is None or not _can_be_grouped(ctx):
                alone.append(at)
                continue
            _, _, api_group, version, namespace, resource, _, subresource, *_ = ctx.target
            key = (
                id(request.headers),
                id(request.peer),
                ctx.verb,
                api_group,
                version,
                resource,
                subresource,
                namespace,
            )
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group()
            group.writes.append((at, ctx))
        identities: dict[tuple[int, int], _Identity | None] = {}
        for group in groups.values():
            request = group.writes[0][1].request
            who = (id(request.headers), id(request.peer))
            if who not in identities:
                identities[who] = await self._identity(request)
        # From here on nothing is awaited, so that no seat is lost if the call is cancelled.
        admitted: list[_Group] = []
        for key, group in groups.items():
            identity = identities[key[:2]]
            if identity is not None and self._admit(group, identity):
                for _, ctx in group.writes:
                    ctx.request.headers, ctx.request.repeated = identity.headers, identity.repeated
                admitted.append(group)
            else:
                alone += [at for at, _ in group.writes]
        return admitted

    async def _is_synced(self) -> bool:
        try:
            await self._store.sync()
        except StoreError:
            return False
        return True

    async def _identity(self, request: Request) -> _Identity | None:
        """Return the client of a request, or None if it is not authenticated or impersonates a user."""
        if any(name.startswith("impersonate-") for name in request.headers):
            return None
        warnings: dict[str, None] = {}
        # A copy, because authentication removes the credentials, which a write that is handled alone needs.
        copy = Request(
            request.method, request.path, request.query, request.headers, b"", request.peer, dict(request.repeated)
        )
        try:
            user = self._authenticator.authenticate(copy, lambda text: warnings.setdefault(text))
            return _Identity(user if isinstance(user, UserInfo) else await user, warnings, copy.headers, copy.repeated)
        except ApiError:
            return None

    def _admit(self, group: _Group, identity: _Identity) -> bool:
        """Return whether the writes of a group can start at once; they then have seats."""
        _, ctx = group.writes[0]
        group.user, group.warnings = identity.user, identity.warnings
        ctx.user = identity.user
        try:
            group.counted = self._in_flight.enter(ctx.verb)
        except Overloaded:
            return False
        if self._fairness is None:
            return True
        access = access_of(ctx)
        flow = self._fairness.flow(access)
        most = min(flow.level.max_seats_per_request or _MAX_SEATS, _MAX_SEATS)
        seats = min(1 + (len(group.writes) - 1) // _WRITES_PER_SEAT, most)
        group.seat = self._fairness.admit_at_once(flow, ctx, access, self._clock.monotonic(), seats)
        if group.seat is None:
            self._in_flight.leave(group.counted)
            return False
        group.flow_headers = flow.headers
        return True

    # -- one write ----------------------------------------------------------------------------------------------------

    def _one(self, ctx: RequestContext, group: _Group, started: float) -> Coroutine[Any, Any, Answer]:
        return self._server.respond(ctx, started, self._answer(ctx, group))

    async def _answer(self, ctx: RequestContext, group: _Group) -> Answer:
        ctx.user, ctx.flow_headers = group.user, group.flow_headers
        for text in group.warnings:
            ctx.warn(text)
        if self._auditor is not None:
            ctx.audit = await self._auditor.received(ctx, ctx.user)
        access = access_of(ctx)
        ruling = group.rulings.get(access.name)
        if ruling is None:
            found = self._authorizer.authorize(access)
            ruling = group.rulings[access.name] = found if isinstance(found, tuple) else await found
        return await self._server.answer_authorized(ctx, access, ruling)


def _can_be_grouped(ctx: RequestContext) -> bool:
    target = ctx.target
    return (
        ctx.verb in _WRITES
        and bool(target.resource)
        and target.subresource not in LONG_RUNNING
        and "timeout" not in ctx.query
    )
