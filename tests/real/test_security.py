"""Security contexts, namespaces of the host and the files that the node writes, on a real node."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kubectl_runner import until
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

pytestmark = pytest.mark.real


def sleeping(name: str, registry: Registry, security: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"securityContext": security} if security else None
    return pod(name, registry.image("busybox"), "sleep", "1000", container=container, **spec)


def process_status(pods: PodClient, name: str) -> dict[str, str]:
    text = pods.execute(name, "cat /proc/1/status")
    return {key: value.strip() for key, value in re.findall(r"(\w+):\s+(.*)", text)}


def test_users_and_groups(pods: PodClient, registry: Registry) -> None:
    pods.run(
        sleeping(
            "user", registry, {"runAsUser": 1000, "runAsGroup": 3000}, securityContext={"supplementalGroups": [4000]}
        )
    )
    assert pods.execute("user", "id -u; id -g").split() == ["1000", "3000"]
    # The image puts user 1000 into the group 50000 too.
    assert set(pods.execute("user", "id -G").split()) == {"3000", "4000", "50000"}


def test_images_that_run_as_root_are_refused(pods: PodClient, registry: Registry) -> None:
    required = {"securityContext": {"runAsNonRoot": True}}
    for image in ("busybox", "nameduser"):
        pods.apply(pod(image, registry.image(image), "sleep", "1000", container=required))
    assert pods.wait_waiting("busybox", "CreateContainerConfigError").startswith(
        "container has runAsNonRoot and image will run as root"
    )
    assert pods.wait_waiting("nameduser", "CreateContainerConfigError").startswith(
        "container has runAsNonRoot and image has non-numeric user (tester), cannot verify user is non-root"
    )
    pods.run(pod("nonroot", registry.image("nonroot"), container=required))
    assert "uid=1234" in pods.kubectl("logs", "nonroot")


def test_capabilities_and_privileges(pods: PodClient, registry: Registry) -> None:
    capabilities = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    restricted = {
        "capabilities": capabilities,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pods.run(sleeping("restricted", registry, restricted))
    status = process_status(pods, "restricted")
    assert int(status["CapBnd"], 16) == 1 << 10
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert pods.kubectl.run("exec", "restricted", "--", "touch", "/file").code != 0

    pods.run(sleeping("free", registry))
    status = process_status(pods, "free")
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("0", "0")

    pods.run(sleeping("privileged", registry, {"privileged": True}))
    assert int(process_status(pods, "privileged")["CapBnd"], 16) > 1 << 30


def test_host_namespaces(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    found = pods.run(sleeping("host", registry, hostNetwork=True, hostPID=True))
    assert found["status"]["podIP"] == found["status"]["hostIP"] == machine.address
    assert machine.address in pods.execute("host", "ip address show eth0")
    assert "containerd" in pods.execute("host", "ps")


def test_shared_process_namespace(pods: PodClient, registry: Registry) -> None:
    image = registry.image("busybox")
    two = [
        {"name": "main", "image": image, "command": ["sleep", "1001"]},
        {"name": "other", "image": image, "command": ["sleep", "1002"]},
    ]
    pods.run(sleeping("shared", registry, containers=two, shareProcessNamespace=True))
    assert "sleep 1002" in pods.execute("shared", "ps")
    pods.run(sleeping("separate", registry, containers=two))
    assert "sleep 1002" not in pods.execute("separate", "ps")


def test_user_namespaces_are_refused_where_the_runtime_lacks_them(pods: PodClient, registry: Registry) -> None:
    if "containerd://1." not in str(pods.kubectl.get("node", "real-1")["status"]["nodeInfo"]):
        pytest.skip("this containerd may support user namespaces")
    pods.apply(sleeping("mapped", registry, hostUsers=False))
    until(lambda: any("user namespaces" in message for _, message in pods.events("mapped")), 60.0)
    assert pods.get("mapped")["status"]["phase"] != "Running"


def test_hosts_and_resolver(pods: PodClient, registry: Registry) -> None:
    aliases = [{"ip": "10.1.2.3", "hostnames": ["alias.example"]}]
    dns = {"nameservers": ["10.9.9.9"], "searches": ["own.example"], "options": [{"name": "ndots", "value": "2"}]}
    found = pods.run(
        sleeping("names", registry, hostAliases=aliases, dnsPolicy="None", dnsConfig=dns, hostname="chosen")
    )
    hosts = pods.execute("names", "cat /etc/hosts")
    assert "# Kubernetes-managed hosts file." in hosts
    assert f"{found['status']['podIP']}\tchosen" in hosts
    assert "10.1.2.3\talias.example" in hosts
    assert pods.execute("names", "cat /etc/resolv.conf").split("\n")[:3] == [
        "search own.example",
        "nameserver 10.9.9.9",
        "options ndots:2",
    ]
    assert pods.execute("names", "hostname") == "chosen\n"
    pods.run(sleeping("cluster", registry))
    resolver = pods.execute("cluster", "cat /etc/resolv.conf")
    assert f"search {pods.kubectl.namespace}.svc.cluster.local svc.cluster.local cluster.local" in resolver
    assert "nameserver 10.96.0.10" in resolver


def test_environment(pods: PodClient, registry: Registry) -> None:
    pods.kubectl("create", "configmap", "settings", "--from-literal=KEY=value")
    environment = [
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
        {"name": "GREETING", "value": "to $(KEY)"},
    ]
    container = {
        "env": environment,
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "resources": {"limits": {"memory": "64Mi"}},
    }
    found = pods.run(pod("env", registry.image("busybox"), "sleep", "1000", container=container))
    out = pods.execute("env", 'echo "$ADDRESS $LIMIT $GREETING $KUBERNETES_SERVICE_HOST"')
    assert out.split() == [found["status"]["podIP"], str(64 << 20), "to", "value", "10.96.0.1"]


def test_cgroups(pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    resources = {
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    }
    found = pods.run(pod("limited", registry.image("busybox"), "sleep", "1000", container=resources))
    uid = found["metadata"]["uid"]
    groups = [path for path in machine.cgroups() if uid in str(path) or uid.replace("-", "_") in str(path)]
    limits = {
        path.read_text().strip()
        for group in groups
        for name in ("memory.limit_in_bytes", "memory.max")
        if (path := group / name).exists()
    }
    assert str(64 << 20) in limits
    assert "burstable" in str(groups[0])
    pods.delete("limited", "--timeout=60s")
    until(lambda: not any(uid in str(path) for path in machine.cgroups()), 30.0)
