"""The network of a real node through its agent: Services, DNS, host ports and policies, with real Pods."""

from __future__ import annotations

import socket
import subprocess

import pytest
from kubectl_runner import until
from real_cluster import RealCluster
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

pytestmark = pytest.mark.real

ADDRESS = "http://{}:8080/hostname"


def _service(name: str, **spec: object) -> dict[str, object]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports, **spec}}


def _fetch(pods: PodClient, url: str) -> str:
    return pods.execute("client", f"timeout 5 wget -q -O - {url} 2>&1 || echo failed")


def test_services_names_and_host_ports(
    pods: PodClient, registry: Registry, machine: RealMachine, cluster: RealCluster
) -> None:
    web = {"labels": {"app": "web"}}
    ports = {"ports": [{"containerPort": 8080, "hostPort": 8088}]}
    first = pod("one", registry.image("web"), container=ports)
    second = pod("two", registry.image("web"))
    for made in (first, second):
        made["metadata"].update(web)
    pods.run(first)
    pods.run(second)
    pods.run(pod("client", registry.image("busybox"), "sleep", "1000"))
    pods.apply(_service("web", selector={"app": "web"}, type="NodePort"))
    address = pods.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    until(lambda: _fetch(pods, f"http://{address}/hostname").strip() in ("one", "two"), 20)
    namespace = pods.kubectl.namespace
    for name in ("web", f"web.{namespace}", f"web.{namespace}.svc.cluster.local"):
        answers = {_fetch(pods, f"http://{name}/hostname").strip() for _ in range(12)}
        assert answers == {"one", "two"}, name
    looked_up = pods.execute("client", f"nslookup web.{namespace}.svc.cluster.local 2>&1")
    assert address in looked_up
    assert pods.execute("client", "nslookup kubernetes.default.svc.cluster.local 2>&1").count("10.96.0.1") >= 1

    port = pods.kubectl("get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
    for target in (int(port), 8088):
        found = subprocess.run(
            machine.command(["curl", "-sS", "-m", "5", f"http://{machine.address}:{target}/hostname"]),
            capture_output=True,
            text=True,
        )
        assert found.stdout.strip() in ("one", "two"), found.stderr
    pods.delete("one")
    pods.delete("two")
    until(lambda: "failed" in _fetch(pods, f"http://{address}/hostname"), 20)
    with pytest.raises(OSError):
        socket.create_connection((machine.address, 8088), 3).close()


def test_policies_isolate_pods(pods: PodClient, registry: Registry) -> None:
    server = pod("server", registry.image("web"))
    server["metadata"]["labels"] = {"app": "server"}
    pods.run(server)
    for name in ("client", "friend"):
        made = pod(name, registry.image("busybox"), "sleep", "1000")
        made["metadata"]["labels"] = {"role": name}
        pods.run(made)
    ip = pods.get("server")["status"]["podIP"]
    url = ADDRESS.format(ip)
    until(lambda: _fetch(pods, url).strip() == "server", 20)
    allowed = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "friends"},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "ingress": [allowed]},
    }
    pods.apply(policy)
    until(lambda: "failed" in _fetch(pods, url), 20)
    assert pods.execute("friend", f"timeout 5 wget -q -O - {url}").strip() == "server"
    pods.kubectl("delete", "networkpolicy", "friends")
    until(lambda: _fetch(pods, url).strip() == "server", 20)
