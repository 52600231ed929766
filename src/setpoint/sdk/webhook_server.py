"""The HTTPS server of an operator's webhooks: its address, certificate and certificate renewal."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from setpoint.client import Client, Unreachable
from setpoint.client.kubeconfig import Access
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.sdk.certificates import (
    CertificateProblem,
    Pair,
    is_valid_for,
    load_pair,
    make_pair,
    read_pair,
    server_context,
    shared_pair,
)
from setpoint.sdk.options import RunOptions, Service
from setpoint.sdk.registration import ReachedAt
from setpoint.sdk.webhooks import Reviewer
from setpoint.wire.limits import Limits
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

log = logging.getLogger("setpoint.operator.webhooks")

_LIMITS = Limits(
    body=32 * 1024 * 1024,  # a conversion contains all objects of a list
    buffered_bodies=256 * 1024 * 1024,
    head=64 * 1024,
    connections=256,
    body_timeout=30.0,
    write_timeout=30.0,
)
_RENEWAL_INTERVAL = 60.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_JSON, _TEXT = ("Content-Type", "application/json"), ("Content-Type", "text/plain; charset=utf-8")


class NotReachable(Exception):
    """The API server could not reach the webhooks; the message is one sentence for users."""


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
        self._server: Server | None = None
        self._reached_at = ReachedAt()

    async def open(self) -> ReachedAt:
        """Listen, and return where the API server reaches the webhooks.

        Raise NotReachable, CertificateProblem, OSError, or an error of the client.
        """
        self._reached_at = self._configured_address()
        self._pair = await self._current_pair()
        self._context = server_context(self._pair)
        server = Server(self._handle, clock=self._clock, ssl=self._context, limits=_LIMITS)
        where = self._options.webhooks
        _, port = await server.start(where.host, where.port)
        self._server = server
        if not self._reached_at.url and not self._reached_at.service:
            self._reached_at = replace(self._reached_at, url=f"https://127.0.0.1:{port}")
        log.info("webhooks listen at %s:%d", where.host, port)
        return self.reached

    @property
    def reached(self) -> ReachedAt:
        return replace(self._reached_at, authority=self._pair.authority if self._pair is not None else b"")

    async def close(self, grace: float) -> None:
        if self._server is not None:
            await self._server.stop(grace)

    async def renew_certificates(self, register: Callable[[ReachedAt], Awaitable[object]]) -> None:
        """Renew certificates that expire soon and load replaced ones until cancelled; register a new CA with the API
        server."""
        assert self._pair is not None and self._context is not None
        while True:
            await self._clock.sleep(_RENEWAL_INTERVAL)
            try:
                found = await self._current_pair()
                if found == self._pair:
                    continue
                server_context(found)  # tried first, because a failed load leaves a context without a certificate
                load_pair(self._context, found)
                before, self._pair = self._pair, found
                log.info("loaded a new webhook certificate")
                if found.authority != before.authority:
                    await register(self.reached)
            except (CertificateProblem, ApiError, Unreachable) as problem:
                log.warning("%s", problem)

    # -- address and certificate ---------------------------------------------------------------------------------------

    def _configured_address(self) -> ReachedAt:
        """Return the configured address; without URL and Service it is this machine, at a port that is assigned
        later."""
        options, access = self._options, self._access
        if options.webhook_url:
            if urlsplit(options.webhook_url).scheme != "https":
                raise NotReachable(f"--webhook-url {options.webhook_url} is not of the form https://host:port")
            return ReachedAt(url=options.webhook_url)
        service = options.webhook_service
        if service is None and access.in_cluster:
            service = Service(access.namespace, f"{self._operator}-webhook")
        if service is not None:
            return ReachedAt(namespace=service.namespace, service=service.name, port=service.port)
        if urlsplit(access.server).hostname in _LOOPBACK:
            return ReachedAt()
        raise NotReachable("the API server cannot reach the webhooks: set --webhook-url or --webhook-service")

    async def _current_pair(self) -> Pair:
        if self._options.webhook_certificates:
            return read_pair(Path(self._options.webhook_certificates))
        at = self._reached_at
        if at.service:
            full = f"{at.service}.{at.namespace}.svc"
            secret, own = f"{self._operator}-webhook-tls", (full, f"{full}.cluster.local")
            return await shared_pair(self._client, self._clock, at.namespace, secret, own)
        names = sorted({urlsplit(at.url).hostname or "127.0.0.1", *_LOOPBACK})
        now = self._clock.now()
        if self._pair is not None and is_valid_for(self._pair, names, now):
            return self._pair
        return make_pair(names, now, self._pair)

    async def _handle(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(405, b"webhooks accept only POST\n", [_TEXT])
        status, body = await self._reviewer.answer(unquote(request.path), request.body)
        return Response(status, body, [_JSON if status == 200 else _TEXT])
