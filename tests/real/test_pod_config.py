"""The configuration that is made from a Pod, in a container that runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cri_pods import CriPod, cri_client
from host_pods import UID, make_config, make_pod, make_settings
from real_containerd import Containerd
from real_registry import Registry

from setpoint.node.cri.client import CriClient
from setpoint.node.host.container_config import container_config, hosts_path, termination_log_path
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.pod_config import sandbox_config
from setpoint.node.host.pod_dns import ResolvConf, pod_dns
from setpoint.node.host.pod_hostname import hosts_file
from setpoint.node.host.runtime_labels import is_owned
from setpoint.node.host.security import ImageUser

pytestmark = pytest.mark.real


@pytest.fixture
async def client(containerd: Containerd) -> AsyncIterator[CriClient]:
    async with cri_client(containerd) as connected:
        yield connected


async def started(
    client: CriClient, containerd: Containerd, image: str, directory: Path, pod: Any, **changes: Any
) -> tuple[CriPod, str]:
    """Run the first container of a Pod as the agent does."""
    directories = NodeDirectories(directory / "root", directory / "logs", directory / "run")
    settings = make_settings(directories=directories, min_oom_score_adj=0, **changes)
    dns = pod_dns(pod, ResolvConf(("8.8.8.8",), ("example.com",)), settings)
    sandbox = sandbox_config(pod, 0, settings, f"{containerd.cgroup_root}/pod{UID}", dns.config)
    answer = await client.call("RunPodSandbox", {"config": sandbox}, timeout=60.0)
    running = CriPod(client, answer.pod_sandbox_id, sandbox)
    addresses = [] if pod["spec"].get("hostNetwork") else [await running.address()]
    message = termination_log_path(directories, UID, "c", 0)
    message.parent.mkdir(parents=True)
    message.touch()
    message.chmod(0o666)
    hosts_path(directories, UID).write_text(hosts_file(pod, addresses, settings.cluster_domain, "127.0.0.1 node\n"))
    pulled = await client.call("PullImage", {"image": {"image": image}}, timeout=60.0)
    config = container_config(
        make_config(pod),
        [],
        {"GREETING": "hello"},
        settings,
        image_user=ImageUser(),
        pod_ips=addresses,
        image_ref=pulled.image_ref,
    )
    request = {"pod_sandbox_id": running.sandbox_id, "config": config, "sandbox_config": sandbox}
    created = await client.call("CreateContainer", request, timeout=60.0)
    await client.call("StartContainer", {"container_id": created.container_id}, timeout=60.0)
    return running, created.container_id


async def test_a_restricted_container(
    client: CriClient, containerd: Containerd, registry: Registry, tmp_path: Path
) -> None:
    image = registry.image("busybox")
    pod = make_pod(
        {
            "image": image,
            "command": ["sh", "-c", "echo $(GREETING) > /dev/termination-log; exec sleep 1000"],
            "workingDir": "/tmp",
            "terminationMessagePath": "/dev/termination-log",
            "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}},
            "securityContext": {
                "runAsUser": 2000,
                "runAsGroup": 3000,
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
        metadata={"labels": {"app": "web"}},
        subdomain="sub",
        securityContext={
            "fsGroup": 4000,
            "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "2000 3000"}],
        },
    )
    running, container = await started(client, containerd, image, tmp_path, pod)
    try:
        address = await running.address()
        hosts = (await running.execute(container, "cat", "/etc/hosts")).splitlines()
        assert hosts[-1] == f"{address}\tweb.sub.shop.svc.cluster.local\tweb"
        assert await running.execute(container, "cat", "/etc/resolv.conf") == (
            "search shop.svc.cluster.local svc.cluster.local cluster.local example.com\n"
            "nameserver 10.96.0.10\noptions ndots:5\n"
        )
        assert await running.execute(container, "sh", "-c", "hostname; pwd; id -u; id -g; id -G") == (
            "web\n/tmp\n2000\n3000\n3000 4000\n"
        )
        assert (await running.execute(container, "cat", "/proc/sys/net/ipv4/ip_local_port_range")).split() == [
            "2000",
            "3000",
        ]
        status = dict(
            line.split(":", 1) for line in (await running.execute(container, "cat", "/proc/1/status")).splitlines()
        )
        assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
        assert int(status["CapBnd"], 16) == 0
        assert int(await running.execute(container, "cat", "/proc/1/oom_score_adj")) == 999
        assert (tmp_path / f"root/pods/{UID}/containers/c/0.termination-log").read_text() == "hello\n"
        found = (await client.call("ContainerStatus", {"container_id": container, "verbose": True})).status
        assert is_owned(found.labels, "node-1")
        assert found.log_path == str(tmp_path / f"logs/shop_web_{UID}/c/0.log")
        assert found.annotations["io.kubernetes.container.restartCount"] == "0"
        listed = await client.call("ListPodSandbox", {"filter": {"label_selector": {"setpoint.dev/node": "node-1"}}})
        assert [each.id for each in listed.items] == [running.sandbox_id]
    finally:
        await running.remove()


async def test_a_privileged_container_of_the_host(
    client: CriClient, containerd: Containerd, registry: Registry, tmp_path: Path
) -> None:
    image = registry.image("busybox")
    pod = make_pod(
        {"image": image, "command": ["sleep", "1000"], "securityContext": {"privileged": True}},
        hostNetwork=True,
        hostPID=True,
        hostIPC=True,
        hostname="ignored",
        hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}],
    )
    running, container = await started(client, containerd, image, tmp_path, pod)
    try:
        hosts = await running.execute(container, "cat", "/etc/hosts")
        assert hosts == (
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"
            "\n# Entries added by HostAliases.\n10.0.0.1\ta\n"
        )
        assert await running.execute(container, "cat", "/etc/resolv.conf") == "search example.com\nnameserver 8.8.8.8\n"
        verbose = await client.call("ContainerStatus", {"container_id": container, "verbose": True})
        spec = json.loads(verbose.info["info"])["runtimeSpec"]
        # The sandbox and its containers share the namespaces of the machine, so the runtime makes none of these.
        assert {each["type"] for each in spec["linux"]["namespaces"] if "path" not in each} == {"mount"}
        assert "seccomp" not in spec["linux"]
    finally:
        await running.remove()
