"""Names that real Pods look up: through the redirect of the cluster DNS address to the DNS server of the node."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
from dns_client import Found, look_up
from kubectl_runner import until
from real_cluster import NODE, RealCluster
from real_kubectl import Manifest, PodClient, pod
from real_registry import Registry

from setpoint.client.https import connect
from setpoint.client.kubeconfig import Kubeconfig
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.network.dns.cluster_dns import ClusterDns
from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.service_proxy import ProxySettings, ServiceProxy
from setpoint.reconcile import Manager
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import child_tasks

pytestmark = pytest.mark.real

CLUSTER_DNS = "10.96.0.10"
CLOCK = SystemClock()


class NodeNetwork(threading.Thread):
    """The Service proxy and the DNS server of the node, on an event loop of their own in the machine's network."""

    def __init__(self, cluster: RealCluster) -> None:
        super().__init__()
        self._kubeconfig = cluster.kubeconfig
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self.ready = threading.Event()

    def run(self) -> None:
        self._loop.run_until_complete(self._run())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self.join(30)

    async def _run(self) -> None:
        client = connect(Kubeconfig.load([self._kubeconfig]).access(), CLOCK)
        manager = Manager(client, CLOCK, RandomIds(1))
        table = NftTable("setpoint-dns", CLOCK)
        proxy = ServiceProxy(manager, NODE, table, ProxySettings(), CLOCK)
        proxy.host_ports_known.set()
        pool = BlockingPool(1)
        found = ClusterDns(manager, "cluster.local", CLOCK, os.urandom, pool, cluster_dns=[CLUSTER_DNS])
        async with child_tasks(manager.run(), table.run(), proxy.run(), found.run()):
            await found.started.wait()
            proxy.set_local_redirects(found.local_redirects())
            for _ in range(2000):
                if proxy.is_synced and not found.health():
                    self.ready.set()
                    break
                await asyncio.sleep(0.01)
            await self._stopped.wait()
        await table.delete()
        await client.close()
        pool.close()


@pytest.fixture(scope="module", autouse=True)
def network(cluster: RealCluster) -> Iterator[None]:
    running = NodeNetwork(cluster)
    running.start()
    try:
        assert running.ready.wait(30)
        yield
    finally:
        running.stop()


def service(name: str, **spec: object) -> Manifest:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


def from_node(name: str, kind: str, *, tcp: bool = False) -> Found:
    return asyncio.run(look_up(name, kind, CLUSTER_DNS, 53, tcp=tcp))


def test_pods_look_up_services_and_other_pods(pods: PodClient, registry: Registry) -> None:
    namespace = pods.kubectl.namespace
    pods.apply(service("web"), service("db", clusterIP="None"))
    pods.run(pod("web", registry.image("web")))
    member = pod("db", registry.image("web"), hostname="db-0", subdomain="db")
    address = pods.run(member)["status"]["podIP"]
    pods.run(pod("client", registry.image("busybox"), "sleep", "600"))
    assert f"nameserver {CLUSTER_DNS}" in pods.execute("client", "cat /etc/resolv.conf")
    # Names of every length, by the search domains; a new Service is known within moments.
    until(lambda: from_node(f"web.{namespace}.svc.cluster.local", "A").data)
    for name in ("web", f"web.{namespace}", f"web.{namespace}.svc", f"web.{namespace}.svc.cluster.local"):
        assert pods.execute("client", f"timeout 10 wget -q -O - http://{name}/").strip() == "web", name
    assert "10.96.0.1" in pods.execute("client", "nslookup kubernetes.default.svc.cluster.local")
    until(lambda: from_node(f"db-0.db.{namespace}.svc.cluster.local", "A").data == [address])
    assert pods.execute("client", "timeout 10 wget -q -O - http://db-0.db:8080/").strip() == "db-0"
    assert f"db-0.db.{namespace}.svc.cluster.local" in pods.execute("client", f"nslookup {address}")
    missing = pods.kubectl.run("exec", "client", "--", "nslookup", f"none.{namespace}.svc.cluster.local")
    assert missing.code != 0 and "NXDOMAIN" in missing.out + missing.err


def test_the_node_looks_up_names_over_udp_and_tcp(pods: PodClient) -> None:
    for tcp in (False, True):
        assert from_node("kubernetes.default.svc.cluster.local", "A", tcp=tcp).data == ["10.96.0.1"]
        found = from_node("_dns-tcp._tcp.kube-dns.kube-system.svc.cluster.local", "SRV", tcp=tcp)
        assert found.data == ["0 100 53 kube-dns.kube-system.svc.cluster.local."]
        assert from_node("1.0.96.10.in-addr.arpa", "PTR", tcp=tcp).data == ["kubernetes.default.svc.cluster.local."]
    service = pods.kubectl.get("service", "kube-dns", "-n", "kube-system")
    assert service["spec"]["clusterIP"] == CLUSTER_DNS
