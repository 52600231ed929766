"""A machine becomes a node and stops being one: everything that the agent made is gone, and everything else stays."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cri_pods import cri_client, run_sandbox
from kubectl_runner import until
from real_cluster import NODE, NodeAgent, RealCluster, control_plane, joined_cluster, machine_state, setpoint
from real_containerd import Containerd
from real_containerd import containerd as run_containerd
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_node import pods_in_namespace
from real_registry import Registry
from real_registry import registry as run_registry

pytestmark = pytest.mark.real


@pytest.fixture
def fresh(no_stale_machines: None, pushed_images: Path) -> Iterator[tuple[RealMachine, Registry]]:
    """A machine for one test, with a registry; the test is in its network."""
    machine = RealMachine.create()
    try:
        with machine.entered(), run_registry(machine, images=pushed_images) as registry:
            yield machine, registry
    finally:
        machine.destroy()


def test_leave_removes_everything(fresh: tuple[RealMachine, Registry], request: pytest.FixtureRequest) -> None:
    machine, registry = fresh
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


async def test_foreign_containers_stay(fresh: tuple[RealMachine, Registry], request: pytest.FixtureRequest) -> None:
    """A containerd that others use too: the agent never touches their Pods, and they stay when it leaves."""
    machine, registry = fresh
    with run_containerd(machine, registry) as containerd:
        await _check_foreign_containers(machine, registry, containerd, request)


async def _check_foreign_containers(
    machine: RealMachine, registry: Registry, containerd: Containerd, request: pytest.FixtureRequest
) -> None:
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
    out = machine.run(*setpoint("node", "check", *agent.directory_flags, "--cgroup-root", machine.node_cgroup_root))
    assert "Port 10250 is free" in out
    assert "apt-get install" not in out


def test_certificates(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    """The node's client and serving certificates are signed by the cluster; the kubelet API refuses everybody else."""

    def requests() -> dict[str, str]:
        items = joined_pods.kubectl.get("csr")["items"]
        none = [{"type": "none"}]
        return {each["spec"]["signerName"]: each["status"].get("conditions", none)[0]["type"] for each in items}

    identity, serving = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
    # The node has the address of an API server, so an administrator must permit a serving certificate.
    until(lambda: requests() == {identity: "Approved", serving: "none"}, 60.0)
    joined_pods.kubectl("label", "node", NODE, "node-role.kubernetes.io/control-plane=")
    until(lambda: requests() == {identity: "Approved", serving: "Approved"}, 90.0)
    until(lambda: (joined.agent.directories.pki / "kubelet-server-current.pem").exists(), 60.0)
    files = joined.agent.directories.pki
    for name in ("kubelet-client-current.pem", "kubelet-server-current.pem"):
        assert (files / name).stat().st_mode & 0o077 == 0
    unverified = ssl._create_unverified_context()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"https://{joined.machine.address}:10250/pods", context=unverified, timeout=10)
    assert refused.value.code == 401
