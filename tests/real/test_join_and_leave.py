"""A machine becomes a node and stops being one: everything that the agent made is gone, and everything else stays."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cri_pods import cri_client, run_sandbox
from kubectl_runner import until
from real_cluster import NODE, NodeAgent, RealCluster, control_plane, joined_cluster, setpoint
from real_containerd import Containerd
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_node import pods_in_namespace
from real_registry import Registry

pytestmark = pytest.mark.real


def machine_state(machine: RealMachine) -> dict[str, Any]:
    """Return everything that a node could leave behind on a machine."""
    return {
        "mounts": machine.mounts(),
        "cgroups": sorted(map(str, machine.cgroups())),
        "links": sorted(line.split()[0] for line in machine.run("ip", "-brief", "link").splitlines()),
        "addresses": machine.run("ip", "-brief", "address"),
        "routes": machine.run("ip", "route", "show", "table", "all"),
        "rules": machine.run("ip", "rule"),
        "firewall": machine.run("nft", "list", "ruleset"),
        "files": sorted(path.name for path in machine.directory.iterdir()),
        "programs": sorted({Path(os.readlink(f"/proc/{pid}/exe")).name for pid in machine.processes()}),
    }


def test_leave_removes_everything(machine: RealMachine, registry: Registry, request: pytest.FixtureRequest) -> None:
    with control_plane(machine) as kubeconfig:
        agent = NodeAgent(machine)
        cluster = RealCluster(machine, kubeconfig, agent)
        kubectl = cluster.kubectl()
        before = machine_state(machine)

        created = machine.run(*setpoint("token", "create", "--node", "--data-dir", machine.directory / "server"))
        agent.join(created.strip())
        agent.start()
        cluster.wait_ready()
        with pods_in_namespace(cluster, request) as pods:
            volumes = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
            mounts = {"volumeMounts": [{"name": "memory", "mountPath": "/data"}]}
            pods.run(pod("web", registry.image("web"), container=mounts, volumes=volumes))
            pods.apply(pod("absent", registry.image("absent")))
            during = machine_state(machine)
            assert during["links"] != before["links"]
            assert during["mounts"] != before["mounts"]

        agent.leave()
        after = machine_state(machine)
        after["files"].remove("agent.log")
        assert after == before
        until(lambda: kubectl.run("get", "node", NODE).code != 0 or "NotReady" in kubectl("get", "node", NODE), 60.0)
        assert "is not a node" in agent.leave(), "a second time there is nothing to do"


async def test_foreign_containers_stay(
    machine: RealMachine, registry: Registry, containerd: Containerd, request: pytest.FixtureRequest
) -> None:
    """A containerd that others use too: the agent never touches their Pods, and they stay when it leaves."""
    async with cri_client(containerd) as client:
        foreign = await run_sandbox(client, containerd)
        container = await foreign.start(registry.image("busybox"), "sleep", "1000")
        with joined_cluster(machine, "--container-runtime-endpoint", containerd.endpoint) as cluster:
            with pods_in_namespace(cluster, request) as pods:
                own = pods.run(pod("own", registry.image("busybox"), "sleep", "1000"))
                cluster.agent.kill()
                cluster.agent.start()
                cluster.wait_ready()
                assert pods.get("own")["status"]["containerStatuses"] == own["status"]["containerStatuses"]
                assert await foreign.execute(container, "echo", "well") == "well\n"
            cluster.agent.leave()
            found = await client.call("ListPodSandbox", {})
            assert [each.id for each in found.items] == [foreign.sandbox_id]
            assert await foreign.execute(container, "echo", "well") == "well\n"
        await foreign.remove()


def test_check_finds_nothing_missing(machine: RealMachine) -> None:
    agent = NodeAgent(machine)
    out = machine.run(*setpoint("node", "check", *agent.directory_flags, "--cgroup-root", machine.cgroup_root))
    assert "containerd" in out


def test_certificates(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    """The node's client and serving certificates are signed by the cluster; the kubelet API refuses everybody else."""
    requests = joined_pods.kubectl.get("csr")["items"]
    found = {each["spec"]["signerName"]: each["status"]["conditions"][0]["type"] for each in requests}
    assert found == {
        "kubernetes.io/kube-apiserver-client-kubelet": "Approved",
        "kubernetes.io/kubelet-serving": "Approved",
    }
    files = joined.agent.directories.pki
    for name in ("kubelet-client-current.pem", "kubelet-server-current.pem"):
        assert (files / name).stat().st_mode & 0o077 == 0
    unverified = ssl._create_unverified_context()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"https://{joined.machine.address}:10250/pods", context=unverified, timeout=10)
    assert refused.value.code == 401
