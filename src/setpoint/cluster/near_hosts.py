"""Servers that run in the process of the API server itself, under names that lead nowhere else: the webhooks of an
operator in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from setpoint.apiserver.far_server import FarReply, FarServer, FarServerProblem, FarServers
from setpoint.apiserver.http.message import Request, Response

Answers = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""From path and body to status and body."""
_JSON = [("Content-Type", "application/json")]


class _Host:
    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.gone = False
        self.asked: set[asyncio.Timeout] = set()
        """The limits of what is being answered."""


class NearHosts:
    """Those that are not near are asked by others. One that was near and is gone refuses connections, and leaves
    without an answer what it was asked before."""

    def __init__(self, others: FarServers) -> None:
        self._others = others
        self._hosts: dict[str, _Host | None] = {}

    @contextmanager
    def serving(self, host: str, answers: Answers) -> Iterator[None]:
        one = self._hosts[host] = _Host(answers)
        try:
            yield
        finally:
            self._hosts[host] = None
            one.gone = True
            for limit in one.asked:
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time())

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        if server.host in self._hosts:
            return await self._near(server, request, timeout)
        return await self._others.ask(server, request, timeout)

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        if server.host in self._hosts:
            return await self._near(server, request, timeout)
        return await self._others.post(server, request, timeout)

    async def _near(self, server: FarServer, request: Request, timeout: float) -> Response:
        host = self._hosts[server.host]
        if host is None:
            raise FarServerProblem(f"dial tcp {server.address}: connect: connection refused")
        limit = asyncio.timeout(timeout)
        host.asked.add(limit)
        try:
            async with limit:
                status, body = await host.answers(request.path, request.body)
        except TimeoutError:
            raise FarServerProblem("EOF" if host.gone else "context deadline exceeded") from None
        finally:
            host.asked.discard(limit)
        return Response(status, body, list(_JSON))
