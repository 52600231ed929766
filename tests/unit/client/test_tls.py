"""Servers are verified by the same rules, whoever connects to them: table by table, over real sockets."""

from __future__ import annotations

import ast
import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from certificate_chains import CASES, LEAF, ROOT, Case, but, key_pem, pem

from setpoint.apiserver.far_server import FarServer, FarServerProblem
from setpoint.apiserver.http.message import Peer, Request
from setpoint.client.access import Access
from setpoint.client.certificate_loading import load_chain
from setpoint.client.https import HttpsTransport
from setpoint.client.tls import ServerCertificateError, TlsClient, Trust
from setpoint.client.transport import Unreachable
from setpoint.cluster.far_nodes import FarNodes
from setpoint.cluster.far_servers import NetworkServers
from setpoint.meta.errors import ApiError
from setpoint.system import SystemClock

NODE = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
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
    load_chain(context, pem(*sent), key_pem(case.key))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], roots, received
    finally:
        server.close()


async def as_webhook(case: Case, port: int, roots: bytes) -> str:
    try:
        await NetworkServers(SystemClock()).post(FarServer("127.0.0.1", port, case.host, roots), REQUEST, 5.0)
    except FarServerProblem as problem:
        return str(problem)
    return ""


async def as_aggregated_server(case: Case, port: int, roots: bytes) -> str:
    try:
        await NetworkServers(SystemClock()).ask(FarServer("127.0.0.1", port, case.host, roots), REQUEST, 5.0)
    except FarServerProblem as problem:
        return str(problem)
    return ""


async def as_api_server(case: Case, port: int, roots: bytes) -> str:
    access = Access(f"https://127.0.0.1:{port}", ca=roots, tls_server_name=case.host)
    transport = HttpsTransport(access, SystemClock())
    try:
        await transport.request("GET", "/x", "", [], b"")
    except Unreachable as problem:
        return str(problem)
    finally:
        await transport.close()
    return ""


async def as_kubelet(case: Case, port: int, roots: bytes) -> str:
    node = {**NODE, "status": {**NODE["status"], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    nodes = FarNodes(lambda: TlsClient(Trust(SystemClock(), roots)), lambda _: True)
    try:
        await nodes.ask(node, REQUEST)
    except ApiError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("use", [as_webhook, as_api_server])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_chain_for_every_use(case: Case, use: Use) -> None:
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
async def test_nodes_and_aggregated_servers(name: str, said: str, use: Use) -> None:
    case = BY_NAME[name]
    leaf, *others = case.sent
    case = Case(name, [but(leaf, names=["127.0.0.1"]), *others], case.roots, host="127.0.0.1")
    async with serving(case) as (port, roots, _):
        found = await use(case, port, roots)
    assert (f"tls: failed to verify certificate: {said}" in found) if said else found == ""


async def test_the_systems_authorities_are_used_where_none_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from setpoint.client import tls

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


async def test_a_bundle_without_certificates_trusts_nobody() -> None:
    case = Case("", [LEAF], [ROOT])
    async with serving(case) as (port, _, received):
        for bundle in (b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            assert await as_webhook(case, port, bundle) != ""
        assert received == []


async def test_time_is_the_clusters() -> None:
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
        if isinstance(node, ast.Attribute) and node.attr in ("PROTOCOL_TLS_CLIENT", "create_default_context")
    ]
    assert set(offenders) == {"client/tls.py"}
