"""Every client verifies servers by the same rules: one table, over real sockets."""

from __future__ import annotations

import ast
import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from blocking_in_thread import TRANSPORTS, Make
from certificate_chains import CASES, LEAF, ROOT, Case, but, key_pem, pem

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.client.dialing import ServerAddress
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Unreachable
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.remote_nodes import RemoteNodes
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock
from setpoint.wire.client_connection import ClientConnection
from setpoint.wire.message import Peer, Request
from setpoint.wire.tls import ServerCertificateError, TlsClient, Trust, load_certificate

NODE: Obj = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
REQUEST = Request("POST", "/x", "", {}, b"{}", Peer())
BY_NAME = {case.name: case for case in CASES}
KNATIVE = BY_NAME["subject of the CA, no key identifiers"]
Use = Callable[[Case, int, bytes], Awaitable[str]]


@asynccontextmanager
async def serving(case: Case) -> AsyncIterator[tuple[int, bytes, list[bytes]]]:
    """A server with that certificate: its port, the bundle to trust, and what it received."""
    sent, roots = case.make(datetime.now(UTC))
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, pem(*sent), key_pem(case.key))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], roots, received
    finally:
        server.close()


async def as_webhook(case: Case, port: int, roots: bytes) -> str:
    try:
        await NetworkServers(SystemClock()).call(RemoteServer("127.0.0.1", port, case.host, roots), REQUEST, 5.0)
    except RemoteServerError as problem:
        return str(problem)
    return ""


async def as_aggregated_server(case: Case, port: int, roots: bytes) -> str:
    try:
        await NetworkServers(SystemClock()).forward(RemoteServer("127.0.0.1", port, case.host, roots), REQUEST, 5.0)
    except RemoteServerError as problem:
        return str(problem)
    return ""


async def as_api_server(case: Case, port: int, roots: bytes) -> str:
    return await _as_api_server(case, port, roots, TRANSPORTS["event loop"])


async def as_api_server_of_commands(case: Case, port: int, roots: bytes) -> str:
    return await _as_api_server(case, port, roots, TRANSPORTS["blocking"])


async def _as_api_server(case: Case, port: int, roots: bytes, make: Make) -> str:
    transport = make(Access(f"https://127.0.0.1:{port}", ca=roots, tls_server_name=case.host))
    try:
        await transport.request("GET", "/x", "", [], b"")
    except Unreachable as problem:
        return str(problem)
    finally:
        await transport.close()
    return ""


async def as_kubelet(case: Case, port: int, roots: bytes) -> str:
    node = {**NODE, "status": {**NODE["status"], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    nodes = RemoteNodes(lambda: TlsClient(Trust(SystemClock(), roots)), lambda _: True)
    try:
        await nodes.request_node(node, REQUEST)
    except ApiError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("use", [as_webhook, as_api_server, as_api_server_of_commands])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_chain_is_verified_for_every_client(case: Case, use: Use) -> None:
    async with serving(case) as (port, roots, received):
        found = await use(case, port, roots)
    wanted = case.said.partition("current time")[0]
    assert (f"tls: failed to verify certificate: {wanted}" in found) if wanted else found == ""
    assert bool(received) is not bool(wanted)  # nothing is sent to a server that is refused


@pytest.mark.parametrize("use", [as_kubelet, as_aggregated_server])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (KNATIVE.name, ""),
        ("an intermediate is trusted", ""),
        ("the leaf itself is trusted", ""),
        ("subject of the CA, forged", "x509: certificate signed by unknown authority"),
        ("expired", "x509: certificate has expired or is not yet valid: current time"),
        ("client usage", "x509: certificate specifies an incompatible key usage"),
        ("path length exceeded", "x509: too many intermediates for path length constraint"),
    ],
)
async def test_connections_to_nodes_and_aggregated_servers_are_verified(name: str, said: str, use: Use) -> None:
    case = BY_NAME[name]
    leaf, *others = case.sent
    case = Case(name, [but(leaf, names=["127.0.0.1"]), *others], case.roots, host="127.0.0.1")
    async with serving(case) as (port, roots, _):
        found = await use(case, port, roots)
    assert (f"tls: failed to verify certificate: {said}" in found) if said else found == ""


