"""A machine joins a cluster with a token and the pin of its authority, and nothing else."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.allinone import cluster
from setpoint.cluster.apiserver import RunningApiServer
from setpoint.cluster.certificates import ensure_certificates, server_context
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError
from setpoint.cluster.node_certificates import StoredCertificate, WantedCertificate, read_pair, write_pair
from setpoint.cluster.node_joining import JoinRequest, NodeFiles, discover, issue_identity, join, node_access, node_name
from setpoint.cluster.node_tokens import create_node_token, public_key_pin
from setpoint.meta.errors import Forbidden
from setpoint.node.host.directories import NodeDirectories
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

CLOCK, IDS = SystemClock(), RandomIds()
SECRETS, REQUESTS = builtin("secrets"), builtin("certificatesigningrequests", "certificates.k8s.io")


def pin_of(ca: Path) -> str:
    return public_key_pin(ssl.PEM_cert_to_DER_cert(ca.read_text()))


@asynccontextmanager
async def control_plane(directory: Path) -> AsyncIterator[tuple[RunningApiServer, Client]]:
    access = AccessConfig(enable_bootstrap_token_auth=True)
    async with cluster(ApiServerConfig(directory, port=0, store="memory", access=access), nodes=0) as running:
        api = running.apiserver
        assert api.certificates is not None
        client = connect(Access(api.url, ca=api.certificates.ca.read_bytes(), token=api.loopback_token), CLOCK)
        yield api, client
        await client.close()


async def request(api: RunningApiServer, client: Client, name: str = "worker", ttl: float = 60.0) -> JoinRequest:
    assert api.certificates is not None
    token = await create_node_token(client, api.url, api.certificates.ca.read_bytes(), ttl, CLOCK, os.urandom)
    return JoinRequest(api.url, str(token), pin_of(api.certificates.ca), name)


def files_in(directory: Path) -> NodeFiles:
    return NodeFiles(NodeDirectories(directory / "root", directory / "logs", directory / "run"))


async def test_a_machine_joins_with_its_own_key(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        assert await join(files, wanted, CLOCK, IDS)
        stored = StoredCertificate(files.client, CLOCK, IDS)
        assert node_name(stored) == "worker"
        node = connect(node_access(files, stored, CLOCK), CLOCK)
        try:
            created = await node.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
            assert created["metadata"]["name"] == "worker"
            with pytest.raises(Forbidden):
                await node.list(SECRETS, "kube-system")
            before = stored.pair
            renewed = await stored.obtain(
                node, WantedCertificate("worker", "kubernetes.io/kube-apiserver-client-kubelet")
            )
            assert before is not None and renewed.key != before.key and read_pair(files.client) == renewed
        finally:
            await node.close()
        requests = (await client.list(REQUESTS)).items
        assert {one["status"]["conditions"][0]["message"] for one in requests} == {
            "Auto approving kubelet client certificate after SubjectAccessReview.",
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        }
        for path in [files.directories.root, *files.directories.root.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        assert not list(files.directories.pki.glob("*pending*"))


async def test_a_repeated_join_changes_nothing(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        await join(files, wanted, CLOCK, IDS)
        before = files.client.read_bytes()
        files.kubeconfig.unlink()  # interrupted before the last step
        assert not await join(files, wanted, CLOCK, IDS)
        assert files.client.read_bytes() == before and files.kubeconfig.exists()
        with pytest.raises(ConfigError, match="this machine has joined as worker, not as other"):
            await join(files, replace(wanted, name="other"), CLOCK, IDS)
        with pytest.raises(ConfigError, match=r"a node of another cluster .*`sudo setpoint node leave`"):
            await join(files, replace(wanted, pin="sha256:" + "0" * 64), CLOCK, IDS)


async def test_an_interrupted_request_is_continued_with_the_same_key(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        await client.delete(
            builtin("clusterrolebindings", "rbac.authorization.k8s.io"), "setpoint:node-autoapprove-bootstrap"
        )
        with pytest.raises(ConfigError, match=r"the certificate request .* was not approved within 0.2 s"):
            await join(files, wanted, CLOCK, IDS, timeout=0.2)
        (pending,) = files.directories.pki.glob("*.pending.key")
        key = pending.read_bytes()
        (csr,) = (await client.list(REQUESTS)).items
        csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand", "message": "yes"}]}
        await client.update(csr, subresource="approval")
        assert await join(files, wanted, CLOCK, IDS, timeout=20.0)
        assert files.client.read_bytes().endswith(key)
        assert len((await client.list(REQUESTS)).items) == 1


async def test_an_expired_certificate_is_replaced_with_a_token_only(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        await join(files, wanted, CLOCK, IDS)
        assert api.certificates is not None
        long_ago = datetime.now(UTC) - timedelta(days=400)

        class Past:
            now = staticmethod(lambda: long_ago)

        files.client.unlink()
        issue_identity(files, api.certificates, api.url, "worker", ["10.0.0.9"], Past())  # type: ignore[arg-type]
        stored = StoredCertificate(files.client, CLOCK, IDS)
        with pytest.raises(ConfigError, match=r"of the node worker expired at .*: create a token with `setpoint token"):
            node_access(files, stored, CLOCK)
        assert await join(files, wanted, CLOCK, IDS)
        stored.reload()
        assert node_access(files, stored, CLOCK).server == api.url


async def test_a_damaged_certificate_is_not_used(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        await join(files, wanted, CLOCK, IDS)
        files.client.write_bytes(files.client.read_bytes()[:-200])
        with pytest.raises(ConfigError, match="holds no usable client certificate"):
            node_access(files, StoredCertificate(files.client, CLOCK, IDS), CLOCK)
        assert await join(files, wanted, CLOCK, IDS)


async def test_the_name_of_a_node_that_works_is_not_taken_over(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "worker"},
            "status": {"conditions": [condition]},
        }
        await client.create(node)
        with pytest.raises(ConfigError, match="a node worker that is ready: choose another name with --node-name"):
            await join(files, wanted, CLOCK, IDS)


async def test_tokens_that_do_not_permit_it_say_what_to_do(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        wanted, files = await request(api, client), files_in(tmp_path)
        await client.delete(SECRETS, f"bootstrap-token-{wanted.token[:6]}", "kube-system")
        with pytest.raises(ConfigError, match="the token has expired or was deleted: create a token"):
            await join(files, wanted, CLOCK, IDS)
        with pytest.raises(ConfigError, match="token of a control plane machine; `setpoint token create --node`"):
            await join(files, replace(wanted, token="a.b.c.d"), CLOCK, IDS)
        with pytest.raises(ConfigError, match="--token is not a bootstrap token"):
            await join(files, replace(wanted, token="nonsense"), CLOCK, IDS)
        with pytest.raises(ConfigError, match="--ca must be sha256:"):
            await join(files, replace(wanted, pin="abc"), CLOCK, IDS)
        with pytest.raises(ConfigError, match="must be the URL of an API server"):
            await join(files, replace(wanted, url="10.0.0.1"), CLOCK, IDS)


async def test_expired_tokens_are_deleted_when_another_is_created(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "data") as (api, client):
        first = await request(api, client, ttl=-1.0)
        await request(api, client)
        names = [one["metadata"]["name"] for one in (await client.list(SECRETS, "kube-system")).items]
        assert f"bootstrap-token-{first.token[:6]}" not in names and len(names) == 1


async def test_nothing_is_sent_to_a_server_of_another_cluster(tmp_path: Path) -> None:
    received: list[Request] = []

    async def handle(request: Request) -> Response:
        received.append(request)
        return Response(404, b"{}")

    ours = ensure_certificates(tmp_path / "ours", datetime.now(UTC))
    theirs = ensure_certificates(tmp_path / "theirs", datetime.now(UTC))
    copied = tmp_path / "copied.crt"  # the authority's certificate is public: another server may send it too
    own = theirs.certificate.read_bytes().split(b"-----END", 1)[0] + b"-----END CERTIFICATE-----\n"
    copied.write_bytes(own + ours.ca.read_bytes())
    wanted = JoinRequest("", "abcdef.0123456789abcdef", pin_of(ours.ca), "worker")
    for served, why in (
        (theirs, "does not belong to the cluster of --ca"),
        (theirs._replace(certificate=copied), "certificate signed by unknown authority"),
    ):
        server = Server(handle, clock=CLOCK, ssl=server_context(served))
        _, port = await server.start("127.0.0.1", 0)
        with pytest.raises(ConfigError, match=why):
            await join(files_in(tmp_path), replace(wanted, url=f"https://127.0.0.1:{port}"), CLOCK, IDS)
        await server.stop(0)
    assert {one.path for one in received} == {"/api/v1/namespaces/kube-public/configmaps/cluster-info"}
    assert not any("authorization" in one.headers for one in received)


async def test_the_authority_is_found_in_cluster_info(tmp_path: Path) -> None:
    """A server with --tls-cert-file does not present the cluster's authority."""
    async with control_plane(tmp_path / "data") as (api, client):
        wanted = await request(api, client)
        assert api.certificates is not None
        leaf = ensure_certificates(tmp_path / "other", datetime.now(UTC))
        published = await client.get(builtin("configmaps"), "cluster-info", "kube-public")

        async def handle(request: Request) -> Response:
            import orjson

            return Response(200, orjson.dumps(published), [("Content-Type", "application/json")])

        server = Server(handle, clock=CLOCK, ssl=server_context(leaf))
        _, port = await server.start("127.0.0.1", 0)
        found = await discover(f"https://127.0.0.1:{port}", wanted.pin, CLOCK)
        assert found.split() == api.certificates.ca.read_bytes().split()
        await server.stop(0)
        anonymous = connect(Access(api.url, ca=found), CLOCK)
        assert (await anonymous.get(builtin("configmaps"), "cluster-info", "kube-public"))["data"] == published["data"]
        await anonymous.close()


