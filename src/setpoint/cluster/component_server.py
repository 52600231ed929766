"""The HTTPS server of a component that runs as its own process: health checks without authentication, metrics for
authorized clients.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from setpoint.apiserver.health import Check, Health
from setpoint.apiserver.request_context import parse_query
from setpoint.client import Unreachable
from setpoint.cluster.certificates import CertificateFiles, ensure_certificates, server_context
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.procfs import process_families
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, InternalError
from setpoint.meta.exposition import CONTENT_TYPE, Family, merged, text
from setpoint.wire.message import Answer, Request, Response
from setpoint.wire.server import Server

_JSON, _PLAIN = [("Content-Type", "application/json")], [("Content-Type", "text/plain; charset=utf-8")]
_GRACE = 2.0
_CHECKS = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """The address, certificates and access rules of a component's server."""

    address: str = "0.0.0.0"
    port: int = 0
    """The port to listen on; 0 disables the server."""
    certificate: str = ""
    key: str = ""
    """Files of the certificate and its key; empty means that a certificate is generated, as upstream does."""
    client_ca: str = ""
    """File of the authority of client certificates; empty means the kubeconfig's authority."""
    always_allowed: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    """Paths that need no authorization; a trailing `*` matches any suffix."""

    def check(self) -> None:
        """Raises ConfigError."""
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("--tls-cert-file and --tls-private-key-file must be set together")


class ComponentHandler:
    """Answers requests for health checks and metrics."""

    def __init__(
        self,
        access: DelegatedAuth,
        always_allowed: Iterable[str],
        checks: Mapping[str, Check],
        families: Callable[[], Iterable[Family]],
    ) -> None:
        self._access = access
        self._always_allowed = frozenset(always_allowed)
        self._health = Health(dict.fromkeys(_CHECKS, checks))
        self._families = families

    async def handle(self, request: Request) -> Answer:
        try:
            user = await self._access.authenticate(request)
            if not self._is_always_allowed(request.path):
                await self._access.check_path(user, request)
        except ApiError as error:
            return Response(error.code, orjson.dumps(error.status()), list(_JSON))
        except Unreachable as error:
            failure = InternalError(f"Internal error occurred: {error}")
            return Response(failure.code, orjson.dumps(failure.status()), list(_JSON))
        if request.path == "/metrics":
            families = merged([*self._families(), *process_families()])
            return Response(200, text(families).encode(), [("Content-Type", CONTENT_TYPE)])
        answer = self._health.answer(request.path, parse_query(request.query))
        if answer is not None:
            return answer
        return Response(404, b"404 page not found\n", list(_PLAIN))

    def _is_always_allowed(self, path: str) -> bool:
        """Return whether the path needs no authorization."""
        return path in self._always_allowed or any(
            each.endswith("*") and path.startswith(each[:-1]) for each in self._always_allowed
        )


def component_server(
    config: ServingOptions,
    access: DelegatedAuth,
    ca: bytes | None,
    clock: Clock,
    checks: Mapping[str, Check],
    families: Callable[[], Iterable[Family]],
) -> AbstractAsyncContextManager[tuple[str, int] | None]:
    """Serve while the block runs. Yields the address, or None if the server is disabled. Raises ConfigError."""

    @asynccontextmanager
    async def serving() -> AsyncIterator[tuple[str, int] | None]:
        config.check()
        if not config.port:
            yield None
            return
        handler = ComponentHandler(access, config.always_allowed, checks, families)
        with tempfile.TemporaryDirectory(prefix="setpoint-component-") as directory:
            server = Server(handler.handle, clock=clock, ssl=_context(Path(directory), config, ca, clock))
            try:
                address = await server.start(config.address, config.port)
            except OSError as error:
                raise ConfigError(f"cannot listen on {config.address}:{config.port}: {error.strerror}") from None
            try:
                yield address
            finally:
                await server.stop(_GRACE)

    return serving()


def _context(directory: Path, config: ServingOptions, ca: bytes | None, clock: Clock) -> ssl.SSLContext:
    authority: Path | None = Path(config.client_ca) if config.client_ca else None
    if authority is None and ca:
        authority = directory / "client-ca.crt"
        authority.write_bytes(ca)
    try:
        if config.certificate:
            own = CertificateFiles.within(directory / "pki")._replace(
                certificate=Path(config.certificate), key=Path(config.key)
            )
        else:
            own = ensure_certificates(directory / "pki", clock.now())
        return server_context(own, authority)
    except OSError as error:
        raise ConfigError(f"cannot use the serving certificates: {error}") from None
