"""Health check ports of Services with the external traffic policy Local: load balancers ask each node whether it has
endpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.host.network.services import HealthCheck
from setpoint.wire.limits import Limits
from setpoint.wire.message import Answer, Handler, Request, Response
from setpoint.wire.server import Server

log = logging.getLogger("setpoint.node.network")

_LIMITS: Final = Limits(body=0, head=16 * 1024, connections=256, idle_timeout=10.0)


class HealthCheckServers:
    """Serves one port for each Service that has a health check port."""

    def __init__(self, clock: Clock, is_healthy: Callable[[], bool], host: str = "") -> None:
        """Create the servers' owner. `is_healthy` returns whether the rules of Services are up to date, `host` is the
        address to listen on; empty means all addresses."""
        self._clock = clock
        self._is_healthy = is_healthy
        self._host = host
        self._checks: dict[int, HealthCheck] = {}
        self._servers: dict[int, Server] = {}

    async def update(self, checks: Iterable[HealthCheck]) -> None:
        """Serve these checks and no others. A port that cannot be opened is logged, and tried again with the next
        update."""
        self._checks = {check.port: check for check in checks}
        for port in self._servers.keys() - self._checks.keys():
            await self._servers.pop(port).stop(0.0)
        for port in self._checks.keys() - self._servers.keys():
            server = Server(self._handler(port), clock=self._clock, limits=_LIMITS)
            try:
                await server.start(self._host, port)
            except OSError as error:
                check = self._checks[port]
                log.error("cannot serve the health check of %s/%s: %s", check.namespace, check.name, error)
            else:
                self._servers[port] = server

    async def close(self) -> None:
        await self.update(())

    def _handler(self, port: int) -> Handler:
        async def handle(_: Request) -> Answer:
            return self._answer(self._checks.get(port))

        return handle

    def _answer(self, check: HealthCheck | None) -> Response:
        if check is None:
            return Response(404, b"")
        healthy = self._is_healthy()
        body = (
            f'{{\n\t"service": {{\n\t\t"namespace": "{check.namespace}",\n\t\t"name": "{check.name}"\n\t}},\n'
            f'\t"localEndpoints": {check.local_endpoints},\n\t"serviceProxyHealthy": {str(healthy).lower()}\n}}'
        )
        headers = [
            ("Content-Type", "application/json"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Load-Balancing-Endpoint-Weight", str(check.local_endpoints)),
        ]
        return Response(200 if healthy and check.local_endpoints else 503, body.encode(), headers)
