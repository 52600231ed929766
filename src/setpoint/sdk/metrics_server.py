"""The HTTP server of an operator's process for /metrics, /healthz and /readyz, without TLS or authentication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from setpoint.meta.exposition import CONTENT_TYPE, Family, merged, text
from setpoint.sdk.http_server import Handler, HttpServer, Request, Response
from setpoint.sdk.options import Address

log = logging.getLogger("setpoint.operator")


class MetricsServer:
    """Serves metrics and probes: on one listener if both have the same address, otherwise on two."""

    def __init__(
        self, families: Callable[[], Iterable[Family]], healthy: Callable[[], str], ready: Callable[[], str]
    ) -> None:
        """Prepare the servers; `healthy` and `ready` return what is wrong, or an empty string."""
        self._families = families
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._servers: list[HttpServer] = []

    async def open(self, metrics: Address | None, probes: Address | None) -> None:
        """Start to listen; None disables an endpoint. Raise OSError if an address is not available."""
        for address in dict.fromkeys(each for each in (metrics, probes) if each is not None):
            paths = {*(("/metrics",) if address == metrics else ()), *(self._checks if address == probes else ())}
            server = HttpServer(self._handler(paths))
            port = await server.start(address.host, address.port)
            self._servers.append(server)
            log.info("serving %s at %s:%d", " and ".join(sorted(paths)), address.host, port)

    async def close(self, grace: float) -> None:
        for server in self._servers:
            await server.stop(grace)

    def _handler(self, paths: set[str]) -> Handler:
        async def handle(request: Request) -> Response:
            path = request.path.rstrip("/")
            if path not in paths:
                return Response(404, b"404 page not found\n")
            if request.method not in ("GET", "HEAD"):
                return Response(405, b"only GET and HEAD are allowed\n")
            if path == "/metrics":
                return Response(200, text(merged(self._families())).encode(), CONTENT_TYPE)
            wrong = self._checks[path]()
            return Response(500, f"{wrong}\n".encode()) if wrong else Response(200, b"ok")

        return handle