async def test_the_system_trust_store_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from setpoint.wire import tls

    case = Case("", [LEAF], [ROOT])
    async with serving(case) as (port, roots, _):
        assert "signed by unknown authority" in await as_webhook(case, port, b"")
        (tmp_path / "ours.pem").write_bytes(roots)
        (tmp_path / "empty").mkdir()
        for variable, path in (("SSL_CERT_FILE", tmp_path / "ours.pem"), ("SSL_CERT_DIR", tmp_path)):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
            monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "empty"))
            monkeypatch.setenv(variable, str(path))
            tls._system_roots.cache_clear()
            assert await as_webhook(case, port, b"") == ""
        monkeypatch.undo()
        tls._system_roots.cache_clear()


async def test_a_bundle_without_certificates_trusts_no_server() -> None:
    case = Case("", [LEAF], [ROOT])
    async with serving(case) as (port, _, received):
        for bundle in (b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            assert await as_webhook(case, port, bundle) != ""
        assert received == []


async def test_certificates_are_checked_with_the_clusters_clock() -> None:
    """In a cluster in virtual time a certificate is valid when that cluster's clock says so."""

    class Later(SystemClock):
        def now(self) -> datetime:
            return super().now().replace(year=super().now().year + 5)

    async with serving(KNATIVE) as (port, roots, _):
        with pytest.raises(ServerCertificateError, match="has expired"):
            await TlsClient(Trust(Later(), roots)).open("127.0.0.1", port, KNATIVE.host)


def test_no_other_module_connects_with_tls() -> None:
    """Contexts of clients are made in one module: there is no other way to forget the verification."""
    source = Path(__file__).parents[3] / "src" / "setpoint"
    offenders = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "ssl" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in ("PROTOCOL_TLS_CLIENT", "create_default_context", "wrap_socket")
    ]
    assert set(offenders) == {"wire/tls.py"}


class Chosen:
    """A ServerChoice of one server."""

    def __init__(self, port: int) -> None:
        self._server = ServerAddress("127.0.0.1", port)
        self.outcome = ""

    def candidates(self) -> Sequence[ServerAddress]:
        return [self._server]

    def connected(self, server: ServerAddress, connection: ClientConnection) -> None:
        self.outcome = "connected"

    def failed(self, server: ServerAddress) -> None:
        self.outcome = "failed"


@pytest.mark.parametrize(
    ("url", "server_name", "valid_for", "accepted"),
    [
        ("https://api.test:6443", "", "api.test", True),  # the common name of all servers
        ("https://api.test:6443", "", "127.0.0.1", True),  # the address of the chosen one
        ("https://api.test:6443", "", "other.test", False),
        ("https://192.0.2.1:6443", "", "127.0.0.1", True),
        ("https://192.0.2.1:6443", "", "192.0.2.1", True),
        ("https://192.0.2.1:6443", "", "192.0.2.2", False),
        ("https://api.test:6443", "inner.test", "inner.test", True),
        ("https://api.test:6443", "inner.test", "api.test", False),
        ("https://api.test:6443", "inner.test", "127.0.0.1", False),
    ],
)
async def test_another_server_of_the_cluster(url: str, server_name: str, valid_for: str, accepted: bool) -> None:
    case = Case("another server", [but(LEAF, names=[valid_for])], [ROOT])
    async with serving(case) as (port, roots, received):
        chosen = Chosen(port)
        transport = HttpsTransport(Access(url, ca=roots, tls_server_name=server_name), SystemClock(), servers=chosen)
        try:
            await transport.request("GET", "/x", "", [], b"")
        except Unreachable as problem:
            assert not accepted and "x509: certificate is" in str(problem)
        else:
            assert accepted
        finally:
            await transport.close()
    assert chosen.outcome == ("connected" if accepted else "failed")
    assert bool(received) is accepted  # nothing is sent to a server that is refused
