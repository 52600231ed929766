"""Metrics of a component's requests to the API server."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from setpoint.client.client import Client
from setpoint.client.transport import Headers, Reply, StreamReply, Transport, Unreachable, Upgraded, UpgradingTransport
from setpoint.meta.exposition import Family, counter

_NO_ANSWER = "<error>"


class RequestMetrics:
    """Request counters by code, method and host, with client-go's names."""

    def __init__(self, server: str) -> None:
        self._host = urlsplit(server).netloc
        self._counts: Counter[tuple[str, str]] = Counter()

    def instrument(self, client: Client) -> Client:
        inner = client.sender.transport
        if isinstance(inner, UpgradingTransport):
            client.sender.transport = _MeteredUpgradingTransport(inner, self._counts)
        else:
            client.sender.transport = _MeteredTransport(inner, self._counts)
        return client

    def families(self) -> list[Family]:
        series = (
            ({"code": code, "host": self._host, "method": method}, count)
            for (code, method), count in sorted(self._counts.items())
        )
        return [counter("rest_client_requests_total", "Requests to the API server.", series)]


class _MeteredTransport:
    def __init__(self, inner: Transport, counts: Counter[tuple[str, str]]) -> None:
        self._inner = inner
        self._counts = counts

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        try:
            reply = await self._inner.request(method, path, query, headers, body)
        except Unreachable:
            self._counts[_NO_ANSWER, method] += 1
            raise
        self._counts[str(reply.status), method] += 1
        return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        try:
            reply = await self._inner.stream(method, path, query, headers, body)
        except Unreachable:
            self._counts[_NO_ANSWER, method] += 1
            raise
        self._counts[str(reply.status), method] += 1
        return reply

    async def close(self) -> None:
        await self._inner.close()


class _MeteredUpgradingTransport(_MeteredTransport):
    def __init__(self, inner: UpgradingTransport, counts: Counter[tuple[str, str]]) -> None:
        super().__init__(inner, counts)
        self._upgrading = inner

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        try:
            found = await self._upgrading.upgrade(path, query, headers)
        except Unreachable:
            self._counts[_NO_ANSWER, "GET"] += 1
            raise
        self._counts[str(found.status) if isinstance(found, Reply) else "101", "GET"] += 1
        return found
