"""The certificates of webhooks: trusted by clients, shared by replicas, renewed, or read from files."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.cluster.virtual.link import Link, LinkedClient, Proceed, Write
from setpoint.sdk import Kind, Operator, ReachedAt, Validate
from setpoint.sdk.certificates import (
    CertificateProblem,
    Pair,
    is_valid_for,
    make_pair,
    read_pair,
    server_context,
    shared_pair,
)
from setpoint.sdk.options import Address, RunOptions, Service
from setpoint.sdk.webhook_server import NotReachable, WebhookServer
from setpoint.testing import VirtualClock, VirtualCluster, virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("tea.default.svc", "127.0.0.1")
SECRET = ("v1", "Secret")


async def nothing(review: Any, obj: Any) -> None: ...


OPERATOR = Operator("tea", Validate(Kind("v1", "ConfigMap"), nothing))


async def shown_to(pair: Pair, authority: bytes, name: str) -> None:
    """A connection from one who believes this authority."""

    async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(bye, "127.0.0.1", 0, ssl=server_context(pair))
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        writer.close()


async def test_a_client_trusts_the_certificate() -> None:
    pair = make_pair(NAMES, datetime.now(UTC))
    for name in NAMES:
        await shown_to(pair, pair.authority, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await shown_to(pair, pair.authority, "other.default.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        await shown_to(pair, make_pair(NAMES, datetime.now(UTC)).authority, NAMES[0])


def test_it_is_renewed_in_time_by_the_same_authority() -> None:
    pair = make_pair(NAMES, NOW)
    assert is_valid_for(pair, NAMES, NOW + timedelta(days=300))
    assert not is_valid_for(pair, (*NAMES, "more"), NOW)
    later = NOW + timedelta(days=310)
    assert not is_valid_for(pair, NAMES, later)
    renewed = make_pair(NAMES, later, pair)
    assert is_valid_for(renewed, NAMES, later)
    assert (renewed.authority, renewed.certificate != pair.certificate) == (pair.authority, True)
    much_later = NOW + timedelta(days=3600)
    assert make_pair(NAMES, much_later, renewed).authority != pair.authority
    assert not is_valid_for(Pair(b"", b"nonsense", b""), NAMES, NOW)


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_replicas_share_one_certificate(cluster: VirtualCluster) -> None:
    class Calendar(VirtualClock):
        days = 0

        def now(self) -> datetime:
            return NOW + timedelta(days=self.days)

    calendar = Calendar()

    async def replica(client: Client = cluster.client) -> Pair:
        return await shared_pair(client, calendar, "default", "tea-tls", NAMES)

    faster: list[Pair] = []
    link = Link("slow replica")

    async def overtaken(write: Write, proceed: Proceed) -> Any:
        link.write_interceptor = None
        faster.append(await replica())
        return await proceed()

    link.write_interceptor = overtaken
    first = await replica(LinkedClient(cluster.client, link))
    assert [first] == faster, "whoever is first decides"
    kept = await cluster.client.get(SECRET, "tea-tls", "default")
    assert kept["type"] == "kubernetes.io/tls"
    assert b64decode(kept["data"]["tls.crt"]) == first.certificate
    calendar.days = 310
    link.write_interceptor = overtaken
    renewed = await replica(LinkedClient(cluster.client, link))
    assert renewed == faster[1]
    assert (renewed.authority, renewed.certificate != first.certificate) == (first.authority, True)
    assert await replica() == renewed
    await cluster.client.patch(SECRET, "tea-tls", {"data": {"ca.key": None}}, "default")
    assert (await replica()).authority != first.authority, "what is broken is made anew"


def test_certificates_are_read_from_files(tmp_path: Path) -> None:
    with pytest.raises(CertificateProblem, match="cannot read the certificate of the webhooks"):
        read_pair(tmp_path)
    pair = make_pair(NAMES, NOW)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    assert read_pair(tmp_path) == Pair(b"", pair.certificate, pair.key)
    (tmp_path / "ca.crt").write_bytes(pair.authority)
    assert read_pair(tmp_path).authority == pair.authority
    with pytest.raises(CertificateProblem, match="cannot be used"):
        server_context(Pair(b"", pair.certificate, make_pair(NAMES, NOW).key))


ANYWHERE = Address("127.0.0.1", 0)


def server(cluster: VirtualCluster, access: Access | None = None, **options: Any) -> WebhookServer:
    access = access or Access("https://192.0.2.1", namespace="tea-system")
    reviewer = OPERATOR.reviewer(cluster.client, cluster.clock)
    given = RunOptions(webhooks=ANYWHERE, **options)
    return WebhookServer("tea", reviewer, given, access, cluster.client, cluster.clock)


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_the_address_under_which_webhooks_are_reached(cluster: VirtualCluster) -> None:
    in_pod = Access("https://10.0.0.1", namespace="default", in_cluster=True)
    here = Access("https://127.0.0.1:6443")
    for opened, expected in (
        (server(cluster, webhook_url="https://dev.example.com:9443"), ReachedAt(url="https://dev.example.com:9443")),
        (
            server(cluster, webhook_service=Service("default", "hooks", 8443)),
            ReachedAt(namespace="default", service="hooks", port=8443),
        ),
        (server(cluster, in_pod), ReachedAt(namespace="default", service="tea-webhook")),
    ):
        reached = await opened.open()
        assert reached.authority.startswith(b"-----BEGIN CERTIFICATE-----")
        assert reached == ReachedAt(**{**expected.__dict__, "authority": reached.authority})
        await opened.close(0.0)
    opened = server(cluster, here)
    assert (await opened.open()).url.startswith("https://127.0.0.1:")
    await opened.close(0.0)
    with pytest.raises(NotReachable, match="not of the form https"):
        await server(cluster, webhook_url="http://dev").open()


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_replaced_certificate_file_is_used(cluster: VirtualCluster, tmp_path: Path) -> None:
    def write(pair: Pair) -> None:
        for name, data in (("ca.crt", pair.authority), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (tmp_path / name).write_bytes(data)

    told: list[ReachedAt] = []

    async def register(reached: ReachedAt) -> None:
        told.append(reached)

    first = make_pair(NAMES, NOW)
    write(first)
    opened = server(cluster, webhook_url="https://dev", webhook_certificates=str(tmp_path))
    assert (await opened.open()).authority == first.authority
    keeping = asyncio.ensure_future(opened.renew_certificates(register))
    await cluster.sleep(200)
    assert told == []
    renewed = make_pair(NAMES, NOW, first)
    write(renewed)
    await cluster.sleep(61)
    assert told == [], "the authority is the same"
    other = make_pair(NAMES, NOW)
    write(other)
    (tmp_path / "tls.key").write_bytes(b"half")
    await cluster.sleep(61)
    assert told == [], "what cannot be used is left alone"
    write(other)
    await cluster.sleep(61)
    assert [each.authority for each in told] == [other.authority]
    keeping.cancel()
    await opened.close(0.0)
