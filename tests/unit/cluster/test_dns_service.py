"""The Service `kube-dns` of clusters with real nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.dns_service import dns_address, dns_addresses, dns_service, ensure_dns_service
from setpoint.cluster.node_tokens import ensure_node_rights
from setpoint.meta.errors import NotFound
from setpoint.node.host.blocking import BlockingPool
from setpoint.system import SystemClock

SERVICES = builtin("services")


@asynccontextmanager
async def control_plane(directory: Path, service_range: str = "") -> AsyncIterator[Client]:
    config = ApiServerConfig(directory, port=0, store="memory")
    if service_range:
        config = ApiServerConfig(directory, port=0, store="memory", service_cluster_ip_range=service_range)
    async with cluster(config, nodes=0) as running:
        api = running.apiserver
        assert api.certificates is not None
        client = connect(Access(api.url, ca=api.certificates.ca.read_bytes(), token=api.loopback_token), SystemClock())
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("service_range", "address"),
    [
        ("10.96.0.0/16", "10.96.0.10"),
        ("10.0.0.0/24", "10.0.0.10"),
        ("192.168.1.16/28", "192.168.1.26"),
        ("192.168.1.0/29", None),
        ("fd00:10:96::/112", "fd00:10:96::a"),
    ],
)
def test_the_address_is_the_tenth_of_the_range(service_range: str, address: str | None) -> None:
    assert dns_address(service_range) == address


async def test_the_service_is_created_with_the_rights_of_nodes(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as client:
        with pytest.raises(NotFound):
            await client.get(SERVICES, "kube-dns", "kube-system")
        for _ in range(2):
            await ensure_node_rights(client)
        found = await client.get(SERVICES, "kube-dns", "kube-system")
        assert found["spec"]["clusterIP"] == "10.96.0.10"
        assert found["metadata"]["labels"]["k8s-app"] == "kube-dns"
        assert [(port["name"], port["port"], port["protocol"]) for port in found["spec"]["ports"]] == [
            ("dns", 53, "UDP"),
            ("dns-tcp", 53, "TCP"),
        ]


async def test_another_range(tmp_path: Path) -> None:
    async with control_plane(tmp_path, "172.20.0.0/20") as client:
        await ensure_dns_service(client)
        found = await client.get(SERVICES, "kube-dns", "kube-system")
        assert found["spec"]["clusterIP"] == "172.20.0.10"
        # Nodes find it, and remember it for starts without an API server.
        file, pool, clock = tmp_path / "cluster-dns.json", BlockingPool(1), SystemClock()
        try:
            assert await dns_addresses(client, file, pool, clock) == ("172.20.0.10",)
            away = connect(Access("https://127.0.0.1:1"), clock)
            assert await dns_addresses(away, file, pool, clock) == ("172.20.0.10",)
            for content in (b"", b'["None", 5]\n'):
                file.write_bytes(content)
                assert await dns_addresses(away, file, pool, clock) == ("10.96.0.10",)
            await client.delete(SERVICES, "kube-dns", "kube-system")
            assert await dns_addresses(client, file, pool, clock) == ("10.96.0.10",)
        finally:
            pool.close()


async def test_a_dns_server_of_the_administrator_is_kept(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as client:
        own = dns_service("10.96.0.10")
        own["metadata"] = {"name": "my-dns", "namespace": "default"}
        await client.create(own)
        await ensure_dns_service(client)
        with pytest.raises(NotFound):
            await client.get(SERVICES, "kube-dns", "kube-system")
