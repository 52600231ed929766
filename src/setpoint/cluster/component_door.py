"""Where a component that runs as a process of its own tells how it fares: health for anybody, metrics for those whom
the cluster lets read them."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from setpoint.apiserver.health import Check, Health
from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates, server_context
from setpoint.apiserver.http.message import Answer, Request, Response
from setpoint.apiserver.http.server import Server
from setpoint.apiserver.request import parse_query
from setpoint.client import Unreachable
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_access import DelegatedAccess
from setpoint.cluster.process_metrics import process_families
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, InternalError
from setpoint.meta.exposition import CONTENT_TYPE, Family, merged, text

_JSON, _PLAIN = [("Content-Type", "application/json")], [("Content-Type", "text/plain; charset=utf-8")]
_GRACE = 2.0
_CHECKS = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class DoorConfig:
    address: str = "0.0.0.0"
    port: int = 0
    """0: there is no door."""
    certificate: str = ""
    key: str = ""
    """Files; without them a certificate is made, as upstream does."""
    client_ca: str = ""
    """Whose certificates clients may show; the kubeconfig's authority if it does not say."""
    always_allowed: tuple[str, ...] = ("/healthz", "/readyz", "/livez")

    def check(self) -> None:
        """Raises ConfigError."""
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("--tls-cert-file and --tls-private-key-file go together")


class ComponentDoor:
    def __init__(
        self,
        access: DelegatedAccess,
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
            user = await self._access.who(request)
            if not self._is_open(request.path):
                await self._access.check_path(user, request)
        except ApiError as error:
            return Response(error.code, orjson.dumps(error.status()), list(_JSON))
        except Unreachable as error:
            refused = InternalError(f"Internal error occurred: {error}")
            return Response(refused.code, orjson.dumps(refused.status()), list(_JSON))
        if request.path == "/metrics":
            shown = merged([*self._families(), *process_families()])
            return Response(200, text(shown).encode(), [("Content-Type", CONTENT_TYPE)])
        answer = self._health.answer(request.path, parse_query(request.query))
        if answer is not None:
            return answer
        return Response(404, b"404 page not found\n", list(_PLAIN))

    def _is_open(self, path: str) -> bool:
        """A path that ends in a star stands for all that begin so."""
        return path in self._always_allowed or any(
            each.endswith("*") and path.startswith(each[:-1]) for each in self._always_allowed
        )


def component_door(
    config: DoorConfig,
    access: DelegatedAccess,
    ca: bytes | None,
    clock: Clock,
    checks: Mapping[str, Check],
    families: Callable[[], Iterable[Family]],
) -> AbstractAsyncContextManager[tuple[str, int] | None]:
    """Open while the block runs; where, or None. Raises ConfigError."""

    @asynccontextmanager
    async def serving() -> AsyncIterator[tuple[str, int] | None]:
        config.check()
        if not config.port:
            yield None
            return
        door = ComponentDoor(access, config.always_allowed, checks, families)
        with tempfile.TemporaryDirectory(prefix="setpoint-component-") as directory:
            server = Server(door.handle, clock=clock, ssl=_context(Path(directory), config, ca, clock))
            try:
                where = await server.start(config.address, config.port)
            except OSError as error:
                raise ConfigError(f"cannot listen on {config.address}:{config.port}: {error.strerror}") from None
            try:
                yield where
            finally:
                await server.stop(_GRACE)

    return serving()


def _context(directory: Path, config: DoorConfig, ca: bytes | None, clock: Clock) -> ssl.SSLContext:
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
        raise ConfigError(f"cannot serve with these certificates: {error}") from None
