"""The kubelet server of a real node."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from setpoint.client import Client
from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    issue_client_certificate,
    server_context,
)
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.kubelet_server import NodeServing, ServedNodes, ServingAddresses, serving_node
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock


class Host:
    """A node without Pods."""

    def names(self) -> list[str]:
        return ["real-1"]

    def is_reachable(self, node: str) -> bool:
        return True

    def pods_on(self, node: str) -> list[Obj]:
        return []


class Auth(DelegatedAuth):
    """Allows one user to read Pods, on one node."""

    async def is_allowed(self, user: UserInfo, attributes: Obj) -> bool:
        about = attributes["resourceAttributes"]
        return user.name == "reader" and (about["subresource"], about["name"]) == ("pods", "real-1")


health = ""


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[CertificateFiles, ssl.SSLContext, ServingAddresses]]:
    clock = SystemClock()
    files = ensure_certificates(directory / "pki", clock.now(), extra_names=("127.0.0.1",))
    context = server_context(files, files.ca)
    access = Auth(cast(Client, None), clock)
    options = NodeServing("127.0.0.1", 0, health_port=0)
    async with serving_node(cast(ServedNodes, Host()), context, access, clock, options, lambda: health) as addresses:
        yield files, context, addresses


async def get(port: int, path: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def client_context(files: CertificateFiles, directory: Path, user: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    if user:
        certificate, key = issue_client_certificate(files, user, ["developers"], SystemClock().now())
        (directory / f"{user}.pem").write_bytes(certificate + key)
        context.load_cert_chain(directory / f"{user}.pem")
    return context


async def test_requests_are_authenticated_and_authorized_for_the_node(tmp_path: Path) -> None:
    async with serving(tmp_path) as (files, _, addresses):
        port = addresses.api[1]
        assert await get(port, "/pods", client_context(files, tmp_path, "")) == (401, b"Unauthorized")
        reader = client_context(files, tmp_path, "reader")
        status, body = await get(port, "/pods", reader)
        assert status == 200 and b'"items":[]' in body
        status, body = await get(port, "/exec/default/p/c?command=id&output=1", reader)
        assert (status, body) == (
            403,
            b"Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[proxy])",
        )


async def test_health_without_tls(tmp_path: Path) -> None:
    global health
    async with serving(tmp_path) as (_, _, addresses):
        assert addresses.health[0] == "127.0.0.1"
        port = addresses.health[1]
        assert await get(port, "/healthz") == (200, b"ok")
        assert (await get(port, "/pods"))[0] == 404
        health = "PLEG is not healthy"
        try:
            assert await get(port, "/healthz") == (500, b"PLEG is not healthy")
        finally:
            health = ""


async def test_a_new_certificate_is_used_for_new_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, context, addresses):
        other = ensure_certificates(tmp_path / "other", SystemClock().now(), extra_names=("127.0.0.1",))
        verified = ssl.create_default_context(cafile=str(other.ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(addresses.api[1], "/pods", verified)
        context.load_cert_chain(other.certificate, other.key)
        assert (await get(addresses.api[1], "/pods", verified))[0] == 401


async def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, context, addresses):
        options = NodeServing("127.0.0.1", 0, health_port=addresses.health[1])
        access = Auth(cast(Client, None), SystemClock())
        with pytest.raises(ConfigError, match="cannot listen on "):
            async with serving_node(cast(ServedNodes, Host()), context, access, SystemClock(), options):
                raise AssertionError("it does not get here")
