"""Authentication over real sockets: client and proxy certificates while authorities change, and a token issuer."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from setpoint.apiserver.authentication.issuer_keys import Fetcher
from setpoint.apiserver.authentication.jwt_tokens import JwtIssuer, JwtTokens
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, TokenRefused
from setpoint.cluster.authentication import ClientTrust
from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    issue_client_certificate,
    server_context,
)
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError
from setpoint.cluster.file_watcher import FileWatcher
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.outgoing_tls import kubelet_tls
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized
from setpoint.system import SystemClock
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server


def authority(directory: Path) -> CertificateFiles:
    return ensure_certificates(directory, datetime.now(UTC))


class Client:
    """A connection with a certificate."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, own: CertificateFiles, signer: CertificateFiles, name: str) -> Client:
        context = ssl.create_default_context(cafile=own.ca)
        certificate, key = issue_client_certificate(signer, name, [], datetime.now(UTC))
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + key)
            file.flush()
            context.load_cert_chain(file.name)
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost"))

    async def user(self, **headers: str) -> str:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join(["GET / HTTP/1.1", "host: x", *lines, "", ""]).encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.decode().lower().split("\r\n") if line.startswith("content-length"))
        return (await self._reader.readexactly(int(length.split(":")[1]))).decode()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def trusting(config: ApiServerConfig, own: CertificateFiles) -> AsyncIterator[tuple[int, ClientTrust]]:
    context = server_context(own, own.ca)
    trust = ClientTrust(config, own.ca, context, SystemClock())
    chain = AuthenticatorChain(trust.authenticators, False)

    async def handle(request: Request) -> Response:
        try:
            user = chain.authenticate(request, print)
        except Unauthorized:
            return Response(401, b"nobody")
        assert isinstance(user, UserInfo)
        return Response(200, user.name.encode())

    server = Server(handle, clock=SystemClock(), ssl=context)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port, trust
    finally:
        await server.stop(0)


async def check_files(trust: ClientTrust) -> None:
    for run in trust.background:
        followed: Any = getattr(run, "__self__", None)
        assert isinstance(followed, FileWatcher)
        await followed.check()


async def test_changed_authorities_apply_to_open_connections(tmp_path: Path) -> None:
    own, first, second, front = (authority(tmp_path / name) for name in ("own", "first", "second", "front"))
    clients = tmp_path / "clients.crt"
    clients.write_bytes(first.ca.read_bytes())
    access = AccessConfig(
        requestheader_client_ca_file=str(front.ca),
        requestheader_username_headers=["X-Remote-User"],
        requestheader_allowed_names=["proxy"],
    )
    config = ApiServerConfig(tmp_path, client_ca_file=str(clients), access=access)
    async with trusting(config, own) as (port, trust):
        jane = await Client.open(port, own, first, "jane")
        proxy = await Client.open(port, own, front, "proxy")
        admin = await Client.open(port, own, own, "admin")
        impostor = await Client.open(port, own, first, "proxy")
        assert [await jane.user(), await proxy.user(), await admin.user()] == ["jane", "nobody", "admin"]
        assert [await one.user(x_remote_user="bob") for one in (proxy, impostor)] == ["bob", "proxy"]
        with pytest.raises((OSError, EOFError)):
            # With TLS 1.3, the client's handshake ends before the server verifies its certificate.
            await (await Client.open(port, own, second, "kate")).user()
        clients.write_bytes(second.ca.read_bytes())
        await check_files(trust)
        kate = await Client.open(port, own, second, "kate")
        assert [await jane.user(), await kate.user(), await admin.user()] == ["nobody", "kate", "admin"]
        clients.write_bytes(b"rubbish")
        await check_files(trust)
        assert await kate.user() == "kate"
        for one in (jane, proxy, admin, impostor, kate):
            one.close()


def test_the_proxy_authority_does_not_authenticate_clients(tmp_path: Path) -> None:
    own, both = authority(tmp_path / "own"), authority(tmp_path / "both")
    access = AccessConfig(requestheader_client_ca_file=str(both.ca))
    config = ApiServerConfig(tmp_path, client_ca_file=str(both.ca), access=access)
    with pytest.raises(ConfigError, match="contain overlapping certificates; --requestheader-allowed-names must be"):
        ClientTrust(config, own.ca, server_context(own), SystemClock())
    access.requestheader_allowed_names = ["proxy"]
    ClientTrust(config, own.ca, server_context(own), SystemClock())


def test_files_without_certificates_are_rejected(tmp_path: Path) -> None:
    own, rubbish = authority(tmp_path / "own"), tmp_path / "rubbish"
    rubbish.write_text("rubbish")

    def trust(path: str) -> None:
        ClientTrust(ApiServerConfig(tmp_path, client_ca_file=path), own.ca, server_context(own), SystemClock())

    def nodes(path: str) -> None:
        kubelet_tls(ApiServerConfig(tmp_path, kubelet_certificate_authority=path), own, SystemClock())

    attempts: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: trust("/no"), "cannot use --client-ca-file: open /no: no such file or directory"),
        (
            lambda: trust(str(rubbish)),
            f"cannot use --client-ca-file {rubbish}: it must contain PEM certificates and nothing else",
        ),
        (lambda: nodes("/no"), "cannot use --kubelet-certificate-authority /no: No such file or directory"),
        (
            lambda: nodes(str(rubbish)),
            f"cannot use --kubelet-certificate-authority {rubbish}: it must contain PEM certificates and nothing else",
        ),
    )
    for attempt, message in attempts:
        with pytest.raises(ConfigError, match=message):
            attempt()
    nodes(str(own.ca))


async def test_an_oidc_issuer_is_reached_over_tls(tmp_path: Path) -> None:
    files, untrusted = authority(tmp_path / "issuer"), authority(tmp_path / "untrusted")
    key = ec.generate_private_key(ec.SECP256R1())
    published = ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "k"}
    url = ""

    async def handle(request: Request) -> Response:
        found: object = (
            {"issuer": url, "jwks_uri": f"{url}/keys"} if "well-known" in request.path else {"keys": [published]}
        )
        return Response(200, orjson.dumps(found), [("Content-Type", "application/json")])

    server = Server(handle, clock=SystemClock(), ssl=server_context(files))
    _, port = await server.start("127.0.0.1", 0)
    url = f"https://127.0.0.1:{port}"
    mappings = {"username": {"claim": "sub", "prefix": ""}}
    configuration = {"issuer": {"url": url, "audiences": ["a"]}, "claimMappings": mappings}
    claims = {"iss": url, "aud": "a", "sub": "jane", "exp": int(datetime.now(UTC).timestamp()) + 60}
    token = jwt.encode(claims, key, "ES256", {"kid": "k"})
    try:
        issuer = JwtIssuer(configuration, Fetcher(NetworkServers(SystemClock()), files.ca.read_bytes()), SystemClock())
        await issuer.initialize()
        assert issuer.problem == ""
        verified = JwtTokens([issuer], SystemClock()).verify(token, ())
        assert verified is not None
        assert (await verified).user.name == "jane"  # type: ignore[misc]
        other = JwtIssuer(
            configuration, Fetcher(NetworkServers(SystemClock()), untrusted.ca.read_bytes()), SystemClock()
        )
        await other.initialize()
        assert "tls: failed to verify certificate: x509: certificate signed by unknown" in other.problem
        with pytest.raises(TokenRefused, match="oidc: authenticator not initialized"):
            other.verify(token)
    finally:
        await server.stop(0)
