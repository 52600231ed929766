"""The certificates of a node are renewed long before they expire, and at different times on different nodes."""

from __future__ import annotations

import ssl
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certificate_requests import ONLY, REQUESTS

from setpoint.client.client import Client
from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.node_certificates import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    KeyPair,
    RequestPending,
    RequestRefused,
    StoredCertificate,
    WantedCertificate,
    keep_renewed,
    read_pair,
)
from setpoint.cluster.node_joining import NodeFiles
from setpoint.cluster.node_serving import ServingCertificate
from setpoint.cluster.node_tokens import ensure_node_rights
from setpoint.node.host.directories import NodeDirectories
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual

CLIENT = WantedCertificate("n1", CLIENT_SIGNER)
SHORT = {**ONLY, "controller_options": replace(ONLY["controller_options"], cluster_signing_duration=7200.0)}
"""Controllers that sign certificates for two hours."""


def as_node(cluster: VirtualCluster) -> Client:
    groups = ("system:nodes", "system:authenticated")
    return cluster.embedded.components.clients.client("system:node:n1", groups, agent="kubelet")


@virtual(**SHORT)
async def test_a_client_certificate_is_renewed_before_it_expires(cluster: VirtualCluster, tmp_path: Path) -> None:
    await ensure_node_rights(cluster.client)
    clock, directory = cluster.clock, tmp_path
    stored = StoredCertificate(directory / "client.pem", clock, RandomIds(1))
    seen: list[KeyPair] = []

    async def renewed() -> None:
        assert stored.pair is not None
        seen.append(stored.pair)

    async with child_tasks(keep_renewed(stored, as_node(cluster), clock, lambda: CLIENT, renewed)):
        await cluster.sleep(10)
        assert len(seen) == 1  # there was none
        life = seen[0].ends - seen[0].begins
        await cluster.sleep((life * 0.69).total_seconds())
        assert len(seen) == 1
        await cluster.sleep((life * 0.22).total_seconds())
    assert len(seen) == 2 and seen[1].key != seen[0].key
    assert read_pair(stored.path) == seen[1]
    assert stat.S_IMODE(stored.path.stat().st_mode) == 0o600


@virtual(**SHORT)
async def test_a_renewal_that_is_refused_is_repeated_with_another_key(cluster: VirtualCluster, tmp_path: Path) -> None:
    clock, directory = cluster.clock, tmp_path
    stored = StoredCertificate(directory / "client.pem", clock, RandomIds(1))
    node = as_node(cluster)
    with pytest.raises(RequestPending, match="was not approved"):  # the rights are missing
        await stored.obtain(node, CLIENT, timeout=5.0)
    csr = (await cluster.client.list(REQUESTS)).items[0]
    condition = {"type": "Denied", "status": "True", "reason": "No", "message": "not this machine"}
    await cluster.client.update({**csr, "status": {"conditions": [condition]}}, subresource="approval")
    with pytest.raises(RequestRefused, match="was refused: not this machine"):
        await stored.obtain(node, CLIENT, timeout=5.0)
    await ensure_node_rights(cluster.client)
    assert (await stored.obtain(node, CLIENT, timeout=60.0)).subject == "system:node:n1"
    assert len((await cluster.client.list(REQUESTS)).items) == 2


@virtual(**SHORT)
async def test_the_kubelet_api_changes_its_certificate_while_it_runs(cluster: VirtualCluster, tmp_path: Path) -> None:
    """Until the cluster has signed one, the node's own is used; a new address needs a new certificate."""
    await ensure_node_rights(cluster.client)
    address = {"type": "InternalIP", "address": "10.0.0.7"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await cluster.client.create({**node, "status": {"addresses": [address, {"type": "Hostname", "address": "n1"}]}})
    directory, clock = tmp_path, cluster.clock
    files = NodeFiles(NodeDirectories(directory / "root", directory / "logs", directory / "run"))
    files.directories.pki.mkdir(parents=True)
    authority = ensure_certificates(directory / "authority", datetime.now(UTC))
    files.ca.write_bytes(authority.ca.read_bytes())
    serving = ServingCertificate(files, "n1", ("n1", "10.0.0.7"), clock, RandomIds(1))
    assert not serving.is_signed and isinstance(serving.context, ssl.SSLContext)
    async with child_tasks(keep_renewed(serving.stored, as_node(cluster), clock, serving.wanted, serving.renewed)):
        await cluster.sleep(60)
    assert serving.is_signed
    csr = (await cluster.client.list(REQUESTS)).items[0]
    assert (csr["spec"]["signerName"], csr["spec"]["usages"]) == (SERVING_SIGNER, ["digital signature", "server auth"])
    again = ServingCertificate(files, "n1", ("n1", "10.0.0.7"), clock, RandomIds(1))
    assert again.is_signed
    assert not ServingCertificate(files, "n1", ("n1", "10.0.0.8"), clock, RandomIds(1)).is_signed


def test_renewals_are_spread_over_a_fifth_of_the_life() -> None:
    begins = datetime(2030, 1, 1, tzinfo=UTC)
    pair = KeyPair(b"", b"", begins, begins + timedelta(hours=100), frozenset(), "")
    hours = sorted((pair.renewal(RandomIds(seed)) - begins) / timedelta(hours=1) for seed in range(300))
    assert 70 <= hours[0] < 71 and 89 < hours[-1] <= 90


def test_the_name_of_a_request_depends_on_its_content(tmp_path: Path) -> None:
    stored = StoredCertificate(tmp_path / "x.pem", SystemClock(), RandomIds(1))
    key = stored._pending_key()
    same = stored._pending_key()  # an interrupted attempt left it

    def name(wanted: WantedCertificate) -> str:
        text: str = wanted.request(key)["metadata"]["name"]
        return text

    assert name(CLIENT) == CLIENT.request(same)["metadata"]["name"]
    others = [WantedCertificate("n2", CLIENT_SIGNER), WantedCertificate("n1", SERVING_SIGNER, ("n1",))]
    assert len({name(CLIENT), *map(name, others)}) == 3
