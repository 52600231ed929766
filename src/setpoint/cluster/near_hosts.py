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


class NearHosts:
    """Those that are not near are asked by others. One that was near and is gone refuses connections."""

    def __init__(self, others: FarServers) -> None:
        self._others = others
        self._hosts: dict[str, Answers | None] = {}

    @contextmanager
    def serving(self, host: str, answers: Answers) -> Iterator[None]:
        self._hosts[host] = answers
        try:
            yield
        finally:
            self._hosts[host] = None

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        if server.host in self._hosts:
            return await self._near(server, request, timeout)
        return await self._others.ask(server, request, timeout)

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        if server.host in self._hosts:
            return await self._near(server, request, timeout)
        return await self._others.post(server, request, timeout)

    async def _near(self, server: FarServer, request: Request, timeout: float) -> Response:
        answers = self._hosts[server.host]
        if answers is None:
            raise FarServerProblem(f"dial tcp {server.address}: connect: connection refused")
        try:
            async with asyncio.timeout(timeout):
                status, body = await answers(request.path, request.body)
        except TimeoutError:
            raise FarServerProblem("context deadline exceeded") from None
        return Response(status, body, list(_JSON))
