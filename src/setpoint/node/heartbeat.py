"""Keeps the Node objects and Leases of a fleet fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, NotFound
from setpoint.meta.times import format_micro
from setpoint.node.registration import (
    LEASE_NAMESPACE,
    RENEW_EVERY,
    STATUS_EVERY,
    conditions,
    lease_object,
    node_object,
)

log = logging.getLogger("setpoint.node")

Obj = dict[str, Any]

NODES, LEASES = builtin("nodes"), builtin("leases", "coordination.k8s.io")
_AT_ONCE = 32


class Heartbeat:
    def __init__(
        self,
        addresses: dict[str, str],
        client_for: Callable[[str], Client],
        clock: Clock,
        *,
        version: str,
        runtime_version: str,
    ) -> None:
        """`addresses` by node name; `client_for(node)` writes under the node's own name."""
        self._addresses = addresses
        self._client_for = client_for
        self._clock = clock
        self._version = version
        self._runtime_version = runtime_version
        self._nodes: dict[str, Obj] = {}
        self._leases: dict[str, Obj] = {}
        self.registered = asyncio.Event()
        """All nodes are there and ready."""

    async def run(self) -> None:
        await self._register_all()
        self.registered.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._spread(RENEW_EVERY, self._renew))
            tasks.create_task(self._spread(STATUS_EVERY, self._refresh))

    async def _register_all(self) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> None:
            async with limit:
                while not await self._attempt("register", name, self._register):
                    await self._clock.sleep(1.0)

        async with asyncio.TaskGroup() as tasks:
            for name in self._addresses:
                tasks.create_task(one(name))

    async def _spread(self, period: float, do: Callable[[str], Awaitable[None]]) -> None:
        """Every node once in each period, evenly, so that a thousand of them make no waves."""
        names: Sequence[str] = tuple(self._addresses)
        due = self._clock.monotonic()
        while names:
            for name in names:
                due += period / len(names)
                await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
                await self._attempt("renew", name, do)

    async def _attempt(self, what: str, name: str, do: Callable[[str], Awaitable[None]]) -> bool:
        try:
            await do(name)
        except (ApiError, Unreachable) as error:
            log.warning("cannot %s node %s: %s", what, name, error)
            return False
        return True

    async def _register(self, name: str) -> None:
        node = node_object(name, self._addresses[name], self._version, self._runtime_version, self._clock.now())
        try:
            self._nodes[name] = await self._client_for(name).create(node)
        except AlreadyExists:
            self._nodes[name] = await self._client_for(name).get(NODES, name)
            await self._refresh(name)
        await self._renew(name)

    async def _refresh(self, name: str) -> None:
        current = {found["type"]: found for found in (self._nodes[name].get("status") or {}).get("conditions") or ()}
        wanted = node_object(name, self._addresses[name], self._version, self._runtime_version, self._clock.now())
        status = {**wanted["status"], "conditions": conditions(self._clock.now(), current)}
        try:
            self._nodes[name] = await self._client_for(name).patch(
                NODES, name, {"status": status}, kind="strategic", subresource="status"
            )
        except NotFound:
            await self._register(name)  # deleted behind the node's back: a node that lives comes back

    async def _renew(self, name: str) -> None:
        client, now = self._client_for(name), self._clock.now()
        lease = self._leases.get(name)
        if lease is not None:
            renewed = {**lease, "spec": {**lease["spec"], "renewTime": format_micro(now)}}
            try:
                self._leases[name] = await client.update(renewed)
                return
            except (Conflict, NotFound):
                del self._leases[name]
        fresh = lease_object(self._nodes[name], now)
        try:
            self._leases[name] = await client.create(fresh)
        except AlreadyExists:
            lease = await client.get(LEASES, name, LEASE_NAMESPACE)
            self._leases[name] = await client.update({**lease, "spec": {**lease["spec"], **fresh["spec"]}})
