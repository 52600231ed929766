"""A new machine fetches the keys of a cluster, from no other server than one of that cluster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.certificates import ensure_certificates, server_context
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError
from setpoint.cluster.join_bundle import REQUIRED_FILES, Bundle, JoinToken, bundle_name, bundle_objects, token_secret
from setpoint.cluster.join_client import fetch_bundle
from setpoint.meta.errors import Forbidden
from setpoint.system import SystemClock
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

BUNDLE = Bundle(dict.fromkeys(REQUIRED_FILES, b"x"), name="shop")
CLOCK = SystemClock()


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[tuple[RunningApiServer, Client]]:
    access = AccessConfig(enable_bootstrap_token_auth=True)
    async with apiserver(ApiServerConfig(directory, port=0, store="memory", access=access), alone=True) as running:
        assert running.certificates is not None
        ca = running.certificates.ca.read_bytes()
        client = connect(Access(running.url, ca=ca, token=running.loopback_token), CLOCK)
        yield running, client
        await client.close()


async def created(running: RunningApiServer, client: Client, *, hours: float = 1.0) -> JoinToken:
    assert running.certificates is not None
    token = JoinToken.create(running.certificates.ca.read_bytes(), os.urandom)
    owner = await client.create(token_secret(token, datetime.now(UTC) + timedelta(hours=hours)))
    for obj in bundle_objects(token, BUNDLE.seal(token, os.urandom), owner):
        await client.create(obj)
    return token


async def test_the_bundle_is_fetched_with_a_token(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (running, client):
        token = await created(running, client)
        assert await fetch_bundle(running.url, str(token), CLOCK) == BUNDLE
        other = await created(running, client)
        assert running.certificates is not None
        joining = connect(Access(running.url, ca=running.certificates.ca.read_bytes(), token=token.bearer), CLOCK)
        for name in (bundle_name(other), f"bootstrap-token-{token.id}"):
            with pytest.raises(Forbidden):
                await joining.get(builtin("secrets"), name, "kube-system")
        await joining.close()


async def test_a_token_that_has_expired_or_was_deleted_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (running, client):
        expired, deleted = await created(running, client, hours=-1), await created(running, client)
        await client.delete(builtin("secrets"), f"bootstrap-token-{deleted.id}", "kube-system")
        for token in (expired, deleted):
            with pytest.raises(ConfigError, match="it has expired or was deleted; `setpoint token create`"):
                await fetch_bundle(running.url, str(token), CLOCK)


async def test_nothing_is_sent_to_a_server_of_another_cluster(tmp_path: Path) -> None:
    requests = []

    async def handle(request: Request) -> Response:
        requests.append(request)
        return Response(200, b"{}")

    ours = ensure_certificates(tmp_path / "ours", datetime.now(UTC))
    theirs = ensure_certificates(tmp_path / "theirs", datetime.now(UTC))
    token = JoinToken.create(ours.ca.read_bytes(), os.urandom)
    copied = tmp_path / "copied.crt"  # the authority's certificate is public: another server may send it too
    copied.write_bytes(theirs.certificate.read_bytes().split(b"-----END", 1)[0] + b"-----END CERTIFICATE-----\n")
    copied.write_bytes(copied.read_bytes() + ours.ca.read_bytes())
    for files, why in (
        (theirs, "does not belong to the cluster of the token"),
        (theirs._replace(certificate=copied), "certificate signed by unknown authority"),
    ):
        server = Server(handle, clock=CLOCK, ssl=server_context(files))
        _, port = await server.start("127.0.0.1", 0)
        with pytest.raises(ConfigError, match=why):
            await fetch_bundle(f"https://127.0.0.1:{port}", str(token), CLOCK)
        await server.stop(0)
    assert requests == []


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    token = JoinToken.create(ensure_certificates(tmp_path, datetime.now(UTC)).ca.read_bytes(), os.urandom)
    with pytest.raises(ConfigError, match=r"the server at https://127.0.0.1:1 cannot be reached"):
        await fetch_bundle("https://127.0.0.1:1", str(token), CLOCK)