def test_an_identity_is_issued_on_the_machine_of_the_control_plane(tmp_path: Path) -> None:
    authority, files = ensure_certificates(tmp_path / "pki", datetime.now(UTC)), files_in(tmp_path)
    issue_identity(files, authority, "https://10.0.0.1:6443", "worker", ["10.0.0.1"], CLOCK)
    client, serving = read_pair(files.client), read_pair(files.serving)
    assert client is not None and client.subject == "system:node:worker" and not client.names
    assert serving is not None and serving.names == {"worker", "10.0.0.1"}
    issue_identity(files, authority, "https://10.0.0.1:6443", "worker", ["10.0.0.1"], CLOCK)
    assert read_pair(files.client) == client and read_pair(files.serving) == serving
    issue_identity(files, authority, "https://10.0.0.2:6443", "worker", ["10.0.0.2"], CLOCK)
    changed = read_pair(files.serving)
    assert read_pair(files.client) == client
    assert changed is not None and changed.names == {"worker", "10.0.0.2"}
    other = ensure_certificates(tmp_path / "other", datetime.now(UTC))
    with pytest.raises(ConfigError, match="a node of another cluster"):
        issue_identity(files, other, "https://10.0.0.1:6443", "worker", [], CLOCK)


def test_a_key_of_another_certificate_is_damage(tmp_path: Path) -> None:
    one, two = (ensure_certificates(tmp_path / name, datetime.now(UTC)) for name in ("one", "two"))
    write_pair(tmp_path / "pair.pem", one.certificate.read_bytes(), two.key.read_bytes())
    assert read_pair(tmp_path / "pair.pem") is None
    assert read_pair(tmp_path / "none.pem") is None
