"""Where an operator's webhooks listen: the address, the certificate and its renewal."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from setpoint.client import Client, Unreachable
from setpoint.client.access import Access
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.sdk.certificates import (
    CertificateProblem,
    Pair,
    load_pair,
    make_pair,
    read_pair,
    server_context,
    shared_pair,
    still_good,
)
from setpoint.sdk.http_server import HttpServer, Limits, Request, Response
from setpoint.sdk.options import RunOptions, Service
from setpoint.sdk.registration import ReachedAt
from setpoint.sdk.reviewing import Reviewer

log = logging.getLogger("setpoint.operator.webhooks")

_LONGEST_BODY = 32 * 1024 * 1024
"""A conversion has all objects of a list in it."""
_LOOK_EVERY = 60.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NotReachable(Exception):
    """One sentence for people: the API server would not find the webhooks."""


class WebhookServer:
    def __init__(
        self, operator: str, reviewer: Reviewer, options: RunOptions, access: Access, client: Client, clock: Clock
    ) -> None:
        self._operator = operator
        self._reviewer = reviewer
        self._options = options
        self._access = access
        self._client = client
        self._clock = clock
        self._pair: Pair | None = None
        self._context: ssl.SSLContext | None = None
        self._server: HttpServer | None = None
        self._at = ReachedAt()

    async def open(self) -> ReachedAt:
        """Listens; where the API server finds it. Raises NotReachable, CertificateProblem, OSError, and what a client
        raises."""
        self._at = self._place()
        self._pair = await self._current()
        self._context = server_context(self._pair)
        server = HttpServer(self._handle, ssl=self._context, limits=Limits(body=_LONGEST_BODY))
        where = self._options.webhooks
        port = await server.start(where.host, where.port)
        self._server = server
        if not self._at.url and not self._at.service:
            self._at = replace(self._at, url=f"https://127.0.0.1:{port}")
        log.info("webhooks listen at %s:%d", where.host, port)
        return self.reached

    @property
    def reached(self) -> ReachedAt:
        return replace(self._at, authority=self._pair.authority if self._pair is not None else b"")

    async def close(self, grace: float) -> None:
        if self._server is not None:
            await self._server.stop(grace)

    async def keep(self, register: Callable[[ReachedAt], Awaitable[object]]) -> None:
        """Until cancelled: certificates that are about to run out, or that others have replaced, are taken up; of
        another authority the API server is told."""
        assert self._pair is not None and self._context is not None
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            try:
                found = await self._current()
                if found == self._pair:
                    continue
                server_context(found)  # to try it: one that does not load leaves a context without any
                load_pair(self._context, found)
                before, self._pair = self._pair, found
                log.info("the webhooks have another certificate")
                if found.authority != before.authority:
                    await register(self.reached)
            except (CertificateProblem, ApiError, Unreachable) as problem:
                log.warning("%s", problem)

    # -- where and with what ------------------------------------------------------------------------------------------

    def _place(self) -> ReachedAt:
        """Without URL and Service: on this machine, at a port that is yet to be chosen."""
        options, access = self._options, self._access
        if options.webhook_url:
            if urlsplit(options.webhook_url).scheme != "https":
                raise NotReachable(f"--webhook-url {options.webhook_url} is not like https://host:port")
            return ReachedAt(url=options.webhook_url)
        service = options.webhook_service
        if service is None and access.in_cluster:
            service = Service(access.namespace, f"{self._operator}-webhook")
        if service is not None:
            return ReachedAt(namespace=service.namespace, service=service.name, port=service.port)
        if urlsplit(access.server).hostname in _LOOPBACK:
            return ReachedAt()
        raise NotReachable("the API server must find the webhooks: say --webhook-url or --webhook-service")

    async def _current(self) -> Pair:
        if self._options.webhook_certificates:
            return read_pair(Path(self._options.webhook_certificates))
        at = self._at
        if at.service:
            full = f"{at.service}.{at.namespace}.svc"
            secret, own = f"{self._operator}-webhook-tls", (full, f"{full}.cluster.local")
            return await shared_pair(self._client, self._clock, at.namespace, secret, own)
        names = sorted({urlsplit(at.url).hostname or "127.0.0.1", *_LOOPBACK})
        now = self._clock.now()
        if self._pair is not None and still_good(self._pair, names, now):
            return self._pair
        return make_pair(names, now, self._pair)

    async def _handle(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(405, b"webhooks are asked by POST\n")
        status, body = await self._reviewer.answer(request.path, request.body)
        return Response(status, body, "application/json" if status == 200 else "text/plain; charset=utf-8")
